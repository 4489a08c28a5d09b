"""What the programs of an installation need of a machine: architecture and glibc, read out of their first bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.host.emulation import MACHINES

MAGIC = b"\x7fELF"
GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0")
MOST_BYTES = 64 << 20
MOST_FILES = 200


class Needs(msgspec.Struct, frozen=True):
    """What was found.

    Attributes
    ----------
    program
        The program that tells the architecture; empty where there is none.
    glibc
        The newest symbol version asked for, as (2, 35); (0, 0) where none is.
    by
        The file that asks for it.
    """

    program: str = ""
    arch: str = ""
    glibc: tuple[int, int] = (0, 0)
    by: str = ""


def read_needs(prefix: Path) -> Needs:
    """Read the programs and libraries at the top of an installation."""
    program, arch, newest, by = "", "", (0, 0), ""
    for path in _binaries(prefix):
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
        if not program:
            program, arch = str(path.relative_to(prefix)), MACHINES.get(int.from_bytes(data[18:20], "little"), "")
        asked = max(((int(m[1]), int(m[2])) for m in GLIBC.finditer(data)), default=(0, 0))
        if asked > newest:
            newest, by = asked, str(path.relative_to(prefix))
    return Needs(program, arch, newest, by)


def _binaries(prefix: Path) -> Iterator[Path]:
    """Give ELF files, Python and its library first."""
    paths = ("bin/python3*", "lib/libpython3*", "bin/*", "lib/*.so*", "lib/python3*/site-packages/*/*.so")
    seen: set[Path] = set()
    for path in (path for pattern in paths for path in sorted(prefix.glob(pattern))):
        if len(seen) >= MOST_FILES:
            return
        if path in seen or path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                seen.add(path)
                yield path
