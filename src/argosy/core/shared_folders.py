"""Share the files of a cache with the users of a group, whatever their umask."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


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
        _let_read(path, group)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                _let_read(Path(folder, name), group)


def _let_read(path: Path, group: int) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return
    if status.st_gid != group:
        with contextlib.suppress(OSError):  # this user is not a member of the group
            os.chown(path, -1, group)
    execute = stat.S_IXGRP if status.st_mode & stat.S_IXUSR else 0
    mode = stat.S_IMODE(status.st_mode) | stat.S_IRGRP | execute
    if mode != stat.S_IMODE(status.st_mode):
        path.chmod(mode)
