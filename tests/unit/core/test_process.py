"""Programs are started as words, their failures explained, and nothing of them stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from argosy.core import children
from argosy.core.children import TIMED_OUT, Forwarder
from argosy.core.errors import CheckFailed, ToolFailed, ToolMissing
from argosy.core.process import Command, FakeRunner, RealRunner, Reply, shorten_command
from argosy.core.tool_errors import run_checked
from argosy.core.worker_threads import WorkerThreads

HOSTILE = ("a b", "it's", '"', "$HOME", "`id`", "\n", "", "*", "é", "-n", "\\")


def test_arguments_reach_the_program_unchanged() -> None:
    show = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
    reply = RealRunner().run(Command((sys.executable, "-c", show, *HOSTILE)))
    assert tuple(reply.stdout.split("\0")) == HOSTILE


def test_the_environment_given_is_the_whole_environment() -> None:
    reply = RealRunner().run(Command(("env",), env={"PATH": os.environ["PATH"], "A": "x y"}))
    assert set(reply.stdout.split("\n")) >= {"A=x y"}
    assert "HOME=" not in reply.stdout


def test_both_streams_and_the_code_are_captured() -> None:
    lines: list[str] = []
    reply = RealRunner().run(Command(("sh", "-c", "echo out; echo one >&2; echo two >&2; exit 3")), lines.append)
    assert reply == Reply(3, "out\n", "one\ntwo\n")
    assert lines == ["one", "two"]


def test_streams_that_are_joined_keep_their_order() -> None:
    lines: list[str] = []
    command = Command(("sh", "-c", "echo one; echo two >&2; echo three; exit 3"), joined=True)
    assert RealRunner().run(command, lines.append) == Reply(3, "", "one\ntwo\nthree\n")
    assert lines == ["one", "two", "three"]


def test_a_signal_becomes_the_code_that_a_shell_gives() -> None:
    assert RealRunner().run(Command(("sh", "-c", "kill -9 $$"))).code == 137


def test_text_and_files_reach_standard_input(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("from a file")
    runner = RealRunner()
    assert runner.run(Command(("cat",), stdin="text")).stdout == "text"
    assert runner.run(Command(("cat",), stdin_file=str(tmp_path / "f"))).stdout == "from a file"
    assert runner.run(Command(("cat",))).stdout == ""


def test_a_missing_program_is_named_with_its_purpose() -> None:
    with pytest.raises(ToolMissing, match="'no-such-program' is not installed") as caught:
        RealRunner().run(Command(("no-such-program", "x")))
    assert "no-such-program x" in caught.value.evidence
    with pytest.raises(ToolMissing) as caught:
        RealRunner().run(Command(("unsquashfs",), env={"PATH": "/nowhere"}))
    assert "install squashfs-tools" in caught.value.hint
    script = "\n".join(f"echo {number}" for number in range(99)) + '\nexec "$@"'
    with pytest.raises(ToolMissing) as caught:
        RealRunner().run(
            Command(("no-srun", "--nodes=1", "bash", "-c", script, "bash", "argosy", "build", "my env.yml"))
        )
    assert caught.value.evidence == "needed for: no-srun --nodes=1 bash -c '…' bash argosy build 'my env.yml'"


def test_a_failure_shows_the_command_its_last_lines_and_the_code() -> None:
    command = Command(("sh", "-c", "seq 100 >&2; exit 4"))
    with pytest.raises(ToolFailed) as caught:
        run_checked(RealRunner(), command, doing="counting", hint="count less")
    lines = caught.value.evidence.splitlines()
    assert lines[0].startswith("$ sh -c")
    assert lines[-1] == "(exit code 4)"
    assert lines[-2] == "100"
    assert "1" not in lines
    assert caught.value.hint == "count less"


@pytest.mark.parametrize(("name", "said"), [("KILL", "memory ran out"), ("XCPU", "ulimit -t"), ("XFSZ", "ulimit -f")])
def test_a_program_ended_by_the_machine_is_reported_with_the_limit(name: str, said: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        run_checked(RealRunner(), Command(("sh", "-c", f"kill -{name} $$")), doing="packing", hint="another")
    assert said in caught.value.hint


@pytest.mark.parametrize("said", ["write: No space left on device", "Disk quota exceeded", "no space left on device"])
def test_a_full_disk_is_reported_in_plain_words_by_any_program(said: str) -> None:
    runner = FakeRunner([(("packer",), Reply(1, "", said))])
    with pytest.raises(CheckFailed, match="packing failed: no space left"):
        run_checked(runner, Command(("packer",)), doing="packing")


def test_a_program_without_data_is_ended_and_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    reply = RealRunner().run(Command(("cat", str(tmp_path / "silent")), idle=0.2))
    assert (reply.code, reply.stderr) == (TIMED_OUT, "\ncat: no data for 0 seconds")


def test_a_program_that_transfers_data_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(children, "_transferred", lambda _pid: next(amounts))
    some = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    assert RealRunner().run(Command((sys.executable, "-c", some), idle=0.2)) == Reply(0, "", "")


def test_a_program_whose_data_the_kernel_does_not_tell_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_transferred", lambda _pid: -1)
    some = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    assert RealRunner().run(Command((sys.executable, "-c", some), idle=0.2)).code == 0


def test_the_kernel_counts_the_data_of_a_program() -> None:
    before = children._transferred(os.getpid())
    Path("/dev/null").write_bytes(b"x" * 10000)
    assert children._transferred(os.getpid()) >= before + 10000
    assert children._transferred(2**30) == -1


def test_an_interrupted_program_is_ended_with_its_children(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    seen: list[int] = []

    def interrupt() -> None:
        seen.extend(map(int, told.read_text().split()))
        os.kill(os.getpid(), signal.SIGTERM)

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            RealRunner().run(Command(("sh", "-c", f"sleep 600 & echo $$ $! > {told}; wait")))
    finally:
        watcher.join()
        signal.signal(signal.SIGTERM, before)
    assert len(seen) == 2
    deadline = time.monotonic() + 300
    while alive := [pid for pid in seen if is_alive(pid)]:
        if time.monotonic() > deadline:
            pytest.fail(f"still there: {alive}")


def test_an_interrupt_while_a_program_is_being_started_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    start = subprocess.Popen
    seen: list[int] = []

    def start_and_be_interrupted(*words: object, **more: object) -> object:
        child = start(*words, **more)  # type: ignore[call-overload]  # as it is called
        seen.append(int(told.read_text()))
        signal.raise_signal(signal.SIGTERM)
        return child

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", start_and_be_interrupted)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            RealRunner().run(Command(("sh", "-c", f"echo $$ > {told}; exec sleep 600")))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not is_alive(seen[0])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def run_python(text: str, *words: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(text)
    return subprocess.Popen((sys.executable, "-c", code, *words), stdout=subprocess.PIPE, text=True)


def test_exec_leaves_only_the_program(tmp_path: Path) -> None:
    del tmp_path
    text = """
        from argosy.core.process import Command, RealRunner
        print("before")
        program = "echo $$; trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done"
        RealRunner().exec_command(Command(("sh", "-c", program)))
    """
    with run_python(text) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "before\n"
        assert int(child.stdout.readline()) == child.pid
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
    assert child.returncode == 7


def test_exec_does_not_pass_on_ignored_signals() -> None:
    text = """
        from argosy.core.process import Command, RealRunner
        RealRunner().exec_command(Command(("grep", "SigIgn", "/proc/self/status")))
    """
    with run_python(text) as child:
        assert child.stdout is not None
        ignored = int(child.stdout.read().split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_handing_over_passes_signals_on_and_gives_the_code() -> None:
    text = """
        import sys
        from argosy.core.process import Command, RealRunner
        program = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"
        sys.exit(RealRunner().run_foreground(Command(("sh", "-c", program))))
    """
    with run_python(text) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
    assert child.returncode == 9


def test_a_signal_that_comes_while_the_program_is_being_started_is_passed_on() -> None:
    text = """
        from argosy.core.process import Command, RealRunner
        program = "trap 'exit 9' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"
        print([RealRunner().run_foreground(Command(("sh", "-c", program))) for _ in range(20)])
    """
    with run_python(text) as child:
        assert child.stdout is not None
        assert child.stdout.read() == f"{[9] * 20}\n"
    assert child.returncode == 0


def test_a_signal_that_another_thread_takes_is_passed_on_while_errors_are_copied() -> None:
    text = """
        import signal, threading
        from pathlib import Path
        from argosy.core.process import Command, RealRunner

        state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")

        def hit():
            asleep = 0
            while asleep < 100:  # the main thread waits for the program
                asleep = asleep + 1 if state.read_text().rpartition(")")[2].split()[0] == "S" else 0
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # no system call of the main thread ends by it

        def heard(block):
            threading.Thread(target=hit).start()

        program = "trap 'exit 9' USR1; echo ready >&2; n=0; while [ $n -lt 30000 ]; do n=$((n+1)); sleep 0.01; done"
        print([RealRunner().run_foreground(Command(("sh", "-c", program)), heard) for _ in range(4)])
    """
    with run_python(text) as child:
        assert child.stdout is not None
        assert child.stdout.read() == f"{[9] * 4}\n"
    assert child.returncode == 0


def test_the_program_on_the_terminal_is_terminated_when_argosy_is_killed() -> None:
    text = """
        import sys
        from argosy.core.process import Command, RealRunner
        program = "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        RealRunner().run_foreground(Command(("sh", "-c", program)))
    """
    with run_python(text) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        assert child.stdout.read() == "ended\n"


def test_a_fake_answers_from_its_table_and_remembers() -> None:
    fake = FakeRunner([(("sbatch",), Reply(0, "17\n", ""))])
    assert fake.run(Command(("sbatch", "--parsable", "x"))).stdout == "17\n"
    assert fake.run_foreground(Command(("true",))) == 0
    assert [c.argv[0] for c in fake.seen] == ["sbatch", "true"]


def test_a_long_command_is_shortened_in_the_middle() -> None:
    text = shorten_command(Command(("x", "a" * 1000, "end")))
    assert len(text) < 420
    assert text.startswith("x aaa")
    assert text.endswith("end")


def _interrupt_a_worker() -> Future[Reply]:
    begun = threading.Event()
    with contextlib.suppress(KeyboardInterrupt), WorkerThreads(1) as pool:
        command = Command(("sh", "-c", "echo begun >&2; exec sleep 300"))
        ended = pool.submit(RealRunner().run, command, lambda _: begun.set())
        assert begun.wait(60)
        raise KeyboardInterrupt
    return ended


def test_an_interrupt_ends_the_programs_of_worker_threads() -> None:
    assert _interrupt_a_worker().result().code == 128 + signal.SIGTERM


def test_errors_are_copied_whole_if_a_signal_ends_a_write_early(monkeypatch: pytest.MonkeyPatch) -> None:
    told = b""

    def short(handle: int, data: bytes) -> int:
        nonlocal told
        assert handle == 2
        told += data[:7]
        return len(data[:7])

    with subprocess.Popen(("/bin/sh", "-c", "echo a long message >&2"), stderr=subprocess.PIPE) as child:
        monkeypatch.setattr(os, "write", short)
        blocks: list[bytes] = []
        Forwarder().copy_errors(child, blocks.append)
    assert told == b"".join(blocks) == b"a long message\n"


def test_a_program_can_have_another_umask() -> None:
    before = os.umask(0o077)
    try:
        replies = [RealRunner().run(Command(("sh", "-c", "umask"), umask=umask)).stdout for umask in (-1, 0o022)]
    finally:
        os.umask(before)
    assert replies == ["0077\n", "0022\n"]
