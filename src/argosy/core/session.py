"""The `Session` that commands use: facts about the machine, a runner for programs, folders and a reporter."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from argosy.core.errors import ImageError, UsageError
from argosy.core.model import Host
from argosy.core.mounts import in_memory
from argosy.core.process import Runner
from argosy.core.progress import BYTES, Meter
from argosy.core.render import escape_controls

if TYPE_CHECKING:
    from argosy.core.locks import Owner


SILENCE_SECONDS = 30.0
"""Seconds of silence after which a log reports progress, so that users do not cancel a job that seems to hang."""


AMOUNT_SECONDS = 5.0
"""Seconds of silence after which a verbose log reports how much is done."""


RUNS = "runs"
"""Name of the folder of records, also on machines that ssh reaches."""


class Paths(msgspec.Struct, frozen=True):
    """Folders of Argosy for this user."""

    cache: Path
    """Data that can be created again: bases, unpacked images, packages, tools."""
    state: Path
    """Scripts and records of launches."""
    images: tuple[Path, ...]
    """Folders in which images are searched by name, in order."""

    @property
    def runs(self) -> Path:
        """Folder with a record for each launch."""
        return self.state / RUNS


def paths_from(environment: dict[str, str], home: Path) -> Paths:
    """Return the folders from ARGOSY_CACHE, ARGOSY_STATE and ARGOSY_IMAGES, else from the XDG base directories.

    Raises
    ------
    UsageError
        If one of Argosy's variables is a relative path.
    """
    home = home.absolute()

    def usual(name: str, default: str) -> Path:
        """Return Argosy's folder in an XDG directory; relative ones are ignored, as the specification requires."""
        folder = environment.get(name, "")
        return (Path(folder) if folder.startswith("/") else home / default) / "argosy"

    def own(name: str, otherwise: Path) -> Path:
        return _at_home(environment[name], home, name) if environment.get(name) else otherwise

    named = tuple(
        _at_home(part, home, "ARGOSY_IMAGES") for part in environment.get("ARGOSY_IMAGES", "").split(":") if part
    )
    return Paths(
        cache=own("ARGOSY_CACHE", usual("XDG_CACHE_HOME", ".cache")),
        state=own("ARGOSY_STATE", usual("XDG_STATE_HOME", ".local/state")),
        images=named or (usual("XDG_DATA_HOME", ".local/share") / "images",),
    )


def config_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's configuration files; None for a user without a home folder."""
    home = environment.get("HOME", "")
    folder = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    return Path(folder) / "argosy" if folder else None


def _at_home(path: str, home: Path, name: str) -> Path:
    """Return the path in a variable; a quoted ``~`` is expanded here, because no shell did it."""
    refuse_relative(path, name)
    return home / path[2:] if path.startswith("~/") else Path(path).absolute()


def refuse_relative(path: str, name: str, source: str = "") -> None:
    """Refuse a folder that would be another one in each working directory.

    Parameters
    ----------
    name
        The variable or the key that contains the path.
    source
        The file and line that set it; empty for a variable.

    Raises
    ------
    UsageError
        If the path is relative.
    """
    if not path.startswith(("/", "~/")):
        why = "each working directory would have a folder of its own"
        raise UsageError(
            f"{name} is a relative path: {path}",
            evidence=f"{source}: {why}" if source else why,
            hint=f"write the whole path, for example {Path(path).absolute()}",
        )


class Step(msgspec.Struct):
    """A step of a command, while it runs."""

    name: str
    what: str
    tell: Callable[[str], None]
    result: str = ""
    """A short result, printed when the step ends."""
    seconds: float = 0.0
    """Duration; 0 until the step ends."""
    works: bool = False
    """Whether the step has reported what it is doing."""
    refused: bool = False
    """Whether a file or a request was refused before the step worked; the error alone is reported then."""

    def say(self, text: str) -> None:
        """Report what the step is doing."""
        self.works = True
        self.tell(text)


class Reporter(Protocol):
    """Destination of progress reports: a terminal, a log, or nothing."""

    def begin(self, step: Step) -> None:
        """Report the start of a step."""

    def end(self, step: Step, *, failed: bool) -> None:
        """Report the end of a step."""

    def progress(self, step: Step, text: str) -> None:
        """Report what a step is doing; may be dropped."""

    def amount(self, text: str) -> None:
        """Report how much of the running step is done; may be dropped."""

    def note(self, text: str) -> None:
        """Report information that users need beyond the step."""


class PlainReporter(msgspec.Struct):
    """Writes plain lines, for logs, pipes and job output."""

    stream: TextIO = msgspec.field(default_factory=lambda: sys.stderr)
    verbose: bool = False
    silent_since: float = msgspec.field(default_factory=time.monotonic)
    step: Step | None = None

    def begin(self, step: Step) -> None:
        """Report the start of a step with --verbose only; a log shows a step when it ends."""
        self.silent_since, self.step = time.monotonic(), step
        if self.verbose:
            self._line(f"{step.name:<9} {step.what} …")

    def end(self, step: Step, *, failed: bool) -> None:
        """Write one line: name, result, seconds."""
        if step.refused:
            return
        text = "failed" if failed else step.result or step.what
        self._line(f"{step.name:<9} {text} ({step.seconds:.1f} s)")

    def progress(self, step: Step, text: str) -> None:
        """Report progress with --verbose, else only after `SILENCE_SECONDS` without output."""
        if self.verbose or time.monotonic() - self.silent_since > SILENCE_SECONDS:
            self._line(f"{step.name:<9}   {text}")

    def amount(self, text: str) -> None:
        """Report an amount after `SILENCE_SECONDS` without output; with --verbose, after `AMOUNT_SECONDS`."""
        silence = time.monotonic() - self.silent_since
        if self.step and silence > (AMOUNT_SECONDS if self.verbose else SILENCE_SECONDS):
            self._line(f"{self.step.name:<9}   {text}")

    def note(self, text: str) -> None:
        """Write one line."""
        self._line(text)

    def _line(self, text: str) -> None:
        self.stream.write(escape_controls(text) + "\n")
        self.stream.flush()
        self.silent_since = time.monotonic()


class Session(msgspec.Struct, frozen=True):
    """The machine, folders, programs and output that a command uses."""

    host: Host
    runner: Runner
    paths: Paths
    reporter: Reporter
    work: str = ""
    """Folder for work files; empty means TMPDIR, or the cache folder if TMPDIR is in memory."""
    typed: tuple[str, ...] = ()
    """The command line that the user typed; empty for calls from Python."""
    show_all: str = "add --verbose"
    """How the user makes this command show the whole output of programs."""

    @contextlib.contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Report begin, end and duration of a block as a step."""
        step = Step(name, what, lambda text: self.reporter.progress(step, text))
        self.reporter.begin(step)
        start = time.monotonic()
        failed = True
        try:
            yield step
            failed = False
        except (UsageError, ImageError):
            step.refused = not step.works
            raise
        finally:
            step.seconds = time.monotonic() - start
            self.reporter.end(step, failed=failed)

    def meter(self, doing: str, total: float = 0, *, unit: str = BYTES) -> Meter:
        """Return a meter that reports as progress of the running step; parameters as `Meter`."""
        return Meter(self.reporter.amount, doing, total, unit=unit)

    def waiting(self, owner: Owner) -> None:
        """Report that this process waits for another one."""
        self.reporter.note(f"waiting for {owner}")

    def work_parent(self) -> Path:
        """Return the folder for work files: --work-dir, else TMPDIR if it is on a disk, else one in the cache."""
        if self.work:
            return Path(self.host.cwd, self.work)
        variable = self.host.environment.get("TMPDIR", "")
        temporary = Path(self.host.cwd, variable)
        is_usable = variable and temporary.is_dir() and not in_memory(temporary)
        return temporary if is_usable else self.paths.cache / "work"


class BothReporters(msgspec.Struct, frozen=True):
    """Passes reports on to two reporters: a terminal and a log."""

    first: Reporter
    second: Reporter

    def begin(self, step: Step) -> None:
        """Pass it on."""
        self.first.begin(step)
        self.second.begin(step)

    def end(self, step: Step, *, failed: bool) -> None:
        """Pass it on."""
        self.first.end(step, failed=failed)
        self.second.end(step, failed=failed)

    def progress(self, step: Step, text: str) -> None:
        """Pass it on."""
        self.first.progress(step, text)
        self.second.progress(step, text)

    def amount(self, text: str) -> None:
        """Pass it on."""
        self.first.amount(text)
        self.second.amount(text)

    def note(self, text: str) -> None:
        """Pass it on."""
        self.first.note(text)
        self.second.note(text)


class QuietReporter:
    """Reports nothing."""

    def begin(self, step: Step) -> None:
        """Report nothing."""

    def end(self, step: Step, *, failed: bool) -> None:
        """Report nothing."""

    def progress(self, step: Step, text: str) -> None:
        """Report nothing."""

    def amount(self, text: str) -> None:
        """Report nothing."""

    def note(self, text: str) -> None:
        """Report nothing."""
