"""bubblewrap (bwrap): the runtime for machines without Apptainer; it works on unpacked root file systems.

The container has the same identity and mounts as with Apptainer. The code supports bubblewrap 0.5 and later: 0.8 of
Debian 12 has no ``--overlay``, so an overlay of the trees is mounted before it starts.

One known difference: the image's environment scripts see the caller's variables, so ``X=${X:-default}`` in an image
keeps the caller's X; with Apptainer it does not. Variables that a plan sets win with both.

Three sh programs enter the container; each takes all values as arguments::

    unshare ── sh JOIN ──┬─ mounts: tmpfs, overlay of the trees           (private mount namespace)
                         ├─ bwrap … sh HOLD    builds the container, reports its process id, waits
                         └─ exec nsenter ── sh ENTER_PROGRAM ── exec the program  (HOLD and bwrap end here)

The process that the caller started becomes the program. bubblewrap itself always forks and forwards no signals
(``monitor_child`` in bubblewrap.c): a SIGUSR1 from Slurm would kill the monitor and with it the program. With these
programs, signals, exit code, terminal and parent-death signal are the program's own.

Names in them begin with ``argosy_``, because the caller's exported variables share the name space.
"""

from __future__ import annotations

import os
import sys
from pathlib import PurePosixPath

from argosy.core.layout import DEFAULT_PATH, GPU_LIBRARIES
from argosy.core.model import Devices, Entry, GpuMode, Host, Person, Variable
from argosy.core.records import replace
from argosy.core.shell import NAME, ShellFunction, Word, read_function
from argosy.runtimes.runtime import (
    FILES,
    SCRIPTS,
    TEMPORARY,
    Runtime,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

PREFIX = "ARGOSYENV_"
"""Prefix under which a secret value is passed through the environment, so that the image's own value cannot win."""

JOIN = read_function(SCRIPTS / "bwrap_join.sh", "join_container", {"DEFAULT_PATH": DEFAULT_PATH})
"""Outside, in a private mount namespace: mount the overlay, let bubblewrap build the container, enter it."""

HOLD = read_function(SCRIPTS / "bwrap_hold.sh", "hold_container")
"""Inside: report that the container is complete, and keep it until ENTER_PROGRAM runs in it."""

ENTER_IMAGE = read_function(SCRIPTS / "enter_image.sh", "enter_image", {"DEFAULT_PATH": DEFAULT_PATH})
ENTER_PROGRAM = ShellFunction("enter_container", read_function(SCRIPTS / "bwrap_enter.sh", "") + ENTER_IMAGE)
"""Inside: read the image's environment as Apptainer does, set the plan's variables, become the program."""

MAY_BE_LINKS = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32", "run", "usr"})
"""Top-level folders that are symbolic links in many images; a folder created in the overlay would hide the link."""

LAYER_HINT = "remove the unpacked image from Argosy's cache (argosy cache gc) and start again"


class Bubblewrap(Runtime, frozen=True):
    """The adapter of bubblewrap."""

    def refusal(self, entry: Entry, host: Host) -> str:
        """Return the reason why bubblewrap cannot start the entry on this machine; empty if it can."""
        if entry.gpu is GpuMode.NVCCLI:
            return "--gpu nvccli works with apptainer only; use --gpu nv or --gpu cdi with bwrap"
        if entry.person.uid == 0 and not host.can_mount:
            return "root is not allowed to mount file systems on this machine"
        if entry.person.uid != 0 and not host.user_namespaces:
            return "bwrap needs user namespaces, which are disabled on this machine"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the secret values under their prefixed names; all other variables are arguments."""
        return inherited_variables(entry, PREFIX)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        namespaced = entry.person.uid != 0
        person = replace(entry.person, uid=0, gid=0, name="root") if entry.fakeroot else entry.person
        # bwrap_join.sh drops the last four words for an image without /bin/sh.
        bwrap = (*_container_words(entry, person), "--", "/bin/sh", "-c", HOLD, "argosy-hold")
        variables = (Variable("HOME", entry.person.home), *forced_variables(entry))
        return (
            *(_owners_filter() if entry.fakeroot else ()),
            "unshare",
            *(("--user", "--map-root-user") if namespaced else ()),
            *("--mount", "--propagation", "slave", "--"),
            *("sh", "-c", JOIN, "argosy-join"),
            entry.scratch,
            *(_identity_lines(person) if namespaced else ("", "")),
            "\n".join(_parents(entry)),
            "\n".join(filter(NAME.match, entry.drop)),
            ENTER_PROGRAM,
            entry.workdir or (entry.person.home if entry.contain else ""),
            entry.dev,
            *(str(len(entry.trees)), *entry.trees),
            *(str(len(bwrap)), *bwrap),
            ":".join(_library_folders(entry.devices)),
            *(str(len(variables)), *map(env_value, variables)),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


BWRAP = Bubblewrap(
    name="bwrap",
    program="bwrap",
    package="bubblewrap",
    traits=Traits(
        images=FILES,
        caller="all, except those that refer to host software; the image's own values win",
        host_mpi=True,
        pmi2=True,
        unlike="the image's environment scripts see the caller's variables",
        unpacks=True,
        skips_binds=True,
        overlays=True,
        layer="overlay",
        sees_cwd=True,
        driver="mounted by CDI specification or device nodes",
    ),
    proof="ran",
)


def _owners_filter() -> tuple[str, ...]:
    """Return the program that reports success for changes of owners, which a namespace with one user refuses."""
    from argosy.host import seccomp  # noqa: PLC0415 - it loads ctypes, and only --fakeroot needs it

    return (sys.executable, "-I", seccomp.__file__, seccomp.OWNERS_FILTER)


def _container_words(entry: Entry, person: Person) -> tuple[str, ...]:
    """Return the options of bubblewrap for a container in which the user is `person`."""
    namespaced = entry.person.uid != 0
    back = ("--unshare-user", "--uid", str(person.uid), "--gid", str(person.gid)) if namespaced else ()
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
    return (*words, *entry.options, *(() if entry.dev else ("--remount-ro", "/")))


def _usual_places(entry: Entry) -> list[str]:
    """Return the mounts of home and of the folders for temporary files: the host's, or private ones (``--contain``)."""
    home = entry.person.home
    paths = [(path, "1777") for path in TEMPORARY]
    paths += [(home, "0700")] if home not in {"/", os.devnull} else []
    if entry.contain:
        return [word for path, mode in paths for word in ("--perms", mode, "--tmpfs", path)]
    bound = {bind.target for bind in entry.binds}
    return [word for path, _ in paths if path not in bound for word in ("--bind-try", path, path)]


def _device_words(devices: Devices, *, contain: bool) -> list[str]:
    """Return the mounts of GPU devices and driver libraries; without ``--contain``, /dev is mounted as a whole.

    Symbolic links of the driver are created in the folder of the libraries: bubblewrap fails if the image already has
    a file with the name of a link.
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
    """Return the caller's line for the top of /etc/passwd and the line for the end of /etc/group.

    The image may not know the user, for example because the site uses LDAP, or may use the uid for another one.
    """
    passwd = f"{person.name}:x:{person.uid}:{person.gid}::{person.home}:/bin/sh"
    return passwd, f"{person.name}:x:{person.gid}:{person.name}"


def _parents(entry: Entry) -> tuple[str, ...]:
    """Return the parent folders of the mount points, which JOIN creates in the upper layer as the caller.

    If another user unpacked the image, the caller could not create mount points in the folders of that tree.
    """
    targets = [entry.person.home, *(bind.target for bind in (*entry.binds, *entry.devices.binds))]
    targets += [f"{GPU_LIBRARIES}/links"] if entry.devices.links else []
    parents: dict[str, None] = {}
    for target in targets:
        parts = PurePosixPath(target).parts[1:-1]
        if parts and parts[0] not in MAY_BE_LINKS and "\n" not in target and ".." not in parts:
            parents["upper/" + "/".join(parts)] = None
    return tuple(parents)
