"""Jobs that were submitted, from their records alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from argosy.cli.app import app
from argosy.core.errors import ArgosyError, ToolMissing, UsageError
from argosy.core.locks import this_owner
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.history import past_jobs
from argosy.jobs.local_run import find_run, refuse_unrecorded_output
from argosy.jobs.logs import read_output
from argosy.jobs.names import LOCAL_RUN, last_launch
from argosy.jobs.record import new_record_folder, read_submission, write_first
from tests.unit.machines import make_session
from tests.unit.plans import CHOICE, plan_text

NET, MEM = CHOICE | {"key": "NCCL_NET", "value": "Socket"}, CHOICE | {"key": "sbatch", "value": "--mem=4G"}
PLAN: dict[str, object] = {
    "name": "train",
    "image": "/p/a.sif",
    "digest": "sha256:1",
    "site": "lab",
    "scheduler": "slurm",
    "shape": {"nodes": 2, "ranks_per_node": 4},
    "versions": {"torch": "2.9.0"},
    "choices": [NET, MEM],
    "directives": ["--nodes=2", "--exclusive"],
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARGOSY_STATE", str(tmp_path))
    return tmp_path


def record(state: Path, job: str, ends: str = "", **changes: object) -> None:
    folder = state / "runs" / f"2026010{job}-000000-abc"
    folder.mkdir(parents=True)
    (folder / "submitted.json").write_text(json.dumps({"job": job, "site": "lab", "time": f"2026-01-0{job}T08:00:00"}))
    (folder / "job.json").write_text(plan_text(**PLAN | changes))
    (folder / "ends").write_text(ends)


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ("jobs", *words))


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Put programs of Slurm with these texts of sh first on the PATH."""
    (folder / "bin").mkdir()
    for name, text in programs.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


def test_values_that_slurm_does_not_know_are_not_shown(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = "JobId=7 JobState=PENDING Reason=None Restarts=0 ExitCode=0:0 NodeList=(null) StdOut=/p/train-7.out"
    waiting = "echo '7|PENDING|None|N/A|1|0:00|5:00|main||train'"
    fake_slurm(state, monkeypatch, squeue=waiting, scontrol=f"echo '{job}'")
    assert ask().output == "7  train  main  1 node  0:00  waits in the queue\n"
    shown = dict(line.split(maxsplit=1) for line in ask("show", "7").output.splitlines())
    assert shown.keys() == {"job", "state", "output"}


def test_past_jobs_are_listed_newest_first_with_their_ends(state: Path) -> None:
    record(state, "1", "1 0 0 n[1-2] 1000 4725\n")
    record(state, "2", "2 0 143 n1 1000 1060\n2 1 7 n[3-4] 0 1060\n")
    record(state, "3")
    assert [" ".join(line.split()) for line in ask("--past", "5").output.splitlines()] == [
        "3 train lab 2026-01-03T08:00:00 no end was recorded",
        "2 train lab 2026-01-02T08:00:00 ended with code 7 on n[3-4]",
        "1 train lab 2026-01-01T08:00:00 ended well after 1:02:05 on n[1-2]",
    ]
    assert [row["id"] for row in json.loads(ask("--past", "1", "--json").output)] == ["3"]


@pytest.mark.parametrize("text", ['{"\\ud800": 1}', '{"job": 3}', "[]", "{"])
def test_a_damaged_submission_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "submitted.json").write_text(text)
    assert not read_submission(tmp_path).is_known


def test_past_jobs_with_damaged_records_are_listed_with_the_damaged_file(state: Path) -> None:
    record(state, "1", "1 0 0 n1 1000 1060\n")
    for job, file, text in (
        ("2", "submitted.json", b'{"job": "2"'),
        ("3", "submitted.json", b'{"job": 3, "site": ["lab"]}'),
        ("4", "job.json", b"\xff\xfe\x00"),
        ("5", "job.json", b'{"directives": 5}'),
        ("6", "job.json", b'{"name": ["train"], "directives": [{"a": 1}]}'),
    ):
        record(state, job, f"{job} 0 143 n1 1000 1060\n" if job != "3" else "\ufffd x y z\n1 2")
        (state / f"runs/2026010{job}-000000-abc" / file).write_bytes(text)
    result = ask("--past", "9")
    assert result.exit_code == 0, result.output
    shown = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert shown.keys() == {"1", "2", "?", "4", "5", "6"}
    assert "ended well after 0:01:00" in shown["1"]
    rows = json.loads(ask("--past", "9", "--json").output)
    ends = {row["id"]: row["end"] for row in rows}
    assert ends[""] == f"no end was recorded; {state}/runs/20260103-000000-abc/submitted.json is damaged"
    assert ends["5"] == f"ended with code 143 after 0:01:00 on n1; {state}/runs/20260105-000000-abc/job.json is damaged"
    assert [len(row["damaged"]) for row in rows] == [1, 1, 1, 1, 1, 0]


def test_past_jobs_tell_cancelled_jobs_time_limits_and_jobs_that_wait_again(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(state, "1")
    record(state, "2", "2 0 143 n1 1000 1061\n", directives=["--time=00:01:00"])
    record(state, "3", "3 0 143 n1 1000 1020\n", directives=["--time=00:01:00"])
    record(state, "4", "4 0 1 n1 1000 1020\n")
    record(state, "5", "5 0 1 n1 1000 1020\n")
    for job in ("1", "4"):
        (state / f"runs/2026010{job}-000000-abc/cancelled").touch()
    fake_slurm(state, monkeypatch, squeue="echo '5|PENDING|None|N/A|1|0:00|5:00|main||train'")
    assert [row["end"] for row in json.loads(ask("--past", "5", "--json").output)] == [
        "waits in the queue",
        "was cancelled after 0:00:20 on n1",
        "ended with code 143 after 0:00:20 on n1",
        "reached its time limit after 0:01:01 on n1",
        "was cancelled",
    ]


def test_the_code_of_a_job_that_failed_is_that_of_the_rank_that_failed_first(state: Path) -> None:
    record(state, "1", "1 0 1 n1 0 1060\n")
    next((state / "runs").glob("*")).joinpath("first").write_text("1 0 3 n1 42\n")
    assert ask("--past", "1").output.rstrip().endswith("ended with code 42 on n1")


def test_without_past_jobs_a_message_is_printed(state: Path) -> None:
    assert ask("--past", "5").output == "nothing was launched from this machine\n"
    assert list(state.iterdir()) == []


def test_two_jobs_are_compared_value_by_value(state: Path) -> None:
    record(state, "1", "1 0 0 n1 10 20\n")
    changes = {"digest": "sha256:2", "versions": {"torch": "2.10.0"}, "directives": ["--nodes=2", "--time=10"]}
    record(state, "2", "2 0 0 n2 10 40\n", choices=[MEM, NET | {"value": "OFI"}], **changes)
    assert ask("diff", "1", "2").output.splitlines() == [
        "job 1: ended well after 0:00:10 on n1",
        "job 2: ended well after 0:00:30 on n2",
        "digest",
        "  - sha256:1",
        "  + sha256:2",
        "versions torch",
        "  - 2.9.0",
        "  + 2.10.0",
        "NCCL_NET",
        "  - Socket",
        "  + OFI",
        "--exclusive",
        "  - yes",
        "--time",
        "  + 10",
        "/p/a.sif was rebuilt between the two jobs",
    ]
    told = json.loads(ask("diff", "1", "2", "--json").output)
    assert told["second"] == {"job": "2", "end": "ended well after 0:00:30 on n2"}
    assert told["differences"][2] == {"key": "NCCL_NET", "first": "Socket", "second": "OFI"}


def test_two_images_are_compared_by_the_command_that_is_named(state: Path) -> None:
    record(state, "1")
    record(state, "2", image="/p/b.sif", digest="sha256:2")
    assert ask("diff", "1", "2").output.splitlines()[-1] == "packages: argosy images diff /p/a.sif /p/b.sif"


def test_equal_jobs_have_no_differences(state: Path) -> None:
    record(state, "1")
    record(state, "2")
    assert ask("diff", "1", "2").output.splitlines()[2:] == ["both jobs have the same image, settings and options"]


def test_a_missing_and_a_damaged_record_are_clear_errors(state: Path) -> None:
    record(state, "1")
    assert isinstance(ask("diff", "1", "9").exception, UsageError)
    next((state / "runs").glob("*")).joinpath("job.json").write_text("[")
    assert ask("diff", "1", "1").exit_code == 0


def test_the_records_of_jobs_of_one_second_are_in_the_order_of_their_submission(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    folders = [new_record_folder(session) for _ in range(200)]
    made = [folder.name.rpartition("-")[0] for folder in folders]
    assert made == sorted(made)
    assert len(set(made)) > 10, "a second has many names"
    assert LOCAL_RUN.fullmatch(folders[0].name)


def test_a_run_on_this_machine_is_shown_as_last_and_has_no_recorded_output(state: Path) -> None:
    folder = state / "runs/20260102-030405-123456-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(plan_text(**PLAN))
    (folder / "end.json").write_text('{"code": 3}')
    assert "ended with an error (code 3)" in ask("show", "last").output
    assert "ended with an error (code 3)" in ask("show").output, "the last launch is the default"
    for options in ((), ("last",), ("last", "--follow")):
        error = CliRunner().invoke(app, ("logs", *options)).exception
        assert isinstance(error, UsageError)
        assert str(error).startswith("the output of run 20260102-030405-123456-abcd was not recorded")


def run_here(state: Path, name: str, **files: str) -> Path:
    folder = state / "runs" / name
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(plan_text(**PLAN))
    for file, text in files.items():
        (folder / f"{file}.json").write_text(text)
    return folder


def test_runs_on_this_machine_are_listed_among_the_past_jobs(state: Path) -> None:
    record(state, "1", "1 0 0 n1 1000 1060\n")
    old, new = (f"20260102-03040{second}-123456-abcd" for second in (5, 6))
    run_here(state, old, end='{"code": 3}')
    run_here(state, new, end='{"code": 0}')
    run_here(state, "20260102-030407-123456-abcd")  # it was refused
    assert [" ".join(line.split()) for line in ask("--past", "5").output.splitlines()] == [
        f"{new} train lab 2026-01-02T03:04:06 ended well",
        f"{old} train lab 2026-01-02T03:04:05 ended with an error",
        "1 train lab 2026-01-01T08:00:00 ended well after 0:01:00 on n1",
    ]
    error = ask().exception
    assert isinstance(error, ToolMissing)
    assert error.hint.endswith("; what was launched from here: argosy jobs --past 10")


@pytest.mark.parametrize("word", ["last", "train", "20260102-030405-123456-abcd"])
def test_a_run_on_this_machine_that_ended_needs_no_cancelling(state: Path, word: str) -> None:
    folder = run_here(state, "20260102-030405-123456-abcd", end='{"code": 3}')
    said = CliRunner().invoke(app, ("cancel", word))
    assert said.output == f"run {folder.name} has already ended: ended with an error\n"


@pytest.mark.parametrize(("code", "command"), [("0", "> run.log 2>&1"), ("3", "> run.log 2>&1; argosy why run.log")])
def test_only_the_output_of_a_failed_run_is_explained(state: Path, code: str, command: str) -> None:
    run_here(state, "20260102-030405-123456-abcd", end=f'{{"code": {code}}}')
    error = CliRunner().invoke(app, ("logs", "last")).exception
    assert isinstance(error, UsageError)
    assert error.hint.endswith(command)


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("logs", ["", "KeyError: 'x'"])
def test_only_a_run_with_gpus_can_be_verified_on_one_machine(state: Path, gpus: int, logs: str) -> None:
    folder = run_here(state, "20260102-030405-123456-abcd", end='{"code": 3}')
    shape = {"nodes": 1, "ranks_per_node": 2, "gpus_per_node": gpus}
    (folder / "job.json").write_text(plan_text(**PLAN | {"shape": shape, "logs": str(state)}))
    if logs:
        (state / folder.name).mkdir()
        (state / folder.name / "rank-0.log").write_text(logs)
    error = CliRunner().invoke(app, ("verify", "last")).exception
    assert isinstance(error, ArgosyError)
    assert error.what.endswith("has nothing to verify: it used neither GPUs nor other nodes") == (not gpus)
    assert ("again" in error.hint or "--debug net" in error.hint) == bool(gpus)


def test_a_run_on_this_machine_is_ended_by_a_signal(state: Path) -> None:
    owner = this_owner("launch")
    folder = run_here(state, "20260102-030405-123456-abcd", started=json.dumps(asdict(owner)))
    for word in ("last", folder.name):
        error = CliRunner().invoke(app, ("cancel", word)).exception
        assert isinstance(error, UsageError)
        assert error.what == f"cannot cancel run {folder.name}: it runs on this machine, and is not a job of Slurm"
        assert error.hint == f"stop it with Ctrl-C in its terminal, or on {owner.host} with: kill {owner.pid}"


def test_a_refused_launch_is_not_the_last_run(state: Path) -> None:
    old, refused = (state / "runs" / f"20260102-03040{second}-123456-abcd" for second in (5, 6))
    for folder in (old, refused):
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(plan_text(**PLAN))
    (old / "end.json").write_text('{"code": 3}')
    assert "ended with an error (code 3)" in ask("show", "last").output


def test_a_folder_with_the_name_of_a_job_is_not_a_record(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(state)
    other = state / "12345"
    other.mkdir()
    for name in ("job.json", "started.json"):
        (other / name).write_text("{}")
    result = ask("show", "12345")
    assert "this machine" not in result.output
    assert result.exit_code


@pytest.mark.parametrize(
    ("name", "code"), [("20260102-030405-123456-abcd", "null"), ("99999999-999999-000000-0000", "3")]
)
def test_a_damaged_record_of_a_run_on_this_machine_is_shown(state: Path, name: str, code: str) -> None:
    folder = state / "runs" / name
    folder.mkdir(parents=True)
    (folder / "end.json").write_text(f'{{"code": {code}}}')
    assert "ended with an error" in ask("show", name).output


def test_the_last_launch_is_the_newest_that_was_not_refused(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    names = [f"20260102-03040{second}-123456-abcd" for second in range(3)]
    array, local, refused = (session.paths.state / "runs" / name for name in names)
    for folder in (array, local, refused):
        folder.mkdir(parents=True)
    (array / "submitted.json").write_text('{"job": "88"}')
    assert last_launch(session).id == "88", "the whole array, not one task"
    (refused / "submitted.json").write_text('{"job": ""}')
    assert last_launch(session).id == "88"
    (local / "end.json").write_text('{"code": 0}')
    assert last_launch(session).id == local.name


def make_local_run(session: Session, tmp_path: Path) -> tuple[Path, Path]:
    """Return the record of a run on this machine, and the folder with the logs of its ranks."""
    name = "20260102-030405-123456-abcd"
    folder, logs = session.paths.state / "runs" / name, tmp_path / "logs" / name
    for path in (folder, logs):
        path.mkdir(parents=True)
    (folder / "job.json").write_text(plan_text(**PLAN | {"logs": str(logs.parent)}))
    return folder, logs


def test_a_run_on_this_machine_with_logs_of_its_ranks_is_read_from_them(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    folder, logs = make_local_run(session, tmp_path)
    (folder / "end.json").write_text('{"code": 1}')
    for rank, text in ((1, "KeyError: 'x'"), (0, "terminated")):
        (logs / f"rank-{rank}.log").write_text(text)
        os.utime(logs / f"rank-{rank}.log", (100 - rank, 100 - rank))
    facts = find_run(session, "last")
    refuse_unrecorded_output(facts)
    assert facts.output == f"{logs}/rank-1.log"
    assert b"".join(read_output(facts, rank=0)) == b"terminated"
    assert "rank-1.log <==" in b"".join(read_output(facts)).decode()


def test_a_run_on_this_machine_ends_with_the_code_of_the_rank_that_its_record_names(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    folder, logs = make_local_run(session, tmp_path)
    (folder / "end.json").write_text('{"code": 1}')  # torchrun's own
    for rank in range(3):
        (logs / f"rank-{rank}.log").write_text("")
        os.utime(logs / f"rank-{rank}.log", (100 + rank, 100 + rank))
    write_first(folder, RankEnd(2, "laptop", 139))
    facts = find_run(session, "last")
    assert (facts.output, facts.code) == (f"{logs}/rank-2.log", 139)
    assert facts.verdict.endswith("(code 139): rank 2 on laptop failed first (code 139, signal 11)")
    assert facts.runs[0].code == 1


def test_an_invalid_time_limit_in_a_record_does_not_stop_the_list(tmp_path: Path) -> None:
    record = tmp_path / "runs/20260101-000000-000000-abcd"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text('{"job": "7"}')
    (record / "job.json").write_text(plan_text(directives=["--time=1:2:3:4"]))
    (record / "ends").write_text("7 0 143 node1 100 200\n")
    (job,) = past_jobs(make_session(tmp_path), most=5)
    assert job.end == "ended with code 143 after 0:01:40 on node1"


def test_an_empty_list_says_how_to_see_the_jobs_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.cli.cmd_jobs.list_jobs", lambda _: ())
    said = CliRunner().invoke(app, ("jobs",))
    assert said.stdout == "you have no waiting or running jobs\n"
    assert said.stderr == "those that have ended: argosy jobs --past 10\n"


def test_past_jobs_without_a_recorded_end_have_the_end_that_slurm_still_knows(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in "123":
        record(state, job, "3 0 3 n1 1000 1020\n" if job == "3" else "")
    record(state, "4")
    rows = "\n".join(
        f"{job}|{job_state}|None|N/A|1|0:00|5:00|main||train"
        for job, job_state in (("1", "CANCELLED"), ("3", "CANCELLED"), ("4_0", "RUNNING"), ("4_1", "COMPLETED"))
    )
    fake_slurm(state, monkeypatch, squeue=f"case \" $* \" in *' --states=all '*) echo '{rows}' ;; esac")
    assert [row["end"] for row in json.loads(ask("--past", "5", "--json").output)] == [
        "runs",
        "ended with code 3 after 0:00:20 on n1",
        "no end was recorded",
        "was cancelled",
    ]
