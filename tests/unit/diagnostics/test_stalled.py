"""Programs that hang: the last line tells what they wait for, only if they did not end by themselves."""

from __future__ import annotations

import pytest

from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.lines import last_output, lines_of_last_job, split_lines
from argosy.diagnostics.why.signatures import read_signatures

SIGNATURES = read_signatures()
LIMIT = "slurmstepd: error: *** JOB 4242 ON nid001 CANCELLED AT 2026-11-20T12:54:54 DUE TO TIME LIMIT ***"
CANCELLED = "slurmstepd: error: *** JOB 4242 ON nid001 CANCELLED AT 2026-11-20T12:54:54 ***"
STEP = "slurmstepd: error: *** STEP 4242.0 ON nid001 CANCELLED AT 2026-11-20T12:54:54 ***"
JOINING = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8"
SHUT_DOWN = "W1120 12:54:54.123000 812 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal"


def names(text: str, *, is_running: bool = False) -> list[str]:
    return [each.name for each in find_errors(text, SIGNATURES, is_running=is_running)]


@pytest.mark.parametrize(
    "end",
    [
        LIMIT,
        CANCELLED,
        "slurmstepd-node1: error: *** JOB 1 ON node1 CANCELLED AT 2026-11-28T12:57:19 ***",
        "[2026-11-29T20:50:30.7] error: *** JOB 5 ON n1 CANCELLED AT 2026-11-29T20:50:30 DUE to SIGNAL Terminated ***",
        f"srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n{LIMIT}",
    ],
)
def test_the_last_line_before_a_job_was_stopped_tells_what_it_waited_for(end: str) -> None:
    assert names(f"epoch 1\n{JOINING}\n\n{end}\n{SHUT_DOWN}\n")[0] == "waits-for-ranks-lightning"


def test_the_last_line_of_a_running_job_tells_what_it_waits_for() -> None:
    assert names(f"epoch 1\n{JOINING}\n", is_running=True) == ["waits-for-ranks-lightning"]


@pytest.mark.parametrize(
    "log", [f"{JOINING}\n", f"{JOINING}\nepoch 1\n{LIMIT}\n", f"{JOINING}\n{STEP}\n", f"{JOINING}\nMemoryError\n"]
)
def test_a_line_on_the_way_or_of_a_program_that_ended_by_itself_is_no_cause(log: str) -> None:
    assert "waits-for-ranks-lightning" not in names(log)


def test_a_question_is_found_although_the_message_of_slurm_follows_in_the_same_line() -> None:
    first, second = find_errors(f"Solving environment: done\nProceed ([y]/n)? {LIMIT}\n", SIGNATURES)
    assert (first.name, first.line, second.name, second.line) == ("waits-for-an-answer", 2, "time-limit", 2)
    assert "Proceed ([y]/n)" in first.cause


def test_an_exception_of_a_rank_for_which_the_others_waited_comes_before_the_time_limit() -> None:
    raised = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 4, in <module>\nKeyError: 3\n'
    assert names(f"epoch 1\n{raised}{LIMIT}\n") == ["program-error", "time-limit"]
    assert names(f"epoch 1\nERROR: the solver takes long\nstep 2\n{LIMIT}\n") == ["time-limit"]


def test_a_limit_of_the_command_timeout_is_named_with_the_reasons_of_a_hang() -> None:
    (found,) = find_errors("halo 100: ok\ntimeout: sending signal TERM to command 'mpirun'\n", SIGNATURES)
    assert found.name == "timeout-command"
    assert any("sends before it receives" in reason for reason in found.often)


def test_the_label_of_a_rank_is_no_question() -> None:
    assert [line.rank for line in split_lines(f"0: a\n1: b\n1: {LIMIT}")] == ["0", "1", "1"]


def test_the_runs_of_a_log_are_split_also_where_slurm_names_the_node() -> None:
    first, second = (
        f"slurmstepd-n1: error: *** JOB {job} ON n1 CANCELLED AT 2026-11-28T12:57:19 ***" for job in (1, 2)
    )
    assert [line.number for line in lines_of_last_job(split_lines(f"a\n{first}\nb\n{second}"))] == [3, 4]


def test_a_program_that_ended_by_itself_has_no_last_output() -> None:
    assert last_output(split_lines("a\nb\n"), is_running=False) is None
    assert last_output(split_lines("a\nb\n\n"), is_running=True) == 1
    assert last_output(split_lines("srun: queued\n"), is_running=True) is None


def test_the_last_of_several_runs_is_explained_where_the_output_comes_before_the_errors() -> None:
    begin = "Loaded module: python/3.11\nLoaded dependency: gcc/12.1\n"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
    log = (
        f"Accuracy 0.9\n{begin}{trace}KeyError: 'a'\n{begin}{trace}KeyError: 'b'\n{begin}{trace}KeyError: 'c'\n{begin}"
    )
    (found,) = [each for each in find_errors(log, SIGNATURES) if each.level == "cause"]
    assert found.text == "KeyError: 'c'"


def test_lines_that_a_terminal_wrapped_are_joined() -> None:
    frame = '  File "/scratch/project/ada/envs/train/lib/python3.11/site-packages/torch/serialization.py", line 9, in f'
    log = (
        f"Traceback (most recent call last):\n{frame[:80]}\n{frame[80:]}\n    raise ValueError(text)\nValueError: no\n"
    )
    lines = split_lines(log)
    assert [(line.number, line.text) for line in lines][1:3] == [(2, frame), (4, "    raise ValueError(text)")]


def test_an_error_long_before_the_time_limit_is_no_cause() -> None:
    steps = "".join(f"epoch {n}: loss falls\n" for n in range(30))
    end = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-07-07T21:31:30 DUE TO TIME LIMIT ***\n"
    failed = "OSError: [Errno 122] Disk quota exceeded\n"
    assert [each.name for each in find_errors(failed + steps + end, SIGNATURES)] == ["time-limit", "quota"]
    assert [each.name for each in find_errors(steps + failed + end, SIGNATURES)] == ["quota", "time-limit"]


def test_what_is_printed_after_the_time_limit_is_a_consequence() -> None:
    killed = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup."
    assert [(e.name, e.level) for e in find_errors(f"a\n{LIMIT}\n{killed}\n", SIGNATURES)] == [
        ("time-limit", "end"),
        ("node-memory", "symptom"),
    ]
    assert names(f"a\n{killed}\n{LIMIT}\n")[0] == "node-memory"


def test_a_program_that_ran_to_its_limit_did_without_the_environment() -> None:
    conda = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."
    assert names(f"{conda}\nserver started\n{LIMIT}\n")[0] == "time-limit"
    assert names(f"{conda}\nModuleNotFoundError: No module named 'torch'\n{LIMIT}\n")[0] != "time-limit"


def test_a_traceback_that_a_logger_reports_as_a_warning_is_no_cause() -> None:
    trace = '    Traceback (most recent call last):\n      File "web.py", line 7, in f\n        raise HTTPError(403)\n'
    log = f"[W 2024-04-20 13:47:25.481 ServerApp] wrote error: 'Forbidden'\n{trace}    web.HTTPError: 403\n" * 3
    assert names(f"{log}{LIMIT}\n") == ["time-limit"]


def test_the_stacks_of_a_program_that_was_cancelled_are_not_another_job() -> None:
    stack = "".join(f"jl_apply_{n} at /opt/julia/lib/libjulia.so.1 (unknown line)\n" for n in range(150))
    assert names(f"step 1\n{CANCELLED}\n[7] signal 15: Terminated\n{stack}")[0] == "job-cancelled"
