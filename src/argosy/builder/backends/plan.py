"""Plan how a program runs in the root file system of a base during a build; pure.

Every step that runs a program of the base uses `plan_exec`.  `argosy.builder.backends.container` finds out which
backend works by trying: kernel settings alone do not show it (AppArmor, seccomp, containers).

=============  =====================================================================================================
root           real root: a private mount namespace, the base mounted or unpacked, and bubblewrap
userns         the same in a user namespace, in which the user is root
apptainer      ``apptainer|singularity exec`` of the base, for sites with a setuid runtime and no user namespaces
proot          path translation with ptrace over an unpacked tree: slow, but without requirements (LUMI)
=============  =====================================================================================================

Changes of the base's system are kept in the upper layer of an overlay (root, userns), or in a copy of the base in which
programs run as simulated root (``--fakeroot --writable``, ``proot -0``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ToolMissing, UsageError
from argosy.core.layout import DEFAULT_PATH
from argosy.core.model import Bind, Choice, ChoiceKey, Host
from argosy.core.process import Argv, Command
from argosy.host import seccomp


class Backend(msgspec.Struct, frozen=True):
    """A way to run programs in the root file system of a base."""

    name: str
    programs: tuple[str, ...]
    """The programs of this machine that it needs."""
    why: str
    """Why it can be used on this machine."""
    overlay: bool = False
    """Whether an overlay keeps what programs change; otherwise they run in a copy of the base."""
    user_namespace: bool = False
    """Whether it needs a user namespace, in which the user is root."""
    needs_tree: bool = False
    """Whether it works only with an unpacked base."""


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("root", ("bwrap", "unshare"), "root can mount file systems", overlay=True),
        Backend("userns", ("bwrap", "unshare"), "user namespaces are available", overlay=True, user_namespace=True),
        Backend("apptainer", ("apptainer",), "apptainer exec of the base"),
        Backend("singularity", ("singularity",), "singularity exec of the base"),
        Backend("proot", ("proot",), "path translation with proot", needs_tree=True),
    )
}
"""The build backends by their names, best first. The names are the choices in `argosy.recipes.build_options`."""

WITHOUT_NEW_CALLS = seccomp.__file__
"""The program that starts proot: system calls that an old proot does not know would reach this machine's files."""

NAMES = ("/etc/resolv.conf", "/etc/hosts")
"""The machine's resolver files, which programs in the container also need."""

NOT_MOUNTED = 97
"""Exit code of `JOIN` if the base's file cannot be mounted on this machine and must be unpacked first."""

PRIVATE_NAMESPACE: Argv = (
    *("unshare", "--mount", "--pid", "--fork"),
    *("--mount-proc", "--kill-child", "--propagation", "private", "--"),
)
"""All mounts and processes end with the namespace, even on kill -9: a FUSE daemon that serves the base, or a dpkg.  It
needs its own /proc, in which bwrap 0.8 looks up its child by number."""

JOIN = Path(__file__).with_name("join.sh").read_text(encoding="utf-8")
"""Joins base and writable layer, and starts bubblewrap."""

OWNERS = "owners.bpf"
"""File in the folder of changes with the filter of `argosy.host.seccomp`; `JOIN` reads it."""


class RootfsSpec(msgspec.Struct, frozen=True):
    """The root file system of a base for a build backend."""

    image: str
    """The file with the base's squashfs."""
    offset: int = 0
    """Position of the squashfs in that file, in bytes."""
    tree: str = ""
    """The unpacked base, or empty."""
    changes: str = ""
    """Folder with the folders ``up`` and ``work`` that keep changes of programs; empty to discard changes.  If the
    tree is writable, a folder for temporary files."""
    writable: bool = False
    """Whether `tree` is a copy that programs may change."""


class ExecSpec(msgspec.Struct, frozen=True):
    """A program to run in the root file system of a base."""

    argv: Argv
    binds: tuple[Bind, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """Its whole environment; PATH defaults to the usual folders."""


def list_backends(host: Host, asked: str = "") -> tuple[Choice, ...]:
    """Return the build backends to try on this machine, best first, each with its reason.

    Raises
    ------
    ToolMissing
        If there is none, or the programs of the requested one are missing.
    UsageError
        If the requested backend does not exist: a project file may hold any name.
    """
    if asked not in {"", *BACKENDS}:
        raise UsageError(f"unknown build backend {asked!r}", hint=f"use one of {', '.join(BACKENDS)}")
    found = tuple(
        Choice(ChoiceKey.BUILD_BACKEND, backend.name, backend.why, "option" if asked else "machine")
        for backend in BACKENDS.values()
        if asked in {"", backend.name} and _is_available(backend, host)
    )
    if not found:
        missing = f"the build backend {asked} is not available" if asked else "no build backend is available"
        what = f"cannot run programs in the base image: {missing}"
        raise ToolMissing(
            what,
            evidence=_missing(host),
            hint="install bubblewrap, Apptainer or proot, ask for user namespaces, or build on another machine",
        )
    return found


def _is_available(backend: Backend, host: Host) -> bool:
    """Return whether a machine has the programs of a backend, and allows its mounts."""
    if backend.user_namespace and not host.user_namespaces:
        return False
    if backend.overlay and not (backend.user_namespace or host.can_mount):
        return False
    return set(backend.programs) <= set(host.programs)


def _missing(host: Host) -> str:
    lines = [f"user namespaces: {'allowed' if host.user_namespaces else 'disabled on this machine'}"]
    lines += [
        f"{name}: {host.programs.get(name, 'not found')}" for name in ("bwrap", "apptainer", "singularity", "proot")
    ]
    return "\n".join(lines)


def plan_exec(backend: Backend, rootfs: RootfsSpec, spec: ExecSpec, *, scratch: str, host: Host) -> Command:
    """Return the command that runs a program in the root file system of a base.

    Parameters
    ----------
    scratch
        An existing empty folder: the mount point in the private namespace.
    """
    environment = _environment(spec.variables)
    if backend.overlay:
        argv = _namespace_argv(backend, rootfs, spec, scratch)
        return Command(argv, env={**environment, "PATH": host.environment.get("PATH", DEFAULT_PATH)})
    if backend.needs_tree:
        return Command(_proot_argv(host.programs.get("proot", "proot"), rootfs, spec), env=environment)
    return Command(_exec_argv(backend.name, rootfs, spec), env=_outside(host.environment) | _forced(environment))


def _environment(variables: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {"PATH": DEFAULT_PATH, "HOME": "/root", "LANG": "C.UTF-8", **dict(variables)}


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the caller's environment that the runtime needs, without variables that affect the build."""
    prefixes = ("APPTAINER", "SINGULARITY", "PIP_", "UV_", "CONDA", "PYTHON")
    return {name: value for name, value in environment.items() if not name.startswith(prefixes)}


def _namespace_argv(backend: Backend, rootfs: RootfsSpec, spec: ExecSpec, scratch: str) -> Argv:
    user = ("--user", "--map-root-user") if backend.user_namespace else ()
    space = (*PRIVATE_NAMESPACE[:1], *user, *PRIVATE_NAMESPACE[1:])
    paths = (scratch, rootfs.image, str(rootfs.offset), rootfs.tree, rootfs.changes)
    join = ("sh", "-c", JOIN, "argosy-join", *paths)
    mounts = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/")  # noqa: S108 - inside
    path = ("--setenv", "PATH", dict(spec.variables).get("PATH", DEFAULT_PATH))
    binds = [w for b in spec.binds for w in ("--ro-bind" if b.read_only else "--bind", b.source, b.target)]
    return (*space, *join, *mounts, *binds, *path, "--", *spec.argv)


def _exec_argv(program: str, rootfs: RootfsSpec, spec: ExecSpec) -> Argv:
    binds = [w for b in spec.binds for w in ("--bind", f"{b.source}:{b.target}{':ro' if b.read_only else ''}")]
    image = rootfs.tree or rootfs.image
    clean = ("--cleanenv", "--no-eval", "--contain", "--no-home", "--pwd", "/")
    # Without --workdir, /tmp holds no more than 64 MB.
    write = ("--fakeroot", "--writable", "--workdir", rootfs.changes) if rootfs.writable else ()
    return (program, "--silent", "exec", *clean, *write, *binds, image, *spec.argv)


def _forced(variables: Mapping[str, str]) -> dict[str, str]:
    """Set variables through the runtime's environment, not ``--env``: `ps` shows arguments, which may hold logins."""
    return {
        f"{family}ENV_{name}": value for name, value in variables.items() for family in ("APPTAINER", "SINGULARITY")
    }


def _proot_argv(program: str, rootfs: RootfsSpec, spec: ExecSpec) -> Argv:
    # A writable copy has its own resolver files: a step that changes /etc/hosts must not reach this machine's.
    names = () if rootfs.writable else NAMES
    system = [w for path in ("/dev", "/proc", *names) for w in ("-b", path)]
    binds = [w for b in spec.binds for w in ("-b", f"{b.source}:{b.target}")]
    return (
        sys.executable,
        "-I",
        WITHOUT_NEW_CALLS,
        seccomp.PROOT_FILTER,
        program,
        "-0",
        "-r",
        rootfs.tree,
        "-w",
        "/",
        *system,
        *binds,
        *spec.argv,
    )
