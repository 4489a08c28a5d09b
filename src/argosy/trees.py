"""Images unpacked into the cache, by content, for runtimes and carriers that work on a folder; never changed after."""

from __future__ import annotations

from pathlib import Path

from argosy.process import Command, failed, run_checked
from argosy.session import Session
from argosy.store import whole_folder
from argosy.uses import note_use
from argosy.whiteouts import parse_whiteouts, restore_whiteouts

UNSQUASHFS_SOME_NOT_WRITTEN = 2
"""unsquashfs(1): non-fatal errors, as device nodes that an ordinary user cannot make."""


def unpacked(session: Session, image: Path, *, offset: int, key: str, part: str = "") -> Path:
    """Give the unpacked tree of the squashfs that begins at `offset` bytes in `image`; unpack it at the first use.

    Parameters
    ----------
    key
        Name in the cache: the digest of the squashfs.
    part
        What it is to the user: ``base`` or ``layer``; empty for an image of one part.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full.
    """
    place = session.places.cache / "trees" / key.removeprefix("sha256:")
    note_use(session.places.cache, f"trees/{place.name}", waiting=session.waiting)
    what = f"the {part} of {image.name}" if part else image.name
    with whole_folder(place, what=f"unpacking {what}", waiting=session.waiting) as folder:
        if folder is not None:
            with session.step("unpack", f"{what} into the cache, once") as step:
                _unpack(session, image, offset, folder / "root")
                step.result = f"{what} into the cache, once"
    return place / "root"


def _unpack(session: Session, image: Path, offset: int, tree: Path) -> None:
    options = ("-processors", str(session.host.cpus), "-no-xattrs")
    run_unsquashfs(session, image, offset, tree, *options, doing=f"unpacking {image}")


def run_unsquashfs(
    session: Session, image: Path, offset: int, tree: Path, *options: str, doing: str, parts: tuple[str, ...] = ()
) -> None:
    """Unpack the squashfs that begins at `offset` bytes in `image`, with the marks of removed files.

    Parameters
    ----------
    parts
        Paths in it that are unpacked; none: all.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full.
    """
    words = ("unsquashfs", "-no-progress", "-quiet", *options, "-o", str(offset), "-d", str(tree), str(image), *parts)
    command = Command(words)
    reply = session.runner.run(command)
    if reply.code not in {0, UNSQUASHFS_SOME_NOT_WRITTEN} or not tree.is_dir():
        raise failed(command, reply, doing=doing)
    if reply.code or session.host.person.uid != 0:
        listing = Command(("unsquashfs", "-no-progress", "-lls", "-o", str(offset), "-d", "", str(image), *parts))
        restore_whiteouts(tree, parse_whiteouts(run_checked(session.runner, listing, doing=doing).stdout))
