"""Collect facts about this machine for `argosy doctor`: programs, versions, folders, Slurm and drivers."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.core.mounts import file_system_type
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.host.quota import Quota, parse_quotas, quota_command

PROGRAMS = (
    *("apptainer", "singularity", "bwrap", "mksquashfs", "unsquashfs", "squashfuse", "mmdebstrap", "skopeo"),
    "sbatch",
)
"""Programs whose versions are shown."""

VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
TIMEOUT = ("timeout", "10")
DRIVERS = {
    "nvidia": "/proc/driver/nvidia/version",
    "amd": "/sys/module/amdgpu/version",
    "intel": "/sys/module/i915/version",
}


class Folder(msgspec.Struct, frozen=True):
    """A folder that Argosy writes to, or its nearest parent that exists."""

    what: str
    """``home``, ``cache``, ``state``, ``work files``."""
    path: str
    writable: bool
    kind: str
    """Type of its file system, for example ``lustre``; empty if it is unknown."""
    free: int
    inodes: int
    """Free bytes, and the number of files that can still be created; -1 if unknown."""


class MachineFacts(msgspec.Struct, frozen=True):
    """Facts about this machine."""

    host: Host
    versions: Mapping[str, str]
    """Versions of the installed programs; ``?`` if a program does not print its version."""
    namespaces: bool
    """Whether this user can create a user namespace."""
    subuid: bool
    """Whether this user has subordinate user ids."""
    folders: tuple[Folder, ...]
    slurm: str
    """Line of ``scontrol ping`` about the controller that answers, else its first line; empty without Slurm."""
    slurm_up: bool
    driver: str
    """Version of the GPU driver; empty without one."""
    quotas: tuple[Quota, ...] = ()
    """Quotas of this user for the file systems of the folders."""


def collect_facts(session: Session) -> MachineFacts:
    """Collect the facts about this machine. A program that does not answer within 10 seconds counts as silent."""
    host = session.host
    folders = tuple(_folder(what, path) for what, path in _folders(session))
    ping = _output(session, "scontrol", "ping").strip().splitlines() if "sbatch" in host.programs else []
    answering = [line for line in ping if re.search(r"\bUP\b", line)]
    return MachineFacts(
        host=host,
        versions={name: _version(session, name) for name in PROGRAMS if name in host.programs},
        namespaces=_namespaces(session),
        subuid=_subuid(host),
        folders=folders,
        slurm=next(iter(answering or ping), ""),
        slurm_up=bool(answering),
        driver=_driver(host),
        quotas=tuple(_quotas(session, folders)),
    )


def _quotas(session: Session, folders: tuple[Folder, ...]) -> Iterator[Quota]:
    """Yield the quotas of this user; each command runs once."""
    user = session.host.person.name
    asked = {quota_command(folder.kind, user, folder.path): folder.kind for folder in folders}
    found = (quota for argv, kind in asked.items() for quota in parse_quotas(kind, _output(session, *argv)))
    yield from dict.fromkeys(quota for quota in found if quota.limit or quota.file_limit)


def _output(session: Session, *argv: str) -> str:
    with contextlib.suppress(ArgosyError, OSError):
        reply = session.runner.run(Command((*TIMEOUT, *argv)))
        return "" if reply.code in {124, 126, 127} else reply.stdout + reply.stderr
    return ""


def _version(session: Session, name: str) -> str:
    option = "-version" if name in {"mksquashfs", "unsquashfs"} else "--version"
    found = VERSION.search(_output(session, session.host.programs[name], option))
    return found[0].rstrip(",)") if found else "?"


def _namespaces(session: Session) -> bool:
    with contextlib.suppress(ArgosyError, OSError):
        return session.runner.run(Command(("unshare", "-Ur", "true"))).code == 0
    return session.host.user_namespaces


def _subuid(host: Host) -> bool:
    with contextlib.suppress(OSError):
        lines = Path("/etc/subuid").read_text(errors="replace", encoding="utf-8").splitlines()
        return not {host.person.name, str(host.person.uid)}.isdisjoint(line.split(":", 1)[0] for line in lines)
    return False


def _folders(session: Session) -> tuple[tuple[str, str], ...]:
    paths = session.paths
    return (
        ("home", session.host.person.home),
        ("cache", str(paths.cache)),
        ("state", str(paths.state)),
        ("work files", str(session.work_parent())),
    )


def _folder(what: str, path: str) -> Folder:
    """Collect the facts about a folder, or about its nearest parent that exists."""
    existing = next((each for each in (Path(path), *Path(path).parents) if each.is_dir()), Path("/"))
    free = inodes = -1
    with contextlib.suppress(OSError):
        facts = os.statvfs(existing)
        free = facts.f_bavail * facts.f_frsize
        inodes = facts.f_favail if facts.f_files else -1
    return Folder(what, path, os.access(existing, os.W_OK | os.X_OK), file_system_type(existing), free, inodes)


def _driver(host: Host) -> str:
    for vendor in dict.fromkeys(gpu.vendor for gpu in host.gpus):
        with contextlib.suppress(OSError):
            text = Path(DRIVERS[vendor]).read_text(errors="replace", encoding="utf-8")
            found = VERSION.search(text)
            return f"{vendor} {found[0] if found else text.strip()}"
    return ""
