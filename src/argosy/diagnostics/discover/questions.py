"""Define the queries to a cluster: commands for the login node, and one script for a compute node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.core.process import Argv

MARK = "@@ "
"""Prefix of the line before each answer of the script."""

LOGIN: Mapping[str, Argv] = {
    "config": ("scontrol", "show", "config"),
    "nodes": ("scontrol", "show", "node", "--oneliner"),
    "partitions": ("scontrol", "show", "partition", "--oneliner"),
    "mpi": ("srun", "--mpi=list"),
    "srun": ("srun", "--help"),
}


GPU_STEPS = "gpu-steps"
"""Name of the answer to whether steps can request GPUs on a cluster that allocates whole nodes: ``yes`` or ``no``."""


class Question(msgspec.Struct, frozen=True):
    """One question of the script."""

    name: str
    command: str
    """Command that people can run to get the same answer; it becomes the source of the value."""
    line: str
    """Command of the script, which may fail."""


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
        "for gpu in /sys/class/drm/renderD*/device\ndo "
        'echo "$(readlink -f "$gpu") $(cat "$gpu/vendor" "$gpu/numa_node" | tr \'\\n\' \' \')"\ndone',
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
        'for port in /sys/class/infiniband/*/ports/1\ndo echo "$(cat "$port/link_layer") $(cat "$port/rate")"\ndone',
    ),
    Question(
        "runtimes",
        "apptainer --version, singularity --version, enroot version",
        "for name in apptainer singularity podman-hpc\ndo "
        '! command -v $name || echo "$name: $($name --version)"\ndone\n'
        '! command -v enroot || echo "enroot: enroot $(enroot version)"',
    ),
    Question(
        "setuid",
        "ls -l libexec/*/bin/starter-suid",
        'for name in apptainer singularity\ndo file=$(readlink -f "$(command -v $name)") && '
        'for suid in "${file%/bin/*}"/libexec/$name/bin/starter-suid\ndo [ ! -u "$suid" ] || echo "$suid"\ndone\ndone',
    ),
    Question(
        "modules",
        "module -t avail",
        "bash -lc 'module -t avail 2>&1' </dev/null | grep -iE 'apptainer|singularity'",
    ),
    Question("userns", "unshare --user true", "if unshare --user true\nthen echo yes\nelse echo no\nfi"),
)


def render_questions() -> str:
    """Render the script. It prints a line with the name before each answer; a command that fails prints nothing."""
    return "\n".join(f"echo '{MARK}{each.name}'; {{ {each.line}; }} 2>/dev/null || :" for each in NODE)


def parse_answers(text: str) -> dict[str, str]:
    """Parse the output of the script: name -> answer."""
    answers: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            current = answers.setdefault(line.removeprefix(MARK).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in answers.items()}


def asked(question: str, host: str) -> str:
    """Return the source of a value: the command and the machine."""
    command = " ".join(LOGIN[question]) if question in LOGIN else next(q.command for q in NODE if q.name == question)
    return f"asked: {command} on {host}"
