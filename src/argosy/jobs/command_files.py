"""Record the files that a command names, so that a later report can say whether they changed between two jobs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from argosy.core.parse import parse_json
from argosy.core.records import asdict
from argosy.core.store import write_text

FILES = "files.json"
"""File of a record."""

MOST_FILES, MOST_BYTES = 8, 4 << 20
"""Files of a command that are recorded, and the size of the largest whose content is read."""

IN_IMAGE = re.compile(
    r"/(?:opt/argosy|(?:usr/)?(?:s?bin|lib(?:x?32|64)?)|usr/(?:include|libexec|local|share|src)|proc|sys|dev)/"
)
"""Folders that the container has of its own: the same path on this machine is another file.

Other folders may contain homes, for example ``/usr/users`` and ``/library``.
"""


class CommandFile(msgspec.Struct, frozen=True):
    """A file that a command named when its job was submitted."""

    path: str
    bytes: int
    modified: float
    """Seconds since 1970."""
    sha256: str = ""
    """Digest of the content; empty for a large file."""

    def same_as(self, other: CommandFile) -> bool:
        """Return whether the content is equal, as far as it was recorded."""
        if self.sha256 and other.sha256:
            return self.sha256 == other.sha256
        return (self.bytes, self.modified) == (other.bytes, other.modified)


def find_command_files(command: Sequence[str], folder: str) -> Iterator[CommandFile]:
    """Yield the files outside the image that a command names, for example its script.

    Parameters
    ----------
    folder
        The folder in which the command runs.
    """
    seen: set[str] = set()
    for argument in command:
        path = os.path.normpath(Path(folder, argument))
        if argument.startswith("-") or is_in_image(path) or path in seen or len(seen) == MOST_FILES:
            continue
        try:
            facts = os.stat(path)  # noqa: PTH116 - Path's accepts fewer texts
            if stat.S_ISREG(facts.st_mode):
                content = Path(path).read_bytes() if facts.st_size <= MOST_BYTES else b""
                digest = hashlib.sha256(content).hexdigest() if facts.st_size <= MOST_BYTES else ""
                seen.add(path)
                yield CommandFile(path, facts.st_size, facts.st_mtime, digest)
        except (OSError, ValueError):  # most arguments are not files; some cannot be names
            continue


def is_in_image(path: str) -> bool:
    """Return whether a path in the container belongs to the image."""
    return IN_IMAGE.match(path) is not None


def write_command_files(record: Path, command: Sequence[str], folder: str) -> None:
    """Write the files of a command into the record of its job."""
    found = [asdict(each) for each in find_command_files(command, folder)]
    if found:
        write_text(record / FILES, json.dumps(found, indent=1) + "\n")


def read_command_files(record: str) -> tuple[CommandFile, ...]:
    """Read the files of a job's command; empty if there are none, or the record is damaged."""
    try:
        rows = parse_json((Path(record) / FILES).read_text(encoding="utf-8")) if record else []
        return tuple(msgspec.convert(rows, list[CommandFile]))
    except (OSError, ValueError, TypeError):
        return ()
