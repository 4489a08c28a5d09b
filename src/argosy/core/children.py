"""Wait for the programs that this process starts: forward signals to them, and end those that transfer no data.

Python runs the handler of a signal in the main thread, between two instructions. If the signal arrives just before that
thread begins to wait, for example for a worker thread, or if the system gives it to another thread, the handler would
run only when the wait ends. So `wake_on_signals` wakes the main thread.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argosy.core.process import Child

WAKER = signal.SIGURG
"""The signal that interrupts the wait. Programs ignore it by default."""
PAUSES = (0.05, 0.2, 1.0)
"""Seconds before each time that the main thread is woken: on a busy machine, it may begin to wait late."""

TIMED_OUT = 124
"""Exit code of a program that was ended because it transferred no data, as of timeout(1)."""
IDLE = "no data"
"""Begin of the message about such a program."""
IDLE_BYTES = 200
"""A program that transferred fewer bytes is idle. One HTTP request and its answer are longer."""
IDLE_CHECKS = 20
"""Number of looks at a program in its longest idle time."""


class Forwarder:
    """Forwards signals to a child; signals that arrive before it exists are stored.

    Parameters
    ----------
    wakeup
        File descriptor that Python writes a byte to for each signal; -1 if signals are not handled in this thread.
    """

    def __init__(self, wakeup: int = -1) -> None:
        self._child: Child | None = None
        self._early: list[int] = []
        self._wakeup = wakeup

    def adopt(self, child: Child) -> None:
        """Set the child and forward the stored signals."""
        self._child = child
        while self._early:
            self._send(self._early.pop(0))

    def wait(self, child: Child) -> int:
        """Wait for the child's end and forward each signal at once.

        Python runs handlers between bytecodes: a signal that arrives just before ``waitpid`` blocks would be forwarded
        only after the child's end. So this waits for the byte that every signal writes, including SIGCHLD.
        """
        while self._wakeup >= 0 and child.poll() is None:
            self._listen()
        return child.wait()

    def copy_errors(self, child: Child, on_stderr: Callable[[bytes], None]) -> None:
        """Copy the child's standard error to that of this process until it ends; forward signals as in `wait`."""
        if child.stderr is None:
            return
        with child.stderr:
            while True:
                if not self._listen(child.stderr.fileno()):
                    continue
                if not (block := os.read(child.stderr.fileno(), 65536)):
                    return
                left = block
                while left:  # a signal can end a write to a full pipe early
                    left = left[os.write(2, left) :]
                on_stderr(block)

    def _listen(self, *streams: int) -> bool:
        """Wait for a signal or for one of the streams; return whether a stream is ready."""
        wakeup = [self._wakeup] if self._wakeup >= 0 else []
        ready, _, _ = select.select([*wakeup, *streams], [], [])
        if self._wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, 4096)
        return any(stream in ready for stream in streams)

    def forward(self, number: int, _frame: object) -> None:
        """Handle a signal by forwarding it."""
        self._early.append(number)
        if self._child is not None:
            self.adopt(self._child)

    def ignore(self, number: int, frame: object) -> None:
        """Ignore SIGINT, which the terminal also sends to the child, and SIGCHLD, which only ends the wait.

        SIG_IGN instead of a handler would also apply to the child.
        """

    def _send(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


@contextlib.contextmanager
def forwarding() -> Iterator[Forwarder]:
    """Forward SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 to a child; the terminal sends SIGINT to both.

    The handlers are set before the child starts, so that no signal is lost. Signals that Argosy ignores (``nohup``) are
    ignored by the child as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Forwarder()
        return
    wakeup, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    forwarder = Forwarder(wakeup)
    before_fd = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    handlers: dict[signal.Signals, Callable[[int, object], None]] = {}
    handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), forwarder.forward)
    # A ^C typed at a terminal reaches the whole foreground group, including the child. Without a terminal, SIGINT was
    # sent to this process only and must be forwarded.
    handlers[signal.SIGINT] = forwarder.ignore if os.isatty(0) else forwarder.forward
    handled = {number: each for number, each in handlers.items() if signal.getsignal(number) is not signal.SIG_IGN}
    before = {number: signal.signal(number, each) for number, each in handled.items()}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, forwarder.ignore)
    try:
        yield forwarder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(wakeup)
        os.close(wakes)


@functools.cache
def wake_on_signals() -> None:
    """Start a thread that interrupts the waits of the main thread, which calls this, after each signal."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(WAKER, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_wake, args=(reader, threading.get_ident()), daemon=True).start()


def _wake(reader: int, main: int) -> None:
    while numbers := os.read(reader, 64):
        if any(number != WAKER for number in numbers):
            for pause in PAUSES:
                time.sleep(pause)
                signal.pthread_kill(main, WAKER)


def wait_while_active(ends_within: Callable[[float | None], bool], pid: int, idle: float) -> bool:
    """Wait until a program ends, and return whether it did so before it transferred no data for `idle` seconds.

    Parameters
    ----------
    ends_within
        Waits for some seconds, or without a limit for None, and returns whether the program has ended.
    idle
        0 for no limit.
    """
    if not idle:
        return ends_within(None)
    looks, before = 0, 0
    while looks < IDLE_CHECKS:
        if ends_within(idle / IDLE_CHECKS):
            return True
        now = _transferred(pid)
        looks, before = (looks + 1, before) if 0 <= now < before + IDLE_BYTES else (0, now)
    return False


def _transferred(pid: int) -> int:
    """Return the bytes that a program has read and written; -1 if the kernel does not tell them (proc(5), io)."""
    try:
        rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines())
        return int(rows["rchar"]) + int(rows["wchar"])
    except (OSError, ValueError, KeyError):
        return -1
