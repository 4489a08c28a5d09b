"""Digests of a tree's files, kept with what shows that a file has not changed, so that few are read again.

A file's time of change (ctime) is set by the kernel whenever its bytes, its mode or its names change; no program can
set it back.  What changed in the tick of the clock in which it was read is not noted: a later change in that tick
would look the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.core.store import is_owned

NOTES = ".argosy-notes"
"""File in the root of a tree that is kept; beside one that is worked on, see `notes_beside`."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """A file or link as it was when it was read: its number, bytes, time of change in nanoseconds; a file's SHA-256."""

    inode: int
    size: int
    changed: int
    digest: str


class Notes(msgspec.Struct, frozen=True):
    """The files of a tree on a device, by their paths in it."""

    device: int = 0
    files: Mapping[str, Note] = {}

    def known(self, name: str, status: os.stat_result) -> Note | None:
        """Give the note of a file that is what it was; None where it has none, or changed."""
        note = self.files.get(name)
        now = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        return note if note and now == (self.device, note.inode, note.size, note.changed) else None


def note_of(status: os.stat_result, digest: str) -> Note:
    """Note a file."""
    return Note(status.st_ino, status.st_size, status.st_ctime_ns, digest)


def notes_beside(tree: Path) -> Path:
    """Give where the notes of a tree lie while it is worked on: they are no part of it."""
    return tree.with_name(f"{tree.name}{NOTES}")


def moment(tree: Path) -> int:
    """Give the time by the clock of the tree's file system; what changed before it has another time of change."""
    mark = notes_beside(tree)
    mark.unlink(missing_ok=True)
    mark.touch()
    return mark.stat().st_ctime_ns


def read_notes(file: Path) -> Notes:
    """Read notes; none where they are not there, damaged, or somebody else's."""
    with suppress(OSError, msgspec.DecodeError):
        if is_owned(file):
            return msgspec.json.decode(file.read_bytes(), type=Notes)
    return Notes()


def write_notes(file: Path, notes: Notes) -> None:
    """Write notes; where that fails there are none, and files are read again."""
    with suppress(OSError, UnicodeEncodeError):
        file.write_bytes(msgspec.json.encode(notes))


def is_unchanged(tree: Path, notes: Notes, besides: frozenset[str]) -> bool:
    """Tell whether a tree has the files that were noted and no others, `besides` some that nobody noted."""
    there = dict(_files(tree))
    return (
        bool(notes.files)
        and set(there) - besides == set(notes.files) - besides
        and all(notes.known(name, status) for name, status in there.items() if name not in besides)
    )


def _files(tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    for folder, folders, names in os.walk(tree):
        for name in (*folders, *names):  # links to folders are among these
            path = f"{folder}/{name}"
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield path[len(f"{tree}/") :], status
