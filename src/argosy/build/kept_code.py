"""Keep the byte code of packages in the cache, and bring it back to their modules.

Compiling takes most of an installation's time, and gives the same bytes for the same package, Python and place.  So
the byte code of a package is kept under the digest of its modules: of their bytes, since nobody checks what a package's
RECORD says of them.  Files are links to those kept: making 10,000 new ones takes longer than all else of an
installation from the cache (ext4 passes over each inode that was freed a moment ago).
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from argosy.store import explained, remove_tree

BYTECODE = "bytecode"
"""Folder of the cache."""

LIST = "list.json"


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A file of byte code: the module's path in site-packages, and the CRC-32 of its bytes.

    A crash may cut off what was written last; the sum tells.
    """

    path: str
    crc: int


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
        """Give the folder that keeps the byte code of a package's modules as they are."""
        digest = hashlib.sha256(self.python.encode())
        for module in _modules(record):
            with suppress(OSError):
                text = (site / module).read_bytes()
                digest.update(f"\0{module}\0{len(text)}\0".encode() + text)
        return self.folder / digest.hexdigest()

    def bring(self, site: Path, record: Path) -> bool:
        """Put the byte code of a package that is kept to its modules, and no other; tell whether it is kept."""
        self._drop(site, record)
        place = self.place(site, record)
        with suppress(OSError, ValueError, msgspec.DecodeError):
            kept = msgspec.json.decode((place / LIST).read_bytes(), type=tuple[Kept, ...])
            if not {each.path for each in kept} <= set(self._codes(record)):
                raise ValueError("byte code of other modules")
            for folder in {each.path.rpartition("/")[0] for each in kept}:
                (site / folder).mkdir(parents=True, exist_ok=True)
            if all(_bring(f"{place}/{number}", f"{site}/{each.path}", each.crc) for number, each in enumerate(kept)):
                return True
        self._drop(site, record)  # what was brought before something damaged was met
        return False

    def keep(self, site: Path, record: Path) -> None:
        """Keep what was compiled for a package, instead of what was kept for it and could not be brought."""
        place = self.place(site, record)
        beside = place.with_name(f".{place.name}.{os.urandom(4).hex()}.part")
        kept: list[Kept] = []
        try:
            with explained(place.parent):
                beside.mkdir(parents=True)
                for code in self._codes(record):
                    with suppress(FileNotFoundError):
                        kept.append(Kept(code, zlib.crc32((site / code).read_bytes())))
                        _link(f"{site}/{code}", f"{beside}/{len(kept) - 1}")
                (beside / LIST).write_bytes(msgspec.json.encode(kept))
                remove_tree(place)
                with suppress(FileExistsError):  # another build kept the same meanwhile
                    beside.rename(place)
        finally:
            remove_tree(beside)

    def _codes(self, record: Path) -> Iterator[str]:
        """Give where the byte code of a package's modules lies, as paths in site-packages."""
        for module in _modules(record):
            folder, slash, file = module.rpartition("/")
            yield f"{folder}{slash}__pycache__/{file.removesuffix('.py')}.{self.tag}.pyc"

    def _drop(self, site: Path, record: Path) -> None:
        for code in self._codes(record):
            (site / code).unlink(missing_ok=True)


def _modules(record: Path) -> Iterator[str]:
    """Give a package's modules, as paths in site-packages."""
    for row in csv.reader(record.read_text(errors="replace").splitlines()):
        if row and row[0].endswith(".py") and not row[0].startswith("/") and ".." not in row[0]:
            yield row[0]


def _bring(kept: str, target: str, crc: int) -> bool:
    with open(kept, "rb", buffering=0) as file:  # noqa: PTH123 - 10,000 of them
        if zlib.crc32(file.read()) != crc:
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
