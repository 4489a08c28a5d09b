"""Carriers: the ways to run a program inside a base image's root while building; pure words, nothing is started here.

Every step of a build that runs a program of the base goes through `plan_exec`.  Which carrier works is found out by
trying (see `argosy.builder.backends.container`): kernel switches alone do not show it (AppArmor, seccomp, containers).

=============  =====================================================================================================
root           real root: a private mount namespace, the base mounted or unpacked, bubblewrap on top
userns         the same in a user namespace, as seen from inside: root
apptainer      ``apptainer|singularity exec`` of the base: sites with a setuid runtime and no user namespaces
proot          path translation by ptrace over an unpacked tree: slow, and needs nothing (LUMI)
=============  =====================================================================================================

What steps change in the base's system is kept by the upper layer of an overlay (root, userns), or in a copy of the base
in which programs run as what they take for root (``--fakeroot --writable``, ``proot -0``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from argosy.builder.backends import seccomp
from argosy.core.errors import ToolMissing, UsageError
from argosy.core.layout import DEFAULT_PATH
from argosy.core.model import Bind, Choice, Host
from argosy.core.process import Argv, Command

CARRIERS = ("root", "userns", "apptainer", "singularity", "proot")

WITHOUT_NEW_CALLS = seccomp.__file__
"""The program that starts proot: older ones would let calls that they do not know reach this machine's files."""

NAMES = ("/etc/resolv.conf", "/etc/hosts")
"""The machine's name service, which programs inside need too."""

NOT_MOUNTED = 97
"""Exit code of `JOIN` when the base's file cannot be mounted here: it must be unpacked first."""

PRIVATE_NAMESPACE: Argv = (
    *("unshare", "--mount", "--pid", "--fork"),
    *("--mount-proc", "--kill-child", "--propagation", "private", "--"),
)
"""Mounts and processes made in here end with it, also on kill -9: a FUSE daemon that serves the base, a dpkg.  It needs
its own /proc: bwrap 0.8 looks its child up there by number, and would find another process or none."""

JOIN = """\
# A private root file system: the base below, a throw-away writable layer above, both gone with this namespace.
scratch=$1 image=$2 offset=$3 tree=$4 changes=$5; shift 5
mount -t tmpfs -o mode=755 argosy "$scratch" && cd "$scratch" && mkdir -p lower names/etc up work root || exit 98
if [ -n "$tree" ]; then
    mount --bind "$tree" lower || exit 98
else
    mount -t squashfs -o "loop,ro,offset=$offset" "$image" lower 2>/dev/null ||
        squashfuse -o "offset=$offset" "$image" lower 2>/dev/null || exit 97
fi
# The machine's name service, as files over the base, where they are no change of it: a base may have dangling links.
for name in resolv.conf hosts; do
    [ ! -r "/etc/$name" ] || cat "/etc/$name" > "names/etc/$name"
done
# Where changes are kept, they lie in a folder on disk; and who is alone in this namespace is told that owners changed.
[ -z "$changes" ] || { rmdir up work && ln -s "$changes/up" up && ln -s "$changes/work" work; } || exit 98
layers=lowerdir=names:lower,upperdir=up,workdir=work
mount -t overlay -o "$layers,userxattr" argosy root 2>/dev/null || fuse-overlayfs -o "$layers" root || exit 98
[ ! -r "$changes/owners.bpf" ] || { exec 9<"$changes/owners.bpf" && set -- --seccomp 9 "$@"; }
exec bwrap --bind "$scratch/root" / "$@"
"""

OWNERS = "owners.bpf"
"""The file in the folder of changes that holds the filter of `argosy.builder.backends.seccomp`, as `JOIN` calls it."""


class RootfsSpec(msgspec.Struct, frozen=True):
    """A base image as carriers need it.

    Attributes
    ----------
    image
        The file that holds the base's squashfs.
    offset
        Where the squashfs begins in it, in bytes.
    tree
        The base unpacked; empty where it has not been.
    changes
        Folder with the folders ``up`` and ``work``, in which what programs change is kept; empty: it is thrown away.
    writable
        Whether `tree` is a copy that programs may change; ``changes`` then is a folder for temporary files.
    """

    image: str
    offset: int = 0
    tree: str = ""
    changes: str = ""
    writable: bool = False


class ExecSpec(msgspec.Struct, frozen=True):
    """A program to run inside a base's root.

    Attributes
    ----------
    variables
        Its whole environment, PATH excepted, which defaults to the usual folders.
    """

    words: Argv
    binds: tuple[Bind, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def candidates(host: Host, asked: str = "") -> tuple[Choice, ...]:
    """Give the carriers worth trying on this machine, best first, each with its reason.

    Raises
    ------
    ToolMissing
        When there is none, or the one asked for lacks its programs.
    UsageError
        When nothing is called what was asked for: a project file may hold any word.
    """
    if asked not in {"", *CARRIERS}:
        raise UsageError(f"no carrier is called {asked!r}", hint=f"there is {', '.join(CARRIERS)}")
    rows = [
        ("root", host.can_mount and {"bwrap", "unshare"} <= set(host.programs), "root may mount file systems"),
        (
            "userns",
            host.user_namespaces and {"bwrap", "unshare"} <= set(host.programs),
            "namespaces can be made here",
        ),
        ("apptainer", "apptainer" in host.programs, "apptainer exec of the base"),
        ("singularity", "singularity" in host.programs, "singularity exec of the base"),
        ("proot", "proot" in host.programs, "path translation by proot"),
    ]
    found = tuple(
        Choice("carrier", name, why, "option" if asked else "machine")
        for name, works, why in rows
        if works and asked in {"", name}
    )
    if not found:
        raise ToolMissing(
            "no way to run a program inside the base image" + (f" by '{asked}'" if asked else ""),
            evidence=_missing(host),
            hint="install bubblewrap, apptainer or proot, or ask for user namespaces; or build on another machine",
        )
    return found


def _missing(host: Host) -> str:
    lines = [f"user namespaces: {'allowed' if host.user_namespaces else 'switched off on this machine'}"]
    lines += [
        f"{name}: {host.programs.get(name, 'not found')}" for name in ("bwrap", "apptainer", "singularity", "proot")
    ]
    return "\n".join(lines)


def changes_a_copy(backend: str) -> bool:
    """Tell whether programs that change the base's system need a copy of it with a carrier: it has no overlay."""
    return backend not in {"root", "userns"}


def needs_tree(backend: str) -> bool:
    """Tell whether a carrier works on an unpacked base only."""
    return backend == "proot"


def plan_exec(backend: str, rootfs_spec: RootfsSpec, inside: ExecSpec, *, scratch: str, host: Host) -> Command:
    """Give the command that runs `inside` in the base's root.

    Parameters
    ----------
    scratch
        An existing empty directory: the mount point in the private namespace.
    """
    environment = _environment(inside.variables)
    if backend in {"root", "userns"}:
        words = _namespace_words(backend, rootfs_spec, inside, scratch)
        return Command(words, env={**environment, "PATH": host.environment.get("PATH", DEFAULT_PATH)})
    if backend == "proot":
        return Command(_proot_words(host.programs.get("proot", "proot"), rootfs_spec, inside), env=environment)
    return Command(_exec_words(backend, rootfs_spec, inside), env=_outside(host.environment) | _forced(environment))


def _environment(variables: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {"PATH": DEFAULT_PATH, "HOME": "/root", "LANG": "C.UTF-8", **dict(variables)}


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Keep of the caller's environment what the runtime itself needs; nothing that would reach into the build."""
    prefixes = ("APPTAINER", "SINGULARITY", "PIP_", "UV_", "CONDA", "PYTHON")
    return {name: value for name, value in environment.items() if not name.startswith(prefixes)}


def _namespace_words(backend: str, rootfs_spec: RootfsSpec, inside: ExecSpec, scratch: str) -> Argv:
    user = ("--user", "--map-root-user") if backend == "userns" else ()
    space = (*PRIVATE_NAMESPACE[:1], *user, *PRIVATE_NAMESPACE[1:])
    join = (
        "sh",
        "-c",
        JOIN,
        "argosy-join",
        scratch,
        rootfs_spec.image,
        str(rootfs_spec.offset),
        rootfs_spec.tree,
        rootfs_spec.changes,
    )
    build_container = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/")  # noqa: S108 - inside
    path = ("--setenv", "PATH", dict(inside.variables).get("PATH", DEFAULT_PATH))
    binds = [w for b in inside.binds for w in ("--ro-bind" if b.read_only else "--bind", b.source, b.target)]
    return (*space, *join, *build_container, *binds, *path, "--", *inside.words)


def _exec_words(program: str, rootfs_spec: RootfsSpec, inside: ExecSpec) -> Argv:
    binds = [w for b in inside.binds for w in ("--bind", f"{b.source}:{b.target}{':ro' if b.read_only else ''}")]
    image = rootfs_spec.tree or rootfs_spec.image
    clean = ("--cleanenv", "--no-eval", "--contain", "--no-home", "--pwd", "/")
    # Without --workdir, /tmp holds no more than 64 MB.
    write = ("--fakeroot", "--writable", "--workdir", rootfs_spec.changes) if rootfs_spec.writable else ()
    return (program, "--silent", "exec", *clean, *write, *binds, image, *inside.words)


def _forced(variables: Mapping[str, str]) -> dict[str, str]:
    """Force variables by the runtime's environment, not by ``--env``: words show in `ps`, logins in them too."""
    return {
        f"{family}ENV_{name}": value for name, value in variables.items() for family in ("APPTAINER", "SINGULARITY")
    }


def _proot_words(program: str, rootfs_spec: RootfsSpec, inside: ExecSpec) -> Argv:
    # Into a copy the names were written: a step that changes /etc/hosts must not reach this machine's.
    names = () if rootfs_spec.writable else NAMES
    system = [w for path in ("/dev", "/proc", *names) for w in ("-b", path)]
    binds = [w for b in inside.binds for w in ("-b", f"{b.source}:{b.target}")]
    return (
        sys.executable,
        "-I",
        WITHOUT_NEW_CALLS,
        program,
        "-0",
        "-r",
        rootfs_spec.tree,
        "-w",
        "/",
        *system,
        *binds,
        *inside.words,
    )
