"""Measure the time that a wrapped command takes to start: `argosy bench startup`.

The cases are command lines that start the same Python with the same code.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.bench.result import quartiles
from argosy.core.errors import UsageError
from argosy.core.layout import ENV_PREFIX, NOT_FROM_CALLER
from argosy.core.parse import parse_json
from argosy.core.process import Command, find_program
from argosy.core.records import asdict, replace
from argosy.core.render import align_rows
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import work_folder
from argosy.core.tool_errors import run_checked
from argosy.images.flat import base_source, layer_source
from argosy.images.open import open_image
from argosy.images.prefix import version_folder
from argosy.images.rootfs_cache import unpack_cached
from argosy.wrap.model import Version
from argosy.wrap.root_entries import read_root_entries, root_entry_words
from argosy.wrap.versions import CACHE, open_prefix

BARE, RUNTIME, LINE, WRAPPER = "bare", "runtime", "line", "wrapper"

CASES: Mapping[str, str] = {
    BARE: "the program without a container, from unpacked files",
    RUNTIME: "the runtime's plain command line",
    LINE: "the command line that the wrapped command executes",
    WRAPPER: "the wrapped command",
}
"""Name of a case -> its description."""

PROGRAM = Path(__file__).with_name("startup_program.py")
MILLI = 1000
CALL = re.compile(r'^(?:\d+\s+)?[a-z_0-9]+\((?:AT_FDCWD, |\d+, )?"(?P<path>[^"]+)"', re.MULTILINE)
"""A call of strace's class ``%file`` that names a path."""


class StartupRequest(msgspec.Struct, frozen=True):
    """A measurement that the user asks for."""

    prefix: Path
    code: str
    """Python code to run, for example ``import torch``."""
    only: tuple[str, ...]
    """Cases to run; empty for all."""
    at_once: tuple[tuple[int, int], ...]
    """Pairs of simultaneous starts and the number of repetitions."""
    cold: int
    """Number of starts with the pages of the image dropped from memory."""


class StartCase(msgspec.Struct, frozen=True):
    """One way to start the program."""

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    drop: tuple[str, ...]
    """Files and folders whose pages are dropped from memory before a cold start."""
    place: str
    """Folder of the shared file system with the files of the case: calls that name a path below it are counted.
    Empty if paths in the container name these files, too (unpacked trees)."""


class StartFigure(msgspec.Struct, frozen=True):
    """Milliseconds of one case: median and quartiles."""

    case: str
    at_once: int
    """Number of simultaneous starts; 0 for a cold start."""
    median: float
    low: float
    high: float
    runs: int
    each: tuple[float, ...] = ()
    """The single values in the order of the measurement."""


class Calls(msgspec.Struct, frozen=True):
    """File-system calls of one start that name a path."""

    case: str
    calls: int
    shared: int | None
    """Calls on the shared file system; None if they cannot be counted."""


class StartupReport(msgspec.Struct, frozen=True):
    """The result of a measurement."""

    prefix: str
    runtime: str
    code: str
    figures: tuple[StartFigure, ...]
    calls: tuple[Calls, ...]
    notes: tuple[str, ...] = ()
    """Cases that could not be measured, with the reason."""


def measure_startup(request: StartupRequest, session: Session) -> StartupReport:
    """Compare the start of a prefix's Python with other ways to start it.

    Raises
    ------
    UsageError
        If there is no such prefix, or it has no Python.
    ToolFailed
        If a start fails.
    """
    with work_folder(session.work_parent()) as work:
        target = _open_target(request, work, session)
        found = list(_find_cases(target))
        cases = [case for case in found if isinstance(case, StartCase)]
        notes = [note for note in found if isinstance(note, str)]
        with session.step("start", f"{len(cases)} cases, alternately"):
            seconds = _measure(request, cases, work, session)
        calls: tuple[Calls, ...] = ()
        if find_program("strace"):
            calls = tuple(_trace(case, work / "trace", session) for case in cases)
        else:
            notes.append("file-system calls are not counted: strace is not installed")
    figures = tuple(figure for case in cases for figure in _figures(case.name, seconds[case.name]))
    return StartupReport(str(request.prefix), target.version.runtime, request.code, figures, calls, tuple(notes))


def _measure(
    request: StartupRequest, cases: Sequence[StartCase], work: Path, session: Session
) -> Mapping[str, Mapping[str, list[float]]]:
    task = {"cases": [asdict(case) for case in cases], "at_once": request.at_once, "cold": request.cold}
    argv = (sys.executable, str(PROGRAM), str(work / "said"))
    reply = run_checked(session.runner, Command(argv, stdin=json.dumps(task)), doing="starting the commands")
    seconds: Mapping[str, Mapping[str, list[float]]] = parse_json(reply.stdout)
    return seconds


def _figures(name: str, measured: Mapping[str, list[float]]) -> Iterator[StartFigure]:
    for key, seconds in measured.items():
        values = [each * MILLI for each in seconds]
        low, high = quartiles(values)
        at_once = 0 if key == "cold" else int(key)
        yield StartFigure(name, at_once, statistics.median(values), low, high, len(values), tuple(values))


def _trace(case: StartCase, log: Path, session: Session) -> Calls:
    options = ("-f", "--seccomp-bpf", "-qq", "-e", "trace=%file", "-e", "signal=none", "-o", str(log))
    command = Command(("strace", *options, *case.words), env=case.env)
    run_checked(session.runner, command, doing=f"counting the calls of {case.name}")
    return count_calls(case.name, log.read_text(errors="replace", encoding="utf-8"), case.place)


def count_calls(name: str, trace: str, folder: str) -> Calls:
    """Count the calls in a log of strace that name a path, and those that name a path below a folder."""
    paths = [match["path"] for match in CALL.finditer(trace)]
    shared = sum(1 for path in paths if path == folder or path.startswith(f"{folder}/")) if folder else None
    return Calls(name, len(paths), shared)


def render_table(report: StartupReport) -> str:
    """Render a report as a table: median and quartiles in milliseconds, and calls, one row per case."""
    batches = sorted({figure.at_once for figure in report.figures})
    names = [name for name in CASES if any(figure.case == name for figure in report.figures)]
    rows = [["", *(_batch_name(each) for each in batches), "calls", "on the prefix's files"]]
    for name in names:
        figures = {figure.at_once: figure for figure in report.figures if figure.case == name}
        calls = next((each for each in report.calls if each.case == name), None)
        counts = ("", "")
        if calls:
            counts = (f"{calls.calls:,}", "" if calls.shared is None else f"{calls.shared:,}")
        rows.append([CASES[name], *(_milliseconds(figures.get(each)) for each in batches), *counts])
    title = f"python -c {report.code!r} of {report.prefix}, by {report.runtime}; milliseconds: median (quartiles)"
    return "\n".join([title, "", *align_rows(rows), *(["", *report.notes] if report.notes else [])])


def _milliseconds(figure: StartFigure | None) -> str:
    return f"{figure.median:.1f} ({figure.low:.1f}-{figure.high:.1f})" if figure else ""


def _batch_name(at_once: int) -> str:
    return f"{at_once} at once" if at_once > 1 else "one" if at_once else "one, cold"


PYTHON = "python"


class _BenchTarget(msgspec.Struct, frozen=True):
    """The prefix whose Python is started."""

    request: StartupRequest
    version: Version
    target: str
    """Path of the Python in the container."""
    env: dict[str, str]
    """The caller's environment, without variables that refer to software of the host."""
    work: Path
    """Folder for temporary files."""
    session: Session

    @property
    def is_unpacked(self) -> bool:
        """Whether the image is unpacked, for bubblewrap."""
        return self.version.runtime == "bwrap"

    @property
    def trees(self) -> Path:
        """Return the folder of the unpacked images."""
        return self.request.prefix / CACHE / "trees"

    @property
    def place(self) -> str:
        """Return the folder of the image; empty if the image is unpacked."""
        return "" if self.is_unpacked else str(self.request.prefix)

    @property
    def image(self) -> Path:
        """Return the image of the current version."""
        return version_folder(self.request.prefix, self.version.number) / self.version.image


def _open_target(request: StartupRequest, work: Path, session: Session) -> _BenchTarget:
    """Read the prefix; one without Python is refused."""
    version = open_prefix(request.prefix)
    target = next((each.target for each in version.commands if each.name == PYTHON), "")
    if not target:
        raise UsageError(f"{request.prefix} has no command python to start", hint="wrap an environment with Python")
    dropped = {*NOT_FROM_CALLER, "ARGOSY_WRAP", "APPTAINER_BIND", "SINGULARITY_BIND"}
    env = {name: value for name, value in session.host.environment.items() if name not in dropped}
    return _BenchTarget(request, version, target, env | {"PYTHONNOUSERSITE": "1"}, work, session)


def _find_cases(target: _BenchTarget) -> Iterator[StartCase | str]:
    """Yield each requested case, or the reason why it cannot be measured."""
    makers = {BARE: _bare, RUNTIME: _runtime, LINE: _line, WRAPPER: _wrapper}
    for name, make in makers.items():
        if not target.request.only or name in target.request.only:
            yield make(target)


def _code(target: _BenchTarget) -> tuple[str, ...]:
    return ("-c", target.request.code)


def _wrapper(target: _BenchTarget) -> StartCase | str:
    return StartCase(WRAPPER, _wrapper_words(target), target.env, _files(target), target.place)


def _wrapper_words(target: _BenchTarget) -> tuple[str, ...]:
    return (str(target.request.prefix / "bin" / PYTHON), *_code(target))


def _files(target: _BenchTarget) -> tuple[str, ...]:
    """Return the files of the image: the image itself, or the unpacked trees under bubblewrap."""
    if not target.is_unpacked:
        return (str(target.image.resolve()),)
    return tuple(str(target.trees / tree) for tree in target.version.trees)


def _container(target: _BenchTarget) -> tuple[str, ...] | str:
    """Return the shortest command that starts a program in the container: no home, no folders of the host."""
    if not target.is_unpacked:
        return (target.version.runtime, "--quiet", "exec", str(target.image))
    root = read_root_entries(target.trees, target.version.trees)
    if not root:
        return "under bubblewrap, its image needs an overlay, so it has no plain command line"
    words = [word for top in root for word in root_entry_words(top)]
    return ("bwrap", *words, "--dev-bind", "/dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp")  # noqa: S108


def _runtime(target: _BenchTarget) -> StartCase | str:
    container = _container(target)
    if isinstance(container, str):
        return f"{RUNTIME}: {container}"
    return StartCase(
        RUNTIME, (*container, target.target, *_code(target)), target.env, _files(target), str(target.request.prefix)
    )


RECORD = """\
#!/bin/sh
# Replaces the runtime, and records how it was called.
printf '%s\\0' "$@" > {folder}/words
cat /proc/$$/environ > {folder}/environment
"""


def _line(target: _BenchTarget) -> StartCase | str:
    """Return the command line and variables with which the wrapped command executes the runtime."""
    if target.is_unpacked:
        return f"{LINE}: under bubblewrap, a wrapped command starts more than one program"
    runtime = find_program(target.version.runtime, target.env.get("PATH", ""))
    folder = target.work / "line"
    folder.mkdir()
    file = folder / target.version.runtime
    file.write_text(RECORD.format(folder=quote(str(folder))), encoding="utf-8")
    file.chmod(0o755)
    called = Command(_wrapper_words(target), env=target.env | {"PATH": f"{folder}:{target.env.get('PATH', '')}"})
    run_checked(target.session.runner, called, doing="recording the call of the runtime")
    if not runtime or not (folder / "words").is_file():
        return f"{LINE}: the wrapped command does not search {target.version.runtime} on PATH"
    words, variables = (_read_texts(folder / name) for name in ("words", "environment"))
    env = dict(text.partition("=")[::2] for text in (each.replace(f"{folder}:", "") for each in variables))
    return StartCase(LINE, (runtime, *words), env, _files(target), target.place)


def _read_texts(file: Path) -> list[str]:
    return os.fsdecode(file.read_bytes()).removesuffix("\0").split("\0")


def _bare(target: _BenchTarget) -> StartCase | str:
    """Run the environment from its unpacked files, with its own Python or the host's of the same version."""
    tree = _layer(target)
    packages = next(iter(sorted(tree.glob(f"{ENV_PREFIX[1:]}/lib/python3*/site-packages"))), None) if tree else None
    if tree is None or packages is None:
        return f"{BARE}: its Python packages are not in a separate layer"
    name = packages.parent.name
    own = tree / ENV_PREFIX[1:] / "bin" / name
    program = (str(own),) if own.is_file() and not own.is_symlink() else _python_of_base(target, name)
    env = target.env | {"PYTHONPATH": str(packages)}
    if len(program) > 1:
        env["PYTHONHOME"] = str(Path(program[-1]).parents[1])
    program = program or _host_python(name)
    if not program:
        return f"{BARE}: there is no {name} on this machine"
    return StartCase(BARE, (*program, *_code(target)), env, (str(packages),), str(tree))


def _python_of_base(target: _BenchTarget, name: str) -> tuple[str, ...]:
    """Start the base's own interpreter from its unpacked tree, with its libraries. Empty if there is none.

    The machine's own may load more, by its own ``*.pth`` files.
    """
    for tree in map(Path, _files(target) if target.is_unpacked else ()):
        loader = next(iter(sorted(tree.glob("root/lib*/ld-linux-*.so.*"))), None)
        program = tree / "root/usr/bin" / name
        if loader and program.is_file() and not program.is_symlink():
            folders = [*tree.glob("root/usr/lib/*-linux-gnu"), tree / "root/usr/lib64"]
            return (str(loader), "--library-path", ":".join(map(str, folders)), str(program))
    return ()


def _host_python(name: str) -> tuple[str, ...]:
    """Find an interpreter of the system, or the one that runs Argosy. Others in PATH may be wrappers themselves."""
    found = (f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin", f"{sys.prefix}/bin"))
    return next(((path,) for path in found if os.access(path, os.X_OK)), ())


def _layer(target: _BenchTarget) -> Path | None:
    """Unpack the layer unless the runtime has done so."""
    if target.is_unpacked:
        return target.trees / target.version.trees[0] / "root" if target.version.trees else None
    image = open_image(target.image).image
    layer = layer_source(image) or base_source(image)
    place = replace(target.session, paths=replace(target.session.paths, cache=target.work))
    return unpack_cached(place, layer, key="layer", what=f"the layer of {target.image.name}")
