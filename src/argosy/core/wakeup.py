"""Wake the main thread when a signal arrives.

Python runs the handler of a signal in the main thread, between two instructions. If the signal arrives just before that
thread begins to wait, for example for a worker thread, or if the system gives it to another thread, the handler would
run only when the wait ends.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time

WAKER = signal.SIGURG
"""The signal that interrupts the wait. Programs ignore it by default."""
PAUSES = (0.05, 0.2, 1.0)
"""Seconds before each time that the main thread is woken: on a busy machine, it may begin to wait late."""


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
