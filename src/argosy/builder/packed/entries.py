"""Remember the entries of the layer in an image, so that a build over the image need not unpack the layer.

The entries are what the content digest of an image covers: path, mode and content of every file. A file of the cache
holds exactly the bytes whose SHA-256 is that digest. Its name identifies the image file in its present state: a lock
only claims a content, and another file with a copy of the lock has other entries.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from argosy.core.errors import ArgosyError
from argosy.core.store import atomic_file, is_owned, make_folder, mark_used
from argosy.images.part_digest import describe_part
from argosy.images.sif.write import FileSlice
from argosy.images.tree_digests import Entries, name_of_entry

ENTRIES = "entries"
"""Folder of the cache."""


def remember_entries(packed: FileSlice, entries: Entries, cache: Path) -> None:
    """Remember the entries of a layer.

    Parameters
    ----------
    packed
        The squashfs in the image that contains the layer.
    """
    # The next build unpacks the layer if the cache cannot be written.
    with suppress(OSError, ArgosyError):
        file = _file_for(packed, cache)
        make_folder(file.parent)
        with atomic_file(file, force=True, flush=False) as beside:
            beside.write_bytes(b"".join(entries.values()))


def recall_entries(packed: FileSlice, content: str, cache: Path) -> Entries | None:
    """Return the remembered entries of a layer; None if they are missing, damaged or of another user.

    Parameters
    ----------
    packed
        As for `remember_entries`.
    content
        The content digest in the lock of the image.
    """
    with suppress(OSError):
        file = _file_for(packed, cache)
        data = file.read_bytes() if is_owned(file) else b""
        if f"sha256:{hashlib.sha256(data).hexdigest()}" == content:
            mark_used(file)
            return _parse_entries(data)
    return None


def _parse_entries(data: bytes) -> Entries:
    """Split the joined entries, each of which ends with the second zero byte."""
    rows = data.split(b"\0")
    pairs = zip(rows[:-1:2], rows[1::2], strict=True)
    return {name_of_entry(head): b"%b\0%b\0" % (head, content) for head, content in pairs}


def _file_for(packed: FileSlice, cache: Path) -> Path:
    """Return the file for a layer. Each user has their own, because the files of others are not trusted."""
    part = describe_part(packed.path, packed.offset, packed.length)
    return cache / ENTRIES / f"{part.identity}-{os.geteuid()}"
