"""Two chains of jobs must not write one checkpoint: the second is refused before the queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch.chains import refuse_shared_checkpoint
from tests.unit.machines import make_host, make_session
from tests.unit.plans import plan_text


def chain(checkpoint: str, *directives: str, name: str = "train") -> LaunchPlan:
    script = f"main() {{\n    resume_from {checkpoint} 5\n}}\n" if checkpoint else "main() {\n}\n"
    submit = ("sbatch", "{script}")
    return LaunchPlan(name, "lab", "slurm", "x.sif", "", JobShape(1, 1), script, submit, (), directives=directives)


def record(state: Path, second: int, job: str, plan: LaunchPlan, **submitted: str) -> None:
    folder = state / "runs" / f"20260102-0304{second:02}-123456-abcd"
    folder.mkdir(parents=True)
    (folder / "submitted.json").write_text(json.dumps({"job": job, **submitted}))
    (folder / "job.json").write_text(plan_text(name=plan.name, directives=list(plan.directives)))
    (folder / "job.sh").write_text(plan.script)


def place(state: Path, *rows: str, code: int = 0) -> tuple[Session, FakeRunner]:
    runner = FakeRunner([(("squeue",), Reply(code, "".join(rows), ""))])
    return make_session(state, make_host(), runner), runner


def row(job: str, state: str = "RUNNING", name: str = "train") -> str:
    return f"{job}|{state}|None|N/A|1|0:00|5:00|main|n1|{name}\n"


@pytest.mark.parametrize("other", ["/p/ck", "/p/ck/", "/p/x/../ck", "/p/ck/last.pt", "/p"])
@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_second_chain_with_the_checkpoint_of_a_living_one_is_refused(tmp_path: Path, other: str, state: str) -> None:
    record(tmp_path, 1, "7", chain(other))
    session, _ = place(tmp_path, row("7", state))
    with pytest.raises(UsageError, match="job 7 writes the same checkpoint") as caught:
        refuse_shared_checkpoint(chain("/p/ck"), session)
    assert caught.value.evidence.startswith("job 7 (train) ")
    assert "argosy cancel 7" in caught.value.hint
    assert "--no-check" in caught.value.hint


def test_links_lead_to_the_same_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    record(tmp_path, 1, "7", chain(f"{tmp_path}/real/ck"))
    with pytest.raises(UsageError, match="job 7 writes the same checkpoint"):
        refuse_shared_checkpoint(chain(f"{tmp_path}/link/ck"), place(tmp_path, row("7"))[0])


@pytest.mark.parametrize("other", ["/p/ck2", "/p/c", ""])
def test_another_checkpoint_is_allowed_and_slurm_is_not_asked(tmp_path: Path, other: str) -> None:
    record(tmp_path, 1, "7", chain(other))
    session, runner = place(tmp_path, row("7"))
    refuse_shared_checkpoint(chain("/p/ck"), session)
    refuse_shared_checkpoint(chain(""), session)
    assert runner.seen == []


def test_a_chain_that_ended_or_whose_number_another_job_has_is_allowed(tmp_path: Path) -> None:
    record(tmp_path, 1, "7", chain("/p/ck"))
    for rows in ((), (row("8"),), (row("7", name="other"),)):
        refuse_shared_checkpoint(chain("/p/ck"), place(tmp_path, *rows)[0])


def test_a_silent_controller_refuses_nothing_because_sbatch_will(tmp_path: Path) -> None:
    record(tmp_path, 1, "7", chain("/p/ck"))
    refuse_shared_checkpoint(chain("/p/ck"), place(tmp_path, code=1)[0])


@pytest.mark.parametrize(
    ("option", "refused"),
    [
        ("--dependency=afterok:7", False),
        ("--dependency=afterany:5:7", False),
        ("--dependency=afterok:8", False),
        ("--dependency=singleton", False),
        ("--dependency=after:7", True),
        ("--dependency=afterok:5?afterok:7", True),
        ("--dependency=afterok:77", True),
    ],
)
def test_a_chain_that_starts_after_the_others_end_is_allowed(tmp_path: Path, option: str, *, refused: bool) -> None:
    record(tmp_path, 1, "7", chain("/p/ck"))
    record(tmp_path, 2, "8", replace(chain("/p/other"), directives=("--dependency=afterany:7",)))
    session, _ = place(tmp_path, row("7"), row("8"))
    if refused:
        with pytest.raises(UsageError, match="job 7"):
            refuse_shared_checkpoint(chain("/p/ck", option), session)
    else:
        refuse_shared_checkpoint(chain("/p/ck", option), session)


def test_chains_of_different_clusters_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    record(tmp_path, 1, "7", chain("/p/ck"), ssh="far")
    session, runner = place(tmp_path, row("7"))
    refuse_shared_checkpoint(chain("/p/ck"), session)
    refuse_shared_checkpoint(chain("/p/ck"), session, ssh="near")
    assert runner.seen == []
    with pytest.raises(UsageError, match="job 7"):
        refuse_shared_checkpoint(chain("/p/ck"), session, ssh="far")
    assert runner.seen[0].argv[-1] == "--me"
