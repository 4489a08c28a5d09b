"""Compile the modules of a layer to byte code, each package once per machine: what was compiled is kept in the cache.

Compiling takes most of an installation's time, and gives the same bytes for the same package, Python and place.  So
the byte code of a package is kept under the digest of its modules: of their bytes, since nobody checks what a package's
RECORD says of them.
"""

from __future__ import annotations

import csv
import hashlib
import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.build.rooms import WORK_INSIDE, Room
from argosy.layout import ENV_PREFIX
from argosy.session import Step
from argosy.store import explained, whole_file

BYTECODE = "bytecode"
"""Folder of the cache."""

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


@dataclass(frozen=True, slots=True)
class Compiled:
    """Where byte code is kept, and for what.

    Attributes
    ----------
    folder
        Of the cache.
    python
        Version of the Python that loads it, to the last digit.
    """

    folder: Path
    python: str

    @property
    def tag(self) -> str:
        """Give what Python puts into the names of its byte code; another Python's is compiled and not kept."""
        major, minor, *_ = self.python.split(".")
        return f"cpython-{major}{minor}"

    def place(self, site: Path, record: Path) -> Path:
        """Give the file that keeps the byte code of a package's modules as they are."""
        digest = hashlib.sha256(self.python.encode())
        for module in _modules(record):
            with suppress(OSError):
                text = (site / module).read_bytes()
                digest.update(f"\0{module}\0{len(text)}\0".encode() + text)
        return self.folder / f"{digest.hexdigest()}.zip"


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
    for site in prefix.glob("lib/python3*/site-packages"):
        new = [record for record in site.glob("*.dist-info/RECORD") if _name_of(record) in changed]
        missing = [record for record in new if not _unpack(site, record, kept)]
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
            _keep(site, record, kept)


def _name_of(record: Path) -> str:
    return str(canonicalize_name(record.parent.name.removesuffix(".dist-info").rpartition("-")[0]))


def _modules(record: Path) -> Iterator[str]:
    """Give a package's modules, as paths in site-packages."""
    for row in csv.reader(record.read_text(errors="replace").splitlines()):
        if row and row[0].endswith(".py") and not row[0].startswith("/") and ".." not in row[0]:
            yield row[0]


def _codes(record: Path, tag: str) -> Iterator[str]:
    """Give where the byte code of a package's modules lies, as paths in site-packages."""
    for module in _modules(record):
        folder, slash, file = module.rpartition("/")
        yield f"{folder}{slash}__pycache__/{file.removesuffix('.py')}.{tag}.pyc"


def _unpack(site: Path, record: Path, kept: Compiled) -> bool:
    """Put the byte code of a package that is kept to its modules, and no other; tell whether it is kept."""
    _drop(site, record, kept.tag)
    place = kept.place(site, record)
    with suppress(FileNotFoundError, zipfile.BadZipFile, EOFError), zipfile.ZipFile(place) as archive:
        archive.extractall(site)
        return True
    _drop(site, record, kept.tag)  # what was unpacked before a damaged one was met
    return False


def _drop(site: Path, record: Path, tag: str) -> None:
    for code in _codes(record, tag):
        (site / code).unlink(missing_ok=True)


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


def _keep(site: Path, record: Path, kept: Compiled) -> None:
    """Keep what was compiled for a package.  Not flushed to disk: what a crash cuts off is seen when it is read."""
    place = kept.place(site, record)
    with explained(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(place, force=True, flush=False) as beside, zipfile.ZipFile(beside, "w") as archive:
        for code in _codes(record, kept.tag):
            with suppress(FileNotFoundError):
                archive.writestr(code, (site / code).read_bytes())
