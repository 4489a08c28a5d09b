"""Share folders with other users: let them read new files whatever the umask, and follow none of their links."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

GROUP = 0o050
READERS = 0o055
"""Bits of the mode of a folder with which its group, or the group and all other users, can read it."""


def is_foreign_link(path: Path) -> bool:
    """Return whether a path is a symbolic link of another user than root: it may lead to any folder of this user."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        return stat.S_ISLNK(status.st_mode) and status.st_uid not in {0, os.geteuid()}
    return False


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file, or is missing or not accessible; false for links, pipes and folders."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return True


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[Path]:
    """Yield a path to a folder of this user that stays the same if another user replaces the folder by a link.

    Raises
    ------
    OSError
        If the folder is a link, is missing or belongs to another user.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(number).st_uid != os.geteuid():
            raise PermissionError(f"{folder} belongs to another user")
        yield Path(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def is_public(path: Path) -> bool:
    """Return whether each user may read a file, or enter a folder, by the modes of it and of the folders above it."""
    folders = (path, *path.parents) if path.is_dir() else path.parents
    readable = path.is_dir() or bool(path.stat().st_mode & stat.S_IROTH)
    return readable and all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def read_regular_file(path: Path, *, most: int = -1, own: bool = False) -> bytes:
    """Return the contents of a file that another user may have replaced: by a pipe, which never ends, or by a link.

    Parameters
    ----------
    most
        The largest size in bytes; -1 for no limit.
    own
        Whether to refuse files of other users than this one and root.

    Raises
    ------
    OSError
        If the file is missing, is not a regular one, is too large or belongs to another user.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if own and status.st_uid not in {0, os.geteuid()}:
            raise OSError(errno.EPERM, "it belongs to another user", str(path))
        if 0 <= most < status.st_size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(most)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def is_shared(folder: Path) -> bool:
    """Return whether the users of a group share a folder: it is setgid and group-writable."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWGRP and mode & stat.S_ISGID)


def share_new(path: Path) -> None:
    """Let the group read a new file or tree of the cache, if the folder that contains it is shared.

    A file that a program wrote elsewhere, and that was moved here, has another group.
    """
    with contextlib.suppress(OSError):
        if not is_shared(path.parent):
            return
        group = path.parent.stat().st_gid
        for each in _walk(path):
            with contextlib.suppress(OSError):  # this user is not a member of the group
                os.chown(each, -1, group, follow_symlinks=False)
            let_read(each, GROUP)


def let_read(path: Path, readers: int) -> None:
    """Add the read access of other users to the mode of a file or folder; a link stays as it is.

    Parameters
    ----------
    readers
        Bits of `READERS`. Only a folder and a program of its owner get those of execution.
    """
    with contextlib.suppress(OSError):  # a hard link to the file of another user
        mode = path.lstat().st_mode
        bits = readers if mode & stat.S_IXUSR else readers & 0o044
        if not stat.S_ISLNK(mode) and bits & ~mode:
            path.chmod(stat.S_IMODE(mode) | bits)


def let_read_tree(path: Path, readers: int) -> None:
    """Add the read access of other users to a file, or to a folder and all its files; see `let_read`."""
    for each in _walk(path):
        let_read(each, readers)


def give_to_group(path: Path, group: int) -> None:
    """Give a file or a tree to a group; a hard link to a file of another group becomes a copy, which has this group."""
    for each in _walk(path):
        with contextlib.suppress(OSError):  # this user is not a member of the group, or the disk is full
            status = each.lstat()
            if status.st_gid == group:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                _make_own(each, status)
            os.chown(each, -1, group, follow_symlinks=False)


def _make_own(file: Path, status: os.stat_result) -> None:
    """Replace a hard link by a copy. Another user of the folder cannot choose the file that is written."""
    import shutil  # noqa: PLC0415 - see process.find_program
    import tempfile  # noqa: PLC0415 - few commands need it

    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with file.open("rb") as source, open(descriptor, "wb") as copy:  # noqa: PTH123 - a descriptor has no path
            shutil.copyfileobj(source, copy)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            copy.flush()
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(name, file)  # noqa: PTH105 - mkstemp returns a text
    finally:
        Path(name).unlink(missing_ok=True)


def _walk(path: Path) -> Iterator[Path]:
    yield path
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in (*folders, *files))
