"""What a cluster is asked: commands for the login node, and one script for a compute node.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from argosy.core.process import Argv

MARK = "@@ "
"""Begins the line before each answer of the script."""

LOGIN: Mapping[str, Argv] = MappingProxyType(
    {
        "config": ("scontrol", "show", "config"),
        "nodes": ("scontrol", "show", "node", "--oneliner"),
        "partitions": ("scontrol", "show", "partition", "--oneliner"),
        "mpi": ("srun", "--mpi=list"),
        "srun": ("srun", "--help"),
    }
)


GPU_STEPS = "gpu-steps"
"""The answer of a cluster that gives whole nodes to whether a step may ask for GPUs: ``yes``, ``no``, or nothing."""


class Question(msgspec.Struct, frozen=True):
    """One question of the script.

    Attributes
    ----------
    command
        What a person would type to get the same answer: the source of what comes of it.
    line
        What the script does; it may fail.
    """

    name: str
    command: str
    line: str


def _plain(name: str, command: str) -> Question:
    return Question(name, command, command)


NODE = (
    _plain("host", "uname -n"),
    _plain("arch", "uname -m"),
    _plain("cpus", "lscpu -p=CPU,CORE,SOCKET,NODE"),
    _plain("lscpu", "lscpu"),
    _plain("mounts", "cat /proc/mounts"),
    _plain("devices", "ls /dev"),
    Question(
        "drm",
        "cat /sys/class/drm/renderD*/device/{vendor,numa_node}",
        "for gpu in /sys/class/drm/renderD*/device; do "
        'echo "$(readlink -f "$gpu") $(cat "$gpu/vendor" "$gpu/numa_node" | tr \'\\n\' \' \')"; done',
    ),
    _plain("nvidia-smi", "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader,nounits"),
    _plain("nvidia-topo", "nvidia-smi topo -m"),
    Question("cuda", "nvidia-smi", "nvidia-smi | grep 'CUDA Version'"),
    _plain("rocm-smi", "rocm-smi --showproductname --showbus --showmeminfo vram --showtoponuma"),
    _plain("rocm", "cat /opt/rocm/.info/version"),
    _plain("xpu-smi", "xpu-smi discovery"),
    _plain("net", "ls /sys/class/net"),
    Question(
        "infiniband",
        "cat /sys/class/infiniband/*/ports/1/{link_layer,rate}",
        'for port in /sys/class/infiniband/*/ports/1; do echo "$(cat "$port/link_layer") $(cat "$port/rate")"; done',
    ),
    Question(
        "runtimes",
        "apptainer --version, singularity --version, enroot version",
        "for name in apptainer singularity podman-hpc; do "
        '! command -v $name || echo "$name: $($name --version)"; done; '
        '! command -v enroot || echo "enroot: enroot $(enroot version)"',
    ),
    Question(
        "setuid",
        "ls -l libexec/*/bin/starter-suid",
        'for name in apptainer singularity; do file=$(readlink -f "$(command -v $name)") && '
        'for suid in "${file%/bin/*}"/libexec/$name/bin/starter-suid; do [ ! -u "$suid" ] || echo "$suid"; done; done',
    ),
    Question(
        "modules",
        "module -t avail",
        "bash -lc 'module -t avail 2>&1' </dev/null | grep -iE '^(apptainer|singularity)(/|$)'",
    ),
    Question("userns", "unshare --user true", "if unshare --user true; then echo yes; else echo no; fi"),
)


def render_questions() -> str:
    """Render the script: each answer below a line with its name; a question that fails has none."""
    return "\n".join(f"echo '{MARK}{each.name}'; {{ {each.line}; }} 2>/dev/null || :" for each in NODE)


def parse_answers(text: str) -> dict[str, str]:
    """Read what the script printed: name -> answer."""
    answers: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            current = answers.setdefault(line.removeprefix(MARK).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in answers.items()}


def asked(question: str, host: str) -> str:
    """Give the source of a fact that a machine told: the command, as a person would type it, and where."""
    command = " ".join(LOGIN[question]) if question in LOGIN else next(q.command for q in NODE if q.name == question)
    return f"asked: {command} on {host}"
