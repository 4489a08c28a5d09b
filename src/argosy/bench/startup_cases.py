"""The cases of `argosy bench startup`: command lines that start the same Python with the same code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.layout import ENV_PREFIX, NOT_FROM_CALLER
from argosy.core.process import Command, find_program, run_checked
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
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


class StartupRequest(msgspec.Struct, frozen=True):
    """A measurement that the user asks for.

    Attributes
    ----------
    code
        Python code to run, for example ``import torch``.
    only
        Cases to run; empty for all.
    at_once
        Pairs of simultaneous starts and the number of repetitions.
    cold
        Number of starts with the pages of the image dropped from memory.
    count
        Whether file-system calls are counted.
    """

    prefix: Path
    code: str = "pass"
    only: tuple[str, ...] = ()
    at_once: tuple[tuple[int, int], ...] = ((1, 30), (8, 7), (64, 3))
    cold: int = 5
    count: bool = True


class Case(msgspec.Struct, frozen=True):
    """One way to start the program.

    Attributes
    ----------
    drop
        Files and folders whose pages are dropped from memory before a cold start.
    place
        Folder of the shared file system with the files of the case: calls that name a path below it are counted. Empty
        if paths in the container name these files, too (unpacked trees).
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    drop: tuple[str, ...]
    place: str


PYTHON = "python"


class BenchTarget(msgspec.Struct, frozen=True):
    """The prefix whose Python is started.

    Attributes
    ----------
    target
        Path of the Python in the container.
    env
        The caller's environment, without variables that refer to software of the host.
    work
        Folder for temporary files.
    """

    request: StartupRequest
    version: Version
    target: str
    env: dict[str, str]
    work: Path

    @property
    def place(self) -> str:
        """Return the folder of the image; empty if the image is unpacked."""
        return "" if self.version.runtime == "bwrap" else str(self.request.prefix)

    @property
    def image(self) -> Path:
        """Return the image of the current version."""
        return version_folder(self.request.prefix, self.version.number) / self.version.image


def open_target(request: StartupRequest, work: Path, session: Session) -> BenchTarget:
    """Read the prefix.

    Raises
    ------
    UsageError
        If it is not a prefix, or has no Python.
    """
    version = open_prefix(request.prefix)
    target = next((each.target for each in version.commands if each.name == PYTHON), "")
    if not target:
        raise UsageError(f"{request.prefix} has no command python to start", hint="wrap an environment with Python")
    dropped = {*NOT_FROM_CALLER, "ARGOSY_WRAP", "APPTAINER_BIND", "SINGULARITY_BIND"}
    env = {name: value for name, value in session.host.environment.items() if name not in dropped}
    return BenchTarget(request, version, target, env | {"PYTHONNOUSERSITE": "1"}, work)


def find_cases(target: BenchTarget, session: Session) -> Iterator[Case | str]:
    """Yield each requested case, or the reason why it cannot be measured."""
    makers = {BARE: _bare, RUNTIME: _runtime, LINE: _line, WRAPPER: _wrapper}
    for name, make in makers.items():
        if not target.request.only or name in target.request.only:
            yield make(target, session)


def _code(target: BenchTarget) -> tuple[str, ...]:
    return ("-c", target.request.code)


def _wrapper(target: BenchTarget, session: Session) -> Case | str:  # noqa: ARG001 - one signature for all cases
    return Case(WRAPPER, _wrapper_words(target), target.env, _files(target), target.place)


def _wrapper_words(target: BenchTarget) -> tuple[str, ...]:
    return (str(target.request.prefix / "bin" / PYTHON), *_code(target))


def _files(target: BenchTarget) -> tuple[str, ...]:
    """Return the files of the image: the image itself, or the unpacked trees under bubblewrap."""
    if target.version.runtime != "bwrap":
        return (str(target.image.resolve()),)
    return tuple(str(target.request.prefix / CACHE / "trees" / tree) for tree in target.version.trees)


def _container(target: BenchTarget) -> tuple[str, ...] | str:
    """Return the shortest command that starts a program in the container: no home, no folders of the host."""
    if target.version.runtime != "bwrap":
        return (target.version.runtime, "--quiet", "exec", str(target.image))
    root = read_root_entries(target.request.prefix / CACHE / "trees", target.version.trees)
    if not root:
        return "under bubblewrap, its image needs an overlay, so it has no plain command line"
    words = [word for top in root for word in root_entry_words(top)]
    return ("bwrap", *words, "--dev-bind", "/dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp")  # noqa: S108


def _runtime(target: BenchTarget, session: Session) -> Case | str:  # noqa: ARG001 - one signature for all cases
    container = _container(target)
    if isinstance(container, str):
        return f"{RUNTIME}: {container}"
    return Case(
        RUNTIME, (*container, target.target, *_code(target)), target.env, _files(target), str(target.request.prefix)
    )


RECORD = """\
#!/bin/sh
# Replaces the runtime, and records how it was called.
printf '%s\\0' "$@" > {folder}/words
cat /proc/$$/environ > {folder}/environment
"""


def _line(target: BenchTarget, session: Session) -> Case | str:
    """Return the command line and variables with which the wrapped command executes the runtime."""
    if target.version.runtime == "bwrap":
        return f"{LINE}: under bubblewrap, a wrapped command starts more than one program"
    runtime = find_program(target.version.runtime, target.env.get("PATH", ""))
    folder = target.work / "line"
    folder.mkdir()
    file = folder / target.version.runtime
    file.write_text(RECORD.format(folder=quote(str(folder))), encoding="utf-8")
    file.chmod(0o755)
    called = Command(_wrapper_words(target), env=target.env | {"PATH": f"{folder}:{target.env.get('PATH', '')}"})
    run_checked(session.runner, called, doing="recording the call of the runtime")
    if not runtime or not (folder / "words").is_file():
        return f"{LINE}: the wrapped command does not search {target.version.runtime} on PATH"
    words, variables = (_read_texts(folder / name) for name in ("words", "environment"))
    env = dict(text.partition("=")[::2] for text in (each.replace(f"{folder}:", "") for each in variables))
    return Case(LINE, (runtime, *words), env, _files(target), target.place)


def _read_texts(file: Path) -> list[str]:
    return os.fsdecode(file.read_bytes()).removesuffix("\0").split("\0")


def _bare(target: BenchTarget, session: Session) -> Case | str:
    """Run the environment from its unpacked files, with its own Python or the host's of the same version."""
    tree = _layer(target, session)
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
    return Case(BARE, (*program, *_code(target)), env, (str(packages),), str(tree))


def _python_of_base(target: BenchTarget, name: str) -> tuple[str, ...]:
    """Start the base's own interpreter from its unpacked tree, with its libraries. Empty if there is none.

    The machine's own may load more, by its own ``*.pth`` files.
    """
    for tree in map(Path, _files(target) if target.version.runtime == "bwrap" else ()):
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


def _layer(target: BenchTarget, session: Session) -> Path | None:
    """Unpack the layer unless the runtime has done so."""
    if target.version.runtime == "bwrap":
        return (
            target.request.prefix / CACHE / "trees" / target.version.trees[0] / "root" if target.version.trees else None
        )
    image = open_image(target.image).image
    layer = layer_source(image) or base_source(image)
    place = replace(session, paths=replace(session.paths, cache=target.work))
    return unpack_cached(place, layer, key="layer", what=f"the layer of {target.image.name}")
