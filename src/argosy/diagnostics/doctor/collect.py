"""Look at the machine for `argosy doctor`: programs with versions, folders, Slurm, drivers; it judges nothing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.core.process import Command
from argosy.core.session import Session

ASK: Mapping[str, tuple[str, ...]] = {
    "apptainer": ("--version",),
    "singularity": ("--version",),
    "bwrap": ("--version",),
    "mksquashfs": ("-version",),
    "unsquashfs": ("-version",),
    "squashfuse": ("--version",),
    "mmdebstrap": ("--version",),
    "skopeo": ("--version",),
    "sbatch": ("--version",),
}
"""Programs whose version is asked for, and how."""

VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
PATIENCE = ("timeout", "10")
DRIVERS = {
    "nvidia": "/proc/driver/nvidia/version",
    "amd": "/sys/module/amdgpu/version",
    "intel": "/sys/module/i915/version",
}


class Folder(msgspec.Struct, frozen=True):
    """A folder that Argosy writes to, or the one above it that is there.

    Attributes
    ----------
    what
        ``home``, ``cache``, ``state``, ``work files``.
    kind
        Of its file system: ``ext4``, ``lustre``, ``tmpfs``; empty where it is not known.
    free, inodes
        Bytes, and files that may still be made; -1 where the file system does not tell.
    """

    what: str
    path: str
    writable: bool
    kind: str
    free: int
    inodes: int


class Seen(msgspec.Struct, frozen=True):
    """What was seen of the machine.

    Attributes
    ----------
    versions
        Of programs that are here; ``?`` where one does not tell.
    namespaces
        Whether this user could make a user namespace when it was tried.
    subuid
        Whether this user has subordinate user ids.
    slurm
        What ``scontrol ping`` said; empty where it is not here.
    driver
        Version of the GPUs' driver; empty where there is none.
    over_quota
        What ``quota`` says of file systems where this user is over; empty where nothing.
    """

    host: Host
    versions: Mapping[str, str]
    namespaces: bool
    subuid: bool
    folders: tuple[Folder, ...]
    slurm: str
    slurm_up: bool
    driver: str
    over_quota: str


def look(session: Session) -> Seen:
    """Look at this machine; programs that do not answer within some seconds count as silent."""
    host = session.host
    said = _say(session, "scontrol", "ping") if "sbatch" in host.programs else ""
    return Seen(
        host=host,
        versions={name: _version(session, name) for name in ASK if name in host.programs},
        namespaces=_namespaces(session),
        subuid=_subuid(host),
        folders=tuple(_folder(what, path) for what, path in _places(session)),
        slurm=said.strip().splitlines()[0] if said.strip() else "",
        slurm_up=bool(re.search(r"\bUP\b", said)),
        driver=_driver(host),
        over_quota=_say(session, "quota", "-q").strip(),
    )


def _say(session: Session, *words: str) -> str:
    with contextlib.suppress(ArgosyError, OSError):
        reply = session.runner.run(Command((*PATIENCE, *words)))
        return "" if reply.code in {124, 126, 127} else reply.stdout + reply.stderr
    return ""


def _version(session: Session, name: str) -> str:
    found = VERSION.search(_say(session, session.host.programs[name], *ASK[name]))
    return found[0].rstrip(",)") if found else "?"


def _namespaces(session: Session) -> bool:
    with contextlib.suppress(ArgosyError, OSError):
        return session.runner.run(Command(("unshare", "-Ur", "true"))).code == 0
    return session.host.user_namespaces


def _subuid(host: Host) -> bool:
    with contextlib.suppress(OSError):
        names = {
            line.split(":", 1)[0]
            for line in Path("/etc/subuid").read_text(errors="replace", encoding="utf-8").splitlines()
        }
        return bool(names & {host.person.name, str(host.person.uid)})
    return False


def _places(session: Session) -> tuple[tuple[str, str], ...]:
    paths = session.paths
    return (
        ("home", session.host.person.home),
        ("cache", str(paths.cache)),
        ("state", str(paths.state)),
        ("work files", str(session.work_parent())),
    )


def _folder(what: str, path: str) -> Folder:
    """Look at a folder, or at the nearest above it that is there."""
    here = next((each for each in (Path(path), *Path(path).parents) if each.is_dir()), Path("/"))
    free = inodes = -1
    with contextlib.suppress(OSError):
        facts = os.statvfs(here)
        free = facts.f_bavail * facts.f_frsize
        inodes = facts.f_favail if facts.f_files else -1
    return Folder(what, path, os.access(here, os.W_OK | os.X_OK), _kind(here), free, inodes)


def _kind(path: Path) -> str:
    best, kind = "", ""
    with contextlib.suppress(OSError):
        real = str(path.resolve())
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            _, point, fs, *_ = line.split()
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, fs
    return kind


def _driver(host: Host) -> str:
    for vendor in dict.fromkeys(gpu.vendor for gpu in host.gpus):
        with contextlib.suppress(OSError):
            text = Path(DRIVERS[vendor]).read_text(errors="replace", encoding="utf-8")
            found = VERSION.search(text)
            return f"{vendor} {found[0] if found else text.strip()}"
    return ""
