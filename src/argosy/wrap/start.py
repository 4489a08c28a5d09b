"""Render the lines of sh with which a wrapper starts Apptainer, SingularityCE or bubblewrap."""

from __future__ import annotations

import textwrap

from argosy.core.model import Attach, Devices, GpuMode
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join, quote, render_functions
from argosy.runtimes.apptainer import FAMILIES, GPU_FLAGS
from argosy.runtimes.bwrap import ENTER, HOLD, JOIN
from argosy.wrap.mounts import render_visible, system_cases, tree_path
from argosy.wrap.plan import USUALLY_EMPTY
from argosy.wrap.root_entries import How, RootEntry, root_entry_words
from argosy.wrap.start_settings import Start
from argosy.wrap.templates import fill_template, read_template

OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""Variables that a runtime sets in a container; a task started from a container takes them to other nodes."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that the user's environment may set, meant for another container."""


def _gpu(start: Start) -> list[str]:
    if start.gpu is not GpuMode.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# Use the GPUs of this node.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: ShellExpr | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in FAMILIES)


def render_apptainer(start: Start) -> str:
    """Render the start with Apptainer or SingularityCE."""
    path = ShellExpr("$argosy_prefix/bin:$PATH") if start.host else ShellExpr("$argosy_path")
    layer = []
    if start.attach is Attach.BIND:
        fields = f'type=bind,\\"src=$argosy_image\\",dst=/opt/argosy,id={start.layer_part},image-src=/opt/argosy'
        layer = [f'set -- --mount "{fields}" "$@"']
    rows = [
        "# Ignore settings for other containers.  Keep mounts of the site's modules, unless this task was started",
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
        render_visible(start, "apptainer").rstrip(),
        *layer,
        *_gpu(start),
        *_workdir(start),
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


def _workdir(start: Start) -> list[str]:
    return ["case $PWD in", f"{system_cases(start)}) ;;", '*) set -- --pwd "$PWD" "$@" ;;', "esac"]


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


def render_bwrap(start: Start) -> str:
    """Render the start with bubblewrap from unpacked trees."""
    path = ShellExpr("PATH=$argosy_prefix/bin:$PATH") if start.host else ShellExpr("PATH=$argosy_path")
    libraries = ":".join(start.devices.library_folders)
    variables = [quote(path), *(quote(f"{name}={value}") for name, value in start.variables)]
    variables += [quote(f"{variable.name}={variable.value}") for variable in start.devices.variables]
    rows = [
        *render_functions((HOLD, ENTER)),
        read_template("caller.sh").rstrip(),
        "",
        f'set -- "HOME=${{HOME:-/}}" {" ".join(variables)} "$argosy_command" "$@"',
        f'set -- {quote(libraries)} {len(variables) + 1} "$@"',
        "argosy_rest=$#",
        'set -- -- /bin/sh -c "$hold" argosy-hold "$@"',
        'set -- --remount-ro / "$@"',
        *_devices(start.devices),
        render_visible(start, "bwrap").rstrip(),
        "for argosy_place in /tmp /var/tmp; do",
        '    [ ! -d "$argosy_place" ] || set -- --bind "$argosy_place" "$argosy_place" "$@"',
        "done",
        "for argosy_place in resolv.conf hosts localtime; do",
        '    set -- --ro-bind-try "/etc/$argosy_place" "/etc/$argosy_place" "$@"',
        "done",
        "# Use the tools of the system, not those of this prefix.",
        f"PATH={quote(SYSTEM_PATH)}{':$PATH' if start.host else ''}",
        *((_in_place(start),) if start.root.root_entries else ()),
        '. "$argosy_version/join.sh"',
    ]
    return "\n".join(rows) + "\n"


def render_join(start: Start) -> str:
    """Render the file that joins the trees with an overlay."""
    trees = " ".join(quote(tree_path(tree)) for tree in start.trees)
    rows = [
        "# shellcheck shell=sh disable=SC2154",
        "# Join the folders of the image with an overlay, then start bubblewrap; start.sh reads this if necessary.",
        *render_functions((JOIN,)),
    ]
    return "\n".join(rows) + "\n" + fill_template("join.sh", count=str(len(start.trees)), trees=trees)


def render_names(start: Start) -> str:
    """Render the image's users and groups, to which a start adds the caller."""
    rows = [
        "# shellcheck shell=sh disable=SC2034",
        "# The image's /etc/passwd and /etc/group, to which the caller is added.",
        f"argosy_users={quote(start.root.users.rstrip())}",
        f"argosy_groups={quote(start.root.groups.rstrip())}",
    ]
    return "\n".join(rows) + "\n"


def _in_place(start: Start) -> str:
    """Render the start without an overlay."""
    entries = start.root.root_entries
    owned = [each.target for each in entries if each.how is How.BIND and each.target[1:] not in USUALLY_EMPTY]
    return fill_template(
        "in-place.sh",
        entries=" \\\n        ".join(map(_render_entry, entries)),
        patterns=" | ".join(f"{target}/*" for target in sorted(owned)),
    ).rstrip()


def _render_entry(root_entry: RootEntry) -> str:
    words: tuple[Word, ...] = root_entry_words(root_entry)
    if root_entry.how is How.BIND and not root_entry.source.startswith("/"):
        words = (words[0], ShellExpr(f"$argosy_trees/{in_double_quotes(root_entry.source)}"), root_entry.target)
    return join(words)


def _devices(devices: Devices) -> list[str]:
    return [f'set -- --ro-bind-try {quote(bind.source)} {quote(bind.target)} "$@"' for bind in devices.binds]
