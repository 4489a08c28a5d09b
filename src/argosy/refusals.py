"""Say in plain words what the file system refused, and what to do about it; it touches no file itself."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from argosy.errors import ArgosyError, CheckFailed, UsageError


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn the system's refusals to write below `folder` into errors with a way out."""
    try:
        yield
    except ArgosyError:
        raise
    except OSError as error:
        raise explain_os_error(error, folder) from error


def explain_os_error(error: OSError, folder: Path) -> ArgosyError:
    """Say in plain words what the system refused."""
    name = error.filename or folder
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return CheckFailed(
            "no space left" if error.errno == errno.ENOSPC else "your disk quota is used up",
            evidence=f"while writing {name} ({_free(folder)})",
            hint="free some space or files, or choose another place with --work-dir, --output or ARGOSY_CACHE",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return CheckFailed(
            f"{name} cannot be written", evidence=str(error), hint="choose a folder that you may write to"
        )
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return UsageError(f"no such file or folder: {name}", evidence=str(error), hint="check the path")
    return CheckFailed(f"the file system refused: {error.strerror or error}", evidence=str(name))


def _free(folder: Path) -> str:
    with contextlib.suppress(OSError):
        space = os.statvfs(folder)
        if space.f_files and not space.f_favail:
            return f"all {space.f_files} files that may be there are: df -i"
        return f"{space.f_bavail * space.f_frsize / 1e6:.0f} MB free there"
    return "free space unknown"


def refuse_folder(folder: Path) -> None:
    """Refuse a folder that nothing can be written into.

    Raises
    ------
    UsageError, CheckFailed
        When there is no such folder, or it may not be written to.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint=f"make it first: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise CheckFailed(f"{folder} cannot be written", hint="name another folder")
