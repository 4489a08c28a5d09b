"""Translate errors of the operating system into errors with a hint; no file is changed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.errors import ArgosyError, CheckFailed, DiskFull, UsageError
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word

FULL = {errno.ENOSPC, errno.EDQUOT}
NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
NOT_THERE = {errno.ENOENT, errno.ENOTDIR}

_BESIDE = re.compile(r".+\.\d+\.[0-9a-f]{8}(?:\.part)?")
"""Temporary names that `locks` and `store` give to files; messages name the folder instead."""

ELSEWHERE = "--work-dir, --output or ARGOSY_CACHE"
"""The usual options for another folder."""


def discard(path: Path) -> None:
    """Remove a file if it can be removed, at the end of work whose own error tells more.

    On a file system that is read-only, Linux refuses to remove also a name that does not exist.
    """
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def translate_os_errors(folder: Path, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Translate an `OSError` from writing below `folder` into an `ArgosyError` with a hint.

    `BrokenPipeError` is not translated: it means that nobody reads the output any more. In an error that an inner block
    has translated, `elsewhere` replaces the usual options.

    Parameters
    ----------
    elsewhere
        Options with which the user chooses another folder.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except ArgosyError as error:
        error.hint = error.hint.replace(ELSEWHERE, elsewhere)
        raise
    except OSError as error:
        raise explain_os_error(error, folder, elsewhere) from error


@contextlib.contextmanager
def naming_option(folder: Path, option: str) -> Iterator[None]:
    """Replace the usual options in the hint of an error whose evidence is below a folder.

    Parameters
    ----------
    option
        The option that chooses this folder.
    """
    try:
        yield
    except ArgosyError as error:
        named = re.search(rf"{re.escape(str(folder))}(?![\w.-])", error.evidence)
        if Path(error.folder).is_relative_to(folder) if isinstance(error, DiskFull) else named:
            error.hint = error.hint.replace(ELSEWHERE, option)
        raise


def is_on_same_disk(one: Path, other: Path) -> bool:
    """Return whether two folders, or the nearest ones above them that exist, are on one file system."""
    existing = (next(each for each in (path, *path.parents) if each.exists()) for path in (one, other))
    return len({each.stat().st_dev for each in existing}) == 1


def explain_os_error(error: OSError, folder: Path, elsewhere: str = ELSEWHERE) -> ArgosyError:
    """Return the error to show to the user for an `OSError`."""
    error = _first_of(error)
    # Calls with two paths (link, rename) create the second one.
    reported = error.filename if error.errno in NOT_THERE else error.filename2 or error.filename
    name = Path(os.fsdecode(reported)) if isinstance(reported, str | bytes) else folder
    if error.errno in NOT_THERE | NOT_ALLOWED and _BESIDE.fullmatch(name.name):
        return _folder_error(name.parent, error.strerror or "")
    if error.errno in FULL:
        return DiskFull(
            "no space left on device" if error.errno == errno.ENOSPC else "disk quota exceeded",
            evidence=f"while writing {name} ({_free(folder)})",
            hint=f"free some space or files, or choose another folder with {elsewhere}",
            folder=str(folder.absolute()),
        )
    if error.errno in NOT_ALLOWED:
        hint = f"choose a folder that you may write to with {elsewhere}"
        return CheckFailed(f"cannot write {name}", evidence=str(error), hint=hint)
    if in_the_way := _file_in_the_way(error.errno, name):
        what = f"a broken link to {in_the_way.readlink()}" if in_the_way.is_symlink() else "a file"
        return UsageError(f"{in_the_way} is {what}, not a folder", hint=f"choose another folder with {elsewhere}")
    if error.errno in NOT_THERE:
        return UsageError(f"no such file or folder: {name}", evidence=str(error), hint="check the path")
    hint = f"check the file system of that path, or choose another folder with {elsewhere}"
    return CheckFailed(f"file system error: {error.strerror or error}", evidence=str(name), hint=hint)


def _file_in_the_way(number: int | None, name: Path) -> Path | None:
    """Return the file that is in the place of a folder, if that is the error."""
    if number == errno.ENOTDIR:
        return next((each for each in name.parents if each.is_file()), None)
    return name if number in {errno.EEXIST, errno.ELOOP} and not name.is_dir() else None


def _first_of(error: OSError) -> OSError:
    """Return the first of several errors that `shutil.copytree` collected, else the error itself."""
    if error.errno is None and error.args and isinstance(error.args[0], list):
        for _, target, why in error.args[0]:
            if number := re.match(r"\[Errno (\d+)\]", str(why)):
                return OSError(int(number[1]), os.strerror(int(number[1])), str(target))
    return error


def is_full(folder: Path) -> bool:
    """Return whether no more bytes fit below a folder; False if that is unknown."""
    with contextlib.suppress(OSError):
        return os.statvfs(folder).f_bavail == 0
    return False


def _free(folder: Path) -> str:
    with contextlib.suppress(OSError):
        space = os.statvfs(folder)
        if space.f_files and not space.f_favail:
            return f"all {space.f_files} inodes are used, see df -i"
        return f"{space.f_bavail * space.f_frsize / 1e6:.0f} MB free"
    return "free space unknown"


CHECK = "check the path"
"""The hint for a missing file if no file in the folder has a similar name."""


def missing_file(file: str, cwd: Path, evidence: str = "") -> UsageError:
    """Return the error for a missing file; its hint names a similar file, a broken link or a missing folder."""
    folder, near = (cwd / file).parent, suggest_file(Path(file), cwd)
    hint = f"did you mean {near}?" if near else CHECK
    if (cwd / file).is_symlink():
        hint = f"it is a broken link to {(cwd / file).readlink()}"
    if not folder.is_dir():
        hint = f"the folder {folder} does not exist either"
    return UsageError(f"no such file: {file}", evidence=evidence, hint=hint)


OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Paths of pipes that a shell has opened for a command: ``<(command)``."""


def refuse_special_file(path: str | Path, shown: str = "") -> None:
    """Refuse a named pipe, a socket or a device, which a reader would wait for or read for ever.

    Parameters
    ----------
    shown
        The path in the message, if it differs.
    """
    file = Path(path)
    if file.exists() and not (file.is_file() or file.is_dir()):
        hint = "write its contents to a file first"
        raise UsageError(f"{shown or path} is a device or a pipe, not a file", hint=hint)


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Translate an `OSError` from reading a file that the user named into a `UsageError`; refuse special files."""
    if not str(path).startswith(OPEN_ALREADY):
        refuse_special_file(path)
    try:
        yield
    except FileNotFoundError as error:
        raise missing_file(str(path), Path.cwd()) from error
    except OSError as error:
        hint = "check the path, and that you may read the file"
        raise UsageError(f"cannot read {path}: {error.strerror}", evidence=str(error), hint=hint) from error


def suggest_file(file: Path, cwd: Path = Path()) -> str:
    """Return the path of the file with the most similar name in the same folder, quoted for a shell; empty if none."""
    with contextlib.suppress(OSError):
        names = {entry.name for entry in (cwd / file).parent.iterdir()} - {file.name}  # a broken link has the name
        # A shell splits an unquoted name with a blank, so the first part was given.
        split = (name for name in sorted(names) if name.startswith(f"{file.name} "))
        near = next(split, "") or suggest_word(file.name, sorted(names), likeness=0.8)
        return quote(str(file.with_name(near))) if near else ""
    return ""


def refuse_unwritable_folder(folder: Path) -> None:
    """Refuse a folder that does not exist or is not writable.

    Raises
    ------
    UsageError
        If the folder does not exist.
    CheckFailed
        If the folder is not writable.
    """
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise _folder_error(folder)


def _folder_error(folder: Path, evidence: str = "") -> ArgosyError:
    """Return the error for a folder that is missing or not writable."""
    if not folder.is_dir():
        return UsageError(f"no such folder: {folder}", hint=f"create it first: mkdir -p {quote(str(folder))}")
    return CheckFailed(f"cannot write to {folder}", evidence=evidence, hint="choose another folder")


def time_of_change(path: Path) -> float:
    """Return the modification time; 0 if another process has removed the file meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
