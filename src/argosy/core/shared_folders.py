"""Share folders with other users: let them read new files whatever the umask, and follow none of their links."""

from __future__ import annotations

import contextlib
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


def _walk(path: Path) -> Iterator[Path]:
    yield path
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in (*folders, *files))
