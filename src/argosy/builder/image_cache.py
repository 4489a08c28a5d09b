"""The image of a lock, made before: noted where it stands, and copied where it still stands as it was.

A note is a few bytes and keeps no image alive: a file that is gone, has changed or is another user's is passed over.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.builder.build_plan import BuildPlan, differences, is_whole_order, report_standing
from argosy.builder.report import BuildReport, BuildRequest
from argosy.builder.timing import Clock
from argosy.core.errors import CheckFailed, ImageError
from argosy.core.layout import NO_PREFIX_LAYOUT
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import atomic_file, final_name, is_owned, make_folder, write_text
from argosy.images.formats import OutputFormat
from argosy.images.identify import render_size
from argosy.images.open import Opened, open_image
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import FileSlice, write_pieces
from argosy.images.squashfs.pack import packer_version
from argosy.recipes.lock import Lock, Tools, render_lock
from argosy.version import VERSION

NOTES = "made"
"""Folder of the cache: a file for each lock."""

KEPT = 4
"""Images noted of one lock, the newest first."""


class Stamp(msgspec.Struct, frozen=True):
    """What tells one state of a file from another: its path, inode, size and times (in nanoseconds)."""

    path: str
    inode: int
    size: int
    changed: int


def stamp_of(path: Path) -> Stamp | None:
    """Give a file's stamp now; None where there is none of this user's."""
    with suppress(OSError):
        status = path.stat()
        if status.st_uid == os.geteuid():  # what others noted in a shared cache is theirs
            return Stamp(str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    return None


def note_image(request: BuildRequest, lock: Lock, session: Session) -> None:
    """Note where an image stands that was made just now."""
    stamp = stamp_of(request.output)
    if request.form is not OutputFormat.SIF or stamp is None:
        return
    file = notes_file(lock, session.paths.cache, flat=request.flatten)
    others = (each for each in read_notes(file) if each.path != stamp.path)
    with suppress(OSError, CheckFailed, UnicodeEncodeError):  # nothing was asked of the cache; JSON takes no odd bytes
        make_folder(file.parent)
        write_text(file, msgspec.json.encode((stamp, *others)[:KEPT]).decode())


def notes_file(lock: Lock, cache: Path, *, flat: bool) -> Path:
    """Name the file of notes on images of a lock: of this Argosy, and of whatever versions of other programs."""
    known = f"{VERSION} {flat} {render_lock(replace(lock, tools=Tools('')))}"
    return cache / NOTES / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"


def read_notes(file: Path) -> tuple[Stamp, ...]:
    """Read what was noted; nothing where the file is not there, or is none of ours."""
    with suppress(OSError, msgspec.DecodeError):
        if is_owned(file):  # others could note an image that only looks like one of this lock
            return msgspec.json.decode(file.read_bytes(), type=tuple[Stamp, ...])
    return ()


def copy_made_before(request: BuildRequest, build_plan: BuildPlan, clock: Clock) -> BuildReport | None:
    """Copy an image of the same lock that was made before; None where none stands, or the user wants it made.

    Raises
    ------
    ArgosyError
        When the output cannot be written.
    """
    lock = build_plan.lock
    if lock is None or not is_whole_order(request, lock) or not _is_plain(request, lock):
        return None
    file = notes_file(lock, clock.session.paths.cache, flat=request.flatten)
    for stamp in read_notes(file):
        there = _open_unchanged(stamp, file, clock.session, lock=lock)
        if there and there.lock and _copy(stamp, request, clock):
            note_image(request, lock, clock.session)
            notes = (f"the same image stands at {stamp.path}: copied", *differences(build_plan, there.lock))
            report = report_standing(request, there.image, there.lock, notes)
            return replace(report, timings=tuple(clock.timings), seconds=time.monotonic() - clock.started)
    return None


def _is_plain(request: BuildRequest, lock: Lock) -> bool:
    """Tell whether a copy will do: nothing is asked that only a build does, such as a check of the base or of torch."""
    asked = request.engine.no_cache or request.site or request.prefix_layout != NO_PREFIX_LAYOUT
    return not asked and request.base in ("", lock.base.reference)


def _open_unchanged(stamp: Stamp, file: Path, session: Session, *, lock: Lock) -> Opened | None:
    """Open a noted image if it has not changed, is of this lock, and was packed as the lock or this machine would."""
    if stamp_of(Path(stamp.path)) != stamp:
        return None
    with suppress(ImageError):
        there = open_image(Path(stamp.path))
        flat = there.image.layer_part == 0
        if there.lock and notes_file(there.lock, file.parents[1], flat=flat) == file:
            packer = there.lock.tools.mksquashfs
            return there if packer == lock.tools.mksquashfs or packer == packer_version(session) else None
    return None


def copy_unchanged(stamp: Stamp, target: Path) -> None:
    """Copy an image that is as it was noted, and does not change while it is copied.

    Raises
    ------
    ImageError
        When it does not, cannot be read, or is damaged.
    """
    write_pieces(target, (FileSlice(Path(stamp.path), 0, stamp.size),))
    verify_sif(target)
    if stamp_of(Path(stamp.path)) != stamp:
        raise ImageError(f"{stamp.path} changed while it was copied", hint="build again")


def _copy(stamp: Stamp, request: BuildRequest, clock: Clock) -> bool:
    """Copy an image whole; false where it was damaged, or changed meanwhile: then it is built."""
    try:
        with (
            clock.step("copy", f"the same image, from {stamp.path}") as step,
            atomic_file(request.output, force=request.force) as beside,
        ):
            copy_unchanged(stamp, beside)
            step.result = f"{render_size(stamp.size)} written to {final_name(request.output)}"
    except ImageError:
        return False
    return True
