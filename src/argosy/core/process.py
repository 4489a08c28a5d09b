"""Start programs: the one module that does; it never decides what to start.

A command is a tuple of words from the first record to the last moment, so no shell ever splits it again.  The fake
runner ships here, so users can test their own launches as we test ours.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, ToolMissing
from argosy.core.shell import format_command

if TYPE_CHECKING:
    import subprocess

Argv = tuple[str, ...]
OnLine = Callable[[str], None]
OnBlock = Callable[[bytes], None]

LAST_LINES = 12
FULL_DISK = ("no space left on device", "disk quota exceeded", "os error 28", "os error 122")
FULL_DISK_HINT = (
    "free some space or files (df -h, df -i and quota -s tell which), or choose another place with --work-dir, "
    "--output or ARGOSY_CACHE"
)
LIMITS = {
    128 + signal.SIGKILL: "it was killed, mostly because memory ran out: go to where there is more, as a compute node",
    128 + signal.SIGXCPU: "it used up the time that one program may compute here: ulimit -t, or go to a compute node",
    128 + signal.SIGXFSZ: "it wrote more than one file may hold here: ulimit -f",
}
"""What to do where the machine ended a program."""

PACKAGES = {
    "bwrap": "bubblewrap",
    "mksquashfs": "squashfs-tools",
    "ssh": "openssh-client",
    "unsquashfs": "squashfs-tools",
    "unshare": "util-linux",
}
"""Where the programs are that have another name than their package."""
TERM_GRACE_SECONDS = 5.0


class Command(msgspec.Struct, frozen=True):
    """A program to start.

    Attributes
    ----------
    argv
        The program and its arguments.
    cwd
        Working directory; None is the caller's.
    env
        The whole environment; None is the caller's.
    stdin
        Text given on standard input; None gives an empty one.
    stdin_file
        A file given on standard input instead.
    joined
        Whether a captured program's standard output goes where its errors go, so that their order is kept.
    """

    argv: Argv
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: str | None = None
    stdin_file: str | None = None
    joined: bool = False

    def __str__(self) -> str:
        """Render the command as a line that a shell would take."""
        return shlex.join(self.argv)


class Reply(msgspec.Struct, frozen=True):
    """What a program said and how it ended."""

    code: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """What stories are given to start programs with."""

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run to the end; capture both streams; tell each line of standard error to `on_line` as it comes."""

    def run_foreground(self, command: Command, heard: OnBlock | None = None) -> int:
        """Run with this terminal's own streams; pass signals on; return the program's exit code.

        Parameters
        ----------
        heard
            Gets what the program writes to its error stream, which is copied to ours.
        """

    def exec_command(self, command: Command) -> int:
        """Let the program take this process's place; a runner that cannot runs it and returns its exit code."""


def run_checked(
    runner: Runner, command: Command, *, doing: str, hint: str = "", on_line: OnLine | None = None
) -> Reply:
    """Run a program that must succeed.

    Raises
    ------
    ToolFailed
        With the command and its last lines, when it ends with another code than 0.
    """
    reply = runner.run(command, on_line)
    if reply.code != 0:
        raise tool_error(command, reply, doing=doing, hint=hint)
    return reply


def tool_error(command: Command, reply: Reply, *, doing: str, hint: str = "") -> ArgosyError:
    """Make the error for a program that ended with another code than 0."""
    text = (reply.stderr.strip() or reply.stdout.strip()).splitlines()
    lines = [f"$ {shorten_command(command)}", *text[-LAST_LINES:], f"(exit code {reply.code})"]
    full = next((line for line in text if any(mark in line.lower() for mark in FULL_DISK)), None)
    if full is not None:
        return CheckFailed(f"{doing} failed: no space left", evidence="\n".join(lines), hint=FULL_DISK_HINT)
    return ToolFailed(f"{doing} failed", evidence="\n".join(lines), hint=LIMITS.get(reply.code, hint))


def shorten_command(command: Command) -> str:
    """Render a command for a message, its middle left out where it has over 400 characters."""
    text = str(command)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"  # noqa: PLR2004 - as it says


class RealRunner:
    """Starts programs on this machine.

    A captured program runs in a process group of its own, which is ended when we are interrupted; with ``setpriv``
    (util-linux) it also dies when we are killed, so a ``kill -9`` leaves no packer writing behind our back.
    """

    def __init__(self, echo: OnLine | None = None) -> None:
        self._echo = echo
        self._told = set[str]()

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run a program to its end and capture what it says."""
        from argosy.core.locks import deferred_signals  # noqa: PLC0415 - planning starts no program

        self._say(command)
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(Path(command.stdin_file).open("rb")) if command.stdin_file else None
            child: subprocess.Popen[bytes] | None = None
            try:
                with deferred_signals():  # a program that was started and that nobody knows of could not be ended
                    child = self._popen(command, capture=True, source=source)
                return _collect(child, command.stdin, on_line)
            except BaseException:
                if child is not None and child.returncode is None:
                    _end_group(child)
                raise
            finally:
                if child is not None:
                    _close_pipes(child)

    def run_foreground(self, command: Command, heard: OnBlock | None = None) -> int:
        """Give the terminal to a program until it ends; signals that reach us go to it."""
        self._say(command)
        with _forwarding() as forwarder:
            child = self._popen(command, capture=False, errors=heard is not None)
            forwarder.adopt(child)
            if heard is not None:
                forwarder.copy_errors(child, heard)
            code = forwarder.wait(child)
        return 128 - code if code < 0 else code

    def exec_command(self, command: Command) -> int:
        """Let the program take this process's place: signals, terminal and exit code are its own from here on."""
        self._say(command)
        program = self._find(command)
        if command.cwd is not None:
            os.chdir(command.cwd)
        sys.stdout.flush()
        sys.stderr.flush()
        # Python ignores these two, and an ignored signal stays so in the program.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        environment = dict(command.env if command.env is not None else os.environ)
        os.execve(program, command.argv, environment)  # noqa: S606 - words, no shell: that is the point

    def _say(self, command: Command) -> None:
        if self._echo is not None:
            self._echo(f"$ {format_command(command.argv, self._told)}")

    @staticmethod
    def _find(command: Command) -> str:
        program = command.argv[0]
        found = find_program(program, (command.env or os.environ).get("PATH"))
        if found is None:
            raise ToolMissing(
                f"'{program}' is not installed here",
                evidence=f"needed for: {shorten_command(command)}",
                hint=f"install {PACKAGES.get(program, program)}, or load the module that has it",
            )
        return found

    def _popen(
        self, command: Command, *, capture: bool, errors: bool = False, source: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        import subprocess  # noqa: PLC0415 - with what it loads 40 file-system calls: planning starts no program

        pipe = subprocess.PIPE if capture else None
        given: IO[bytes] | int = source or (subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL)
        self._find(command)
        return subprocess.Popen(
            (*_guard("KILL" if capture else "TERM"), *command.argv),
            cwd=command.cwd,
            env=dict(command.env) if command.env is not None else None,
            stdin=given if capture else None,
            stdout=pipe,
            stderr=subprocess.STDOUT if capture and command.joined else subprocess.PIPE if capture or errors else None,
            process_group=0 if capture else None,
        )


def find_program(name: str, path: str | None = None) -> str | None:
    """Find a program on a search path, the caller's by default."""
    import shutil  # noqa: PLC0415 - it loads every compression module there is, and planning starts no program

    return shutil.which(name, path=path)


@cache
def _guard(signal_name: str) -> Argv:
    """Give the words that end a program with us, also where we are killed: one with the terminal is asked to."""
    setpriv = find_program("setpriv")
    return (setpriv, "--pdeathsig", signal_name, "--") if setpriv else ()


def _collect(child: subprocess.Popen[bytes], stdin: str | None, on_line: OnLine | None) -> Reply:
    out: list[bytes] = []
    err: list[str] = []
    threads = [
        threading.Thread(target=_drain, args=(child.stdout if child.stderr else None, out.append), daemon=True),
        threading.Thread(target=_drain_lines, args=(child.stderr or child.stdout, err, on_line), daemon=True),
    ]
    patience: float | None = None
    try:
        for thread in threads:
            thread.start()
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write((stdin or "").encode())
                child.stdin.close()
        code = child.wait()
    except BaseException:
        _end_group(child)
        patience = TERM_GRACE_SECONDS  # what left the group may hold the pipes for ever
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join(patience)
    return Reply(128 - code if code < 0 else code, b"".join(out).decode(errors="replace"), "".join(err))


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    """Close our ends of a child's pipes; what the child did not read is lost."""
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _drain(stream: IO[bytes] | None, put: Callable[[bytes], None]) -> None:
    with contextlib.suppress(ValueError):  # closed: whoever was interrupted does not wait for the rest
        while stream is not None and (block := stream.read(65536)):
            put(block)


def _drain_lines(stream: IO[bytes] | None, lines: list[str], on_line: OnLine | None) -> None:
    with contextlib.suppress(ValueError):  # likewise
        for raw in stream or ():
            text = raw.decode(errors="replace")
            lines.append(text)
            if on_line is not None:
                on_line(text.rstrip())


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """TERM, then KILL, to a child's whole process group; the child is reaped."""
    import subprocess  # noqa: PLC0415 - see _popen

    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(timeout=TERM_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        break
    # What the program left in its group has been asked to end; it is not asked twice.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class _Forwarder:
    """Passes signals on to a child; those that come before there is one are kept for it."""

    def __init__(self, awake: int = -1) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._awake = awake

    def adopt(self, child: subprocess.Popen[bytes]) -> None:
        """Name the child, and pass on what came early."""
        self._child = child
        while self._early:
            self._send(self._early.pop(0))

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child's end, and be awake for each signal.

        Python runs a handler between two of its own steps: a signal that comes just before ``waitpid`` blocks would be
        passed on after the child's end only.  So this waits for the byte that every signal writes, SIGCHLD included.
        """
        while self._awake >= 0 and child.poll() is None:
            self._listen()
        return child.wait()

    def copy_errors(self, child: subprocess.Popen[bytes], heard: OnBlock) -> None:
        """Copy the child's error stream to ours until it ends; awake for each signal, as `wait` is."""
        if child.stderr is None:
            return
        with child.stderr:
            while True:
                if not self._listen(child.stderr.fileno()):
                    continue
                if not (block := os.read(child.stderr.fileno(), 65536)):
                    return
                os.write(2, block)
                heard(block)

    def _listen(self, *streams: int) -> bool:
        """Wait for a signal or for one of the streams; tell whether it was a stream."""
        import select  # noqa: PLC0415 - see _popen

        awake = [self._awake] if self._awake >= 0 else []
        ready, _, _ = select.select([*awake, *streams], [], [])
        if self._awake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._awake, 4096)
        return any(stream in ready for stream in streams)

    def forward(self, number: int, _frame: object) -> None:
        """Handle a signal."""
        self._early.append(number)
        if self._child is not None:
            self.adopt(self._child)

    def leave(self, number: int, frame: object) -> None:
        """Handle a ^C of the terminal, which gives it to the child itself, or the child's end, which is waited for.

        A handler and not SIG_IGN: an ignored signal would stay ignored in the child.
        """

    def _send(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


@contextlib.contextmanager
def _forwarding() -> Iterator[_Forwarder]:
    """Pass TERM, HUP, USR1 and USR2 on to a child; leave ^C to the terminal, which gives it to both.

    The handlers are there before the child is: no signal finds neither.  What we ignore (``nohup``) the child ignores.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _Forwarder()
        return
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    forwarder = _Forwarder(awake)
    woken = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    handlers: dict[signal.Signals, Callable[[int, object], None]] = {}
    handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), forwarder.forward)
    # A ^C typed at a terminal reaches the whole foreground group, the child included.  One sent to us alone must be
    # passed on; the two cannot be told apart without a terminal, so there we pass it on.
    handlers[signal.SIGINT] = forwarder.leave if os.isatty(0) else forwarder.forward
    heeded = {number: each for number, each in handlers.items() if signal.getsignal(number) is not signal.SIG_IGN}
    before = {number: signal.signal(number, each) for number, each in heeded.items()}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, forwarder.leave)
    try:
        yield forwarder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(awake)
        os.close(wake)


class FakeRunner(msgspec.Struct, dict=True):
    """A runner that starts nothing: it answers from a table and remembers what it was asked.

    Parameters
    ----------
    replies
        Pairs of (leading words, reply); the first whose words begin the command answers.  None of them: code 0.

    A runner of its own kind may keep what it likes beside these.
    """

    replies: list[tuple[Argv, Reply]] = msgspec.field(default_factory=list)
    seen: list[Command] = msgspec.field(default_factory=list)

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Answer from the table."""
        self.seen.append(command)
        reply = next((r for words, r in self.replies if command.argv[: len(words)] == words), Reply(0, "", ""))
        if on_line is not None:
            for line in reply.stderr.splitlines():
                on_line(line)
        return reply

    def run_foreground(self, command: Command, heard: OnBlock | None = None) -> int:
        """Answer with the code from the table."""
        reply = self.run(command)
        if heard is not None:
            heard(reply.stderr.encode())
        return reply.code

    def exec_command(self, command: Command) -> int:
        """Answer with the code from the table."""
        return self.run(command).code
