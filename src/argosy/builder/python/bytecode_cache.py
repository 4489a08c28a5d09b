"""Keep the byte code of packages in the cache, and bring it back to their modules.

Compiling takes most of an installation's time, and gives the same bytes for the same package, Python and place.  So
the byte code of a package is kept under the digest of its modules: of their bytes, since nobody checks what a package's
list of files says of them, and conda writes the prefix into some.  Files are links to those kept: making 10,000 new
ones takes longer than all else of an installation from the cache (ext4 passes over each inode that was freed a moment
ago).
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.core.os_errors import translate_os_errors
from argosy.core.store import remove_tree

BYTECODE = "bytecode"
"""Folder of the cache."""

LIST = "list.json"
WAY = 2
"""Number of the way in which byte code is compiled: another way may give other bytes, which are not taken."""


class BytecodeCache(msgspec.Struct, frozen=True, array_like=True):
    """A file of byte code: its path below the root of its package's modules, and the CRC-32 of its bytes.

    A crash may cut off what was written last; the sum tells.
    """

    path: str
    crc: int


class Modules(msgspec.Struct, frozen=True):
    """The modules of a package, as paths below a folder of the environment, which is at the same place in each."""

    root: Path
    paths: tuple[str, ...]


class Compiled(msgspec.Struct, frozen=True):
    """Where byte code is kept, and for what.

    Attributes
    ----------
    folder
        Of the cache.
    python
        What the Python that loads it says of itself; its version comes first.
    """

    folder: Path
    python: str

    @property
    def tag(self) -> str:
        """Give what Python puts into the names of its byte code; another Python's is compiled and not kept."""
        major, minor, *_ = self.python.split(".")
        return f"cpython-{major}{minor}"

    def place(self, package: Modules) -> Path:
        """Give the folder that keeps the byte code of a package's modules as they are."""
        root, digest = str(package.root), hashlib.sha256(f"{WAY} {self.python}".encode())
        for module in package.paths:
            with suppress(OSError):
                text = _read(f"{root}/{module}")
                digest.update(f"\0{module}\0{len(text)}\0".encode() + text)
        return self.folder / digest.hexdigest()

    def bring(self, package: Modules, place: Path) -> bool:
        """Put the byte code of a package that is kept to its modules, and no other; tell whether it is kept."""
        self._drop(package)
        root = package.root
        with suppress(OSError, ValueError, msgspec.DecodeError):
            kept = msgspec.json.decode((place / LIST).read_bytes(), type=tuple[BytecodeCache, ...])
            if not {each.path for each in kept} <= set(self._codes(package)):
                raise ValueError("byte code of other modules")
            for folder in {each.path.rpartition("/")[0] for each in kept}:
                (root / folder).mkdir(parents=True, exist_ok=True)
            if all(_bring(f"{place}/{number}", f"{root}/{each.path}", each.crc) for number, each in enumerate(kept)):
                return True
        self._drop(package)  # what was brought before something damaged was met
        return False

    def keep(self, package: Modules, place: Path) -> None:
        """Keep what was compiled for a package, instead of what was kept for it and could not be brought."""
        root = package.root
        beside = place.with_name(f".{place.name}.{os.urandom(4).hex()}.part")
        kept: list[BytecodeCache] = []
        try:
            with translate_os_errors(place.parent):
                beside.mkdir(parents=True)
                for code in self._codes(package):
                    with suppress(FileNotFoundError):
                        kept.append(BytecodeCache(code, zlib.crc32(_read(f"{root}/{code}"))))
                        _link(f"{root}/{code}", f"{beside}/{len(kept) - 1}")
                (beside / LIST).write_bytes(msgspec.json.encode(kept))
                remove_tree(place)
                with suppress(FileExistsError):  # another build kept the same meanwhile
                    beside.rename(place)
        finally:
            remove_tree(beside)

    def _codes(self, package: Modules) -> Iterator[str]:
        """Give where the byte code of a package's modules lies, as paths below its root."""
        for module in package.paths:
            folder, slash, file = module.rpartition("/")
            yield f"{folder}{slash}__pycache__/{file.removesuffix('.py')}.{self.tag}.pyc"

    def _drop(self, package: Modules) -> None:
        root = str(package.root)
        for code in self._codes(package):
            with suppress(FileNotFoundError):
                os.unlink(f"{root}/{code}")  # noqa: PTH108 - 10,000 of them


def wheel_modules(site: Path, record: Path) -> Modules:
    """Give what a wheel's RECORD names as its modules."""
    rows = csv.reader(record.read_text(errors="replace", encoding="utf-8").splitlines())
    paths = (row[0] for row in rows if row and row[0].endswith(".py"))
    return Modules(site, tuple(path for path in paths if not path.startswith("/") and ".." not in path))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - 10,000 of them
        return file.read()


def _bring(kept: str, target: str, crc: int) -> bool:
    if zlib.crc32(_read(kept)) != crc:
        return False
    _link(kept, target)
    return True


def _link(source: str, target: str) -> None:
    """Give a file a second name; a copy where that cannot be had (another file system, another user's file)."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
