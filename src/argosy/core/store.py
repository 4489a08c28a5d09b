"""Files and folders that appear whole or not at all, and work folders; it never decides what goes into them.

Everything here must hold on network file systems and through ``kill -9``: what a dead process left behind is
recognised by its name or its owner record and swept by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.locks import (
    NO_HARD_LINKS,
    Owner,
    deferred_signals,
    files_beside,
    hold_lock,
    is_alive,
    is_older,
    read_owner,
    this_owner,
)
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict

FORGOTTEN_AFTER_SECONDS = 7 * 86400.0
"""A work folder of another host, or of nobody, that is older than any build lasts."""

WORK_PREFIX = "argosy-work-"
OWNER_FILE = "owner.json"


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool, flush: bool = True) -> Iterator[Path]:
    """Give a name beside `path` to write to; it becomes `path` when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    flush
        Whether its bytes are on the disk before it has its name: false for what its reader checks anyway.

    Raises
    ------
    UsageError
        When `path` exists and `force` is false.
    CheckFailed
        When its folder cannot be written, or the disk is full.
    """
    refuse_existing(path, force=force)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with translate_os_errors(path.parent):
            yield beside
            if flush:
                _sync(beside)
            if force:
                beside.replace(path)
            else:
                _rename_new(beside, path)
    finally:
        with deferred_signals():
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool) -> Iterator[Path]:
    """Give a folder beside `path` to fill; it becomes `path` when the block ends well, and vanishes otherwise.

    Parameters
    ----------
    replace
        Whether what stands at `path` gives way; the caller has seen that it may.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    old = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with translate_os_errors(path.parent):
            beside.mkdir()
            yield beside
            if replace and os.path.lexists(path):
                path.rename(old)
            beside.rename(path)
    finally:
        with deferred_signals():
            remove_tree(beside)
            remove_tree(old)


def _rename_new(beside: Path, path: Path) -> None:
    """Give a file its name unless the name was taken meanwhile."""
    try:
        os.link(beside, path)
    except FileExistsError:
        refuse_existing(path, force=False)
        beside.rename(path)  # what had the name has gone again
    except OSError as error:
        # Hard links are refused by some file systems (vfat, some FUSE): the check a moment ago must do there.
        if error.errno not in NO_HARD_LINKS:
            raise
        beside.rename(path)


def refuse_existing(path: Path, *, force: bool, otherwise: str = "give another name, or") -> None:
    """Refuse to overwrite without being told to; `otherwise` says what else there is but ``--force``."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="name a file")
    if path.exists() and not path.is_file():
        # Put in its place, a file would take a device such as /dev/null away from the whole machine.
        raise UsageError(f"{path} is a device or a pipe, which no file replaces", hint="name a file")
    if path.is_symlink() and not path.exists() and not force:
        hint = "name that file with -o, or --force to put a file in the link's place"
        raise UsageError(f"{path} is a link to {path.readlink()}, which is not there", hint=hint)
    if path.exists() and not force:
        raise UsageError(f"{path} exists already", hint=f"{otherwise} --force to replace it")


def sweep_parts(path: Path) -> None:
    """Remove what killed processes left beside `path`; call it while holding the lease on that name."""
    for part in files_beside(path, rf"\.{re.escape(path.name)}\.\d+\.[0-9a-f]{{8}}\.part"):
        remove_tree(part) if part.is_dir() and not part.is_symlink() else part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole, replacing what was there; names of files in it may be any bytes."""
    with atomic_file(path, force=True) as beside:
        beside.write_text(text, errors="surrogateescape", encoding="utf-8")


def make_folder(path: Path) -> None:
    """Make a folder of a cache, and those above it.

    In a folder of a group, setgid and writable, it is the group's too: a umask of 077 would shut the others out.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    group = stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_IRWXG | stat.S_ISGID)
    if group & stat.S_IWGRP and group & stat.S_ISGID and is_owned(path):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | group)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file that nobody changes a second name; a copy on another disk, or where it is another user's."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        import shutil  # noqa: PLC0415 - it loads every compression module there is

        shutil.copy2(source, target, follow_symlinks=False)


def digest_of_file(file: Path) -> str:
    """Give the sha256 of a file's bytes."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL

    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextlib.contextmanager
def fill_once(path: Path, *, what: str, waiting: Callable[[Owner], None]) -> Iterator[Path | None]:
    """Give a folder to fill that becomes `path` when the block ends well; None where `path` stands already.

    Only one process fills it; others wait and then find it.
    """
    with translate_os_errors(path.parent):
        there = path.is_dir()
    if there:
        yield None
        return
    with translate_os_errors(path.parent):
        make_folder(path.parent)
    with hold_lock(path.with_name(path.name + ".lease"), what=what, waiting=waiting):
        if path.is_dir():
            yield None
            return
        for left in files_beside(path, rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part"):
            remove_tree(left)
        beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
        try:
            with translate_os_errors(path.parent):
                beside.mkdir()
                yield beside
                beside.rename(path)
        finally:
            with deferred_signals():
                remove_tree(beside)


def final_name(path: Path) -> str:
    """Give the name that a file in a folder of `fill_once` has in the end: what users are told."""
    return re.sub(r"/\.([^/]+)\.[0-9a-f]{8}\.part(?=/)", r"/\1", str(path))


@contextlib.contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Give an empty folder below `parent` that is removed at the end; first sweep those of dead processes there."""
    with translate_os_errors(parent):
        make_folder(parent)
        _sweep_work(parent)
    folder = parent / f"{WORK_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with translate_os_errors(folder):
            folder.mkdir(mode=0o700)
            (folder / OWNER_FILE).write_text(json.dumps(asdict(this_owner("work folder"))), encoding="utf-8")
            yield folder
    finally:
        with deferred_signals():
            _remove_work(folder)


def _remove_work(folder: Path) -> None:
    """Remove a work folder, who owns it last: what a killed removal leaves is swept by the next program."""
    with contextlib.suppress(OSError):  # another program sweeps it, too
        for entry in folder.iterdir():
            if entry.is_dir():
                remove_tree(entry)
            elif entry.name != OWNER_FILE:
                entry.unlink(missing_ok=True)
    remove_tree(folder)


def _sweep_work(parent: Path) -> None:
    for folder in parent.glob(f"{WORK_PREFIX}*"):
        if is_foreign(folder):
            continue
        owner, _ = read_owner(folder / OWNER_FILE)
        alive = is_alive(owner) if owner else None
        if alive is False or (alive is None and is_older(folder, FORGOTTEN_AFTER_SECONDS)):
            _remove_work(folder)


def is_foreign(path: Path) -> bool:
    """Tell whether a file or folder is not ours to change, in a cache that several share, or is gone or out of reach.

    Root may change all; see `is_owned` for what it may rely on.
    """
    return os.geteuid() != 0 and not is_owned(path)


def is_owned(path: Path) -> bool:
    """Tell whether a file or folder was made by this user; false where there is none, or it is out of reach."""
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return False


def _made_by_another(path: Path) -> bool:
    """Remove an empty folder of another user, as the owner of the folder above may; tell whether it was one."""
    if not is_foreign(path):
        return False
    path.rmdir()
    return True


def remove_tree(path: Path) -> None:
    """Remove a tree, read-only folders in it included; nothing happens where it does not exist.  A link is unlinked."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    if not path.exists():
        return

    opened: set[str] = set()

    def retry(function: Callable[[str], object], name: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(name).parent.chmod(0o700)
            if not Path(name).is_symlink() and not _made_by_another(Path(name)):
                Path(name).chmod(0o700)
            if function in {os.unlink, os.rmdir}:
                function(name)
            elif name not in opened:  # a folder that could not be opened, as overlays leave them
                opened.add(name)
                shutil.rmtree(name, onerror=retry)

    import shutil  # noqa: PLC0415 - see process.find_program

    shutil.rmtree(path, onerror=retry)
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)
