"""Compare files of pip packages with what the packages themselves say of them, in their ``RECORD``.

uv does not look: a file of its cache that was damaged on the disk would come into the image without a word.  The
digests are those of the layer, which are taken anyway.  Source: "Recording installed projects" of the Python packaging
user guide.
"""

from __future__ import annotations

import base64
import binascii
import csv
import posixpath
from collections.abc import Collection, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.build.packing import Entries, digest_of_entry

RECORD = ".dist-info/RECORD"
MOST_NAMED = 3


def judge_records(tree: Path, entries: Entries, packages: Collection[str]) -> Iterator[str]:
    """Name the packages whose files differ from their ``RECORD``, with some of these files."""
    for path in entries:
        if path.endswith(RECORD):
            name = str(canonicalize_name(posixpath.basename(path.removesuffix(RECORD)).rpartition("-")[0]))
            if name in packages and (others := list(_others(tree, path, entries))):
                more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
                yield (
                    f"{name} has files that are not those of its own list: {', '.join(others[:MOST_NAMED])}{more}; "
                    "either it was published so, or the cache is damaged: argosy cache gc --older-than 0h empties it"
                )


def _others(tree: Path, record: str, entries: Entries) -> Iterator[str]:
    """Name the files of a ``RECORD`` that exist with another digest."""
    folder = posixpath.dirname(posixpath.dirname(record))
    with (tree / record).open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
        for row in csv.reader(lines):
            name, digest = (*row, "", "")[:2]
            found = digest_of_entry(entries.get(posixpath.normpath(posixpath.join(folder, name)), b""))
            if found and digest.startswith("sha256=") and found != _hexadecimal(digest.removeprefix("sha256=")):
                yield name


def _hexadecimal(digest: str) -> str:
    try:
        return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    except (binascii.Error, ValueError):
        return ""
