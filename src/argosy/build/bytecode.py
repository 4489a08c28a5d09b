"""Compile the modules of a layer to byte code, each package once per machine (`argosy.build.kept_code`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.build.kept_code import BYTECODE, Compiled
from argosy.build.rooms import WORK_INSIDE, Room
from argosy.build.search_path import site_folders
from argosy.layout import ENV_PREFIX, ROOT
from argosy.model import Bind
from argosy.session import Step

LIST = "compile.txt"

COMPILE = """\
import compileall, os, py_compile, sys
paths = open(sys.argv[1], encoding="utf-8", errors="surrogateescape").read().splitlines()
several = int(sys.argv[2])
# The tree is read-only: no stat() for each import, the same bytes each time.
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
children = []
for number in range(several):
    child = os.fork()
    if child:
        children.append(child)
        continue
    for count, path in enumerate(paths[number::several]):
        compileall.compile_file(path, quiet=2, force=True, invalidation_mode=mode)
        if number == 0 and count % 100 == 99:
            sys.stderr.write("compiling byte code: %d of %d modules\\n" % (several * (count + 1), len(paths)))
            sys.stderr.flush()
    os._exit(0)
for child in children:
    if os.waitpid(child, 0)[1]:
        sys.exit("a compiling process was ended")
"""
"""Runs under the environment's Python.  A file that is no valid Python is left out: test data of packages often is."""


def compile_layer(room: Room, layer: Path, work: Path, kept: Compiled, changed: Collection[str], step: Step) -> None:
    """Give every module of the layer's environment its byte code, from the cache or by compiling.

    Parameters
    ----------
    work
        Folder of the layer's work files, which the room has at `WORK_INSIDE`.
    changed
        Names of the packages that were just installed: byte code of theirs that is there is an older version's.

    Raises
    ------
    ToolFailed
        When the environment's Python cannot run.
    """
    prefix = layer / ENV_PREFIX.lstrip("/")
    for site in site_folders(layer):
        new = [record for record in site.glob("*.dist-info/RECORD") if _name_of(record) in changed]
        missing = [record for record in new if not kept.bring(site, record)]
        todo = sorted(_without_code(str(site), kept.tag), reverse=True)
        if not todo:
            continue
        (work / LIST).write_text("".join(f"{ENV_PREFIX}{path[len(str(prefix)) :]}\n" for _, path in todo))
        step.say(f"compiling byte code: {len(todo)} modules")
        room.run_checked(
            *(f"{ENV_PREFIX}/bin/python", "-I", "-c", COMPILE, f"{WORK_INSIDE}/{LIST}", str(room.session.host.cpus)),
            doing="compiling byte code",
            on_line=step.say,
        )
        for record in missing:
            kept.keep(site, record)


@contextmanager
def following(room: Room, layer: Path, python: str, step: Step) -> Iterator[None]:
    """Compile what a user's scripts or steps write: nobody would look whether byte code is of the module beside it.

    Parameters
    ----------
    python
        The version of the environment's Python; empty where it has none.

    Raises
    ------
    ToolFailed
        When the environment's Python cannot run.
    """
    mark, work = layer.with_name("mark"), layer.with_name("uv")
    mark.touch()  # the file system's own clock
    yield
    if not python:
        return
    kept = Compiled(room.session.places.cache / BYTECODE, python)
    for module in (module for site in site_folders(layer) for module in site.rglob("*.py")):
        if module.lstat().st_ctime_ns > mark.stat().st_ctime_ns:
            (module.parent / "__pycache__" / f"{module.stem}.{kept.tag}.pyc").unlink(missing_ok=True)
    work.mkdir(exist_ok=True)
    own = Bind(str(layer / ROOT.lstrip("/")), ROOT)
    compile_layer(room.furnished(own, Bind(str(work), WORK_INSIDE)), layer, work, kept, (), step)


def _name_of(record: Path) -> str:
    return str(canonicalize_name(record.parent.name.removesuffix(".dist-info").rpartition("-")[0]))


def _without_code(folder: str, tag: str) -> Iterator[tuple[int, str]]:
    """Find the modules that have no byte code, with their sizes."""
    with os.scandir(folder) as scan:
        entries = list(scan)
    there: set[str] = set()
    with suppress(FileNotFoundError):
        there = set(os.listdir(f"{folder}/__pycache__"))  # noqa: PTH208 - no Path for each
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _without_code(entry.path, tag)
        elif entry.name.endswith(".py") and f"{entry.name[:-3]}.{tag}.pyc" not in there and "\n" not in entry.path:
            yield entry.stat().st_size, entry.path
