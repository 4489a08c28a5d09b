"""Jobs that were submitted: asked of Slurm, followed to their end, found by their records when Slurm forgot them."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.cli.cmd_jobs import follow_to_end
from argosy.core.errors import (
    ArgosyError,
    CheckFailed,
    Interrupted,
    Stopped,
    ToolFailed,
    ToolMissing,
    Unreachable,
    UsageError,
)
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session
from argosy.core.ssh import NO_CONNECTION
from argosy.core.store import write_text
from argosy.diagnostics.report.collect import collect_report
from argosy.diagnostics.report.sections import name_state
from argosy.diagnostics.verify.verify import verify_job
from argosy.diagnostics.why.explain import explain_log
from argosy.jobs.cancel import cancel_jobs
from argosy.jobs.history import past_jobs
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.jobs.logs import RankLines, follow_job, read_output
from argosy.jobs.query import JobFacts, find_job, is_output_elsewhere
from argosy.jobs.record import Submission, find_record, read_submission, sort_runs
from argosy.jobs.scheduler import list_jobs
from argosy.launch.model import LaunchRequest
from argosy.launch.submit import start_launch, submit
from argosy.launch.submit import write_record as write_record_of
from tests.unit.machines import make_host, make_session
from tests.unit.plans import CHOICE, plan_text

HOST = make_host("apptainer")
SILENT = Reply(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
SILENT_MEANING = "may run or have ended: the Slurm controller does not answer"
FORGOTTEN = Reply(1, "", "slurm_load_jobs error: Invalid job id specified")


def write_record(folder: Path, output: str) -> Path:
    """Write what a submission notes in the record of job 7; give the record's folder."""
    record = folder / "runs" / "20260101-000000-abc"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": output, "site": "lab"}))
    return record


def session(tmp_path: Path, replies: list[tuple[tuple[str, ...], Reply]], **environment: str) -> Session:
    return make_session(tmp_path, make_host("apptainer", environment=environment), FakeRunner(replies))


def shown(state: str, output: Path, *, restarts: int = 0, code: str = "0:0") -> Reply:
    text = (
        f"JobId=7 JobState={state} Reason=None Restarts={restarts} ExitCode={code} NodeList=n1 StdOut={output} Power="
    )
    return Reply(0, text + "\n", "")


def test_variables_of_the_user_for_squeue_hide_no_job(tmp_path: Path) -> None:
    place = session(
        tmp_path, [], PATH="/bin", SQUEUE_STATES="COMPLETED", SQUEUE_PARTITION="cpu", SLURM_CONF="/slurm.conf"
    )
    assert list_jobs(place) == ()
    assert isinstance(place.runner, FakeRunner)
    assert place.runner.seen[0].env == {"PATH": "/bin", "SLURM_CONF": "/slurm.conf"}


def test_a_job_that_was_cancelled_before_it_had_nodes_wrote_no_output_elsewhere(tmp_path: Path) -> None:
    told = Reply(0, "7|CANCELLED by 2001|0:0|None assigned|7\n", "")
    facts = find_job(session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), told)]), "7")
    facts = replace(facts, output="/shared/7.out")
    assert (facts.nodes, facts.code, is_output_elsewhere(facts)) == ("", 143, False)


def test_a_reason_of_several_words_is_printed_as_squeue_does(tmp_path: Path) -> None:
    text = "JobId=7 JobState=PENDING Reason=ReqNodeNotAvail,_Reserved_for_maintenance StdOut=/x/7.out\n"
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, text, ""))]), "7")
    assert facts.reason == "ReqNodeNotAvail, Reserved for maintenance"


class Telling:
    """A Slurm that tells one thing after the other, and lets the job write in between."""

    def __init__(self, output: Path, replies: list[tuple[Reply, str]]) -> None:
        self.output = output
        self.replies = replies
        self.asked = 0

    def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
        reply, text = self.replies[min(self.asked, len(self.replies) - 1)]
        self.asked += 1
        with self.output.open("a") as file:
            file.write(text)
        return reply

    def run_foreground(self, command: Command, on_stderr: Callable[[bytes], None] | None = None) -> int:
        raise AssertionError(command, on_stderr)

    def exec_command(self, command: Command) -> int:
        raise AssertionError(command)


def test_following_continues_through_the_queue_a_requeue_and_a_silent_controller(tmp_path: Path) -> None:
    output = tmp_path / "out"
    runner = Telling(
        output,
        [
            (shown("PENDING", output), ""),
            (shown("RUNNING", output), "one é\n"),
            (SILENT, ""),
            (shown("REQUEUED", output, restarts=1), "two\n"),
            (shown("RUNNING", output, restarts=1), ""),
            (shown("COMPLETED", output, restarts=1), "three\n"),
        ],
    )
    stream = io.BytesIO()
    place = make_session(tmp_path, HOST, runner)
    facts = follow_job(place, "7", pause=0.01, stream=stream)
    assert (facts.state, facts.code, facts.restarts) == ("COMPLETED", 0, 1)
    assert stream.getvalue().decode() == "one é\ntwo\nthree\n"


def test_following_continues_after_a_lost_connection_by_ssh(tmp_path: Path) -> None:
    output = tmp_path / "7.out"

    class Losing(Telling):
        def run(self, command: Command, on_line: object = None) -> Reply:
            reply = super().run(command, on_line)
            if reply.code == NO_CONNECTION:
                raise Unreachable("cannot connect to far by ssh")
            return reply

    lost = Reply(NO_CONNECTION, "", "")
    runner = Losing(output, [(shown("RUNNING", output), ""), (lost, "one\n"), (shown("COMPLETED", output), "")])
    notes = io.StringIO()
    place = replace(make_session(tmp_path, HOST, runner), reporter=PlainReporter(notes))
    assert follow_job(place, "7", pause=0.01, stream=io.BytesIO()).state == "COMPLETED"
    assert "cannot connect to far by ssh; the job may continue" in notes.getvalue()


def test_following_begins_with_the_jobs_record_if_the_controller_is_silent(tmp_path: Path) -> None:
    output = tmp_path / "7.out"
    write_record(tmp_path, f"{tmp_path}/%j.out")
    runner = Telling(output, [(SILENT, "one\n"), (SILENT, "two\n"), (shown("COMPLETED", output), "")])
    stream = io.BytesIO()
    facts = follow_job(make_session(tmp_path, HOST, runner), "7", pause=0.01, stream=stream)
    assert (facts.state, stream.getvalue()) == ("COMPLETED", b"one\ntwo\n")


def array_row(task: str, state: str, output: Path, code: str = "0:0") -> str:
    own = f"JobId=4{task[0]} ArrayJobId=7 ArrayTaskId={task} JobState={state} Reason=None Restarts=0 ExitCode={code}"
    return f"{own} NodeList=n1 StdOut={output} Power=\n"


def test_an_array_is_followed_to_its_last_task_and_a_failed_task_sets_the_code(tmp_path: Path) -> None:
    zero, one = tmp_path / "0", tmp_path / "1"
    zero.write_text("zero fails\n")
    failed, going = array_row("0", "FAILED", zero, "3:0"), array_row("1", "RUNNING", one)
    replies = [
        (Reply(0, array_row("1", "PENDING", tmp_path / "none") + array_row("0", "RUNNING", zero), ""), ""),
        (Reply(0, going + failed, ""), "one\n"),
        (Reply(0, array_row("1", "COMPLETED", one) + failed, ""), "two\n"),
    ]
    stream = io.BytesIO()
    facts = follow_job(make_session(tmp_path, HOST, Telling(one, replies)), "7", pause=0.01, stream=stream)
    assert (facts.id, facts.code, facts.output) == ("7_0", 3, str(zero))
    assert facts.outputs == (str(zero), str(one))
    assert stream.getvalue().decode() == "zero fails\none\ntwo\n"
    well = Reply(0, array_row("1", "COMPLETED", one) + array_row("0", "COMPLETED", zero), "")
    assert find_job(session(tmp_path, [(("scontrol",), well)]), "7").verdict == "job 7 ended well (code 0)"


def test_the_output_of_tasks_that_wait_is_the_pattern_of_their_plan(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/shared/%x-%A_%a.out")
    (record / "job.json").write_text(plan_text(name="pend"))
    waiting = array_row("0-3", "PENDING", Path("/shared/pend-7_4294967294.out")).replace("JobId=40", "JobId=7")

    def ask(job: str, *rows: str) -> JobFacts:
        return find_job(session(tmp_path, [(("scontrol",), Reply(0, "".join((waiting, *rows)), ""))]), job)

    assert (ask("7").output, ask("7").outputs) == ("/shared/pend-7_%a.out", ())
    assert ask("7_2").output == "/shared/pend-7_2.out"
    assert ask("7", array_row("4", "RUNNING", Path("/shared/pend-7_4.out"))).outputs == ("/shared/pend-7_4.out",)


def facts_of(output: str, record: Path, **more: Any) -> JobFacts:
    job = JobFacts("7", "RUNNING", "running", "runs", "", "n1", output, 0, 0, str(record))
    return replace(job, **more)


def test_each_task_of_an_array_is_printed_under_its_files_name(tmp_path: Path) -> None:
    zero, one, two = (tmp_path / name for name in "012")
    zero.write_text("a\n")
    two.write_text("c\n")
    facts = facts_of(str(zero), tmp_path, outputs=(str(zero), str(one), str(two)))
    said = b"".join(read_output(facts)).decode()
    assert said == f"==> {zero} <==\na\n==> {two} <==\nc\n==> 1 more has written nothing yet <==\n"


def test_an_empty_output_is_reported_like_one_that_does_not_exist_yet(tmp_path: Path) -> None:
    output = tmp_path / "7.out"
    facts, said = facts_of(str(output), tmp_path), "job 7 has written nothing yet"
    for _ in range(2):
        with pytest.raises(UsageError, match=said):
            next(read_output(facts))
        output.touch()
    assert list(read_output(replace(facts, kind="ended"))) == []


@pytest.mark.parametrize("pattern", ["%x-%A_%a.out", "%x-%j.out", "[%x]-%3a.out"])
def test_outputs_of_an_array_are_found_after_slurm_forgot_it(pattern: str, tmp_path: Path) -> None:
    record = array_record(tmp_path)
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": f"{tmp_path}/{pattern}"}))
    (record / "job.json").write_text(plan_text(name="train"))
    (record / "ends").write_text("7 0 0 n1 10 20\n40 0 0 n2 10 20\n41 0 0 n2 10 20\n")
    for task, number in (("2", "40"), ("10", "41"), ("11", "7")):
        filled = pattern.replace("%x", "train").replace("%A", "7").replace("%a", task).replace("%j", number)
        (tmp_path / filled.replace("%3a", task.zfill(3))).write_text(f"{task}\n")
        (tmp_path / f"train-8_{task}.out").touch()  # another job's
    facts = find_job(session(tmp_path, [(("scontrol",), FORGOTTEN)]), "7")
    said = b"".join(read_output(facts)).decode()
    assert sorted(re.findall(r"^\d+$", said, re.MULTILINE)) == ["10", "11", "2"]


@pytest.mark.parametrize("ends", ["", "7 0 0 n1 10 20\n"])
def test_outputs_of_tasks_are_found_by_the_number_of_the_array(ends: str, tmp_path: Path) -> None:
    record = write_record(tmp_path, f"{tmp_path}/%A_%a.out")
    (record / "ends").write_text(ends)
    for task in "012":
        (tmp_path / f"7_{task}.out").touch()
    (tmp_path / "8_0.out").touch()
    assert [Path(file).name for file in forgotten(tmp_path).outputs] == ["7_0.out", "7_1.out", "7_2.out"]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_the_lines_of_one_rank_lose_their_label(block: int) -> None:
    text = b" 3: one\n13: no\n3: 3: two\n[3] three\nplain\n33: no\n 3:\n"
    lines = RankLines(3)
    said = b"".join(lines.feed(text[at : at + block]) for at in range(0, len(text), block))
    assert said == b"one\n3: two\nthree\n\n"


def test_one_rank_is_read_from_its_own_file_or_from_labelled_lines_or_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("0: a\n1: b\n1: cut")
    facts = facts_of(str(output), tmp_path)
    assert b"".join(read_output(facts, rank=1)) == b"b\ncut\n"
    with pytest.raises(UsageError, match="does not contain lines of rank 2"):
        list(read_output(facts, rank=2))
    (tmp_path / "job.json").write_text(plan_text(logs=str(tmp_path / "logs")))
    (tmp_path / "logs/7").mkdir(parents=True)
    (tmp_path / "logs/7/rank-1.log").write_text("own")
    assert b"".join(read_output(facts, rank=1)) == b"own"
    with pytest.raises(UsageError, match="rank 2 of job 7 has written nothing yet") as refused:
        list(read_output(facts, rank=2))
    assert "rank-2.log" in refused.value.evidence


def test_a_rank_that_an_ended_job_did_not_have_is_not_said_to_come(tmp_path: Path) -> None:
    (tmp_path / "logs/7").mkdir(parents=True)
    shape = {"nodes": 1, "ranks_per_node": 2}
    (tmp_path / "job.json").write_text(plan_text(logs=str(tmp_path / "logs"), shape=shape))
    facts = facts_of("", tmp_path, kind="ended", meaning="ended well")
    with pytest.raises(UsageError, match="rank 5 of job 7 wrote nothing") as refused:
        list(read_output(facts, rank=5))
    assert refused.value.evidence.endswith("; the job had 2 ranks")
    assert "wait" not in refused.value.hint


def test_one_rank_is_followed_alone(tmp_path: Path) -> None:
    output = tmp_path / "out"
    going = shown("RUNNING", output)
    replies = [(going, "0: a\n1: b"), (going, "\n1: c\n0: d\n1: cut"), (shown("COMPLETED", output), "")]
    stream = io.BytesIO()
    follow_job(make_session(tmp_path, HOST, Telling(output, replies)), "7", pause=0.01, stream=stream, rank=1)
    assert stream.getvalue() == b"b\nc\ncut\n"


def test_the_first_failing_rank_gives_the_code_of_a_failed_job_alone(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("srun: error: n1: task 3: Exited with exit code 42\n")
    asked = ("scontrol", "show", "job")
    failed = find_job(session(tmp_path, [(asked, shown("FAILED", output, code="143:0"))]), "7")
    assert (failed.code, failed.first and failed.first.rank) == (42, 3)
    assert failed.verdict == "job 7 ended with an error (code 42): rank 3 on n1 failed first (code 42)"
    cut = find_job(session(tmp_path, [(asked, shown("FAILED+", output, code="143:0"))]), "7")
    assert (cut.code, cut.first) == (failed.code, failed.first)
    cancelled = find_job(session(tmp_path, [(asked, shown("CANCELLED", output))]), "7")
    assert (cancelled.code, cancelled.first) == (143, None)


def test_a_job_that_slurm_forgot_is_known_by_its_record(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x/%j.out")
    (record / "ends").write_text("7 0 1 n[1-2] 10 20\n7 1 0 n[1-2] 30 40\ncut")
    facts = find_job(session(tmp_path, [(("scontrol",), FORGOTTEN)]), "7")
    assert (facts.state, facts.code, facts.nodes, facts.output) == ("COMPLETED", 0, "n[1-2]", "/x/7.out")
    with pytest.raises(UsageError, match="no job 8"):
        find_job(session(tmp_path, [(("scontrol",), FORGOTTEN)]), "8")


@pytest.mark.parametrize(
    ("row", "code", "meaning"),
    [
        ("7|OUT_OF_MEMORY|0:125|n[1-2]", 137, "ran out of memory: request more with --mem"),
        ("7|TIMEOUT|0:0|n1", 143, "reached its time limit: request more with --time"),
        ("7|CANCELLED by 2001|0:15|n1", 143, "was cancelled"),
        ("7|COMPLETED|0:0|n1", 0, "ended well"),
        ("7_0|COMPLETED|0:0|n2\n7_1|FAILED|9:0|n1\n7_2|COMPLETED|0:0|n3", 9, "ended with an error"),
        ("7_0|COMPLETED|0:0|n2\n7_1|COMPLETED|0:0|n2", 0, "ended well"),
    ],
)
def test_a_job_that_left_the_queue_is_looked_up_in_the_accounting(
    tmp_path: Path, row: str, code: int, meaning: str
) -> None:
    place = session(
        tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), Reply(0, f"{row}|7\n".replace("\n7_", "|7\n7_"), ""))]
    )
    facts = find_job(place, "7")
    assert (facts.code, facts.meaning) == (code, meaning)
    assert facts.nodes == next(each.split("|")[3] for each in row.split("\n") if not code or "COMPLETED" not in each)
    with pytest.raises(UsageError, match="no job 8"):
        find_job(place, "8")


def test_a_job_out_of_memory_names_the_line_to_change(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x/%j.out")
    (record / "job.sh").write_text("#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --mem=4G\n")
    (record / "job.json").write_text(
        plan_text(choices=[CHOICE | {"key": "--mem", "value": "4G", "source": "argosy.toml:7"}])
    )
    told = Reply(0, "7|OUT_OF_MEMORY|0:125|n1|7\n", "")
    facts = find_job(session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), told)]), "7")
    assert facts.verdict.splitlines() == [
        "job 7 ran out of memory: request more with --mem (code 137)",
        "  -> increase --mem, which was 4G (argosy.toml:7)",
    ]


def test_a_damaged_record_is_passed_over(tmp_path: Path) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", "")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "submitted.json").write_text(text)
    facts = find_job(session(tmp_path, [(("scontrol",), shown("RUNNING", tmp_path / "out"))]), "7")
    assert (facts.kind, facts.record) == ("running", "")


def test_the_record_of_a_job_precedes_those_of_its_steps(tmp_path: Path) -> None:
    asked = session(tmp_path, [])
    for name, here in (("1", "true"), ("2", "false"), ("3", "true")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "submitted.json").write_text(f'{{"job": "7", "in_allocation": {here}}}')
    assert find_record(asked, "7") == tmp_path / "runs/2"
    (tmp_path / "runs/2/submitted.json").unlink()
    assert find_record(asked, "7") == tmp_path / "runs/3"


def test_a_silent_controller_does_not_mean_a_missing_job(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="does not answer"):
        find_job(session(tmp_path, [(("scontrol",), SILENT)]), "7")
    with pytest.raises(CheckFailed, match="does not answer"):
        list_jobs(session(tmp_path, [(("squeue",), SILENT)]))


def test_while_the_controller_is_silent_a_jobs_own_record_leads_to_its_output(tmp_path: Path) -> None:
    silent = session(tmp_path, [(("scontrol",), SILENT)])
    write_record(tmp_path, f"{tmp_path}/%j.out")
    (tmp_path / "7.out").write_bytes(b"10%\r20%\xff\n")
    facts = find_job(silent, "7", or_record=True)
    assert (facts.kind, facts.meaning, facts.output) == ("running", SILENT_MEANING, f"{tmp_path}/7.out")
    assert b"".join(read_output(facts)) == b"10%\r20%\xff\n"
    with pytest.raises(CheckFailed, match="does not answer"):
        find_job(silent, "8", or_record=True)


@pytest.mark.parametrize(
    ("directives", "end"),
    [([], ("ended", "ended with an error", 3)), (["--requeue"], None), (["--array=0-3"], None)],
)
def test_while_the_controller_is_silent_the_recorded_end_of_a_job_counts(
    directives: list[str], end: tuple[str, str, int] | None, tmp_path: Path
) -> None:
    record = write_record(tmp_path, "/none")
    (record / "ends").write_text("7 0 3 n1 10 20\n")
    (record / "job.json").write_text(plan_text(directives=directives))
    facts = find_job(session(tmp_path, [(("scontrol",), SILENT)]), "7", or_record=True)
    assert (facts.kind, facts.meaning, facts.code) == (end or ("running", SILENT_MEANING, 0))


def array_record(folder: Path) -> Path:
    """Write what the tasks of an array noted in one place."""
    record = write_record(folder, "/x/%j-%A_%a.out")
    (record / "ends").write_text("41 0 3 n1 10 20\n40 0 0 n2 10 20\n")
    (record / "first").write_text("41 0 1 n1 3\n")
    (record / "ranks-n1").write_text("rank=0 host=n1 job=41\nrank=0 host=n2 job=40\n")
    return record


def test_the_tasks_of_an_array_have_one_record_and_each_its_own_part_of_it(tmp_path: Path) -> None:
    record = array_record(tmp_path)
    rows = [array_row("1", "FAILED", tmp_path / "1", "1:0"), array_row("0", "COMPLETED", tmp_path / "0")]

    def ask(job: str, *told: str) -> JobFacts:
        return find_job(session(tmp_path, [(("scontrol",), Reply(0, "".join(told), ""))]), job)

    whole, failed, well = ask("7", *rows), ask("7_1", rows[0]), ask("40", rows[1])
    assert [each.record for each in (whole, failed, well)] == [str(record)] * 3
    assert [each.id for each in (whole, failed, well)] == ["7_1", "7_1", "7_0"]
    assert [[run.job for run in each.runs] for each in (whole, failed, well)] == [["41", "40"], ["41"], ["40"]]
    assert [[rank.host for rank in each.ranks] for each in (whole, failed, well)] == [["n1"], ["n1"], ["n2"]]
    assert (failed.code, well.code, well.first) == (3, 0, None)


def test_tasks_are_shown_by_their_number_in_the_array_and_in_this_order(tmp_path: Path) -> None:
    record = array_record(tmp_path)
    (record / "ends").write_text("7 0 0 n1 10 20 7_10\n41 0 0 n1 10 20 7_2\n40 0 3 n2 10 20 7_1\n")
    rows = "".join(array_row(task, "COMPLETED", tmp_path / task) for task in ("10", "2", "1"))
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, rows, ""))]), "7")
    assert [run.name for run in sort_runs(facts.runs)] == ["7_1", "7_2", "7_10"]
    (record / "job.json").write_text(plan_text(logs=str(tmp_path / "logs")))
    for number in ("7", "40", "41"):
        file = tmp_path / "logs" / number / "rank-0.log"
        file.parent.mkdir(parents=True)
        file.touch()
    files = tuple(str(tmp_path / "logs" / number / "rank-0.log") for number in ("40", "41", "7"))
    heads = b"".join(read_output(replace(facts, outputs=files), rank=0)).decode().splitlines()
    assert heads == [f"==> {file} of job 7_{task} <==" for file, task in zip(files, (1, 2, 10), strict=True)]
    (record / "submitted.json").write_text('{"site": "lab"}')  # Argosy was killed before it had the number
    (record / "ends").write_text("41 0 0 n1 10 20 7_2\n")
    assert read_submission(record).job == "7"


def test_a_task_that_slurm_forgot_is_found_by_the_number_that_the_accounting_has(tmp_path: Path) -> None:
    array_record(tmp_path)
    told = Reply(0, "7_0|COMPLETED|0:0|n2|40\n7_1|FAILED|1:0|n1|41\n", "")
    place = session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), told)])
    facts = find_job(place, "7")
    assert (facts.id, facts.code, facts.output) == ("7_1", 3, "/x/41-7_1.out")
    one = session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), Reply(0, "7_0|COMPLETED|0:0|n2|40\n", ""))])
    assert (find_job(one, "7_0").output, find_job(one, "40").output) == ("/x/40-7_0.out",) * 2


# As Slurm 24.11 printed it; the number of a component has a record of its own.
COMPONENTS = """\
JobId=33 HetJobId=33 HetJobOffset=0 JobName=het.sh HetJobIdSet=33-34 JobState=RUNNING Reason=None Restarts=0 \
ExitCode=0:0 NodeList=node1 Command=/x/het.sh WorkDir=/x StdOut=/x/slurm-33.out
JobId=34 HetJobId=33 HetJobOffset=1 JobName=het.sh HetJobIdSet=33-34 JobState=RUNNING Reason=None Restarts=0 \
ExitCode=0:0 NodeList=node2 Command=/x/het.sh WorkDir=/x StdOut=/x/slurm-34.out
"""


def test_a_job_of_several_components_keeps_its_number(tmp_path: Path) -> None:
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, COMPONENTS, ""))]), "33")
    assert (facts.id, facts.kind, facts.nodes, facts.output) == ("33", "running", "node1", "/x/slurm-33.out")
    assert facts.outputs == ("/x/slurm-33.out", "/x/slurm-34.out")


def test_a_job_that_can_never_start_has_advice(tmp_path: Path) -> None:
    waits = "JobId=19 JobState=PENDING Reason=DependencyNeverSatisfied Restarts=0 ExitCode=0:0 NodeList= StdOut=/x"
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, waits, ""))]), "19")
    assert facts.advice == "it will never start: the job that it waits for failed; argosy cancel 19"


def test_a_machine_without_slurm_is_reported_as_such(tmp_path: Path) -> None:
    class Nothing(FakeRunner):
        def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
            raise ToolMissing(f"'{command.argv[0]}' is not installed here")

    place = make_session(tmp_path, HOST, Nothing())
    with pytest.raises(ToolMissing, match="Slurm is not installed on this machine"):
        list_jobs(place)


# Cancelling


def test_cancel_lists_cancelled_and_already_ended_jobs(tmp_path: Path) -> None:
    write_record(tmp_path, "/x.out")
    asked = ("scontrol", "show", "job", "--oneliner")
    runner = FakeRunner(
        [
            ((*asked, "1"), Reply(0, "JobId=1 JobName=train JobState=RUNNING NodeList=n[1-2]\n", "")),
            ((*asked, "2"), Reply(0, "JobId=2 JobName=train JobState=PENDING NodeList=(null)\n", "")),
            ((*asked, "3"), Reply(0, "JobId=3 JobName=train JobState=COMPLETED NodeList=n1\n", "")),
            ((*asked, "7"), FORGOTTEN),
            (("sacct",), Reply(1, "", "Slurm accounting storage is disabled")),
            (("scancel", "1", "2"), Reply(0, "", "")),
        ]
    )
    told = cancel_jobs(make_session(tmp_path, HOST, runner), ("1", "2", "3", "7"))
    assert told == (
        "job 1 is cancelled (train, it ran on n[1-2])",
        "job 2 is cancelled (train, it waited in the queue)",
        "job 3 has already ended: ended well",
        "job 7 has already ended: Slurm does not list it any more",
    )


@pytest.mark.parametrize(("state", "kept"), [("PENDING", False), ("RUNNING", True)])
def test_a_job_that_is_cancelled_before_its_restart_leaves_no_mark(tmp_path: Path, state: str, *, kept: bool) -> None:
    record, mark = write_record(tmp_path, "/x.out"), tmp_path / "last.pt.argosy-7"
    (record / "job.sh").write_text(f"main() {{\n    resume_from {tmp_path}/last.pt 5\n}}\n")
    mark.touch()
    job = Reply(0, f"JobId=7 JobName=train JobState={state} Restarts=1 NodeList=(null)\n", "")
    runner = FakeRunner([(("scontrol",), job), (("scancel", "7"), Reply(0, "", ""))])
    cancel_jobs(make_session(tmp_path, HOST, runner), ("7",))
    assert mark.exists() is kept  # the script of a run removes it itself


def rows_of_array(*rows: tuple[str, str]) -> Reply:
    """Return what scontrol shows of the array 59: a row for each task that started, and one for those that wait."""
    own = {task: f"6{task}" if task.isdigit() else "59" for task, _ in rows}
    lines = (
        f"JobId={own[task]} ArrayJobId=59 ArrayTaskId={task} JobName=train JobState={state} "
        f"NodeList={'(null)' if state == 'PENDING' else f'n{own[task]}'}\n"
        for task, state in rows
    )
    return Reply(0, "".join(lines), "")


GOING = rows_of_array(("3-5,9%2", "PENDING"), ("2", "RUNNING"), ("1", "RUNNING"), ("0", "COMPLETED"))


@pytest.mark.parametrize(
    ("job", "cancelled", "said"),
    [
        ("59", "59", "job 59 is cancelled (train, 2 tasks ran, 1 had ended, the others waited)"),
        ("59_[1,3-4]", "59_[1,3-4]", "job 59_[1,3-4] is cancelled (train, 1 task ran, the others waited)"),
        ("59_[3-5,9%2]", "59_[3-5,9]", "job 59_[3-5,9] is cancelled (train, all tasks waited)"),
        ("59_[0,2]", "59_[0,2]", "job 59_[0,2] is cancelled (train, 1 task ran, 1 had ended)"),
        ("59_[0,0]", "", "job 59_[0,0] has already ended: ended well"),
        ("59_[7-8]", "", "job 59_[7-8] has already ended: Slurm does not list it any more"),
    ],
)
def test_an_array_and_some_of_its_tasks_are_cancelled_as_written(
    job: str, cancelled: str, said: str, tmp_path: Path
) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "submitted.json").write_text('{"job": "59"}')
    (record / "ends").write_text("60 0 9 n1 10 20\n")
    runner = FakeRunner([(("scontrol", "show", "job", "--oneliner", "59"), GOING)])
    assert cancel_jobs(make_session(tmp_path, HOST, runner), (job,)) == (said,)
    assert [each.argv[1:] for each in runner.seen if each.argv[0] == "scancel"] == [(cancelled,)] * bool(cancelled)


@pytest.mark.parametrize(
    ("job", "row", "said"),
    [
        ("59_2", ("2", "RUNNING"), "job 59_2 is cancelled (train, it ran on n62)"),
        ("59_4", ("3-5%2", "PENDING"), "job 59_4 is cancelled (train, it waited in the queue)"),
        ("62", ("2", "RUNNING"), "job 59_2 is cancelled (train, it ran on n62)"),
    ],
)
def test_one_task_of_an_array_is_cancelled_and_named(job: str, row: tuple[str, str], said: str, tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "submitted.json").write_text('{"job": "59"}')
    shown = rows_of_array(row)
    runner = FakeRunner([(("scontrol", "show", "job", "--oneliner", job), shown)])
    assert cancel_jobs(make_session(tmp_path, HOST, runner), (job,)) == (said,)
    task = said.split()[1]
    assert [each.argv for each in runner.seen if each.argv[0] == "scancel"] == [("scancel", task)]
    assert (record / "cancelled-tasks").read_text() == f"{task.partition('_')[2]}\n"
    assert not (record / "cancelled").exists(), "the other tasks continue"


def test_an_unknown_number_cancels_nothing(tmp_path: Path) -> None:
    going = Reply(0, "JobId=1 JobName=train JobState=RUNNING NodeList=n1\n", "")
    asked = ("scontrol", "show", "job", "--oneliner")
    runner = FakeRunner([((*asked, "1"), going), ((*asked, "9"), FORGOTTEN), (("sacct",), Reply(1, "", ""))])
    with pytest.raises(UsageError, match="there is no job 9"):
        cancel_jobs(make_session(tmp_path, HOST, runner), ("1", "9"))


def test_a_task_that_its_array_does_not_have_is_not_cancelled(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "job.json").write_text(plan_text(directives=["--array=0-3"]))
    (record / "ends").write_text("41 0 9 n1 10 20\n")
    there = session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), Reply(1, "", ""))])
    with pytest.raises(UsageError, match="there is no job 7_9"):
        cancel_jobs(there, ("7_9",))
    assert cancel_jobs(there, ("7_3",)) == ("job 7_3 has already ended: Slurm does not list it any more",)


def test_a_job_of_another_user_is_not_cancelled(tmp_path: Path) -> None:
    bobs = Reply(0, "JobId=86 JobName=x UserId=bob(1002) JobState=RUNNING NodeList=n1\n", "")
    denied = Reply(1, "", "scancel: error: Kill job error on job id 86: Access/permission denied")
    runner = FakeRunner([(("scontrol",), bobs), (("scancel",), denied)])
    with pytest.raises(ToolFailed) as refused:
        cancel_jobs(make_session(tmp_path, HOST, runner), ("86",))
    assert refused.value.hint == "job 86 belongs to bob"


# Killed while a job was submitted


def test_a_job_without_a_recorded_number_is_found_by_its_script(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "submitted.json").write_text(json.dumps({"job": "", "output": "/x.out", "site": "lab"}))
    assert find_record(make_session(tmp_path), "7") is None
    line = f"JobId=7 JobState=RUNNING NodeList=n1 Command={record}/job.sh StdOut=/x.out\n"
    found = find_job(session(tmp_path, [(("scontrol", "show", "job"), Reply(0, line, ""))]), "7")
    assert found.record == str(record)
    assert find_record(make_session(tmp_path), "7") == record
    assert read_submission(record) == Submission("7", "/x.out", "lab")


def test_a_record_matches_its_own_job_only(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x.out")
    line = f"JobId=9 JobState=RUNNING NodeList=n1 Command={record}/job.sh StdOut=/x.out\n"
    found = find_job(session(tmp_path, [(("scontrol", "show", "job"), Reply(0, line, ""))]), "9")
    assert found.record == ""
    other = line.replace(str(record), "/elsewhere/runs/x")
    found = find_job(session(tmp_path, [(("scontrol", "show", "job"), Reply(0, other, ""))]), "9")
    assert found.record == ""


@pytest.mark.parametrize(
    ("name", "text"), [("ends", "7 0 0 n1 100 200\n"), ("ranks-n1", "rank=0 local=0 host=n1 job=7 restart=0\n")]
)
def test_a_job_without_a_recorded_number_is_found_by_its_files(tmp_path: Path, name: str, text: str) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "submitted.json").write_text(json.dumps({"job": "", "output": "/x.out", "site": "lab"}))
    (record / name).write_text(text)
    assert find_record(make_session(tmp_path), "7") == record
    assert [job.id for job in past_jobs(make_session(tmp_path), most=5)] == ["7"]


class Stopping(FakeRunner):
    """A Slurm that takes the job, while we are asked to stop."""

    def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
        if command.argv[0] == "sbatch":
            raise Interrupted(15)
        return super().run(command)


@pytest.mark.parametrize(("seen", "said"), [("7", "stopped; job 7 is submitted and continues"), ("", "no such job")])
def test_an_interrupted_submission_reports_whether_the_job_is_queued(tmp_path: Path, seen: str, said: str) -> None:
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    rows = f"5|/other/job.sh\n{seen}|{folder}/job.sh\n" if seen else "5|/other/job.sh\n"
    there = make_session(tmp_path, HOST, Stopping([(("timeout",), Reply(0, rows, ""))]))
    plan = LaunchPlan("n", "lab", "slurm", "x.sif", "", JobShape(1, 1), "", ("sbatch", "{script}"), ())
    with pytest.raises(Stopped) as caught:
        submit(plan, folder, there, profile="lab")
    assert said in str(caught.value)
    assert caught.value.code == 143
    assert read_submission(folder).job == seen


@pytest.mark.parametrize("word", ["", "0", "abc", "7.0", "-1", "7_", "7;id"])
def test_slurm_is_not_asked_about_an_invalid_job_number(tmp_path: Path, word: str) -> None:
    runner = FakeRunner()
    with pytest.raises(UsageError, match="is not a job number"):
        find_job(make_session(tmp_path, HOST, runner), word)
    with pytest.raises(UsageError, match="there is no job"):
        cancel_jobs(make_session(tmp_path, HOST, runner), (word,))
    assert {command.argv[0] for command in runner.seen} == {"squeue"}, "it is a name of no job"


def test_a_task_of_a_job_without_an_array_is_not_found(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x.out")
    (record / "job.json").write_text(plan_text(directives=["--nodes=1"]))
    replies: list[tuple[tuple[str, ...], Reply]] = [(("scontrol",), FORGOTTEN), (("sacct",), Reply(1, "", ""))]
    with pytest.raises(UsageError, match="there is no job 7_3"):
        find_job(session(tmp_path, replies), "7_3")
    (record / "job.json").write_text(plan_text(directives=["--array=0-5"]))
    assert find_job(session(tmp_path, replies), "7_3").record == str(record)
    for other in ("7_6", "7+1"):
        with pytest.raises(UsageError, match=re.escape(f"there is no job {other}")):
            find_job(session(tmp_path, replies), other)
    assert find_job(session(tmp_path, replies), "7_[2-5%1]").id == "7"


def test_slurms_programs_without_a_cluster_are_reported_as_such(tmp_path: Path) -> None:
    said = (
        "squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: Could not establish a configuration source"
    )
    with pytest.raises(CheckFailed, match="find no cluster") as caught:
        list_jobs(session(tmp_path, [(("squeue",), Reply(1, "", said))]))
    assert "SLURM_CONF" in caught.value.hint


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (ToolMissing("no sbatch"), 0),
        (Reply(1, "", "sbatch: error: Batch job submission failed: Invalid account"), 0),
        (Reply(1, "", "sbatch: error: Unable to contact slurm controller (connect failure)"), 0),
        (Reply(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"), 1),
        (Reply(-9, "", ""), 1),
        (Reply(0, "accepted", ""), 1),
    ],
    ids=["no Slurm", "refused", "not reached", "answer lost", "killed", "no number"],
)
def test_a_record_stays_only_if_its_job_may_exist(tmp_path: Path, reply: Reply | ToolMissing, kept: int) -> None:
    class Refusing(FakeRunner):
        def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
            if isinstance(reply, ToolMissing):
                raise reply
            return reply

    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    plan = LaunchPlan("n", "lab", "slurm", "x.sif", "", JobShape(1, 1), "", ("sbatch", "{script}"), ())
    with pytest.raises(ArgosyError):
        submit(plan, folder, make_session(tmp_path, HOST, Refusing()), profile="lab")
    assert folder.exists() == bool(kept)


class Filling(FakeRunner):
    """A Slurm that takes the job, while the disk of its record fills up."""

    def run(self, command: Command, on_line: object = None) -> Reply:  # noqa: ARG002 - the runner's signature
        note = Path(command.argv[-1]).parent / "submitted.json"
        note.unlink()
        (note / "in the way").mkdir(parents=True)
        return Reply(0, "7\n", "")


def test_a_job_is_submitted_even_if_its_number_cannot_be_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    plan = LaunchPlan("n", "lab", "slurm", "x.sif", "", JobShape(1, 1), "", ("sbatch", "{script}"), ())
    there = make_session(tmp_path, HOST, Filling())
    assert submit(plan, folder, there, profile="lab").job == "7"


@pytest.mark.parametrize(("code", "ranks", "notes"), [(3, 2, 1), (3, 1, 0), (0, 2, 0), (130, 2, 0)])
def test_a_failure_of_several_ranks_on_this_machine_has_a_next_step(
    tmp_path: Path, code: int, ranks: int, notes: int
) -> None:
    there, reporter = make_session(tmp_path, HOST, FakeRunner([(("sh",), Reply(code, "", ""))])), io.StringIO()
    there = replace(there, reporter=PlainReporter(reporter))
    plan = LaunchPlan("n", "local", "here", "x.sif", "", JobShape(1, ranks), "", ("sh", "{script}"), ())
    assert start_launch(plan, tmp_path, there, LaunchRequest("x.sif", ())).code == code
    assert reporter.getvalue().count(f"sh {tmp_path}/job.sh > run.log 2>&1; argosy why run.log") == notes


def test_a_full_disk_below_the_logs_of_a_failed_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, reporter = make_session(tmp_path, HOST, FakeRunner([(("sh",), Reply(1, "", ""))])), io.StringIO()
    there = replace(there, reporter=PlainReporter(reporter))
    plan = LaunchPlan("n", "local", "here", "x.sif", "", JobShape(1, 1), "", ("sh", "{script}"), (), logs=str(tmp_path))
    start_launch(plan, tmp_path, there, LaunchRequest("x.sif", ()))
    assert "disk" not in reporter.getvalue()
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 9, 0, 0, 9, 9, 9, 0, 255)))
    start_launch(plan, tmp_path, there, LaunchRequest("x.sif", ()))
    assert f"the disk of {tmp_path} is full: the logs are incomplete" in reporter.getvalue()


def test_a_run_keeps_its_exit_code_if_its_end_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, text: str) -> None:
        if path.name == "end.json":
            raise OSError(errno.ENOSPC, text)

    monkeypatch.setattr("argosy.launch.submit.write_text", write)
    there = make_session(tmp_path, HOST, FakeRunner([(("sh",), Reply(3, "", ""))]))
    plan = LaunchPlan("n", "local", "here", "x.sif", "", JobShape(1, 1), "", ("sh", "{script}"), ())
    assert start_launch(plan, tmp_path, there, LaunchRequest("x.sif", ())).code == 3


@pytest.mark.parametrize("number", range(1, 6))
def test_a_full_disk_leaves_no_half_of_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    left = iter(range(number))

    def write(path: Path, text: str) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_text(path, text)

    monkeypatch.setattr("argosy.launch.submit.write_text", write)
    there = make_session(tmp_path, HOST, FakeRunner([]))
    plan = LaunchPlan("n", "lab", "slurm", "x.sif", "", JobShape(1, 1), "#!/bin/sh\n", ("sbatch", "{script}"), ())
    folder = there.paths.runs / "20260101-000000-000000-abcd"
    with pytest.raises(CheckFailed, match="no space left on device") as caught:
        write_record_of(replace(plan, attach="x\n"), folder, there)
    assert "another folder with ARGOSY_STATE" in caught.value.hint
    assert not folder.exists()


def test_a_job_whose_number_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, text: str) -> None:
        if '"7"' in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_text(path, text)

    monkeypatch.setattr("argosy.jobs.record.write_text", write)
    runner, reporter = FakeRunner([(("sbatch",), Reply(0, "7\n", ""))]), io.StringIO()
    there = replace(make_session(tmp_path, HOST, runner), reporter=PlainReporter(reporter))
    plan = LaunchPlan("n", "lab", "slurm", "x.sif", "", JobShape(1, 1), "", ("sbatch", "{script}"), ())
    folder = there.paths.runs / "20260101-000000-000000-abcd"
    folder.mkdir(parents=True)
    assert submit(plan, folder, there, profile="lab").job == "7"
    assert "job 7 is submitted, but its number cannot be written to the record: no space left" in reporter.getvalue()
    assert "ARGOSY_STATE" in reporter.getvalue()


def test_a_cancelled_job_is_named_if_its_record_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path) + text)

    write_record(tmp_path, "/x.out")
    monkeypatch.setattr("argosy.jobs.record.write_text", write)
    going = Reply(0, "JobId=7 JobName=train JobState=RUNNING NodeList=n1\n", "")
    runner = FakeRunner([(("scontrol",), going), (("scancel", "7"), Reply(0, "", ""))])
    assert cancel_jobs(make_session(tmp_path, HOST, runner), ("7",)) == ("job 7 is cancelled (train, it ran on n1)",)


def test_the_verdict_of_an_array_names_all_failed_tasks(tmp_path: Path) -> None:
    rows = "".join(array_row(task, "FAILED", tmp_path / task, "3:0") for task in "102")
    rows += array_row("3", "COMPLETED", tmp_path / "3")
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, rows, ""))]), "7")
    assert facts.failed_tasks == ("7_0", "7_1", "7_2")
    assert "; 3 tasks failed: 7_[0-2]\n" in f"{facts.verdict}\n"


@pytest.mark.parametrize(("word", "near"), [("lst", True), ("42x", False)])
def test_a_misspelt_last_is_suggested(tmp_path: Path, word: str, near: bool) -> None:  # noqa: FBT001 - a case
    with pytest.raises(UsageError, match="is not a job number") as caught:
        find_job(session(tmp_path, []), word)
    assert ("did you mean last?" in caught.value.hint) == near
    with pytest.raises(UsageError, match="there is no log") as caught:
        explain_log(session(tmp_path, []), word)
    assert ("did you mean last?" in caught.value.hint) == near


def test_a_failed_job_with_a_checkpoint_tells_how_to_continue(tmp_path: Path) -> None:
    output = tmp_path / "7.out"
    output.write_text("srun: error: n1: task 0: Exited with exit code 3\n")
    record = write_record(tmp_path, str(output))
    (record / "job.json").write_text(plan_text(choices=[]))
    (record / "job.sh").write_text("main() {\n    resume_from snap.pt 5\n}\n")
    runner = Telling(output, [(shown("FAILED", output, code="3:0"), "")])
    facts = follow_job(make_session(tmp_path, HOST, runner), "7", pause=0.01, stream=io.BytesIO())
    assert (
        facts.advice
        == "to continue from snap.pt, if the program wrote it, launch the job again with the same --checkpoint"
    )


NO_ACCOUNTING = Reply(1, "", "Slurm accounting storage is disabled")


def forgotten(tmp_path: Path, job: str = "7") -> JobFacts:
    """Return the facts of a job that Slurm has forgotten, on a cluster without accounting."""
    return find_job(session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), NO_ACCOUNTING)]), job)


def test_a_forgotten_job_that_was_cancelled_while_it_waited_is_cancelled(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x/%j.out")
    (record / "cancelled").touch()
    facts = forgotten(tmp_path)
    assert (facts.state, facts.kind, facts.code, facts.meaning) == ("CANCELLED", "ended", 143, "was cancelled")


def test_a_forgotten_job_that_ran_and_was_cancelled_is_cancelled(tmp_path: Path) -> None:
    record = write_record(tmp_path, "/x/%j.out")
    (record / "ends").write_text("7 0 143 n1 10 20\n")
    assert forgotten(tmp_path).state == "FAILED"
    (record / "cancelled").touch()
    assert (forgotten(tmp_path).state, forgotten(tmp_path).code) == ("CANCELLED", 143)
    (record / "ends").write_text("7 0 0 n1 10 20\n")
    assert forgotten(tmp_path).verdict == "job 7 ended well (code 0)"  # it ended before scancel arrived


def test_the_end_of_a_forgotten_job_that_nothing_recorded_is_not_known(tmp_path: Path) -> None:
    record = write_record(tmp_path, f"{tmp_path}/%j.out")
    facts = forgotten(tmp_path)
    assert (facts.state, facts.kind, facts.code) == ("UNKNOWN", "ended", None)
    assert facts.verdict == (
        "job 7 has left the queue, but how it ended is not known: Slurm does not list it, and no end was recorded"
    )
    (tmp_path / "7.out").write_text("step 1\n")
    assert b"".join(read_output(forgotten(tmp_path))) == b"step 1\n"
    assert forgotten(tmp_path).code is None
    (record / "first").write_text("7 0 3 n1 42\n")
    facts = forgotten(tmp_path)
    assert (facts.state, facts.code, facts.first and facts.first.rank) == ("FAILED", 42, 3)
    (record / "first").unlink()
    (tmp_path / "7.out").write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n")
    assert forgotten(tmp_path).verdict.startswith("job 7 ran out of memory: request more with --mem (code 137)")


@pytest.mark.parametrize("job", ["7_2", "7_1"])
def test_a_forgotten_task_of_an_array_has_no_part_of_other_tasks(tmp_path: Path, job: str) -> None:
    record = array_record(tmp_path)
    (record / "job.json").write_text(plan_text(directives=["--array=0-5"]))
    facts = forgotten(tmp_path, job)
    assert (facts.id, facts.state, facts.code, facts.output) == (job, "UNKNOWN", None, "")
    assert (facts.runs, facts.ranks, facts.first, facts.nodes) == ((), (), None, "")
    with pytest.raises(UsageError, match=f"the output of job {job} is not known"):
        list(read_output(facts))
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": "/x/%A_%a.out"}))
    assert forgotten(tmp_path, job).output == f"/x/{job}.out"


def test_tasks_of_an_array_that_were_cancelled_while_they_waited_are_cancelled(tmp_path: Path) -> None:
    record = array_record(tmp_path)
    (record / "job.json").write_text(plan_text(name="train", directives=["--array=0-5"]))
    waits = Reply(0, array_row("2,4-5%1", "PENDING", tmp_path / "2").replace("JobState", "JobName=train JobState"), "")
    runner = FakeRunner([(("scontrol",), waits)])
    there = make_session(tmp_path, HOST, runner)
    cancel_jobs(there, ("7_2",))
    cancel_jobs(there, ("7_[4-5%1]",))
    states = {task: forgotten(tmp_path, f"7_{task}").state for task in range(6)}
    assert [task for task, state in states.items() if state == "CANCELLED"] == [2, 4, 5]
    assert states[0] == "UNKNOWN"
    assert not past_jobs(there, most=1)[0].is_cancelled  # the other tasks continue


def test_the_commands_say_that_the_end_of_a_job_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = write_record(tmp_path, f"{tmp_path}/%j.out")
    (tmp_path / "7.out").write_text("step 1\n")
    (record / "ranks-n1").write_text("rank=0 host=n1 job=7\n")
    replies: list[tuple[tuple[str, ...], Reply]] = [(("scontrol",), FORGOTTEN), (("sacct",), NO_ACCOUNTING)]
    there = session(tmp_path, replies)
    known = "job 7 has left the queue, but how it ended is not known"
    assert follow_to_end(there, "7", every=0.01) == 125
    assert known in capsys.readouterr().err
    found = explain_log(there, "7")
    assert found.end.startswith(known)
    assert not found.hint
    report = collect_report(there, "7")
    assert report.summary.startswith(known.capitalize())
    assert name_state(report) == "unknown"
    _, verdict = verify_job(there, "7")
    assert verdict.findings[0].evidence.startswith("it has left the queue, but how it ended is not known; the lines")
    monkeypatch.setattr("argosy.cli.cmd_jobs.open_session", lambda **_: there)
    shown = CliRunner().invoke(app, ("jobs", "show", "7")).output
    assert "UNKNOWN (has left the queue" in shown
    assert "code" not in shown


def test_cancelled_tasks_of_an_array_are_not_failed_ones(tmp_path: Path) -> None:
    rest = array_row("1", "CANCELLED", tmp_path / "1").replace("ArrayTaskId=1", "ArrayTaskId=1,3%1")
    ran = array_row("0", "CANCELLED", tmp_path / "0", "0:15")
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, rest + ran, ""))]), "7")
    assert (facts.id, facts.state, facts.code) == ("7_0", "CANCELLED", 143)
    assert (facts.failed_tasks, facts.failed_ranges) == ((), "")
    failed = array_row("2", "FAILED", tmp_path / "2", "3:0") + array_row("4", "TIMEOUT", tmp_path / "4")
    facts = find_job(session(tmp_path, [(("scontrol",), Reply(0, ran + rest + failed, ""))]), "7")
    assert (facts.id, facts.code, facts.failed_ranges) == ("7_2", 3, "7_[2,4]")


def test_of_an_arrays_tasks_in_the_accounting_the_failed_one_comes_before_a_cancelled_one(tmp_path: Path) -> None:
    told = Reply(0, "7_0|CANCELLED by 9|0:15|n2|40\n7_1|FAILED|9:0|n1|41\n7_[2-5]|CANCELLED by 9|0:0||7\n", "")
    facts = find_job(session(tmp_path, [(("scontrol",), FORGOTTEN), (("sacct",), told)]), "7")
    assert (facts.id, facts.state, facts.code) == ("7_1", "FAILED", 9)


@pytest.mark.parametrize(
    ("ends", "mark", "advice"),
    [
        ("6 0 3 n1 10 20\n", False, "its smoke run 6 failed: argosy why 6"),
        ("", True, "its smoke run 6 was cancelled"),
        ("", False, "it waited for its smoke run 6: argosy jobs show 6"),
        ("6 0 0 n1 10 20\n", False, ""),
    ],
)
def test_a_job_that_never_started_names_its_smoke_run(tmp_path: Path, ends: str, mark: bool, advice: str) -> None:  # noqa: FBT001 - a case
    record = write_record(tmp_path, "/x/%j.out")
    directives = ["--nodes=1", "--dependency=afterany:5,afterok:6", "--kill-on-invalid-dep=yes"]
    (record / "job.json").write_text(plan_text(directives=directives))
    smoke = tmp_path / "runs/20260101-000000-aaa"
    smoke.mkdir()
    (smoke / "submitted.json").write_text('{"job": "6"}')
    (smoke / "ends").write_text(ends)
    if mark:
        (smoke / "cancelled").touch()
    assert forgotten(tmp_path).advice == ""
    (record / "command-line.sh").write_text("argosy launch x.sif --smoke-first -- python train.py\n")
    assert forgotten(tmp_path).advice == advice
    removed = shown("CANCELLED", tmp_path / "none").stdout.replace("NodeList=n1", "NodeList=(null)")
    assert find_job(session(tmp_path, [(("scontrol",), Reply(0, removed, ""))]), "7").advice == advice
    (record / "ends").write_text("7 0 1 n1 10 20\n")
    assert forgotten(tmp_path).advice == ""


def test_a_job_that_slurm_completes_for_long_is_not_asked_for_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "7.out"
    record = write_record(tmp_path, str(output))
    (record / "ends").write_text("7 0 0 n1 10 20\n")
    runner = Telling(output, [*[(shown("COMPLETING", output), "")] * 5, (shown("COMPLETED", output), "")])
    pauses: list[int] = []
    wait = threading.Event().wait

    def sleep(seconds: float) -> None:
        pauses.append(runner.asked)
        wait(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    follow_job(make_session(tmp_path, HOST, runner), "7", pause=0.01, stream=io.BytesIO())
    assert {2, 3, 4, 5} <= {*pauses}


def test_a_silent_controller_does_not_hide_the_recorded_end(tmp_path: Path) -> None:
    output = tmp_path / "7.out"
    record = write_record(tmp_path, f"{tmp_path}/%j.out")
    notes = io.StringIO()
    runner = Telling(
        output, [(shown("RUNNING", output), ""), (SILENT, ""), (SILENT, ""), (shown("COMPLETED", output), "")]
    )
    place = replace(make_session(tmp_path, HOST, runner), reporter=PlainReporter(notes))
    follow_job(place, "7", pause=0.01, stream=io.BytesIO())
    assert "the job may continue" in notes.getvalue()
    (record / "ends").write_text("7 0 3 n1 10 20\n")
    runner.asked, said = 0, notes.tell()
    assert follow_job(place, "7", pause=0.01, stream=io.BytesIO()).code == 3
    assert "its record says that it ended with code 3 on n1" in notes.getvalue()[said:]
    assert "continue" not in notes.getvalue()[said:]
