"""Create files and folders atomically, and manage work folders.

Everything here works on network file systems and after ``kill -9``: leftovers of dead processes are recognised by their
name or owner record, and the next process removes them.
"""

from __future__ import annotations

import contextlib
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
    is_abandoned,
    is_older,
    read_owner,
    this_owner,
    write_owner,
)
from argosy.core.os_errors import discard, translate_os_errors
from argosy.core.render import DAY
from argosy.core.shared_folders import is_foreign_link, is_shared, opened_folder

HASHED_BYTES = 1 << 22

WORK_PREFIX = "argosy-work-"
OWNER_FILE = "owner.json"

PART = r"\d+\.[0-9a-f]{8}\.part"
"""End of a temporary name: process, random digits, suffix."""


def part_name(path: Path) -> Path:
    """Return a temporary name next to a path, by which `sweep_parts` finds what a killed process leaves."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")


def remove_parts(path: Path) -> None:
    """Remove what killed processes left under the names of `part_name`."""
    for part in files_beside(path, rf"\.{re.escape(path.name)}\.{PART}"):
        remove_path(part)


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool, flush: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` if the block succeeds, else remove it.

    Parameters
    ----------
    force
        Whether to replace an existing file.
    flush
        Whether to sync the file to disk before the rename; not needed if readers verify its contents.

    Raises
    ------
    UsageError
        If `path` exists and `force` is false.
    CheckFailed
        If the folder is not writable or the disk is full.
    """
    refuse_existing(path, force=force)
    beside = part_name(path)
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
            discard(beside)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool) -> Iterator[Path]:
    """Yield a temporary folder next to `path`; rename it to `path` if the block succeeds, else remove it.

    A killed process may leave the replaced folder under the name ``.NAME.RANDOM.old``; see `sweep_parts`.

    Parameters
    ----------
    replace
        Whether to replace an existing folder; the caller has checked that this is allowed.
    """
    beside = part_name(path)
    try:
        with translate_os_errors(path.parent):
            beside.mkdir()
            yield beside
            with deferred_signals():
                if replace and os.path.lexists(path):
                    _replace_folder(beside, path)
                else:
                    beside.rename(path)
    finally:
        with deferred_signals():
            remove_path(beside)


def _replace_folder(beside: Path, path: Path) -> None:
    """Rename a folder to the name of an existing one, which keeps its name if this fails."""
    old = path.with_name(f".{path.name}.{os.urandom(4).hex()}.old")
    path.rename(old)
    try:
        beside.rename(path)
    except OSError:
        old.rename(path)
        raise
    remove_path(old)


def _rename_new(beside: Path, path: Path) -> None:
    """Rename a file unless the new name was taken meanwhile."""
    try:
        os.link(beside, path)
    except FileExistsError:
        refuse_existing(path, force=False)
        beside.rename(path)  # the other file was removed again
    except OSError as error:
        # On file systems without hard links (vfat, some FUSE) the earlier check must suffice.
        if error.errno not in NO_HARD_LINKS:
            raise
        beside.rename(path)


def refuse_existing(path: Path, *, force: bool, otherwise: str = "choose another name, or use") -> None:
    """Raise `UsageError` if writing `path` would replace something and `force` is false.

    Parameters
    ----------
    otherwise
        Beginning of the hint, before ``--force to replace it``.
    """
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", hint="pass the path of a file")
    if path.exists() and not path.is_file():
        # A file that replaced a device such as /dev/null would break the whole machine.
        raise UsageError(f"cannot write {path}: it is a device or a pipe", hint="pass the path of a file")
    if path.is_symlink() and not path.exists() and not force:
        hint = "pass the target of the link with -o, or use --force to replace the link"
        raise UsageError(f"{path} is a broken link to {path.readlink()}", hint=hint)
    if path.exists() and not force:
        raise UsageError(f"{path} already exists", hint=f"{otherwise} --force to replace it")


def sweep_parts(path: Path) -> None:
    """Remove temporary files of killed processes next to `path`; the caller must hold the lock of that name.

    If a process was killed while it replaced a folder, the old folder gets its name back.
    """
    for old in files_beside(path, rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.old"):
        remove_path(old) if os.path.lexists(path) else old.rename(path)
    remove_parts(path)


def sweep_old_parts(folder: Path) -> None:
    """Remove the small files below a folder that processes left which were killed a day ago or earlier."""
    for part in folder.rglob(".*.part"):
        if re.fullmatch(rf"\..+\.{PART}", part.name) and is_older(part, DAY) and not is_foreign(part):
            discard(part)


@contextlib.contextmanager
def editing(path: Path, *, waiting: Callable[[Owner], None]) -> Iterator[None]:
    """Hold the lock of a user's file while the block reads and writes it; first remove what a killed process left.

    Two processes that change the file at the same time would otherwise lose one of the changes.

    Parameters
    ----------
    path
        The file; its folder must exist.
    waiting
        Called with the process that edits the file, if this process must wait for it.
    """
    with hold_lock(path.with_name(f".{path.name}.lock"), what=f"writing {path.name}", waiting=waiting):
        sweep_parts(path)
        yield


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_link(path: Path, target: str) -> None:
    """Write a symbolic link atomically, replacing an existing link or file."""
    beside = part_name(path)
    try:
        with translate_os_errors(path.parent):
            beside.symlink_to(target)
            beside.replace(path)
    finally:
        with deferred_signals():
            discard(beside)


def write_text(path: Path, text: str, *, mode: int | None = None, force: bool = True) -> None:
    """Write a small text file atomically; surrogate escapes become the original bytes.

    The file has no name until it is complete, so a process that is killed leaves nothing. File systems without such
    files (NFS) get a temporary name.

    Parameters
    ----------
    mode
        Access rights; None for those and the group of the file that is replaced, else of the umask.
    force
        Whether to replace an existing file.
    """
    refuse_existing(path, force=force)
    old = path.stat() if mode is None and os.path.exists(path) else None  # noqa: PTH110 - Path's raises
    mode = stat.S_IMODE(old.st_mode) if old else mode
    data = text.encode(errors="surrogateescape")
    if not _write_unnamed(path, data, mode, temporary=part_name(path)):
        with atomic_file(path, force=force, flush=False) as beside:
            _write_new(beside, data, mode)
    if old:
        with contextlib.suppress(OSError):  # this user may not choose the group
            os.chown(path, -1, old.st_gid)


def _write_new(path: Path, data: bytes, mode: int | None) -> None:
    """Write and sync a new file; a mode of None means the access rights of the umask."""
    _write(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode or 0o666), data, mode)


def _write_unnamed(path: Path, data: bytes, mode: int | None, *, temporary: Path) -> bool:
    """Write a file without a name, then give it one; return whether that worked.

    It does not on file systems without such files, for example NFS, or if another process takes the name meanwhile.

    Parameters
    ----------
    temporary
        A temporary name. Linux can replace a file only by one that has a name.
    """
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode or 0o666)
        _write(handle, data, mode, name=temporary if os.path.lexists(path) else path)
        if os.path.lexists(temporary):
            temporary.replace(path)
    except OSError:
        return False
    finally:
        with deferred_signals():
            discard(temporary)
    return True


def _write(handle: int, data: bytes, mode: int | None, *, name: Path | None = None) -> None:
    """Write, sync and close an open file; give it a name if it has none."""
    try:
        while data:
            data = data[os.write(handle, data) :]
        if mode is not None:
            os.fchmod(handle, mode)
        os.fsync(handle)
        if name is not None:
            _link(handle, name)
    finally:
        os.close(handle)


def _link(handle: int, name: Path) -> None:
    # Only linkat(2), which Python calls for a folder's descriptor, follows the link below /proc.
    folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.link(str(handle), name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Create a folder of a cache and its parents.

    In a setgid, group-writable folder the new one gets the same mode, even if the umask is 077.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    if is_shared(path.parent) and is_owned(path):
        group = stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_IRWXG | stat.S_ISGID)
        path.chmod(stat.S_IMODE(path.stat().st_mode) | group)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Hard-link a file that never changes; copy it if it is on another file system or owned by another user."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        import shutil  # noqa: PLC0415 - see process.find_program

        shutil.copy2(source, target, follow_symlinks=False)


def digest_of_file(file: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file as hexadecimal digits.

    Parameters
    ----------
    on_bytes
        Called with the number of bytes of each block that was read.
    """
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which most commands do not need

    with file.open("rb") as handle:
        if on_bytes is None:
            return hashlib.file_digest(handle, "sha256").hexdigest()
        total = hashlib.sha256()
        while block := handle.read(HASHED_BYTES):
            total.update(block)
            on_bytes(len(block))
        return total.hexdigest()


@contextlib.contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Yield an empty folder below `parent` that is removed at the end; remove those of dead processes first."""
    with translate_os_errors(parent):
        make_folder(parent)
        sweep_work(parent)
    folder = parent / f"{WORK_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with translate_os_errors(folder):
            folder.mkdir(mode=0o700)
            write_owner(folder / OWNER_FILE, this_owner("work folder"))
            yield folder
    finally:
        with deferred_signals():
            _remove_work(folder)


def _remove_work(folder: Path) -> None:
    """Remove a work folder, its owner record last, so that the next process can finish an interrupted removal."""
    with contextlib.suppress(OSError), opened_folder(folder) as opened:  # another process may remove it, too
        for entry in opened.iterdir():
            if entry.name != OWNER_FILE:
                remove_path(entry)
    remove_path(folder)


def sweep_work(parent: Path) -> None:
    """Remove the work folders of this user's ended processes below `parent`; links of other users are not followed."""
    for folder in () if is_foreign_link(parent) else parent.glob(f"{WORK_PREFIX}*"):
        if folder.is_symlink() or not is_owned(folder):
            continue
        owner, _ = read_owner(folder / OWNER_FILE)
        if is_abandoned(owner, folder):
            _remove_work(folder)


def is_foreign(path: Path) -> bool:
    """Return whether a path in a shared cache belongs to another user, does not exist or is not accessible.

    Always false for root, who may change everything; `is_owned` tells whether root created a path.
    """
    return os.geteuid() != 0 and not is_owned(path)


def is_owned(path: Path) -> bool:
    """Return whether this user owns a path; false if it does not exist or is not accessible."""
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return False


def _remove_foreign(path: Path) -> bool:
    """Remove an empty folder of another user, which the owner of its parent may do; return whether it was one."""
    if not is_foreign(path):
        return False
    path.rmdir()
    return True


def remove_path(path: Path) -> None:
    """Remove a file, a symbolic link or a folder with its contents, also read-only ones, if it exists."""
    if not os.path.lexists(path):
        return  # on a read-only file system, Linux refuses to unlink even what does not exist
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return

    opened: set[str] = set()

    def retry(function: Callable[[str], object], name: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(name).parent.chmod(0o700)
            if not Path(name).is_symlink() and not _remove_foreign(Path(name)):
                Path(name).chmod(0o700)
            if function in {os.unlink, os.rmdir}:
                function(name)
            elif name not in opened:  # overlay mounts leave work folders with mode 0
                opened.add(name)
                shutil.rmtree(name, onerror=retry)

    import shutil  # noqa: PLC0415 - see process.find_program

    shutil.rmtree(path, onerror=retry)
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)
