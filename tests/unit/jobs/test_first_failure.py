"""Which rank failed first is read from what srun and torchrun printed, as they really print it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.jobs.first_failure import RankEnd, find_first_failure
from argosy.launch.script.helpers import render_script_functions

SRUN = """\
epoch 1
srun: error: node2: task 3: Exited with exit code 42
srun: Terminating StepId=3.0
slurmstepd-node1: error: *** STEP 3.0 ON node1 CANCELLED AT 2026-11-20T12:54:54 ***
srun: error: node2: task 2: Terminated
srun: error: node1: tasks 0-1: Terminated
"""

SHELL_BETWEEN = """\
srun: error: node1: tasks 0-1: Exited with exit code 143
srun: error: node2: task 2: Exited with exit code 7
"""

KILLED = """\
srun: error: nid001234: tasks 5,7: Killed
srun: Terminating StepId=99.0
srun: error: nid001233: tasks 0-3: Terminated
"""


def report(time: str, host: str, rank: int, code: int) -> str:
    return (
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        f"  time      : 2026-11-20_{time}\n"
        f"  host      : {host}\n"
        f"  rank      : {rank} (local_rank: 1)\n"
        f"  exitcode  : {code} (pid: 363) \n"
        "  error_file: <N/A>\n"
    )


TASKS = """\
srun: error: node2: task 1: Exited with exit code 1
srun: error: node1: task 0: Exited with exit code 1
"""


def test_srun_names_the_task_that_failed_and_not_those_that_it_ended() -> None:
    assert find_first_failure(SRUN) == RankEnd(3, "node2", 42)


def test_codes_of_ended_ranks_are_not_the_first_failure() -> None:
    assert find_first_failure(SHELL_BETWEEN) == RankEnd(2, "node2", 7)


def test_a_signal_gives_the_exit_code_of_a_shell() -> None:
    end = find_first_failure(KILLED)
    assert end == RankEnd(5, "nid001234", 137)
    assert end is not None
    assert end.text == "rank 5 on nid001234 failed first (code 137, signal 9)"


@pytest.mark.parametrize(("code", "how"), [(3, "code 3"), (137, "code 137, signal 9"), (255, "code 255")])
def test_only_existing_signals_are_named(code: int, how: str) -> None:
    assert RankEnd(0, "node1", code).text == f"rank 0 on node1 failed first ({how})"


# As srun of Slurm 24.11 printed them when a rank ended itself by a signal.
BY_SIGNAL = """\
srun: error: node1: task 1: {}
srun: Terminating StepId=7.0
slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-22T08:09:34 ***
srun: error: node1: task 0: Terminated
srun: error: node2: tasks 2-3: Terminated
srun: Force Terminated StepId=7.0
"""


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("Illegal instruction", 132),
        ("Floating point exception (core dumped)", 136),
        ("Bus error", 135),
        ("Out Of Memory", 137),
        ("Terminated", 143),
    ],
)
def test_every_signal_that_ends_a_rank_is_named(word: str, code: int) -> None:
    assert find_first_failure(BY_SIGNAL.format(word)) == RankEnd(1, "node1", code)


def test_ranks_that_srun_of_22_05_ended_did_not_fail_first() -> None:
    text = "srun: launch/slurm: _step_signal: Terminating StepId=3.0\nsrun: error: node1: task 0: Terminated\n"
    assert find_first_failure(text) is None
    assert find_first_failure(f"srun: error: node2: task 2: Terminated\n{text}") == RankEnd(2, "node2", 143)


def test_a_progress_bar_that_left_its_line_open_hides_no_failure() -> None:
    assert find_first_failure("epoch 1:  50%|#####     |\rsrun: error: node2: task 3: Killed\n") == RankEnd(
        3, "node2", 137
    )
    assert find_first_failure("50%|#####     | 5/10srun: error: n1: task 0: Exited with exit code 4\n") == RankEnd(
        0, "n1", 4
    )


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: n1: task {}: Exited with exit code 4",
        "srun: error: n1: task ,{}: Exited with exit code 4",
        "argosy: rank {} on n1 ended with code 4",
        "argosy: rank {} failed first (code 4)",
    ],
)
def test_a_number_that_no_rank_has_is_no_traceback(line: str) -> None:
    found = find_first_failure(line.format("9" * 5000) + "\n")
    assert found is not None
    assert (found.rank, found.code) == (0, 4)


def test_ranks_that_slurm_ended_did_not_fail_first() -> None:
    text = "slurmstepd-node1: error: *** JOB 22 ON node1 CANCELLED AT 2026-11-22T08:22:32 DUE TO PREEMPTION ***\n"
    text += "srun: forcing job termination\nsrun: error: node2: task 1: Terminated\nsrun: Terminating StepId=22.0\n"
    assert find_first_failure(text) is None


def test_torchruns_report_precedes_sruns() -> None:
    assert find_first_failure(report("12:54:50", "node2", 3, 42) + TASKS) == RankEnd(3, "node2", 42)


def test_the_earliest_of_several_reports_counts() -> None:
    text = report("12:54:52", "node1", 0, -6) + report("12:54:50", "node2", 3, 42) + TASKS
    assert find_first_failure(text) == RankEnd(3, "node2", 42)


def test_workers_that_torchrun_ended_are_not_the_root_cause() -> None:
    text = report("12:54:49", "node1", 0, -15) + report("12:54:50", "node2", 3, 42)
    assert find_first_failure(text) == RankEnd(3, "node2", 42)


def test_a_worker_that_a_signal_ended_has_a_shells_code() -> None:
    assert find_first_failure(report("12:54:50", "node2", 3, -9)) == RankEnd(3, "node2", 137)


def test_ranks_that_were_all_ended_from_outside_still_have_a_first() -> None:
    assert find_first_failure("srun: error: node1: task 0: Exited with exit code 143\n") == RankEnd(0, "node1", 143)


@given(st.integers(0, 9999), st.integers(1, 255).filter(lambda code: code not in {137, 143}), st.text(max_size=50))
def test_the_failing_task_is_found_in_any_output(rank: int, code: int, noise: str) -> None:
    text = f"{noise}\nsrun: error: n1: task {rank}: Exited with exit code {code}\n{SRUN}"
    assert find_first_failure(text) == RankEnd(rank, "n1", code)


def test_output_without_evidence_gives_no_verdict() -> None:
    assert find_first_failure("") is None
    assert find_first_failure("Exited with exit code 3\nerror: node1: task 0\n") is None


def test_only_the_last_run_of_a_requeued_job_counts() -> None:
    again = "argosy: the run wrote a new checkpoint, so the job is requeued: restart 1 of 5\n"
    first = "srun: error: node1: task 0: Exited with exit code 140\n" + again
    last = "srun: error: node2: task 3: Exited with exit code 42\n"
    assert find_first_failure(first + last) == RankEnd(3, "node2", 42)
    assert find_first_failure(first + last + "argosy: job 7 ended with code 42\n") == RankEnd(3, "node2", 42)
    assert (
        find_first_failure(first + "argosy: job 7_2 ended with code 9\n" + "argosy: job 7 ended with code 9\n") is None
    )


def test_a_step_that_srun_was_asked_to_end_has_no_first_failure() -> None:
    text = """\
srun: forcing job termination
srun: Job step aborted: Waiting up to 5 seconds for job step to finish.
slurmstepd-node1: error: *** STEP 64.1 ON node1 CANCELLED AT 2026-11-22T19:03:20 ***
srun: error: node1: task 0: Killed
srun: Terminating StepId=64.1
srun: error: node2: task 1: Killed
"""
    assert find_first_failure(text) is None
    own = "srun: error: node2: task 1: Exited with exit code 3\n"
    assert find_first_failure(own + text) == RankEnd(1, "node2", 3)


def test_ranks_killed_after_the_step_ended_did_not_fail_first() -> None:
    text = """\
srun: Job step aborted: Waiting up to 5 seconds for job step to finish.
slurmstepd-node1: error: *** STEP 79.0 ON node1 CANCELLED AT 2026-11-22T19:10:42 ***
srun: error: node2: task 1: Killed
srun: Terminating StepId=79.0
srun: error: node1: task 0: Exited with exit code 143
"""
    assert find_first_failure(text) is None
    assert find_first_failure(text + "srun: error: node1: task 2: Exited with exit code 6\n") == RankEnd(2, "node1", 6)


STOPS = re.compile(r'\bstop "(the .*?)"')


@pytest.mark.parametrize(
    "said",
    STOPS.findall("\n".join(render_script_functions("stage_image; run_before")).replace("$argosy_staged", "/x y")),
)
def test_a_failure_before_the_ranks_begin_is_not_a_ranks(said: str) -> None:
    """Each message of the script, because srun reports the tasks of these steps, too."""
    task = "srun: error: node1: task 0: Exited with exit code 3\n"
    assert find_first_failure(f"{task}argosy: {said}\n") is None
    assert find_first_failure(task) == RankEnd(0, "node1", 3)


def test_three_steps_before_the_ranks_may_fail() -> None:
    assert len(STOPS.findall("\n".join(render_script_functions("stage_image; run_before")))) == 3


def test_mpirun_names_the_rank_that_a_signal_ended() -> None:
    text = "mpirun noticed that process rank 3 with PID 77 on node n2 exited on signal 9 (Killed).\n"
    assert find_first_failure(text) == RankEnd(3, "n2", 137)


@pytest.mark.parametrize(("how", "code"), [("code 3", 3), ("signal 11", 139)])
def test_the_script_of_a_run_on_this_machine_names_the_rank(how: str, code: int) -> None:
    text = f"argosy: rank 1 failed first ({how}); the others were ended\n"
    assert find_first_failure(text) == RankEnd(1, "this machine", code)
