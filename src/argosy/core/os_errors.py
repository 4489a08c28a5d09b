"""Say in plain words what the file system refused, and what to do about it; it changes no file."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word

NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
NOT_THERE = {errno.ENOENT, errno.ENOTDIR}

_BESIDE = re.compile(r".+\.\d+\.[0-9a-f]{8}(?:\.part)?|\..+\.[0-9a-f]{8}\.part")
"""What `leases` and `store` call a file until it has its name: no user knows it, the folder is meant."""


ELSEWHERE = "--work-dir, --output or ARGOSY_CACHE"
"""What names another folder to write to, as a rule."""


@contextlib.contextmanager
def translate_os_errors(folder: Path, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Turn the system's refusals to write below `folder` into errors with a way out.

    That nobody reads our output any more is none of them.

    Parameters
    ----------
    elsewhere
        What names another folder in its place.
    """
    try:
        yield
    except (ArgosyError, BrokenPipeError):
        raise
    except OSError as error:
        raise explain_os_error(error, folder, elsewhere) from error


def explain_os_error(error: OSError, folder: Path, elsewhere: str = ELSEWHERE) -> ArgosyError:
    """Say in plain words what the system refused."""
    error = _first_of(error)
    # Of two names, as of a link and what it leads to, the second is the one to be made.
    told = error.filename if error.errno in NOT_THERE else error.filename2 or error.filename
    name = Path(os.fsdecode(told)) if isinstance(told, str | bytes) else folder
    if error.errno in NOT_THERE | NOT_ALLOWED and _BESIDE.fullmatch(name.name):
        return _folder_error(name.parent, error.strerror or "")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return CheckFailed(
            "no space left" if error.errno == errno.ENOSPC else "your disk quota is used up",
            evidence=f"while writing {name} ({_free(folder)})",
            hint=f"free some space or files, or choose another place with {elsewhere}",
        )
    if error.errno in NOT_ALLOWED:
        hint = f"choose a folder that you may write to, by {elsewhere}"
        return CheckFailed(f"{name} cannot be written", evidence=str(error), hint=hint)
    if error.errno in NOT_THERE:
        return UsageError(f"no such file or folder: {name}", evidence=str(error), hint="check the path")
    if error.errno in {errno.EEXIST, errno.ELOOP} and not name.is_dir():
        what = f"a link to {name.readlink()}, which is not there" if name.is_symlink() else "a file"
        return UsageError(f"{name} is {what}, where a folder is wanted", hint=f"name another, by {elsewhere}")
    return CheckFailed(f"the file system refused: {error.strerror or error}", evidence=str(name))


def _first_of(error: OSError) -> OSError:
    """Give the first refusal of all that met who copied a tree (``shutil.Error``), else the only one."""
    if error.errno is None and error.args and isinstance(error.args[0], list):
        for _, target, why in error.args[0]:
            if number := re.match(r"\[Errno (\d+)\]", str(why)):
                return OSError(int(number[1]), os.strerror(int(number[1])), str(target))
    return error


def _free(folder: Path) -> str:
    with contextlib.suppress(OSError):
        space = os.statvfs(folder)
        if space.f_files and not space.f_favail:
            return f"all {space.f_files} files that may be there are: df -i"
        return f"{space.f_bavail * space.f_frsize / 1e6:.0f} MB free there"
    return "free space unknown"


CHECK = "check the path"
"""What is said of a file that nothing is known of."""


def missing_file(named: str, cwd: Path, evidence: str = "") -> UsageError:
    """Say that a file which the user named, from the folder `cwd`, is not there, and which one is there instead."""
    folder, near = (cwd / named).parent, suggest_file(Path(named), cwd)
    hint = f"did you mean {near}?" if near else CHECK
    if (cwd / named).is_symlink():
        hint = f"it is a link to {(cwd / named).readlink()}, which is not there"
    if not folder.is_dir():
        hint = f"there is no folder {folder} either"
    return UsageError(f"there is no file {named}", evidence=evidence, hint=hint)


def suggest_file(file: Path, cwd: Path = Path()) -> str:
    """Give the path with the nearest name that its folder has, as a shell takes it; nothing where none is like it."""
    with contextlib.suppress(OSError):
        there = {entry.name for entry in (cwd / file).parent.iterdir()} - {file.name}  # that is a link to nothing
        cut = (name for name in sorted(there) if name.startswith(f"{file.name} "))  # by a shell, at a blank
        near = next(cut, "") or suggest_word(file.name, sorted(there), likeness=0.8)
        return quote(str(file.with_name(near))) if near else ""
    return ""


def require_writable_folder(folder: Path) -> None:
    """Refuse a folder that nothing can be written into.

    Raises
    ------
    UsageError, CheckFailed
        When there is no such folder, or it may not be written to.
    """
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise _folder_error(folder)


def _folder_error(folder: Path, said: str = "") -> ArgosyError:
    """Say that there is no such folder, or that nothing can be written into it, and what the system said of that."""
    if not folder.is_dir():
        return UsageError(f"there is no folder {folder}", hint=f"make it first: mkdir -p {quote(str(folder))}")
    return CheckFailed(f"{folder} cannot be written", evidence=said, hint="name another folder")
