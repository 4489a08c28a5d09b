"""Jobs by their names: reading takes the newest one; cancel refuses a name that several living jobs have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from argosy.cli.app import app
from argosy.core.errors import CheckFailed, ToolMissing, UsageError
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.session import QuietReporter, Session
from argosy.diagnostics.verify.verify import verify_runs
from argosy.diagnostics.why.explain import explain_log
from argosy.jobs.cancel import cancel_jobs
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.jobs.local_run import find_run
from argosy.jobs.names import find_named, resolve_name
from argosy.jobs.record import CANCELLED
from argosy.launch.interactive import attach
from argosy.launch.submit import write_record
from tests.unit.machines import make_host, make_session
from tests.unit.plans import plan_text

SILENT = Reply(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
FORGOTTEN = Reply(1, "", "slurm_load_jobs error: Invalid job id specified")


class Noting(QuietReporter):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class NoSlurm(FakeRunner):
    def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
        raise ToolMissing(f"'{command.argv[0]}' is not installed here")


def place(folder: Path, runner: FakeRunner | None = None) -> tuple[Session, Noting]:
    session, reporter = make_session(folder, make_host(), runner or NoSlurm()), Noting()
    return Session(session.host, session.runner, session.paths, reporter), reporter


def record(state: Path, second: int, job: str, name: str = "train", **submitted: object) -> Path:
    folder = state / "runs" / f"20260102-0304{second:02}-123456-abcd"
    folder.mkdir(parents=True)
    (folder / "submitted.json").write_text(json.dumps({"job": job, "output": f"{state}/%j.out", **submitted}))
    (folder / "job.json").write_text(plan_text(name=name))
    return folder


def local_run(state: Path, second: int, name: str = "train") -> Path:
    folder = record(state, second, "", name)
    (folder / "submitted.json").unlink()
    (folder / "end.json").write_text('{"code": 3}')
    return folder


def row(job: str, state: str = "RUNNING", name: str = "train") -> str:
    return f"{job}|{state}|None|N/A|1|0:00|5:00|main|n1|{name}\n"


def squeue(*rows: str) -> tuple[tuple[str, ...], Reply]:
    return ("squeue",), Reply(0, "".join(rows), "")


def shown(job: str, state: str = "RUNNING") -> tuple[tuple[str, ...], Reply]:
    return ("scontrol", "show", "job", "--oneliner", job), Reply(
        0, f"JobId={job} JobName=train JobState={state} NodeList=n1\n", ""
    )


def test_a_name_means_the_newest_job_that_has_it_and_a_note_says_which(tmp_path: Path) -> None:
    session, reporter = place(tmp_path)
    record(tmp_path, 1, "7")
    record(tmp_path, 2, "8", "other")
    record(tmp_path, 3, "9")
    assert resolve_name(session, "other") == "8"
    assert reporter.notes == []
    assert resolve_name(session, "train") == "9"
    assert reporter.notes == ["job 9 is the newest of 2 jobs with the name 'train'"]


@pytest.mark.parametrize("exact", ["7", "7_2", "7_[1-3]", "7+1", "20260102-030401-123456-abcd"])
def test_a_number_is_never_a_name(tmp_path: Path, exact: str) -> None:
    session, _ = place(tmp_path)
    record(tmp_path, 1, "9", exact)
    assert resolve_name(session, exact) == exact


def test_the_name_last_is_the_last_launch(tmp_path: Path) -> None:
    session, _ = place(tmp_path)
    record(tmp_path, 1, "7", "last")
    record(tmp_path, 2, "8", "other")
    assert resolve_name(session, "last") == "8"


def test_a_run_on_this_machine_has_a_name_too(tmp_path: Path) -> None:
    session, reporter = place(tmp_path)
    record(tmp_path, 1, "7")
    run = local_run(tmp_path, 2)
    assert find_run(session, "train").id == run.name
    assert reporter.notes == [f"run {run.name} is the newest of 2 jobs with the name 'train'"]


def test_what_was_not_started_has_no_name(tmp_path: Path) -> None:
    session, _ = place(tmp_path)
    record(tmp_path, 1, "7", in_allocation=True)
    record(tmp_path, 2, "")
    (local_run(tmp_path, 3) / "end.json").unlink()
    assert find_named(session, "train") == ()


def test_a_number_that_the_cluster_gave_twice_has_the_name_of_its_newest_job(tmp_path: Path) -> None:
    session, _ = place(tmp_path)
    record(tmp_path, 1, "7", "old")
    record(tmp_path, 2, "7", "new")
    assert [[each.id for each in find_named(session, name)] for name in ("old", "new")] == [[], ["7"]]


def test_a_job_that_argosy_did_not_launch_is_found_by_its_name_while_it_lives(tmp_path: Path) -> None:
    rows = (row("5_[2-3]"), row("5_1"), row("10"), row("6", name="other"))
    session, reporter = place(tmp_path, FakeRunner([squeue(*rows)]))
    assert resolve_name(session, "train") == "10"
    assert reporter.notes == ["job 10 is the newest of 2 jobs with the name 'train'"]
    record(tmp_path, 1, "7")
    assert resolve_name(session, "train") == "7", "the records are enough"


def test_an_unknown_name_suggests_a_similar_one_and_says_if_slurm_was_not_asked(tmp_path: Path) -> None:
    record(tmp_path, 1, "7")
    with pytest.raises(UsageError, match="there is no job 'trian'") as caught:
        resolve_name(place(tmp_path)[0], "trian")
    assert "did you mean train?" in caught.value.hint
    with pytest.raises(UsageError, match="there is no job 'x'") as caught:
        resolve_name(place(tmp_path, FakeRunner([(("squeue",), SILENT)]))[0], "x")
    assert "the Slurm controller does not answer" in caught.value.evidence


def test_why_and_verify_accept_a_name_and_prefer_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7.out").write_text("CUDA out of memory\n")
    session, _ = place(tmp_path, FakeRunner([shown("7", "FAILED")]))
    folder = record(tmp_path, 1, "7")
    (folder / "ranks-n1").write_text("rank=0 local=0 host=n1 job=7 restart=0 cores=0 devices=0\n")
    assert explain_log(session, "train").log == str(tmp_path / "7.out")
    _, verdict = verify_runs(session, ("train",), site="", nodes=0)
    assert [each.what for each in verdict.findings] == ["end", "ranks", "cores"]
    (tmp_path / "train").write_text("Segmentation fault\n")
    assert explain_log(session, "train").log == "train"
    with pytest.raises(CheckFailed, match="its logs contain no line"):
        verify_runs(session, ("train",), site="", nodes=0)


def test_attach_enters_the_newest_job_of_a_name_and_no_run_on_this_machine(tmp_path: Path) -> None:
    runner = FakeRunner([shown("9"), (("scontrol", "show", "hostnames"), Reply(0, "n1\n", ""))])
    session, _ = place(tmp_path, runner)
    record(tmp_path, 1, "7")
    (record(tmp_path, 2, "9") / "attach.sh").write_text("")
    run = local_run(tmp_path, 3, "local")
    attach(session, "train", ("hostname",))
    step = runner.seen[-1].argv
    assert (step[0], "--jobid=9" in step, step[-1]) == ("srun", True, "hostname")
    runner.replies[0] = shown("9", "SUSPENDED")
    with pytest.raises(UsageError, match="job 9 is suspended: Slurm starts nothing in it"):
        attach(session, "train", ("hostname",))
    with pytest.raises(UsageError, match=f"{run.name} is a run on this machine"):
        attach(session, "local", ())
    with pytest.raises(UsageError, match="there is no job or session 'trian'"):
        attach(session, "trian", ())


def test_attach_enters_no_job_of_another_user(tmp_path: Path) -> None:
    bobs = "JobId=86 UserId=bob(1002) JobState=RUNNING Reason=None NodeList=n1 StdOut=/x\n"
    session, _ = place(tmp_path, FakeRunner([(("scontrol", "show", "job"), Reply(0, bobs, ""))]))
    with pytest.raises(UsageError, match="job 86 belongs to bob") as refused:
        attach(session, "86", ("hostname",))
    assert "srun" not in refused.value.hint


# Cancelling


def test_a_name_cancels_its_living_job_and_no_other(tmp_path: Path) -> None:
    runner = FakeRunner([squeue(row("9", "PENDING"), row("8", name="other")), shown("9", "PENDING")])
    session, _ = place(tmp_path, runner)
    record(tmp_path, 1, "7")
    folder = record(tmp_path, 2, "9")
    assert cancel_jobs(session, ("train", "9")) == ("job 9 is cancelled (train, it ran on n1)",)
    assert (folder / CANCELLED).exists()
    assert [each.argv for each in runner.seen if each.argv[0] == "scancel"] == [("scancel", "9")]


def test_a_name_of_several_living_jobs_cancels_none_and_lists_them(tmp_path: Path) -> None:
    runner = FakeRunner([squeue(row("7"), row("9_[1-4]", "PENDING"), row("9_0"), row("8", name="other")), shown("8")])
    session, _ = place(tmp_path, runner)
    with pytest.raises(UsageError, match="2 of your jobs have the name 'train'") as caught:
        cancel_jobs(session, ("8", "train"))
    assert caught.value.evidence == "job 9 runs and waits in the queue\njob 7 runs"
    assert caught.value.hint == "cancel one by its number: argosy cancel 9; or all of them: argosy cancel 9 7"
    assert not [each for each in runner.seen if each.argv[0] == "scancel"]


def test_a_name_whose_jobs_have_ended_is_reported_as_their_number_would_be(tmp_path: Path) -> None:
    runner = FakeRunner([squeue(), (("scontrol",), FORGOTTEN), (("sacct",), Reply(1, "", ""))])
    session, _ = place(tmp_path, runner)
    record(tmp_path, 1, "7")
    record(tmp_path, 2, "9")
    assert cancel_jobs(session, ("train",)) == ("job 9 has already ended: Slurm does not list it any more",)
    with pytest.raises(UsageError, match="there is no job 'tarin'") as caught:
        cancel_jobs(session, ("tarin",))
    assert "did you mean train?" in caught.value.hint


def test_a_name_cancels_nothing_while_the_controller_is_silent(tmp_path: Path) -> None:
    session, _ = place(tmp_path, FakeRunner([(("squeue",), SILENT)]))
    record(tmp_path, 1, "7")
    with pytest.raises(CheckFailed, match="does not answer"):
        cancel_jobs(session, ("train",))


class Far(FakeRunner):
    """A laptop without Slurm, and a cluster that ssh reaches."""

    def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
        self.seen.append(command)
        if command.argv[0] != "ssh":
            raise ToolMissing(f"'{command.argv[0]}' is not installed here")
        out = row("7", name="t") + row("9", "PENDING") + row("6") if "squeue" in (command.stdin or "") else ""
        return Reply(0, f"argosy: from here on\n{out}", "")


def test_living_jobs_that_were_submitted_by_ssh_count_and_are_asked_for_in_one_question(tmp_path: Path) -> None:
    runner = Far()
    session, _ = place(tmp_path, runner)
    for second, job in enumerate(("5", "7", "9")):
        record(tmp_path, second, job, ssh="far", there="/r")
    with pytest.raises(UsageError, match="2 of your jobs have the name 'train'") as caught:
        cancel_jobs(session, ("train",))
    assert caught.value.hint.endswith("argosy cancel 9 7")
    assert len([each for each in runner.seen if each.argv[0] == "ssh"]) == 1


def test_a_cluster_that_does_not_answer_keeps_no_job_here_from_being_cancelled(tmp_path: Path) -> None:
    silent = (("ssh",), Reply(255, "", "ssh: Could not resolve hostname far"))
    here = (("squeue",), Reply(0, row("55", name="train"), ""))
    session, _ = place(tmp_path, FakeRunner([silent, here, shown("55")]))
    record(tmp_path, 1, "5", ssh="far", there="/r")
    assert "job 55 is cancelled" in cancel_jobs(session, ("train",))[0]


def test_the_last_launch_can_be_cancelled_unless_it_is_not_a_job_of_its_own(tmp_path: Path) -> None:
    session, _ = place(tmp_path, FakeRunner([shown("7")]))
    record(tmp_path, 1, "7")
    assert cancel_jobs(session, ("last",)) == ("job 7 is cancelled (train, it ran on n1)",)
    record(tmp_path, 2, "8", in_allocation=True)
    with pytest.raises(UsageError, match="the last launch ran in the allocation of job 8"):
        cancel_jobs(session, ("last",))
    run = local_run(tmp_path, 3)
    assert cancel_jobs(session, ("last",)) == (f"run {run.name} has already ended: ended with an error",)


# On the command line


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARGOSY_STATE", str(tmp_path))
    return tmp_path


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_explain_accepts_a_name_and_last_unless_the_project_has_that_job(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    shape = JobShape(1, 1)
    plan = LaunchPlan("train", "kept", "slurm", "x.sif", "", shape, "", (), (), ("id",))
    folder = state / "runs/20260102-030401-123456-abcd"
    write_record(plan, folder, make_session(state))
    (folder / "submitted.json").write_text('{"job": "7"}')
    for name in ("7", "last", "train"):
        assert ask("explain", name).output.startswith("train: 1 rank on 1 node, site kept\n"), name
    assert "no command to launch" in str(ask("explain", "trian").exception)
    Path("argosy.toml").write_text('[job.train]\nimage = "bare:"\ncommand = ["ls"]\n')
    assert "site kept" not in ask("explain", "train").output
    assert "site kept" in ask("explain", "last").output


def test_logs_show_report_and_diff_accept_a_name(state: Path, tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("")
    logs = state / "logs"
    old, new = local_run(state, 1), local_run(state, 2)
    for folder, text in ((old, "old\n"), (new, "hello\n")):
        (logs / folder.name).mkdir(parents=True)
        (logs / folder.name / "rank-0.log").write_text(text)
        (folder / "job.json").write_text(plan_text(name="train", logs=str(logs)))
    said = ask("logs", "train")
    assert "hello\n" in said.output
    assert "old\n" not in said.output
    assert f"run {new.name} is the newest of 2 jobs with the name 'train'" in said.output
    assert f"run            {new.name}" in ask("jobs", "show", "train").output
    assert "state          FAILED (ended with an error)\n" in ask("jobs", "show", "train").output
    ask("report", "train", "--output", str(tmp_path / "page.html"))
    assert new.name in (tmp_path / "page.html").read_text()
    record(state, 3, "7", "one")
    record(state, 4, "8", "two")
    assert ask("jobs", "diff", "one", "two").output.startswith("job 7: ")


def test_a_file_with_a_similar_name_is_suggested(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(state, 3, "7", "one")
    (tmp_path / "train-12.out").write_text("")
    monkeypatch.chdir(tmp_path)
    for command in ("why", "verify"):
        said = ask(command, "train-21.out")
        assert "there is no log 'train-21.out'" in str(said.exception)
        assert said.exception.hint.startswith("did you mean train-12.out? ")  # type: ignore[union-attr]
    for name in ("train-12.out", "train-21.out"):
        said = ask("logs", name)
        assert said.exception.hint.startswith("to explain a file: argosy why train-12.out; ")  # type: ignore[union-attr]


def array_task(task: str, state: str = "RUNNING") -> str:
    facts = f"JobId=4{task} ArrayJobId=17 ArrayTaskId={task} JobState={state} Reason=None NodeList=n{task} StdOut=/x"
    return f"{facts}\n"


def test_attach_enters_the_task_of_an_array_that_runs_by_its_own_number(tmp_path: Path) -> None:
    folder = tmp_path / "runs/20260101-000000-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "submitted.json").write_text('{"job": "17", "site": "lab"}')
    (folder / "attach.sh").touch()

    def enter(job: str, *rows: str) -> list[str]:
        runner = FakeRunner([(("scontrol", "show", "job"), Reply(0, "".join(rows), ""))])
        attach(make_session(tmp_path, make_host("apptainer"), runner), job, ("id",))
        return [word for word in runner.seen[-1].argv if word.startswith("--jobid=")]

    assert enter("17", array_task("0", "COMPLETED"), array_task("2")) == ["--jobid=42"]
    assert enter("17_2", array_task("2")) == ["--jobid=42"]
    with pytest.raises(UsageError, match="2 tasks of job 17 run") as refused:
        enter("17", array_task("1"), array_task("2"))
    assert refused.value.evidence == "17_1 on n1\n17_2 on n2"
    assert refused.value.hint == "attach to one of them: argosy attach 17_1"
