"""How Apptainer and SingularityCE are started by a wrapper, as lines of sh; text only."""

from __future__ import annotations

import textwrap

from argosy.model import Attach, GpuWay
from argosy.runtimes.apptainer import FAMILIES, GPU_FLAGS
from argosy.shell import Late, quote
from argosy.wrap.mounts import render_visible, system_cases
from argosy.wrap.starting import Start

OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""Variables that a runtime sets inside: a task started from a container brings them to nodes where they are wrong."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that a user's environment may set: they were meant for another container."""


def _gpu(start: Start) -> list[str]:
    if start.gpu is not GpuWay.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# GPUs as this node has them.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: Late | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in FAMILIES)


def render_apptainer(start: Start) -> str:
    """Render the start by Apptainer or SingularityCE."""
    path = Late("$argosy_prefix/bin:$PATH") if start.host else Late("$argosy_path")
    layer = []
    if start.attach is Attach.BIND:
        fields = f'type=bind,\\"src=$argosy_image\\",dst=/opt/argosy,id={start.layer_part},image-src=/opt/argosy'
        layer = [f'set -- --mount "{fields}" "$@"']
    rows = [
        "# Settings of other containers do not count here.  Mounts that the site's modules ask for do, except where a",
        "# task carried them out of a container that it was started in.",
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
    """Unset variables of both families, a few on a line."""
    words = textwrap.wrap(" ".join(names), 96)
    return [
        f"for argosy_key in {f' {chr(92)}{chr(10)}    '.join(words)}; do",
        f'    unset -v "APPTAINER{between}$argosy_key" "SINGULARITY{between}$argosy_key"',
        "done",
    ]


def _workdir(start: Start) -> list[str]:
    return ["case $PWD in", f"{system_cases(start)}) ;;", '*) set -- --pwd "$PWD" "$@" ;;', "esac"]
