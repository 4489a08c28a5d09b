"""Write small files that have no name until they are complete (``O_TMPFILE`` of open(2))."""

from __future__ import annotations

import os
from pathlib import Path

from argosy.core.locks import deferred_signals
from argosy.core.os_errors import discard


def write_new(path: Path, data: bytes, mode: int | None) -> None:
    """Write and sync a new file; a mode of None means the access rights of the umask."""
    _write(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode or 0o666), data, mode)


def write_unnamed(path: Path, data: bytes, mode: int | None, *, temporary: Path) -> bool:
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
