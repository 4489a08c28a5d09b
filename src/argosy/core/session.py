"""What a story is given to act with: the machine's facts, a runner, places on disk and somebody to report to."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from argosy.core.model import Host
from argosy.core.process import Runner

if TYPE_CHECKING:
    from argosy.core.locks import Owner


SILENCE_SECONDS = 30.0
"""Seconds after which a log says that the work goes on: people cancel a job whose log is silent."""


class Paths(msgspec.Struct, frozen=True):
    """Where Argosy keeps things for this user.

    Attributes
    ----------
    cache
        What can be made again: bases, unpacked trees, packages, tools.
    state
        What was run: scripts and records of launches.
    images
        Folders in which an image is found by its plain name, in order.
    """

    cache: Path
    state: Path
    images: tuple[Path, ...]


def paths_from(environment: dict[str, str], home: Path) -> Paths:
    """Choose the folders: ARGOSY_CACHE, ARGOSY_STATE and ARGOSY_IMAGES first, then the XDG base directories."""
    home = home.absolute()

    def usual(name: str, default: str) -> Path:
        """Give our folder below one of XDG, whose specification says to ignore relative ones."""
        there = environment.get(name, "")
        return (Path(there) if there.startswith("/") else home / default) / "argosy"

    def own(name: str, otherwise: Path) -> Path:
        return _at_home(environment[name], home) if environment.get(name) else otherwise

    named = tuple(_at_home(part, home) for part in environment.get("ARGOSY_IMAGES", "").split(":") if part)
    return Paths(
        cache=own("ARGOSY_CACHE", usual("XDG_CACHE_HOME", ".cache")),
        state=own("ARGOSY_STATE", usual("XDG_STATE_HOME", ".local/state")),
        images=named or (usual("XDG_DATA_HOME", ".local/share") / "images",),
    )


def _at_home(path: str, home: Path) -> Path:
    """Read a path whose ``~`` came through a shell, in quotes; runtimes mount nothing of a relative one."""
    return home / path[2:] if path.startswith("~/") else Path(path).absolute()


class Step(msgspec.Struct):
    """One step of a story while it runs.

    Attributes
    ----------
    result
        What came of it, in a few words; printed when the step ends.
    seconds
        How long it took; 0 until it ended.
    """

    name: str
    what: str
    tell: Callable[[str], None]
    result: str = ""
    seconds: float = 0.0

    def say(self, text: str) -> None:
        """Tell what is going on right now."""
        self.tell(text)


class Reporter(Protocol):
    """Somebody who watches a story: a terminal, a log, nobody."""

    def begin(self, step: Step) -> None:
        """Say that a step begins."""

    def end(self, step: Step, *, failed: bool) -> None:
        """Say that a step ended."""

    def progress(self, step: Step, text: str) -> None:
        """Say what a step is doing; may be dropped."""

    def note(self, text: str) -> None:
        """Say something that stays worth knowing."""


class PlainReporter(msgspec.Struct):
    """Writes whole lines without control codes: for logs, pipes and job output."""

    stream: TextIO = msgspec.field(default_factory=lambda: sys.stderr)
    verbose: bool = False
    silent_since: float = msgspec.field(default_factory=time.monotonic)

    def begin(self, step: Step) -> None:
        """Say it under --verbose only: a log tells a step when it ends."""
        self.silent_since = time.monotonic()
        if self.verbose:
            self._line(f"{step.name:<9} {step.what} …")

    def end(self, step: Step, *, failed: bool) -> None:
        """One line: name, what came of it, seconds."""
        text = "failed" if failed else step.result or step.what
        self._line(f"{step.name:<9} {text} ({step.seconds:.1f} s)")

    def progress(self, step: Step, text: str) -> None:
        """Progress is for people; a log gets it under --verbose, else now and then: all is well."""
        if self.verbose or time.monotonic() - self.silent_since > SILENCE_SECONDS:
            self._line(f"{step.name:<9}   {text}")

    def note(self, text: str) -> None:
        """One line."""
        self._line(text)

    def _line(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()
        self.silent_since = time.monotonic()


class Session(msgspec.Struct, frozen=True):
    """The effects that one story may use.

    Attributes
    ----------
    work
        Folder for work files; empty means TMPDIR or the cache folder, whichever is not in memory.
    """

    host: Host
    runner: Runner
    paths: Paths
    reporter: Reporter
    work: str = ""

    @contextlib.contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Report a step around a block and keep its time."""
        step = Step(name, what, lambda text: self.reporter.progress(step, text))
        self.reporter.begin(step)
        start = time.monotonic()
        failed = True
        try:
            yield step
            failed = False
        finally:
            step.seconds = time.monotonic() - start
            self.reporter.end(step, failed=failed)

    def waiting(self, owner: Owner) -> None:
        """Say whom we wait for."""
        self.reporter.note(f"waiting for {owner}")

    def work_parent(self) -> Path:
        """Choose where work files go: as --work-dir says, else to TMPDIR if that is on a disk, else to the cache."""
        if self.work:
            return Path(self.host.cwd, self.work)
        named = self.host.environment.get("TMPDIR", "")
        temporary = Path(self.host.cwd, named)
        is_good = named and temporary.is_dir() and not in_memory(str(temporary))
        return temporary if is_good else self.paths.cache / "work"


def in_memory(path: str) -> bool:
    """Tell whether a folder lies in memory (tmpfs, ramfs): a gigabyte of packages there can end a build or a node."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        real = str(Path(path).resolve())
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            _, point, fs, *_ = line.split()
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, fs
    return kind in {"tmpfs", "ramfs"}


class BothReporters(msgspec.Struct, frozen=True):
    """Tells two reporters: a terminal and a log."""

    first: Reporter
    second: Reporter

    def begin(self, step: Step) -> None:
        """Tell both."""
        self.first.begin(step)
        self.second.begin(step)

    def end(self, step: Step, *, failed: bool) -> None:
        """Tell both."""
        self.first.end(step, failed=failed)
        self.second.end(step, failed=failed)

    def progress(self, step: Step, text: str) -> None:
        """Tell both."""
        self.first.progress(step, text)
        self.second.progress(step, text)

    def note(self, text: str) -> None:
        """Tell both."""
        self.first.note(text)
        self.second.note(text)


class QuietReporter:
    """Says nothing: errors are raised, not reported."""

    def begin(self, step: Step) -> None:
        """Say nothing."""

    def end(self, step: Step, *, failed: bool) -> None:
        """Say nothing."""

    def progress(self, step: Step, text: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
