"""bubblewrap: the runtime of laptops, CI boxes and fresh Debians, on unpacked trees; words only.

It gives the identity and mounts that Apptainer gives.  Written for bubblewrap 0.5 and later: Debian 12 has 0.8, which
has no ``--overlay``, so the trees are joined by an overlay mount before it starts (see `bwrap_scripts`).

One known difference: the caller's variables are visible to the image's environment scripts, so ``X=${X:-default}`` of
an image keeps the caller's X, where Apptainer's scripts never see it.  Forced variables win on both.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from argosy.core.layout import GPU_LIBRARIES
from argosy.core.model import Devices, Entry, GpuMode, Host, Person, Variable
from argosy.core.shell import NAME, Word
from argosy.runtimes.bwrap_scripts import ENTER, HOLD, JOIN, PREFIX
from argosy.runtimes.runtime import (
    FILES,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

MAY_BE_LINKS = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32", "run", "usr"})
"""Top folders that are symbolic links in many images, or have such: a folder made here would hide the link."""

LAYER_HINT = "remove its tree from the cache of Argosy and start again"


TRAITS = Traits(
    images=FILES,
    caller="all of it, except what names software of the host; an image's own value wins",
    unlike="the image's environment scripts see the caller's variables",
    unpacks=True,
    skips_binds=True,
    overlays=True,
)


class Bubblewrap(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "bwrap"
    program: str = "bwrap"
    package: str = "bubblewrap"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why this runtime cannot do what is asked on this machine; empty where it can."""
        if entry.gpu is GpuMode.NVCCLI:
            return "nvidia-container-cli works under apptainer only; bwrap carries GPUs in by --gpu nv or cdi"
        if entry.person.uid == 0 and not host.can_mount:
            return "root may not mount file systems here"
        if entry.person.uid != 0 and not host.user_namespaces:
            return "bwrap needs user namespaces, which are switched off on this machine"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that `TAKE` reads; the other variables travel as arguments.  All are set inside."""
        return inherited_variables(entry, PREFIX)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        namespaced = entry.person.uid != 0
        bwrap = (*_container_words(entry), "--", "/bin/sh", "-c", HOLD, "argosy-hold")
        variables = (Variable("HOME", entry.person.home), *forced_variables(entry))
        return (
            "unshare",
            *(("--user", "--map-root-user") if namespaced else ()),
            *("--mount", "--propagation", "slave", "--"),
            *("sh", "-c", JOIN, "argosy-join"),
            entry.scratch,
            *(_identity_lines(entry.person) if namespaced else ("", "")),
            "\n".join(_parents(entry)),
            "\n".join(filter(NAME.match, entry.drop)),
            ENTER,
            entry.workdir or (entry.person.home if entry.contain else ""),
            entry.dev,
            *(str(len(entry.trees)), *entry.trees),
            *(str(len(bwrap)), *bwrap),
            ":".join(_library_folders(entry.devices)),
            *(str(len(variables)), *map(env_value, variables)),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


BWRAP = Bubblewrap()


def _container_words(entry: Entry) -> tuple[str, ...]:
    person = entry.person
    back = ("--unshare-user", "--uid", str(person.uid), "--gid", str(person.gid)) if person.uid != 0 else ()
    words = [*back, "--bind", "root", "/"]
    words += ["--dev", "/dev"] if entry.contain else ["--dev-bind", "/dev", "/dev"]
    words += ["--bind", "/proc", "/proc", "--bind", "/sys", "/sys"]
    for name in ("resolv.conf", "hosts", "localtime"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += _usual_places(entry)
    for bind in entry.binds:
        option = "--ro-bind" if bind.read_only else "--bind"
        words += [f"{option}-try" if bind.optional else option, bind.source, bind.target]
    words += _device_words(entry.devices, contain=entry.contain)
    return (*words, *(() if entry.dev else ("--remount-ro", "/")))


def _usual_places(entry: Entry) -> list[str]:
    """Mount the folders for temporary files and home, which may lie in one: the machine's, or private ones."""
    home = entry.person.home
    paths = [("/tmp", "1777"), ("/var/tmp", "1777")]  # noqa: S108 - mount points
    paths += [(home, "0700")] if home != "/" else []
    if entry.contain:
        return [word for path, mode in paths for word in ("--perms", mode, "--tmpfs", path)]
    bound = {bind.target for bind in entry.binds}
    return [word for path, _ in paths if path not in bound for word in ("--bind-try", path, path)]


def _device_words(devices: Devices, *, contain: bool) -> list[str]:
    """Carry GPUs in; the whole of /dev is there already unless the container is closed.

    Links of the driver go into the libraries' folder under their own name: in the image's folders one of that name may
    exist, which ends bubblewrap.
    """
    words = [word for node in devices.nodes if contain for word in ("--dev-bind", node, node)]
    for bind in devices.binds:
        words += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
    links = {PurePosixPath(link).name: str(PurePosixPath(link).parent / target) for target, link in devices.links}
    taken = {bind.target for bind in devices.binds}
    for name, target in links.items():
        place = f"{GPU_LIBRARIES}/{name}"
        words += ["--symlink", target, place] if place not in taken else []
    return words


def _library_folders(devices: Devices) -> tuple[str, ...]:
    filled = bool(devices.links) or any(bind.target.startswith(GPU_LIBRARIES + "/") for bind in devices.binds)
    return tuple(dict.fromkeys((*devices.library_folders, *((GPU_LIBRARIES,) if filled else ()))))


def _identity_lines(person: Person) -> tuple[str, str]:
    """Give the caller's lines for /etc/passwd, where it comes first, and /etc/group, where it comes last.

    The image may know neither: sites keep names in LDAP, or the uid is somebody else's in the image.
    """
    passwd = f"{person.name}:x:{person.uid}:{person.gid}::{person.home}:/bin/sh"
    return passwd, f"{person.name}:x:{person.gid}:{person.name}"


def _parents(entry: Entry) -> tuple[str, ...]:
    """Name the folders of mount points, to be made in the upper tree, where they belong to the caller.

    The same folder of an image that another user unpacked could not be written to, though it is only a throw-away.
    """
    targets = [entry.person.home, *(bind.target for bind in (*entry.binds, *entry.devices.binds))]
    targets += [f"{GPU_LIBRARIES}/links"] if entry.devices.links else []
    parents: dict[str, None] = {}
    for target in targets:
        parts = PurePosixPath(target).parts[1:-1]
        if parts and parts[0] not in MAY_BE_LINKS and "\n" not in target and ".." not in parts:
            parents["upper/" + "/".join(parts)] = None
    return tuple(parents)
