"""The exception that ended a program is its cause; one that the program caught is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.diagnostics.verify.verify import verify_logs
from argosy.diagnostics.why.explain import describe_first_rank
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures
from tests.unit.machines import make_host, make_session

SIGNATURES = read_signatures()

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 40, in <module>
    main()
  File "/home/ada/model.py", line 7, in main
    width = sizes["width"]
KeyError: 'width'
"""
IN_PACKAGE = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 40, in <module>
    read(path)
  File "/opt/env/lib/python3.12/site-packages/einops/einops.py", line 9, in read
    raise EinopsError(text)
einops.EinopsError: Shape mismatch
"""
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ada/train.py", line 12, in <module>
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ada/train.py", line 30, in <module>
[rank1]:     assert step < 5
[rank1]: AssertionError
[rank0]:     dist.barrier()
[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
Traceback (most recent call last):
  File "/opt/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def cause_of(text: str) -> tuple[str, str]:
    """Return name and cause of the first error with a cause; empty without one."""
    first = next((each for each in find_errors(text, SIGNATURES) if each.level != "symptom"), None)
    return (first.name, first.cause) if first else ("", "")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRACEBACK, "the program raised KeyError: 'width' at model.py:7: sizes has no key 'width'"),
        (IN_PACKAGE, "the program raised EinopsError: Shape mismatch at train.py:40, in the package einops"),
        (
            IN_PACKAGE.replace("/home/ada/train.py", "<string>"),
            (
                "the program raised EinopsError: Shape mismatch in line 40 of the program after 'python -c', "
                "in the package einops"
            ),
        ),
        (
            "".join(f"    {line}\n" for line in TRACEBACK.splitlines()),
            "the program raised KeyError: 'width' at model.py:7: sizes has no key 'width'",
        ),
        (
            TORCHRUN,
            (
                "the program raised AssertionError: assert step < 5 at train.py:12: "
                "the program requires 'step < 5', which was not true"
            ),
        ),
        (
            "[rank3]: KeyError: 'width'\n",
            "the program ended with KeyError: 'width': a table or dictionary has no key 'width'",
        ),
        (
            "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check\n",
            "the program ended with std::out_of_range: vector::_M_range_check",
        ),
        (
            "forrtl: severe (124): Invalid command supplied to EXECUTE_COMMAND_LINE\n",
            "the program ended with the message 'severe (124): Invalid command supplied to EXECUTE_COMMAND_LINE'",
        ),
        (
            "a.out: solve.c:12: main: Assertion `n > 0' failed.\n",
            "the program stopped, since its check 'n > 0' failed at solve.c:12",
        ),
        (
            "thread 'main' panicked at src/main.rs:27:21:\nno column 'y' in the table\nnote: run with a backtrace\n",
            "the program ended with the message 'src/main.rs:27:21: no column 'y' in the table'",
        ),
        (
            "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --epoch 5\n",
            "the program refused its arguments: unrecognized arguments: --epoch 5",
        ),
    ],
)
def test_the_exception_that_ended_the_program_is_the_cause(text: str, cause: str) -> None:
    assert cause_of(f"epoch 1\n{text}") == ("program-error", cause)


def test_a_known_error_is_preferred_to_the_exception() -> None:
    text = TRACEBACK.replace("KeyError: 'width'", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    assert cause_of(text)[0] == "gpu-memory"


@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK + "epoch 2\n" * 30,
        f"Exception ignored in: <function Store.__del__ at 0x7f>\n{TRACEBACK}",
        "--- Logging error ---\n" + TRACEBACK,
    ],
)
def test_an_exception_after_which_the_program_continues_is_not_a_cause(text: str) -> None:
    assert cause_of(f"epoch 1\n{text}") == ("", "")


def test_of_two_chained_exceptions_the_last_one_is_named() -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert cause_of(TRACEBACK + chain + TRACEBACK.replace("KeyError: 'width'", "ValueError: no width"))[1].startswith(
        "the program raised ValueError: no width"
    )


LABELLED = """\
0: step 1
1: step 1
2: step 1
3: Traceback (most recent call last):
3:   File "/home/ada/train.py", line 40, in <module>
0: step 2
3:     width = sizes["width"]
3: KeyError: 'width'
0: NCCL WARN socketProgress: Connection closed by remote peer n2<4>
"""


def test_labels_of_srun_show_the_rank_that_failed_first() -> None:
    first, *rest = find_errors(LABELLED, SIGNATURES)
    assert (first.rank, first.line) == ("3", 8)
    assert first.cause.startswith("the program raised KeyError: 'width' at train.py:40: ")
    assert [each.name for each in rest] == ["connection-lost"]
    assert describe_first_rank(LABELLED, (first, *rest)) == "rank 3 wrote the first error"
    ended = "srun: error: n2: task 3: Exited with exit code 1\n"
    assert describe_first_rank(LABELLED + ended, (first, *rest)) == "rank 3 on n2 failed first (code 1)"


def test_labels_of_mpirun_are_read_and_numbered_lines_of_other_programs_are_not() -> None:
    (tagged,) = find_errors("[1,0]<stdout>:step 1\n[1,3]<stderr>: MemoryError\n", SIGNATURES)
    assert (tagged.name, tagged.rank) == ("host-memory", "3")
    (numbered,) = find_errors("12: x\na\nb\nMemoryError\n", SIGNATURES)
    assert (numbered.name, numbered.rank) == ("host-memory", "")


def test_verify_names_the_rank_of_a_labelled_log_that_failed_first(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(LABELLED)
    evidence = verify_logs(make_session(tmp_path, make_host()), [str(log)], "", 0)[1].findings[0]
    assert (evidence.what, evidence.state, evidence.evidence) == ("ranks", "fail", "rank 3 wrote the first error")


REFUSED_BY_TORCHRUN = """\
usage: train.py [-h] [--lr LR]
train.py: error: unrecognized arguments: --learning-rate 3
E1123 21:54:04.319000 1204 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 2) local_rank: 0
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED
"""


def test_refused_arguments_are_the_cause_although_torchrun_prints_a_traceback() -> None:
    found = find_errors(REFUSED_BY_TORCHRUN, SIGNATURES)[0]
    assert (found.line, found.cause) == (
        2,
        "the program refused its arguments: unrecognized arguments: --learning-rate 3",
    )


REFUSED_BY_TWO_RANKS = """\
usage: train.py [-h] [--lr LR]
{}train.py: error: unrecognized arguments: --learning-rate 3
{}train.py: error: unrecognized arguments: --learning-rate 3
srun: error: n1: tasks 0-1: Exited with exit code 2
"""


@pytest.mark.parametrize("usages", [("", "usage: train.py [-h] [--lr LR]\n"), ("usage: train.py [-h] [--lr LR]\n", "")])
def test_arguments_that_two_ranks_refused_are_quoted_once(usages: tuple[str, str]) -> None:
    (found,) = find_errors(REFUSED_BY_TWO_RANKS.format(*usages), SIGNATURES)[:1]
    assert (found.text, found.below) == ("train.py: error: unrecognized arguments: --learning-rate 3", ())


def test_a_message_in_the_line_after_the_name_of_the_exception_is_read() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/home/ada/run.py", line 3, in <module>\n    run()\nRuntimeError:\n'
    )
    found = find_errors(f"{log}\nFatal Error: the ring did not close.\n", SIGNATURES)
    assert found[0].cause == "the program raised RuntimeError: Fatal Error: the ring did not close. at run.py:3"


IN_A_BOX = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/ada/train.py:40 in <module>                                            │
│                                                                              │
│   39 # the widths of the layers                                              │
│ ❱ 40 main(sizes)                                                             │
│                                                                              │
│ /opt/env/lib/python3.12/site-packages/einops/einops.py:9 in read             │
╰──────────────────────────────────────────────────────────────────────────────╯
EinopsError: Shape mismatch
"""


def test_a_traceback_in_a_box_is_read() -> None:
    assert cause_of(f"step 1\n{IN_A_BOX}")[1] == (
        "the program raised EinopsError: Shape mismatch at train.py:40, in the package einops"
    )


def test_a_traceback_with_the_time_before_each_line_is_read() -> None:
    lines = TRACEBACK.splitlines()
    log = "".join(f"2026-11-20T12:00:0{second}.123Z {line}\n" for second, line in enumerate(lines))
    assert cause_of(log)[1] == "the program raised KeyError: 'width' at model.py:7: sizes has no key 'width'"


def test_the_exception_from_which_another_one_was_raised_is_named_with_it() -> None:
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = f"{TRACEBACK}{chain}{IN_PACKAGE}"
    assert cause_of(log)[1].endswith("in the package einops, because of KeyError: 'width'")


def test_an_exception_of_cpp_ends_a_program_that_caught_one_of_python() -> None:
    thrown = "terminate called after throwing an instance of 'frob::RingError'\n  what():  the ring is open\n"
    log = TRACEBACK + "step\n" * 30 + thrown
    assert cause_of(log)[1] == "the program ended with frob::RingError: the ring is open"


def test_an_exception_without_a_message_names_its_function() -> None:
    frame = '  File "/home/ada/tree.py", line 9, in rollback\n    raise NotImplementedError()\nNotImplementedError\n'
    (found,) = find_errors("Traceback (most recent call last):\n" + frame, SIGNATURES)
    assert found.cause == (
        "the program raised NotImplementedError in rollback at tree.py:9: "
        "the class has no rollback, or does not support this choice"
    )


def test_the_exception_of_another_process_is_named_at_its_own_place() -> None:
    inner = 'Traceback (most recent call last):\n  File "/home/ada/data.py", line 9, in read\n    assert rows == 1\n'
    outer = 'Traceback (most recent call last):\n  File "/home/ada/main.py", line 3, in f\n    future.result()\n'
    outer += '  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 401, in __get_result\n    raise e\n'
    chain = '"""\n\nThe above exception was the direct cause of the following exception:\n\n'
    log = f'concurrent.futures.process._RemoteTraceback: \n"""\n{inner}AssertionError\n{chain}{outer}AssertionError\n'
    assert cause_of(log)[1].startswith("the program raised AssertionError: assert rows == 1 at data.py:9")


def test_a_traceback_of_sacred_is_read() -> None:
    log = 'Traceback (most recent calls WITHOUT Sacred internals):\n  File "/home/ada/split.py", line 24, in split\n'
    assert (
        "at split.py:24"
        in cause_of(f"{log}    n = y.size(0)\nAttributeError: 'NoneType' object has no attribute 'size'\n")[1]
    )


def test_an_exception_of_java_that_is_only_a_warning_is_not_the_cause() -> None:
    warned = "Apr-12 [main] WARN  n.AssetManager - Cannot read it -- Cause: not found: a.config\n"
    log = f"{warned}nextflow.exception.AbortOperationException: not found: a.config\n\tat n.Launcher.main(L:653)\n"
    log += "[main] DEBUG n.Launcher - aborted\nnextflow.exception.AbortOperationException: not found: main.nf\n"
    assert cause_of(log)[1].endswith("AbortOperationException: not found: main.nf")
