"""Folders of a prefix: list, read, write and switch its versions."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from argosy.core.cache import sweep_unfilled
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.locks import deferred_signals, files_beside, hold_lock
from argosy.core.os_errors import discard, translate_os_errors
from argosy.core.parse import decode_json
from argosy.core.session import Session
from argosy.core.shared_folders import (
    GROUP,
    READERS,
    give_to_group,
    is_foreign_link,
    is_shared,
    let_read,
    let_read_tree,
    read_regular_file,
)
from argosy.core.shell import join, quote
from argosy.core.store import PART, make_folder, remove_path, write_link
from argosy.images.prefix import RECORD, SWITCH, VERSIONS, current_version, version_folder
from argosy.wrap.model import Version

LEASE = ".wrap.lease"
CACHE = "cache"
ACTIVATE = "activate"
ACTIVATE_FISH = "activate.fish"
MODULES = "modulefiles"
MARK = ".wrap.new"
"""File in a prefix while its first version is created: what has a name of Argosy there is not the user's own."""
OWN_NAMES = frozenset({VERSIONS, CACHE, ACTIVATE, ACTIVATE_FISH, MODULES})
"""Names that a killed creation of a prefix may leave."""
GONE = ".gone.part"
"""End of the temporary name of a version or tree that is being removed."""


def refuse_prefix(prefix: Path) -> None:
    """Reject a path for a new prefix if it is in use."""
    if current_version(prefix) is not None:
        hint = f"change it: argosy wrap update {quote(str(prefix))}; or choose another --prefix"
        raise UsageError(f"{prefix} already contains wrapped commands", hint=hint)
    if prefix.exists() and not prefix.is_dir():
        raise UsageError(f"cannot create {prefix}: it is a file", hint="choose a new or empty folder")
    if re.search('["\n\udc80-\udcff]', str(prefix)):
        raise UsageError(
            f"invalid path {str(prefix)!r}: it has a quote, a line break or invalid UTF-8",
            hint="choose another --prefix",
        )
    own = OWN_NAMES if (prefix / MARK).is_file() else frozenset()
    others = [entry.name for entry in _entries(prefix) if entry.name not in own and not entry.name.startswith(".")]
    if others:
        raise UsageError(
            f"{prefix} is not empty",
            evidence=f"it contains {', '.join(sorted(others)[:5])}",
            hint=_restore_hint(prefix) or "choose a new or empty folder",
        )


def _entries(folder: Path) -> list[Path]:
    with translate_os_errors(folder):
        return list(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def locked_prefix(prefix: Path, session: Session, *, doing: str, new: bool = False) -> Iterator[None]:
    """Lock a prefix while one process changes it, and remove what killed ones left; others wait and show its owner.

    Raises
    ------
    UsageError
        If there is no such prefix, and `new` is false.
    CheckFailed
        If the folder cannot be written, or another user's link is in it.
    """
    if not new and not (prefix / VERSIONS).is_dir():
        open_prefix(prefix)
    with translate_os_errors(prefix, "--prefix"):
        make_folder(prefix.parent)
        prefix.mkdir(exist_ok=True)
    if not os.access(prefix, os.W_OK):
        hint = "choose a folder with write permission" if new else _advise_own_prefix(prefix)
        raise CheckFailed(f"cannot write to {prefix}", hint=hint)
    _refuse_foreign_links(prefix)
    with hold_lock(prefix / LEASE, what=doing, waiting=session.waiting):
        _sweep(prefix)
        yield


def _advise_own_prefix(prefix: Path) -> str:
    paths = open_prefix(prefix).settings.paths
    options = ("-w", ",".join(paths)) if paths else ()
    command = join(("argosy", "wrap", str(prefix), *options, "--prefix", "DIR"))
    return f"make your own prefix from its image, and change that one: {command}"


def _refuse_foreign_links(prefix: Path) -> None:
    """Refuse a prefix that a change would leave by a link of another user, who may write to it, too."""
    for path in (prefix / VERSIONS, prefix / MODULES, prefix / CACHE, prefix / CACHE / "trees"):
        if is_foreign_link(path):
            raise CheckFailed(
                f"{path} is a link of another user",
                evidence=f"it leads to {path.readlink()}",
                hint="remove the link; restore the folder if there was one",
            )


@contextmanager
def creating(prefix: Path) -> Iterator[None]:
    """Mark a locked new prefix while the block creates its first version; if that fails, remove what it created.

    Files that an earlier, killed creation left stay, with the mark: the next creation accepts both.
    """
    before = {name for name in OWN_NAMES if os.path.lexists(prefix / name)}
    try:
        with translate_os_errors(prefix, "--prefix"):
            (prefix / MARK).touch()
        yield
    finally:
        with deferred_signals():
            complete = current_version(prefix) is not None
            for name in () if complete else OWN_NAMES - before:
                remove_path(prefix / name)
            if complete or not before:
                discard(prefix / MARK)


def versions(prefix: Path) -> tuple[int, ...]:
    """Return the numbers of the complete versions, oldest first."""
    found = [int(entry.name) for entry in _entries(prefix / VERSIONS) if entry.name.isdecimal()]
    return tuple(sorted(number for number in found if (version_folder(prefix, number) / RECORD).is_file()))


def next_number(prefix: Path) -> int:
    """Return the number of the next version: higher than all others, complete or not."""
    return max((int(entry.name) for entry in _entries(prefix / VERSIONS) if entry.name.isdecimal()), default=0) + 1


def switch(prefix: Path, number: int) -> None:
    """Switch the commands of a prefix to a version with one rename, so that they exist at every moment."""
    write_link(prefix / SWITCH, f"{VERSIONS}/{number}/bin")


def keep_readers(prefix: Path, folder: Path, trees: tuple[str, ...]) -> None:
    """Let those users read a new version who can read the current one, also if this user's umask is 077.

    The group of a shared folder can read the first version in it.

    Parameters
    ----------
    folder
        The folder of the new version.
    trees
        Names of its trees in the cache of the prefix. The modes of the files in them are those of the image.
    """
    current = current_version(prefix)
    readers = version_folder(prefix, current).stat().st_mode & READERS if current else _new_readers(prefix)
    if not readers:
        return
    cache = prefix / CACHE / "trees"
    entries = [cache / name for name in trees]
    inside = [path for entry in entries for path in (entry, *entry.iterdir())]
    _keep_group(prefix, folder, inside)
    let_read_tree(folder, readers)
    for path in (cache.parent, cache, *inside):
        let_read(path, readers)


def _keep_group(prefix: Path, folder: Path, inside: list[Path]) -> None:
    """Give a new version to the group of a setgid prefix: linked and moved files have another one."""
    status = prefix.stat()
    if status.st_mode & stat.S_ISGID:
        give_to_group(folder, status.st_gid)
        for path in inside:
            with suppress(OSError):  # this user is not a member of the group
                os.chown(path, -1, status.st_gid, follow_symlinks=False)


def _new_readers(prefix: Path) -> int:
    return GROUP if is_shared(prefix) or is_shared(prefix.parent) else 0


def share_new_prefix(prefix: Path) -> None:
    """Let the group of a shared folder read a new prefix; `keep_readers` does this for its version."""
    modules = prefix / MODULES
    own = (prefix, prefix / VERSIONS, prefix / ACTIVATE, prefix / ACTIVATE_FISH, modules, *modules.iterdir())
    for path in own if _new_readers(prefix) else ():
        let_read(path, GROUP)


def read_version(prefix: Path, number: int) -> Version:
    """Read the record of a version."""
    path = version_folder(prefix, number) / RECORD
    try:
        return decode_json(read_regular_file(path), Version)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckFailed(
            f"cannot read the record of version {number} of {prefix}",
            evidence=f"{path}: {error}",
            hint=f"switch to another version: argosy wrap rollback {quote(str(prefix))}",
        ) from error


def write_version(folder: Path, version: Version) -> None:
    """Write the record of a version into its folder."""
    (folder / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(version), indent=1) + b"\n")


def open_prefix(prefix: Path) -> Version:
    """Read the current version of a prefix."""
    number = current_version(prefix)
    if number is None:
        reason = f"{prefix / SWITCH} does not point to one of its versions"
        raise UsageError(
            f"{prefix} does not contain wrapped commands",
            evidence=reason if prefix.is_dir() else "it is a file" if prefix.exists() else "no such folder",
            hint=_restore_hint(prefix) or "create it: argosy wrap SOURCE --prefix DIR",
        )
    return read_version(prefix, number)


def _restore_hint(prefix: Path) -> str:
    """Return the hint for a prefix that lost the link to its current version; empty if it has no version."""
    return f"switch to its last version: argosy wrap rollback {quote(str(prefix))}" if versions(prefix) else ""


def _sweep(prefix: Path) -> None:
    """Remove temporary files of killed processes."""
    for path, pattern in (
        (prefix / SWITCH, rf"\.({SWITCH}|{ACTIVATE}|{re.escape(ACTIVATE_FISH)})\.{PART}"),
        (prefix / VERSIONS / "1", rf"\.\d+(\.{PART}|{re.escape(GONE)})"),
        (prefix / MODULES / "env.lua", rf"\..+\.{PART}"),
    ):
        for left in files_beside(path, pattern) if path.parent.is_dir() else ():
            remove_path(left)
    sweep_unfilled(prefix / CACHE / "trees")
