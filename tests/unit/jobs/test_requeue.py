"""Argosy reports once that Slurm put a job back into the queue, with the cause that its output or Slurm shows."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session
from argosy.jobs.live.sources import open_source
from argosy.jobs.logs import follow_job
from argosy.jobs.query import find_job
from argosy.jobs.requeue import describe_requeue
from tests.unit.machines import make_host, make_session

LOST = """\
srun: error: Node failure on node2
slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-29T14:21:44 DUE TO NODE FAILURE, SEE SLURMCTLD LOG \
FOR DETAILS ***
"""
PREEMPTED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-29T14:21:44 DUE TO PREEMPTION ***\n"
REQUEUED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-29T14:21:44 DUE TO JOB REQUEUE ***\n"
OLD_NAME, NEW_TIME = "slurmstepd: ", "[2026-11-29T14:21:44.208] "
NEW = """\
srun: error: Node failure on node2
[2026-11-29T14:21:44.208] error: *** JOB 7 ON node1 CANCELLED AT 2026-11-29T14:21:44 DUE TO NODE FAILURE, SEE \
SLURMCTLD LOG FOR DETAILS ***
[2026-11-29T14:21:44.214] error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-29T14:21:44 DUE TO TASK FAILURE ***
"""
"""Of Slurm 26.05."""
OWN = "argosy: the run wrote a new checkpoint, so the job is requeued: restart 1 of 5\n" + REQUEUED
FROM_START = "restart 1 starts from the beginning; jobs with --resume continue from a checkpoint"


def row(output: Path, state: str = "PENDING", restarts: int = 1) -> Reply:
    """Give scontrol's row about job 7 after its requeue (Slurm 24.11)."""
    text = (
        f"JobId=7 JobName=train JobState={state} Reason=BeginTime Requeue=1 Restarts={restarts} ExitCode=0:0 "
        f"SubmitTime=2026-11-29T14:21:47 StartTime=Unknown NodeList= StdOut={output} Power=\n"
    )
    return Reply(0, text, "")


def place(folder: Path, output: str, *replies: tuple[tuple[str, ...], Reply]) -> Session:
    (folder / "7.out").write_text(output)
    return make_session(folder, make_host(), FakeRunner([(("scontrol",), row(folder / "7.out")), *replies]))


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (LOST, " because node2 failed"),
        (LOST.partition("\n")[2], " because a node failed"),
        (PREEMPTED, " because another job preempted it"),
        (REQUEUED, " by 'scontrol requeue'"),
        (OWN, " at its time limit"),
        (NEW, " because node2 failed"),
        (f"epoch 1: 50 %{PREEMPTED.replace(OLD_NAME, NEW_TIME)}", " because another job preempted it"),
        ("epoch 1\n", ""),
        (LOST.replace("2026-11-29", "2026-11-28"), ""),  # of an earlier run
    ],
)
def test_the_output_shows_why_a_job_was_requeued(tmp_path: Path, output: str, cause: str) -> None:
    session = place(tmp_path, output)
    told = describe_requeue(session, find_job(session, "7"))
    assert told == f"was put back into the queue{cause}; {FROM_START}"


def write_record(folder: Path, script: str) -> None:
    record = folder / "runs" / "20260101-000000-abc"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": f"{folder}/7.out"}))
    (record / "job.sh").write_text(script)
    (record / "ranks-n1").write_text("job=7 restart=0 rank=0 local=0 host=n1 cores=0\n")


def test_slurm_is_asked_for_nodes_of_the_last_run_that_are_down_if_the_output_is_silent(tmp_path: Path) -> None:
    write_record(tmp_path, "    resume_from /p/last.pt 5\n")
    session = place(tmp_path, "", (("sinfo",), Reply(0, "n1|Not responding\nn1|Not responding\n", "")))
    told = describe_requeue(session, find_job(session, "7"))
    assert told == (
        "was put back into the queue because n1 is down (Not responding); "
        "restart 1 continues from /p/last.pt, if the program loads it"
    )


def test_a_requeue_is_reported_once_while_a_job_is_followed(tmp_path: Path) -> None:
    output = tmp_path / "7.out"
    output.write_text(LOST)
    states = iter(("RUNNING 0", "PENDING 1", "PENDING 1", "RUNNING 1", "PENDING 2", "COMPLETED 2"))

    class Slurm(FakeRunner):
        def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
            state, restarts = next(states).split()
            return row(output, state, int(restarts))

    notes = io.StringIO()
    session = replace(make_session(tmp_path, make_host(), Slurm([])), reporter=PlainReporter(notes))
    follow_job(session, "7", pause=0.01, stream=io.BytesIO())
    lines = [line for line in notes.getvalue().splitlines() if "put back" in line]
    told = "job 7 was put back into the queue because node2 failed; restart {} starts from the beginning"
    assert [line.rpartition(";")[0] for line in lines] == [told.format(1), told.format(2)]


def test_the_live_view_shows_why_a_job_waits_again(tmp_path: Path) -> None:
    _, view = open_source(place(tmp_path, LOST), "7")
    assert view.meaning.startswith("waits in the queue (BeginTime); was put back into the queue because node2 failed")
