"""Threads that start programs, and end with them when this process is interrupted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import TracebackType

from argosy.core.locks import deferred_signals
from argosy.core.process import ending_captured_programs


class WorkerThreads(ThreadPoolExecutor):
    """A thread pool whose block ends soon after a signal.

    Only the main thread receives the exception of a signal. Without this class, it would wait until the programs of
    the other threads end by themselves: packing a large wheel takes half a minute.
    """

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for the running threads. After an error, what has not begun is not done."""
        interrupted = kind is not None and not issubclass(kind, Exception)
        with deferred_signals(), ending_captured_programs() if interrupted else nullcontext():
            self.shutdown(cancel_futures=kind is not None)
