"""Use files of the current folder that nobody named only if they belong to the user or to root, as Git does.

A project file and the profiles of a project decide which programs are started. In a folder that everybody can write to,
another user may have put them there. A file that the user names, for example in ``--site FILE``, is used as it is.
"""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.shell import quote
from argosy.recipes.user_config import TRUSTED_FOLDERS, expand_folders, read_files, read_variables


def foreign_owner(*paths: Path) -> str:
    """Return who owns one of these files, or what it links to, if the user does not trust the owner; else empty.

    The user trusts root, and everybody in the folders of ``trusted_folders``. Missing files have no owner.
    """
    for path in paths:
        for read in (path.lstat, path.stat):
            with suppress(OSError):
                owner = read().st_uid
                if owner not in _own_ids() and not _is_trusted(path):
                    return _name(owner)
    return ""


def _own_ids() -> set[int]:
    """Return the user's number and root's; for root, also that of the user who became root with sudo."""
    sudo = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid(), *([int(sudo)] if sudo.isdecimal() else [])}


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _trusted() -> str:
    """Return the trusted folders, separated by colons: those of the variable, else of the configuration files."""
    found = read_files(os.environ, (TRUSTED_FOLDERS,)) | read_variables(os.environ, (TRUSTED_FOLDERS,))
    setting = found.get(TRUSTED_FOLDERS)
    return expand_folders(setting, os.environ) if setting else ""


def _is_trusted(path: Path) -> bool:
    folders = [Path(folder).resolve() for folder in _trusted().split(":") if folder]
    return any(path.absolute().parent.resolve().is_relative_to(folder) for folder in folders)


def how_to_trust(folder: Path) -> str:
    """Return the command that makes the user trust everybody's files in a folder."""
    folders = ":".join(filter(None, (_trusted(), str(folder.absolute()))))
    return f"to trust all files in {folder.absolute()}: argosy config set {TRUSTED_FOLDERS} {quote(folders)}"


def refuse_foreign(path: Path) -> None:
    """Refuse a file of the current folder that another user owns.

    Raises
    ------
    UsageError
        The message tells whose it is, and how to use it nevertheless.
    """
    if owner := foreign_owner(path):
        raise UsageError(
            f"{path.name} in this folder belongs to {owner}",
            evidence=f"{path.absolute()} would decide which programs you start",
            hint=f"copy it to a folder of your own, or, {how_to_trust(path.parent)}",
        )
