"""Measure progress: amounts, rates and the time left.

Everything that takes more than two seconds reports through a `Meter` of the session's reporter: on a terminal next to
the running step, in a log as a line now and then.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from argosy.core.render import KILO, TWO_DIGITS, render_seconds, render_size

SOON_SECONDS = 2.0
"""The rate of the first seconds of a download does not predict the remaining time."""

METER_SECONDS = 0.5
"""Interval between two reports of a meter."""

GROWTH_SECONDS = 1.0
"""Interval between two looks at a file or folder that grows; longer for a folder with many files."""

BYTES = "bytes"


class Meter:
    """Reports how much of something is done, at most twice per second.

    Parameters
    ----------
    report
        Receives each report.
    doing
        The activity, for example ``packing``.
    total
        The whole amount; 0 if it is not known.
    unit
        `BYTES`, or the name of the things that are counted.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        doing: str,
        total: float = 0,
        *,
        unit: str = BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._doing, self._unit, self._clock = report, doing, unit, clock
        self._total = total
        self._done = 0.0
        self._begun = self._reported = clock()
        self._first: tuple[float, float] | None = None

    def update(self, done: float, total: float = 0) -> None:
        """Set the amount that is done, and the total if it is known only now."""
        self._done, self._total = done, total or self._total
        now = self._clock()
        if done and self._first is None:
            # A download begins with questions to a server, which say nothing about its rate.
            self._first = now, done
        if now - self._reported >= METER_SECONDS:
            self._show(now)

    def add(self, more: float) -> None:
        """Add to the amount that is done."""
        self.update(self._done + more)

    def end(self) -> None:
        """Report the whole amount, if any was reported: what follows may take time, for example a flush to the disk."""
        if self._reported > self._begun:
            self._done = self._total = max(self._done, self._total)
            self._show(self._clock())

    def _show(self, now: float) -> None:
        self._reported = now
        begun, before = self._first or (now, 0.0)
        amount = render_amount(self._done, self._total, now - begun, before=before, unit=self._unit)
        self._report(f"{self._doing}: {amount}")


BAR = re.compile(r"\[[=\-|/\\ ]*\] +(\d+)/(\d+) +\d+%")
"""The progress bar of mksquashfs and unsquashfs 4.5 and 4.6."""


def read_bar(meter: Meter, line: str) -> None:
    """Update a meter from a line with a progress bar of mksquashfs or unsquashfs; other lines are skipped."""
    if match := BAR.search(line):
        meter.update(float(match[1]), float(match[2]))


def drop_bars(text: str) -> str:
    """Return the output of mksquashfs or unsquashfs without its progress bars."""
    return re.sub(rf"[\r\n]*{BAR.pattern}[\r\n]*", "\n", text).strip()


@contextlib.contextmanager
def watch_growth(meter: Meter, path: Path) -> Iterator[None]:
    """Report the size of a file or folder while it grows."""
    ended = threading.Event()

    def watch() -> None:
        pause, before = GROWTH_SECONDS, 0
        while not ended.wait(pause):
            begun, size = time.monotonic(), size_of(path)
            if size != before:  # otherwise another meter may have something to report
                meter.update(size)
            before = size
            pause = max(GROWTH_SECONDS, 10 * (time.monotonic() - begun))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        meter.end()


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; files that vanish meanwhile do not count."""
    total = 0
    with contextlib.suppress(OSError):
        if not path.is_dir():
            return path.stat().st_size
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total


def render_amount(done: float, total: float, seconds: float, *, before: float = 0.0, unit: str = BYTES) -> str:
    """Render progress, for example ``120 of 950 MB, 12 MB/s, 40 s left`` or ``12 of 90 files``.

    Parameters
    ----------
    done, total
        Bytes, or a number of `unit`; a total of 0 is not known.
    seconds
        Elapsed time; before it, the amount `before` was done.
    """
    is_bytes = unit == BYTES
    parts = [_render_sizes(done, total) if is_bytes else _render_counts(done, total, unit)]
    if seconds >= SOON_SECONDS and done > before and (not total or done < total):
        rate = (done - before) / seconds
        parts.append(f"{render_size(int(rate))}/s" if is_bytes else f"{rate:.{0 if rate >= TWO_DIGITS else 1}f}/s")
        if total:
            parts.append(f"{render_seconds((total - done) / rate)} left")
    return ", ".join(parts)


def _render_sizes(done: float, total: float) -> str:
    """Render an amount in the unit of the total."""
    if not total:
        return render_size(int(done))
    whole, _, unit = render_size(int(total)).partition(" ")
    factor = KILO ** ("bytes", "kB", "MB", "GB", "TB", "PB").index(unit)
    digits = 1 if "." in whole else 0
    return f"{done / factor:.{digits}f} of {whole} {unit}"


def _render_counts(done: float, total: float, unit: str) -> str:
    return f"{done:.0f} of {total:.0f} {unit}" if total else f"{done:.0f} {unit}"
