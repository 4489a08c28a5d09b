"""What `argosy report` collects: from a huge hostile log, and from a run without Slurm."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.core.locks import Owner
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.diagnostics.report.collect import collect_report
from argosy.diagnostics.report.model import Phase
from argosy.diagnostics.report.page import render_page, write_bundle
from argosy.diagnostics.verify.verify import verify_runs
from argosy.diagnostics.why.explain import explain_log
from argosy.launch.variables import plan_debug
from tests.unit.machines import make_host, make_session

HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\x00\xff"
PLAN = {
    "name": HOSTILE, "site": "local", "scheduler": "slurm", "image": "bare:", "digest": "", "submit": ["sbatch"],
    "shape": {"nodes": 1, "ranks_per_node": 1}, "choices": [], "script": "",
}  # fmt: skip


def keep(session: Session, name: str, **files: str) -> Path:
    """Write a record."""
    record = session.paths.state / "runs" / name
    record.mkdir(parents=True)
    for file, text in {"job.json": json.dumps(PLAN), "job.sh": "#!/bin/sh\n", **files}.items():
        (record / file).write_text(text)
    return record


def test_a_hostile_log_of_ten_megabytes_makes_a_small_page(tmp_path: Path) -> None:
    output = tmp_path / "big.out"
    with output.open("wb") as file:
        file.write(b"RuntimeError: CUDA out of memory\n")
        file.writelines(f"{n} {HOSTILE} {'x' * 990}\n".encode("latin-1") for n in range(10_000))
    state = f"JobId=7 JobState=FAILED Reason=None Restarts=0 ExitCode=3:0 NodeList=n1 StdOut={output} Power=\n"
    runner = FakeRunner([(("scontrol",), Reply(0, state, ""))])
    session = make_session(tmp_path, make_host(), runner)
    keep(session, "20260102-030405-123456-abcd", **{"submitted.json": json.dumps({"job": "7", "output": str(output)})})
    report = collect_report(session, "7")
    page = render_page(report)
    assert len(page) < 300_000
    assert "<script>alert" not in page
    assert report.output.splitlines()[-1].startswith("9999 </pre>")
    assert max(map(len, report.output.splitlines())) <= 400


def test_the_report_of_a_run_without_slurm_is_found_by_its_record_and_as_the_last_one(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    keep(session, "20260102-030405-123456-abcd", **{"end.json": '{"code": 3}'})
    for name in ("last", "20260102-030405-123456-abcd", str(session.paths.state / "runs/20260102-030405-123456-abcd")):
        report = collect_report(session, name)
        assert report.summary == "Run 20260102-030405-123456-abcd ended with an error (code 3)."
        assert "Run the program again" in report.steps[0].text
        assert report.steps[0].command.endswith("/job.sh > run.log 2>&1; argosy why run.log")
        page = render_page(report)
        assert "The output was not recorded" in page
        assert "does not record which ranks started" in page
        assert "No rank has started" not in page
    keep(session, "20260102-040000-123456-abcd")
    assert "030405" in collect_report(session, "last").summary, "the newest launch was refused"
    killed = Owner("ctl", "another boot", 1, "", "ada", "argosy launch")
    keep(session, "20260102-050000-123456-abcd", **{"started.json": json.dumps(asdict(killed))})
    assert "was killed" in collect_report(session, "last").summary
    # A process in a container of this boot cannot be seen from here.
    hidden = replace(killed, boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " pid:[1]")
    keep(session, "20260102-060000-123456-abcd", **{"started.json": json.dumps(asdict(hidden))})
    assert "runs, or was interrupted" in collect_report(session, "last").summary


def test_without_any_launch_there_is_no_last_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was launched from this machine yet"):
        collect_report(make_session(tmp_path), "last")


def test_the_timeline_of_a_job_that_failed_early_has_the_times_of_slurm(tmp_path: Path) -> None:
    state = "JobId=7 JobState=FAILED Reason=None Restarts=0 ExitCode=3:0 StartTime=2026-01-02T03:05:00"
    runner = FakeRunner(
        [(("scontrol",), Reply(0, f"{state} EndTime=2026-01-02T03:05:09 StdOut=/gone.out Power=\n", ""))]
    )
    session = make_session(tmp_path, make_host(), runner)
    note = {"job": "7", "time": "2026-01-02T03:04:05", "output": "/gone.out"}
    keep(session, "20260102-030405-123456-abcd", **{"submitted.json": json.dumps(note)})
    report = collect_report(session, "7")
    assert [each.text for each in report.timeline] == ["submitted", "started", "ended"]
    assert report.timeline[2].seconds - report.timeline[0].seconds == 64
    assert report.summary == "Job 7 failed before its first rank started (code 3)."
    assert report.output == ""


@pytest.mark.parametrize(
    ("typed", "directives", "path"),
    [
        ("cd {0} && argosy launch bare: -- python src/train.py", [], "{0}/src/train.py"),
        ("cd / && argosy launch --chdir {0} bare: -- python src/train.py", ["--chdir={0}"], "{0}/src/train.py"),
        ("", [], None),
    ],
)
def test_a_relative_path_of_a_traceback_is_below_the_folder_of_the_job(
    tmp_path: Path, typed: str, directives: list[str], path: str | None
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("1\n")
    output = tmp_path / "job.out"
    output.write_text('Traceback (most recent call last):\n  File "src/train.py", line 1, in load\nKeyError: 1\n')
    state = f"JobId=7 JobState=FAILED Reason=None Restarts=0 ExitCode=1:0 NodeList=n1 StdOut={output} Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    files = [{"path": str(tmp_path / "src/train.py"), "bytes": 2, "modified": 1.0}]
    texts = {
        "submitted.json": json.dumps({"job": "7", "output": str(output)}),
        "job.json": json.dumps(PLAN | {"directives": [each.format(tmp_path) for each in directives]}),
        "command-line.sh": typed.format(tmp_path),
        "files.json": json.dumps(files),
    }
    keep(session, "20260102-030405-123456-abcd", **texts)
    search = collect_report(session, "7").case.search
    assert (search and (search.path, search.in_image)) == (path and (path.format(tmp_path), False))


def test_ranks_are_in_the_timeline(tmp_path: Path) -> None:
    state = "JobId=7 JobState=COMPLETED Reason=None Restarts=0 ExitCode=0:0 StdOut=/gone.out Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    note = {"job": "7", "time": "2026-01-02T03:04:05+0000", "output": "/gone.out"}
    record = keep(session, "20260102-030405-123456-abcd", **{"submitted.json": json.dumps(note)})
    begin = 1767323050
    (record / "ends").write_text(f"7 0 0 n1 {begin} {begin + 9}\n")
    (record / "ranks-n1").write_text("job=7 restart=0 rank=0 local=0 host=n1 cores=0-3 devices=0\n")
    os.utime(record / "ranks-n1", (begin + 4, begin + 4))
    report = collect_report(session, "7")
    assert [each.text for each in report.timeline] == [
        "submitted", "started", "last rank started", "ended, exit code 0",
    ]  # fmt: skip


@pytest.mark.parametrize("stepd", ["slurmstepd-n1: ", "[2026-01-02T03:04:50.208] "])  # up to 24.11, and since 25.05
def test_the_end_of_the_other_ranks_by_slurm_is_in_the_timeline(tmp_path: Path, stepd: str) -> None:
    output = tmp_path / "7.out"
    stopped = f"{stepd}error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T03:04:50 DUE TO TASK FAILURE ***"
    output.write_text(f"srun: error: n2: task 1: Exited with exit code 3\n{stopped}\n")
    state = f"JobId=7 JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode=3:0 StdOut={output} Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    note = {"job": "7", "time": "2026-01-02T03:04:05+0000", "output": str(output)}
    keep(session, "20260102-030405-123456-abcd", **{"submitted.json": json.dumps(note)})
    assert Phase.STOP in [each.phase for each in collect_report(session, "7").timeline]


def test_a_report_and_verify_read_the_same_logs_of_the_network(tmp_path: Path) -> None:
    state = "JobId=7 JobState=COMPLETED Reason=None Restarts=0 ExitCode=0:0 StdOut=/gone.out Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    asked = {"key": "NCCL_DEBUG_FILE", "value": f"{tmp_path}/train-nccl-%h-%p.log", "why": "asked", "source": "option"}
    texts = {
        "submitted.json": json.dumps({"job": "7", "output": "/gone.out"}),
        "job.json": json.dumps(PLAN | {"choices": [asked]}),
        "ends": "7 0 1 n1 0 0\n7 1 0 n2 0 0\n",
        "nccl-0-n1.log": "n1:1:1 [0] NCCL INFO Using network IB\n",
        "nccl-1-n2.log": "n2:1:1 [0] NCCL INFO Using network Socket\n",
    }
    keep(session, "20260102-030405-123456-abcd", **texts)
    (tmp_path / "train-nccl-n3-9.log").write_text("n3:1:1 [0] NCCL INFO Using network Socket\n")
    report = collect_report(session, "7")
    evidence, _ = verify_runs(session, ("7",), site="", nodes=0)
    assert set(report.case.net.hosts) == set(evidence.net.hosts) == {"n2", "n3"}
    assert report.case.net.networks == evidence.net.networks == ("Socket",)


def test_logs_of_the_network_that_are_older_than_the_launch_are_not_read(tmp_path: Path) -> None:
    state = "JobId=7 JobState=COMPLETED Reason=None Restarts=0 ExitCode=0:0 StdOut=/gone.out Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    typed = {"key": "NCCL_DEBUG_FILE", "value": f"{tmp_path}/mine-%h-%p.log", "why": "requested", "source": "option"}
    texts = {
        "submitted.json": json.dumps({"job": "7", "output": "/gone.out"}),
        "job.json": json.dumps(PLAN | {"choices": [typed]}),
    }
    record = keep(session, "20260102-030405-123456-abcd", **texts)
    (tmp_path / "mine-n1-9.log").write_text("n1:1:1 [0] NCCL INFO Using network Socket\n")
    (tmp_path / "mine-n2-9.log").write_text("n2:1:1 [0] NCCL INFO Using network IB\n")
    before = (record / "job.json").stat().st_mtime - 60
    os.utime(tmp_path / "mine-n2-9.log", (before, before))
    evidence, _ = verify_runs(session, ("7",), site="", nodes=0)
    assert evidence.net.networks == ("Socket",)


@pytest.mark.parametrize(
    ("job", "state", "ends"),
    [
        ("7", "JobId=7 Restarts=0", ""),
        ("7", "JobId=7 Restarts=1", "7 0 1 n1 0 0\n7 1 0 n1 0 0\n"),
        ("7_2", "JobId=9 ArrayJobId=7 ArrayTaskId=2 Restarts=0", "9 0 0 n1 0 0\n8 0 0 n1 0 0\n"),
    ],
)
def test_logs_of_the_network_that_other_jobs_and_runs_of_the_program_wrote_are_not_read(
    tmp_path: Path, job: str, state: str, ends: str
) -> None:
    """All jobs of a folder with `--debug net` write their logs there, also while this job waits."""
    state += " JobState=COMPLETED Reason=None ExitCode=0:0 StdOut=/gone.out Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    asked = plan_debug(("net",), f"{tmp_path}/train", "nvidia", is_job=True)[1]
    texts = {
        "submitted.json": json.dumps({"job": "7", "output": "/gone.out"}),
        "job.json": json.dumps(PLAN | {"choices": [asdict(each) for each in asked]}),
        "ends": ends,
    }
    keep(session, "20260102-030405-123456-abcd", **texts)
    number, restart = (9 if "_" in job else 7), int("Restarts=1" in state)
    (tmp_path / f"train-{number}-nccl-{restart}-own-9.log").write_text("own:1:1 [0] NCCL INFO Using network IB\n")
    for other in (f"{number}-nccl-{1 - restart}", "12-nccl-0"):
        (tmp_path / f"train-{other}-n1-9.log").write_text("n1:1:1 [0] NCCL INFO Using network Socket\n")
    evidence, _ = verify_runs(session, (job,), site="", nodes=0)
    assert set(evidence.net.hosts) == {"own"}
    assert evidence.net.networks == ("IB",)


@pytest.mark.parametrize("name", ["last", "20260102-030405-123456-abcd"])
def test_why_and_verify_know_a_run_without_slurm_by_the_same_names(tmp_path: Path, name: str) -> None:
    session = make_session(tmp_path)
    plan = json.dumps(PLAN | {"shape": {"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 1}})
    record = keep(session, "20260102-030405-123456-abcd", **{"end.json": '{"code": 3}', "job.json": plan})
    with pytest.raises(UsageError, match="the output of run 20260102-030405-123456-abcd was not recorded") as caught:
        explain_log(session, name)
    assert caught.value.hint == f"run it again: sh {record}/job.sh > run.log 2>&1; argosy why run.log"
    with pytest.raises(UsageError, match="cannot verify run 20260102-030405-123456-abcd") as caught:
        verify_runs(session, (name,), site="", nodes=0)
    assert caught.value.hint == f"run it again: sh {record}/job.sh > run.log 2>&1; argosy verify run.log"


def test_the_last_job_is_explained_by_its_output(tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    output.write_text("OSError: [Errno 122] Disk quota exceeded\n")
    state = f"JobId=7 JobState=FAILED Reason=None Restarts=0 ExitCode=3:0 NodeList=n1 StdOut={output} Power=\n"
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, state, ""))]))
    keep(session, "20260102-030405-123456-abcd", **{"submitted.json": json.dumps({"job": "7", "output": str(output)})})
    assert [each.name for each in explain_log(session, "last").errors] == ["quota"]


def test_a_report_and_its_archive_hide_secrets_of_the_environment(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    token, typed = "inh 'secret\" 9", "typed-secret"
    choices = [
        {"key": "MY_TOKEN", "value": token, "why": "asked", "source": "environment"},
        {"key": "WANDB_API_KEY", "value": typed, "why": "asked", "source": "option"},
        {"key": "MODE", "value": "fast", "why": "asked", "source": "option"},
    ]
    name = "20260102-030405-123456-abcd"
    script = f"export MY_TOKEN={quote(token)}\nexport WANDB_API_KEY={typed} MODE=fast\n"
    plan = json.dumps(PLAN | {"choices": choices, "private": ["MY_TOKEN"]})
    keep(session, name, **{"end.json": '{"code": 3}', "job.sh": script, "job.json": plan})
    report = collect_report(session, name)
    write_bundle(tmp_path / "all.tar.gz", report)
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        texts = [file.read().decode() for member in archive if (file := archive.extractfile(member))]
    for text in (render_page(report), *texts):
        assert "secret" not in text
    assert any("MODE=fast" in text for text in texts)
    assert "MODE=fast" in render_page(report)
