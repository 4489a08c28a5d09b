"""Start programs; the only module that does.

A command is a tuple of arguments, so no shell ever splits it. `FakeRunner` is for tests: those of Argosy, and those of
programs that use its Python API.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from argosy.core.children import IDLE, TIMED_OUT, forwarding, wait_while_active
from argosy.core.errors import ToolMissing
from argosy.core.locks import deferred_signals
from argosy.core.shell import format_command

if TYPE_CHECKING:
    import subprocess

    Child = subprocess.Popen[bytes]

Argv = tuple[str, ...]
OnLine = Callable[[str], None]
OnBlock = Callable[[bytes], None]

PACKAGES = {
    "bwrap": "bubblewrap",
    "mksquashfs": "squashfs-tools",
    "ssh": "openssh-client",
    "unsquashfs": "squashfs-tools",
    "unshare": "util-linux",
}
"""Debian packages of programs whose package has another name."""
TERM_GRACE_SECONDS = 5.0

BLOCK_BYTES = 65536
LINE_END = re.compile(rb"\r?\n|\r(?!\n|$)")
"""A carriage return at the end of a block may be the first half of a line end."""


class Command(msgspec.Struct, frozen=True):
    """A program to start."""

    argv: Argv
    """The program and its arguments."""
    cwd: str | None = None
    """Working directory; None means the caller's."""
    env: Mapping[str, str] | None = None
    """The complete environment; None means the caller's."""
    stdin: str | None = None
    """Text for standard input; None means empty."""
    stdin_file: str | None = None
    """Path of a file for standard input."""
    joined: bool = False
    """Whether standard output and standard error of a captured program are one stream, which keeps their order."""
    idle: float = 0.0
    """Seconds without data after which a captured program is ended; 0 means never.

    For programs that only transfer data: the kernel counts all bytes that the program itself reads and writes, also
    those of the network.
    """
    umask: int = -1
    """The umask of the program; -1 means the caller's."""

    def __str__(self) -> str:
        """Render the command as a line for a shell."""
        return shlex.join(self.argv)


class Reply(msgspec.Struct, frozen=True):
    """Output and exit code of a program."""

    code: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """Interface for starting programs."""

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run a program to its end and capture its output; pass each line of standard error to `on_line`."""

    def run_foreground(self, command: Command, on_stderr: OnBlock | None = None) -> int:
        """Run a program on this terminal, forward signals to it, and return its exit code.

        Parameters
        ----------
        on_stderr
            Called with each block that the program writes to standard error; the block is also printed.
        """

    def exec_command(self, command: Command) -> int:
        """Replace this process with the program; a runner that cannot do so returns the program's exit code."""


def shorten_command(command: Command) -> str:
    """Render a command for a message; a long one is shortened in the middle to 400 characters."""
    text = str(command)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"  # noqa: PLR2004 - see above


_CAPTURED = set["Child"]()
"""The captured programs that run, of all threads."""


_ENDING = threading.Event()
"""Whether captured programs are ended, also those that a thread is about to start."""


@contextlib.contextmanager
def ending_captured_programs() -> Iterator[None]:
    """Send SIGTERM to the captured programs of all threads, and to those that begin before the block ends."""
    _ENDING.set()
    try:
        for child in tuple(_CAPTURED):
            _terminate_group(child)
        yield
    finally:
        _ENDING.clear()


def _terminate_group(child: Child) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


class RealRunner:
    """Starts programs on this machine.

    A captured program runs in its own process group, which is ended when Argosy is interrupted. With ``setpriv``
    (util-linux) it also ends when Argosy is killed by SIGKILL, so that no program keeps writing.
    """

    def __init__(self, echo: OnLine | None = None) -> None:
        self._echo = echo
        self._shown = set[str]()

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run a program to its end and capture its output."""
        self._say(command)
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(Path(command.stdin_file).open("rb")) if command.stdin_file else None
            child: Child | None = None
            try:
                with deferred_signals():  # a signal before the assignment would leave the program running
                    child = self._popen(command, capture=True, source=source)
                    _CAPTURED.add(child)
                    if _ENDING.is_set():
                        _terminate_group(child)
                return _collect(child, command, on_line)
            except BaseException:
                if child is not None and child.returncode is None:
                    _end_group(child)
                raise
            finally:
                if child is not None:
                    _CAPTURED.discard(child)
                    _close_pipes(child)

    def run_foreground(self, command: Command, on_stderr: OnBlock | None = None) -> int:
        """Run a program on this terminal until it ends and forward signals to it."""
        self._say(command)
        _flush_output()
        with forwarding() as forwarder:
            child = self._popen(command, capture=False, errors=on_stderr is not None)
            forwarder.adopt(child)
            if on_stderr is not None:
                forwarder.copy_errors(child, on_stderr)
            code = forwarder.wait(child)
        return _exit_code(code)

    def exec_command(self, command: Command) -> int:
        """Replace this process with the program, which then has its signals, terminal and exit code."""
        self._say(command)
        program = self._find(command)
        if command.cwd is not None:
            os.chdir(command.cwd)
        _flush_output()
        # Python ignores these two signals, and exec would keep them ignored in the program.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        environment = dict(command.env if command.env is not None else os.environ)
        os.execve(program, command.argv, environment)  # noqa: S606 - no shell is wanted

    def _say(self, command: Command) -> None:
        if self._echo is not None:
            self._echo(f"$ {format_command(command.argv, self._shown)}")

    @staticmethod
    def _find(command: Command) -> str:
        program = command.argv[0]
        found = find_program(program, (command.env or os.environ).get("PATH"))
        if found is None:
            readable = Command(tuple("…" if "\n" in argument else argument for argument in command.argv))
            raise ToolMissing(
                f"'{program}' is not installed on this machine",
                evidence=f"needed for: {shorten_command(readable)}",
                hint=f"install {PACKAGES.get(program, program)}, or load a module that provides it",
            )
        return found

    def _popen(
        self, command: Command, *, capture: bool, errors: bool = False, source: IO[bytes] | None = None
    ) -> Child:
        import subprocess  # noqa: PLC0415 - it takes 5 ms, and a dry run starts no program

        self._find(command)
        given: IO[bytes] | int = source or (subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL)
        stderr = subprocess.PIPE if capture or errors else None
        if capture and command.joined:
            stderr = subprocess.STDOUT
        return subprocess.Popen(
            (*_guard("KILL" if capture else "TERM"), *command.argv),
            cwd=command.cwd,
            env=dict(command.env) if command.env is not None else None,
            stdin=given if capture else None,
            stdout=subprocess.PIPE if capture else None,
            stderr=stderr,
            process_group=0 if capture else None,
            umask=command.umask,
        )


def _flush_output() -> None:
    """Print the buffered output, so that it precedes that of the program that starts next."""
    sys.stdout.flush()
    sys.stderr.flush()


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the path of a program on a search path, by default PATH; None if it is not found."""
    import shutil  # noqa: PLC0415 - it imports all compression modules, and a dry run needs no program

    return shutil.which(name, path=path)


@cache
def _guard(signal_name: str) -> Argv:
    """Return the command prefix that sends a signal to the program when this process ends, even by SIGKILL."""
    setpriv = find_program("setpriv")
    return (setpriv, "--pdeathsig", signal_name, "--") if setpriv else ()


def _exit_code(code: int) -> int:
    """Return the exit code that a shell shows: 128 and the number of the signal that ended the program."""
    return 128 - code if code < 0 else code


def _collect(child: Child, command: Command, on_line: OnLine | None) -> Reply:
    """Write the input of a program, capture its output until it ends, and return the output with the exit code.

    The lines of standard error go to `on_line`. If both streams are one (see `Command.joined`), it counts as standard
    error, and the reply's standard output is empty. A program without data for `Command.idle` seconds is ended and gets
    the exit code `TIMED_OUT`.
    """
    output, errors = (child.stdout, child.stderr) if child.stderr else (None, child.stdout)
    out: list[bytes] = []
    err: list[bytes] = []
    threads = [
        threading.Thread(target=_read_blocks, args=(output, out.append), daemon=True),
        threading.Thread(target=_read_lines, args=(errors, err.append, on_line), daemon=True),
    ]
    patience: float | None = None
    try:
        for thread in threads:
            thread.start()
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write((command.stdin or "").encode())
                child.stdin.close()
        ended = wait_while_active(partial(_ends_within, child), child.pid, command.idle)
        if not ended:
            _end_group(child)
        code = child.returncode if ended else TIMED_OUT
    except BaseException:
        _end_group(child)
        patience = TERM_GRACE_SECONDS  # a process that left the group may keep the pipes open for ever
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join(patience)
    if not ended:
        err.append(f"\n{command.argv[0]}: {IDLE} for {command.idle:.0f} seconds".encode())
    return Reply(_exit_code(code), _decode_blocks(out), _decode_blocks(err))


def _ends_within(child: Child, seconds: float | None) -> bool:
    import subprocess  # noqa: PLC0415 - see _popen

    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read_blocks(stream: IO[bytes] | None, put: Callable[[bytes], None]) -> None:
    """Read a stream to its end, or until another thread closes it after an interrupt."""
    with contextlib.suppress(ValueError):
        while stream is not None and (block := os.read(stream.fileno(), BLOCK_BYTES)):
            put(block)


def _read_lines(stream: IO[bytes] | None, put: Callable[[bytes], None], on_line: Callable[[str], None] | None) -> None:
    """Read a stream as `_read_blocks` does, and pass on its lines that are not empty.

    A carriage return also ends a line, because progress bars write them.
    """
    if on_line is None:
        _read_blocks(stream, put)
        return
    rest = b""

    def split(block: bytes) -> None:
        nonlocal rest
        put(block)
        *lines, rest = LINE_END.split(rest + block)
        for line in lines:
            _pass_on(line, on_line)

    _read_blocks(stream, split)
    _pass_on(rest, on_line)


def _pass_on(line: bytes, on_line: Callable[[str], None]) -> None:
    if line.strip():
        on_line(line.decode(errors="replace").rstrip())


def _decode_blocks(blocks: list[bytes]) -> str:
    """Return the text of all blocks."""
    return b"".join(blocks).decode(errors="replace")


def _close_pipes(child: Child) -> None:
    """Close this side of a child's pipes; unread input is lost."""
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _end_group(child: Child) -> None:
    """Send SIGTERM, then SIGKILL to a child's process group, and wait for the child."""
    import subprocess  # noqa: PLC0415 - see _popen

    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(timeout=TERM_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        break
    # Other processes of the group already got SIGTERM.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class FakeRunner(msgspec.Struct, dict=True):
    """A runner for tests: it starts nothing, replies from a table, and records the commands.

    Parameters
    ----------
    replies
        Pairs of leading arguments and reply; the first pair that matches a command is used. Default: exit code 0.
    seen
        The commands so far.
    """

    replies: list[tuple[Argv, Reply]] = msgspec.field(default_factory=list)
    seen: list[Command] = msgspec.field(default_factory=list)

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Return the reply from the table."""
        self.seen.append(command)
        reply = next((r for start, r in self.replies if command.argv[: len(start)] == start), Reply(0, "", ""))
        if on_line is not None:
            for line in reply.stderr.splitlines():
                on_line(line)
        return reply

    def run_foreground(self, command: Command, on_stderr: OnBlock | None = None) -> int:
        """Return the exit code from the table."""
        reply = self.run(command)
        if on_stderr is not None:
            on_stderr(reply.stderr.encode())
        return reply.code

    def exec_command(self, command: Command) -> int:
        """Return the exit code from the table."""
        return self.run(command).code
