"""Render the lines of sh with which a wrapper starts Apptainer, SingularityCE or bubblewrap."""

from __future__ import annotations

import textwrap
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec

from argosy.core.model import APPTAINER_FAMILIES, Attach, Bind, Devices, GpuMode
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join, quote, render_functions
from argosy.runtimes.apptainer import GPU_FLAGS
from argosy.runtimes.bwrap import ENTER_PROGRAM, HOLD, JOIN
from argosy.wrap.plan import SYSTEM_FOLDERS, USUALLY_EMPTY
from argosy.wrap.root_entries import How, Root, RootEntry, root_entry_words
from argosy.wrap.templates import fill_template, read_template

NO_DEVICES = Devices()
NO_ROOT = Root()


class StartFile(msgspec.Struct, frozen=True):
    """Values of the shared file of a version, ``start.sh``."""

    number: int
    identity: str
    what: str
    """Description of the sources, for readers."""
    runtime: str
    program: str
    image: str
    """The image's file name in the version's folder."""
    elsewhere: str
    """Target of the image file if it is a link; empty otherwise."""
    path: str
    """PATH in the container, after the prefix's own commands."""
    drop: tuple[str, ...]
    """Variables of the caller to remove."""
    shadowed: tuple[str, ...]
    """Folders at the image's root that contain files of the image."""
    on_top: bool
    """Whether venvs on top need a ``sitecustomize`` to see the packages of the image."""
    binds: tuple[Bind, ...]
    variables: tuple[tuple[str, str], ...]
    gpu: GpuMode
    host: bool
    attach: Attach = Attach.OVERLAY
    at: str = ""
    """Path of an installation in the layer that mounts of the host would hide; empty otherwise."""
    layer_part: int = 0
    """Descriptor id of the layer if it must be mounted from the image file; 0 otherwise."""
    trees: tuple[str, ...] = ()
    """Unpacked trees, the layer first: names in ``DIR/cache/trees``, or absolute paths (bwrap)."""
    devices: Devices = NO_DEVICES
    root: Root = NO_ROOT
    """Entries of the root for a start without an overlay, if that is possible (bwrap)."""


def _render_visible(start: StartFile, mount: str) -> str:
    """Render all mounts, the last one first: each line inserts its options before those of the earlier lines.

    Parameters
    ----------
    mount
        The runtime whose options are used: ``apptainer`` or ``bwrap``.
    """
    binds = [_mount(mount, each.source, each.target, read_only=each.read_only) for each in reversed(start.binds)]
    rows = [
        "# Mounts, the last one first: the prefix itself, the folder of an environment on top, the current directory,",
        "# TMPDIR, home, and the node's file systems.",
        _mount(mount, ShellExpr("$argosy_version/inside"), ShellExpr("$argosy_prefix"), read_only=True),
        *binds,
        *_installation(start, mount),
        f'[ -z "$argosy_above" ] || {_mount(mount, ShellExpr("$argosy_above"), ShellExpr("$argosy_above"))}',
        _callers_if_apart(start) if mount == "bwrap" else _callers(start, mount),
        *_places(start, mount),
    ]
    return "\n".join(rows) + "\n"


def _callers(start: StartFile, mount: str) -> str:
    here = _mount(mount, ShellExpr("$PWD"), ShellExpr("$PWD"))
    return fill_template("callers.sh", system=_system_cases(start), here=here, place=_mount_place(mount)).rstrip()


def _callers_if_apart(start: StartFile) -> str:
    """Render the mounts of the caller's folders that no other mount contains: each one costs bubblewrap 0.2 ms.

    The test for the folder comes first in any case, because it makes an automounter mount the folder.
    """
    names = [name for name in (*_left_out(start), ".*") if name != "tmp"]
    apart = " | ".join([*(f"/{name}" for name in ("run", "var") if name in names), *(f"/{name}/*" for name in names)])
    return fill_template(
        "callers-apart.sh", system=_system_cases(start), apart=apart, place=_mount_place("bwrap")
    ).rstrip()


def _installation(start: StartFile, mount: str) -> list[str]:
    """Render the mount of the image's installation at its own path, over the host's folder of that path."""
    if not start.at:
        return []
    above = quote(str(PurePosixPath(start.at).parent))
    message = f"cannot mount {start.at} of the image: this machine has no such folder"
    rows = [
        f"[ -d {quote(start.at)} ] || [ ! -d {above} ] ||",
        f"    argosy_fail {quote(message)} {quote(f'create an empty folder: mkdir {quote(start.at)}')}",
        f"argosy_unlinked {quote(start.at)}",
    ]
    if mount == "bwrap":
        return [*rows, f'set -- --ro-bind {quote(_tree_path(start.trees[0], start.at))} "$argosy_folder" "$@"']
    fields = ('\\"src=$argosy_image\\"', '\\"dst=$argosy_folder\\"', f'\\"image-src={_inner(start.at)}\\"', "ro")
    return [*rows, f'set -- --mount "type=bind,{",".join(fields)},id={start.layer_part}" "$@"']


def _tree_path(tree: str, path: str = "") -> ShellExpr | str:
    """Return a path in an unpacked tree: a tree of the prefix by its name, any other by its absolute path."""
    return tree + path if "/" in tree else ShellExpr(f"$argosy_prefix/cache/trees/{tree}/root{in_double_quotes(path)}")


def _places(start: StartFile, mount: str) -> list[str]:
    patterns = [f"/{name}" for name in (*_left_out(start), "lost+found", *(("opt/argosy",) if start.host else ()))]
    folders = f"/*{' /opt/*' if start.host else ''}"
    places = fill_template("places.sh", folders=folders, skipped=" | ".join(patterns), place=_mount_place(mount))
    return [places.rstrip(), *_next_to_installation(start, mount)]


def _mount_place(mount: str) -> str:
    return _mount(mount, ShellExpr("$argosy_place"), ShellExpr("$argosy_place"))


def _left_out(start: StartFile) -> tuple[str, ...]:
    """Return the folders at the root that are not mounted as a whole."""
    # --host mounts the system folders of the host, with /run: Slurm's commands need the socket of munge there. /opt
    # contains the layer, so its folders are mounted one by one.
    skipped = ("dev", "opt", "proc", "sys", "tmp") if start.host else (*SYSTEM_FOLDERS, *start.shadowed)
    top = _top_of_installation(start)
    return tuple(dict.fromkeys((*skipped, *((top,) if top and f"/{top}" != start.at else ()))))


def _top_of_installation(start: StartFile) -> str:
    return start.at.split("/")[1] if start.at else ""


def _next_to_installation(start: StartFile, mount: str) -> list[str]:
    """Render the mounts of the folders next to an installation, one by one, so that its own path can be created."""
    top = _top_of_installation(start)
    if not top or any(fnmatchcase(top, name) for name in SYSTEM_FOLDERS) or f"/{top}" == start.at:
        return []
    return [
        f"for argosy_place in {quote('/' + top)}/*; do",
        f'    [ ! -d "$argosy_place" ] || {_mount_place(mount)}',
        "done",
    ]


def _system_cases(start: StartFile) -> str:
    """Return the patterns of folders that belong to the image, so that a caller's folder cannot be mounted there."""
    names = [name for name in (*SYSTEM_FOLDERS, *start.shadowed) if name not in {"tmp", "var", "run", "opt"}]
    return " | ".join(["/", "/opt", *(f"/{name}" if name.endswith("*") else f"/{name} | /{name}/*" for name in names)])


def _mount(runtime: str, source: ShellExpr | str, target: ShellExpr | str, *, read_only: bool = False) -> str:
    """Render the line that inserts the options of one mount before the present arguments."""
    if runtime == "bwrap":
        option = "--ro-bind" if read_only else "--bind"
        return f'set -- {option} {quote(source)} {quote(target)} "$@"'
    # One line of CSV with quoted fields, because paths may contain commas, colons and blanks.
    fields = (f'\\"src={_inner(source)}\\"', f'\\"dst={_inner(target)}\\"', *(("ro",) if read_only else ()))
    return f'set -- --mount "type=bind,{",".join(fields)}" "$@"'


def _inner(word: ShellExpr | str) -> str:
    """Return a word as text between double quotes."""
    return word.expression if isinstance(word, ShellExpr) else in_double_quotes(word)


OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""Variables that a runtime sets in a container; a task that starts in a container takes them to other nodes."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that the user's environment may set for other containers."""


def _gpu(start: StartFile) -> list[str]:
    if start.gpu is not GpuMode.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# Use the GPUs of this node.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: ShellExpr | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in APPTAINER_FAMILIES)


def render_apptainer(start: StartFile) -> str:
    """Render the start with Apptainer or SingularityCE."""
    path = ShellExpr("$argosy_prefix/bin:$PATH") if start.host else ShellExpr("$argosy_path")
    layer = []
    if start.attach is Attach.BIND:
        fields = f'type=bind,\\"src=$argosy_image\\",dst=/opt/argosy,id={start.layer_part},image-src=/opt/argosy'
        layer = [f'set -- --mount "{fields}" "$@"']
    rows = [
        "# Ignore settings for other containers. Keep mounts of the site's modules, unless this task was started",
        "# from a container.",
        'if [ -n "${APPTAINER_CONTAINER-}${SINGULARITY_CONTAINER-}" ]; then',
        *(f"    {line}" for line in _forget("_", OF_A_CONTAINER)),
        "fi",
        *_forget("_", CHANGES_THE_CONTAINER),
        *_forget("ENV_", ("PREPEND_PATH", "APPEND_PATH", *start.drop)),
        f"export {_both('PATH', path)}",
        *(f"export {_both(name, value)}" for name, value in start.variables),
        "",
        'set -- "$argosy_image" "$argosy_command" "$@"',
        _render_visible(start, "apptainer").rstrip(),
        *layer,
        *_gpu(start),
        fill_template("workdir.sh", system=_system_cases(start)).rstrip(),
        f'exec {start.program} --silent exec --no-eval "$@"',
    ]
    return "\n".join(rows) + "\n"


def _forget(between: str, names: tuple[str, ...]) -> list[str]:
    """Render the removal of variables for Apptainer and SingularityCE."""
    words = textwrap.wrap(" ".join(names), 96)
    return [
        f"for argosy_key in {f' {chr(92)}{chr(10)}    '.join(words)}; do",
        f'    unset -v "APPTAINER{between}$argosy_key" "SINGULARITY{between}$argosy_key"',
        "done",
    ]


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


def render_bwrap(start: StartFile) -> str:
    """Render the start with bubblewrap from unpacked trees."""
    path = ShellExpr("PATH=$argosy_prefix/bin:$PATH") if start.host else ShellExpr("PATH=$argosy_path")
    libraries = ":".join(start.devices.library_folders)
    variables = [quote(path), *(quote(f"{name}={value}") for name, value in start.variables)]
    variables += [quote(f"{variable.name}={variable.value}") for variable in start.devices.variables]
    rows = [
        *render_functions((HOLD, ENTER_PROGRAM)),
        read_template("caller.sh").rstrip(),
        "",
        f'set -- "HOME=${{HOME:-/}}" {" ".join(variables)} "$argosy_command" "$@"',
        f'set -- {quote(libraries)} {len(variables) + 1} "$@"',
        "argosy_rest=$#",
        'set -- -- /bin/sh -c "$hold_container" argosy-hold "$@"',
        'set -- --remount-ro / "$@"',
        *(f'set -- --ro-bind-try {quote(bind.source)} {quote(bind.target)} "$@"' for bind in start.devices.binds),
        _render_visible(start, "bwrap").rstrip(),
        "for argosy_place in /tmp /var/tmp; do",
        '    [ ! -d "$argosy_place" ] || set -- --bind "$argosy_place" "$argosy_place" "$@"',
        "done",
        "for argosy_place in resolv.conf hosts localtime; do",
        '    set -- --ro-bind-try "/etc/$argosy_place" "/etc/$argosy_place" "$@"',
        "done",
        "# Use the tools of the system, not those of this prefix.",
        f"PATH={quote(SYSTEM_PATH)}{':$PATH' if start.host else ''}",
        *((_in_place(start),) if start.root.entries else ()),
        '. "$argosy_version/join.sh"',
    ]
    return "\n".join(rows) + "\n"


def render_join(start: StartFile) -> str:
    """Render the file that joins the trees with an overlay."""
    trees = " ".join(quote(_tree_path(tree)) for tree in start.trees)
    rows = [
        "# shellcheck shell=sh disable=SC2154",
        "# Join the folders of the image with an overlay, then start bubblewrap; start.sh reads this if necessary.",
        *render_functions((JOIN,)),
    ]
    return "\n".join(rows) + "\n" + fill_template("join.sh", count=str(len(start.trees)), trees=trees)


def render_names(start: StartFile) -> str:
    """Render the image's users and groups, to which a start adds the caller."""
    rows = [
        "# shellcheck shell=sh disable=SC2034",
        "# The image's /etc/passwd and /etc/group, to which the caller is added.",
        f"argosy_users={quote(start.root.users.rstrip())}",
        f"argosy_groups={quote(start.root.groups.rstrip())}",
    ]
    return "\n".join(rows) + "\n"


def _in_place(start: StartFile) -> str:
    """Render the start without an overlay."""
    entries = start.root.entries
    owned = [each.target for each in entries if each.how is How.BIND and each.target[1:] not in USUALLY_EMPTY]
    return fill_template(
        "in-place.sh",
        entries=" \\\n        ".join(map(_render_entry, entries)),
        patterns=" | ".join(f"{target}/*" for target in sorted(owned)),
    ).rstrip()


def _render_entry(entry: RootEntry) -> str:
    words: tuple[Word, ...] = root_entry_words(entry)
    if entry.how is How.BIND and not entry.source.startswith("/"):
        words = (words[0], ShellExpr(f"$argosy_trees/{in_double_quotes(entry.source)}"), entry.target)
    return join(words)
