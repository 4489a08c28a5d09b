"""The folders of a prefix: its versions, the one rename that switches between them, what nobody needs any more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.locks import hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import atomic_file, remove_tree
from argosy.images.prefix import RECORD, SWITCH, VERSIONS, current_version, version_folder
from argosy.wrap.activation import (
    ACTIVATE,
    ACTIVATE_FISH,
    MODULES,
    module_name,
    render_activate,
    render_activate_fish,
    render_lua,
    render_tcl,
)
from argosy.wrap.model import Version

LEASE = ".wrap.lease"
CACHE = "cache"
OURS = frozenset({VERSIONS, CACHE, LEASE, ACTIVATE, ACTIVATE_FISH, MODULES})
"""What a start of a prefix that was killed may have left."""


def refuse_prefix(prefix: Path) -> None:
    """Refuse a new prefix where something else is.

    Raises
    ------
    UsageError
        When it is a file, a prefix already, or a folder with other things in it.
    """
    if current_version(prefix) is not None:
        hint = f"change it by: argosy wrap update {quote(str(prefix))}; or name another --prefix"
        raise UsageError(f"{prefix} holds wrapped commands already", hint=hint)
    if prefix.exists() and not prefix.is_dir():
        raise UsageError(f"{prefix} is a file", hint="name a folder that is not there yet, or an empty one")
    if re.search('["\n\udc80-\udcff]', str(prefix)):
        raise UsageError(f"{str(prefix)!r} has a quote, a new line or no UTF-8 in it", hint="name another --prefix")
    others = [entry.name for entry in _entries(prefix) if entry.name not in OURS and not entry.name.startswith(".")]
    if others:
        raise UsageError(
            f"{prefix} is not empty",
            evidence=f"there is {', '.join(sorted(others)[:5])}",
            hint="name a folder that is not there yet, or an empty one",
        )


def _entries(folder: Path) -> list[Path]:
    with translate_os_errors(folder):
        return list(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def alone(prefix: Path, session: Session, *, doing: str, new: bool = False) -> Iterator[None]:
    """Let one process at a time change a prefix; the others wait and say for whom.

    Raises
    ------
    UsageError, CheckFailed
        When there is none and it is to be no `new` one, or it cannot be written.
    """
    if not new and not (prefix / VERSIONS).is_dir():
        open_prefix(prefix)
    with translate_os_errors(prefix, "--prefix"):
        prefix.mkdir(parents=True, exist_ok=True)
    if not os.access(prefix, os.W_OK):
        raise CheckFailed(f"{prefix} cannot be written", hint="name a folder that you may write to")
    with hold_lock(prefix / LEASE, what=doing, waiting=session.waiting):
        yield


def versions(prefix: Path) -> tuple[int, ...]:
    """Give the numbers of the versions that are whole, oldest first."""
    found = [int(entry.name) for entry in _entries(prefix / VERSIONS) if entry.name.isdigit()]
    return tuple(sorted(number for number in found if (version_folder(prefix, number) / RECORD).is_file()))


def next_number(prefix: Path) -> int:
    """Give the number of the next version: above all that are there, whole or not."""
    return max((int(entry.name) for entry in _entries(prefix / VERSIONS) if entry.name.isdigit()), default=0) + 1


def switch(prefix: Path, number: int) -> None:
    """Let the commands of a prefix be those of a version: one rename, so there is no moment without commands."""
    beside = prefix / f".{SWITCH}.{os.getpid()}.part"
    with translate_os_errors(prefix):
        beside.unlink(missing_ok=True)
        beside.symlink_to(f"{VERSIONS}/{number}/bin")
        beside.replace(prefix / SWITCH)


def write_activation(prefix: Path, version: Version) -> None:
    """Write the activate scripts and the modulefiles, which are the same for all versions but for what they tell."""
    modules = prefix / MODULES
    with translate_os_errors(prefix):
        modules.mkdir(exist_ok=True)
    known = module_name(prefix.name)
    lua = next(iter(sorted(modules.glob("*.lua"))), modules / f"{known}.lua")
    what = str(version.recipe)
    for file, text in (
        (prefix / ACTIVATE, render_activate(str(prefix), prefix.name)),
        (prefix / ACTIVATE_FISH, render_activate_fish(prefix.name)),
        (lua, render_lua(str(prefix), prefix.name, what)),
        (lua.with_suffix(""), render_tcl(prefix.name, what)),
    ):
        with atomic_file(file, force=True) as beside:
            beside.write_text(text, encoding="utf-8")


def read_version(prefix: Path, number: int) -> Version:
    """Read the record of a version.

    Raises
    ------
    CheckFailed
        When it is missing or damaged.
    """
    path = version_folder(prefix, number) / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Version)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckFailed(
            f"the record of version {number} of {prefix} cannot be read",
            evidence=f"{path}: {error}",
            hint=f"go to another version: argosy wrap rollback {quote(str(prefix))}",
        ) from error


def write_version(folder: Path, version: Version) -> None:
    """Write the record of a version into its folder."""
    (folder / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(version), indent=1) + b"\n")


def open_prefix(prefix: Path) -> Version:
    """Read what a prefix is now.

    Raises
    ------
    UsageError, CheckFailed
        When it is no prefix, or its record cannot be read.
    """
    number = current_version(prefix)
    if number is None:
        back = f"go to its last version: argosy wrap rollback {quote(str(prefix))}" if versions(prefix) else ""
        lost = f"{prefix / SWITCH} does not point to one of its versions"
        raise UsageError(
            f"{prefix} holds no wrapped commands",
            evidence=lost if prefix.is_dir() else "no such folder",
            hint=back or "make it: argosy wrap SOURCE --prefix DIR",
        )
    return read_version(prefix, number)


def sweep(prefix: Path) -> None:
    """Remove what killed processes left; call it while holding the prefix."""
    for folder in (prefix, prefix / VERSIONS, prefix / MODULES):
        for left in folder.glob(".*.part"):
            if left.is_dir() and not left.is_symlink():
                remove_tree(left)
            else:
                left.unlink(missing_ok=True)
