"""Images on another machine: what one is, from the few bytes of it that say so."""

from __future__ import annotations

import base64
import os
from pathlib import Path, PurePosixPath

from argosy.errors import ImageError, ToolFailed
from argosy.images.opening import LOCK_LIMIT, LOCK_NAME, Opened, open_image
from argosy.images.sif_read import read_sif
from argosy.process import Reply, Runner
from argosy.shell import quote
from argosy.ssh import run_text

HEAD_BYTES = 65_536
"""Of an image: more than the header and every descriptor of a SIF file."""

NOTHING = Reply(0, "", "")


def open_far(runner: Runner, name: str, path: str, size: int, work: Path) -> Opened:
    """Open an image on another machine, by a sparse file here that has its size, its head and its lock alone.

    Parameters
    ----------
    name
        What it is called in messages.
    work
        Folder for the sparse file.

    Raises
    ------
    ImageError, ToolFailed
        When it is no image, or cannot be read.
    """
    skeleton = work / PurePosixPath(path).name
    _fetch_skeleton(runner, path, size, skeleton)
    try:
        return open_image(skeleton)
    except ImageError as error:
        raise ImageError(f"{name} is not an image that can be run", evidence=error.evidence) from error


def _fetch_skeleton(runner: Runner, path: str, size: int, target: Path) -> None:
    """Write a sparse file as long as one there, with its first bytes and the lock of a SIF file."""
    target.write_bytes(fetch_bytes(runner, path, 0, min(size, HEAD_BYTES)))
    os.truncate(target, size)
    try:
        lock = read_sif(target).part_named(LOCK_NAME)
    except ImageError:
        return
    if lock and lock.size <= LOCK_LIMIT:
        with target.open("r+b") as file:
            file.seek(lock.offset)
            file.write(fetch_bytes(runner, path, lock.offset, lock.size))


def fetch_bytes(runner: Runner, path: str, offset: int, count: int) -> bytes:
    """Read some bytes of a file there.

    Raises
    ------
    ToolFailed
        When they cannot be read.
    """
    reply = run_text(runner, f"tail -c +{offset + 1} -- {quote(path)} | head -c {count} | base64") if count else NOTHING
    data = base64.b64decode(reply.stdout)
    if len(data) != count:
        seen = reply.stderr.strip() or f"{len(data)} of {count} bytes"
        raise ToolFailed(f"reading {path} by ssh failed", evidence=seen)
    return data
