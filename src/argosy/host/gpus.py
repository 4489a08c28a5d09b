"""Decide how GPUs enter a container, and what must be carried in by hand; pure, it never looks at /dev.

Apptainer finds a driver's files itself (--nv, --rocm).  For bubblewrap they come from the machine's CDI specification,
else from the device nodes and the driver's libraries that the dynamic linker knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from argosy.core.errors import CheckFailed
from argosy.core.layout import GPU_LIBRARIES
from argosy.core.model import Bind, Choice, ChoiceKey, Devices, GpuMode, Host

if TYPE_CHECKING:
    from argosy.host.cdi import CdiSpec

BY_DEVICES = "by /dev"
"""What a plan shows if GPUs enter as device nodes, without an option of the runtime: there ``none`` would mislead."""

VENDOR_WAYS = {"nvidia": GpuMode.NV, "amd": GpuMode.ROCM}
"""Way that each vendor's GPUs need.  Intel's are device nodes only: the user-space driver is part of the image."""

WAY_VENDOR = {GpuMode.NV: "nvidia", GpuMode.NVCCLI: "nvidia", GpuMode.ROCM: "amd"}

CDI_VENDORS = {"nvidia": "nvidia.com/", "amd": "amd.com/"}

LOOKED_FOR = {
    "nvidia": "/dev/nvidia0, /dev/nvidia1, …",
    "amd": "/dev/kfd with render nodes of vendor 0x1002 in /dev/dri",
    "intel": "render nodes of vendor 0x8086 in /dev/dri",
}

NVIDIA_LIBRARIES = (
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-compiler",
    "libnvidia-encode",
    "libnvidia-fatbinaryloader",
    "libnvidia-fbc",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-ptxjitcompiler",
    "libnvidia-tls",
    "libnvoptix",
)
"""Libraries of the driver that programs for computing open (the compute part of Apptainer's nvliblist.conf).

AMD has no such list: ROCm's user space belongs to the image, and only device nodes are given to a container
(https://rocm.docs.amd.com, "Running ROCm Docker containers").
"""

LDCONFIG_LINE = re.compile(r"^\s*(\S+)\s+\((.*?)\)\s+=>\s+(/\S.*)$", re.MULTILINE)
STEM = re.compile(r"\.so(\.|$)")


def choose_gpu_mode(asked: GpuMode, host: Host, runtime: str) -> tuple[GpuMode, Choice]:
    """Choose how GPUs enter the container.

    Raises
    ------
    CheckFailed
        When GPUs are asked for by name and none of that vendor is seen: a container would start without a word.
    """
    if asked is GpuMode.NONE:
        return asked, Choice(ChoiceKey.GPU, asked.value, "asked for", "option")
    if asked is GpuMode.AUTO:
        return _choose_by_machine(host, runtime)
    vendor = WAY_VENDOR.get(asked)
    seen = [gpu for gpu in host.gpus if vendor in {None, gpu.vendor}]
    if not seen:
        wanted = [vendor] if vendor else list(LOOKED_FOR)
        raise CheckFailed(
            f"--gpu {asked} was asked for, and no GPU is seen on {host.hostname}",
            evidence="\n".join(f"looked for {LOOKED_FOR[name]}: none" for name in wanted),
            hint="start on a node with GPUs, or say --gpu none",
        )
    return asked, Choice(ChoiceKey.GPU, asked.value, f"asked for; {_counted(host)}", "option")


def parse_ldconfig(text: str) -> tuple[tuple[str, str], ...]:
    """Read what ``ldconfig -p`` prints: name and path of each library, 64-bit ones only."""
    return tuple((name, path) for name, kind, path in LDCONFIG_LINE.findall(text) if "64" in kind)


def plan_devices(
    way: GpuMode, specs: Sequence[CdiSpec], nodes: Sequence[str], libraries: Iterable[tuple[str, str]]
) -> Devices:
    """Give what a runtime that finds nothing itself must carry in.

    Parameters
    ----------
    specs
        The machine's CDI specifications; used before anything else.
    nodes
        Device nodes that are there.
    libraries
        Name and path of the libraries that the dynamic linker knows (see `parse_ldconfig`).

    Raises
    ------
    CheckFailed
        When `way` is CDI and the machine has no specification.
    """
    if way is GpuMode.NONE:
        return Devices()
    from argosy.host.cdi import choose_devices, join_devices  # noqa: PLC0415 - where there is a GPU

    vendor = WAY_VENDOR.get(way, "")
    chosen = [spec for spec in specs if spec.kind.startswith(CDI_VENDORS.get(vendor, ""))]
    if way is GpuMode.CDI and not chosen:
        raise CheckFailed(
            "--gpu cdi was asked for, and this machine has no CDI specification",
            evidence="looked in /etc/cdi and /var/run/cdi",
            hint="make one: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; or say --gpu auto",
        )
    described = [choose_devices(spec) for spec in chosen]
    nvidia = vendor == "nvidia" or any(spec.kind.startswith(CDI_VENDORS["nvidia"]) for spec in chosen)
    found = Devices(nodes=() if chosen else tuple(nodes), binds=_nvidia_binds(libraries) if nvidia else ())
    return join_devices([*described, found])


def _nvidia_binds(libraries: Iterable[tuple[str, str]]) -> tuple[Bind, ...]:
    """Mount the driver's libraries under the names that programs open (``libcuda.so.1``).

    A CDI specification names the files only (``libcuda.so.550.54``): its hook makes the other names by ldconfig, which
    would write into the image.
    """
    return tuple(
        Bind(path, f"{GPU_LIBRARIES}/{PurePosixPath(name).name}", read_only=True)
        for name, path in dict(reversed(list(libraries))).items()
        if STEM.split(name, maxsplit=1)[0] in NVIDIA_LIBRARIES
    )


def _choose_by_machine(host: Host, runtime: str) -> tuple[GpuMode, Choice]:
    vendors = [vendor for vendor in VENDOR_WAYS if any(gpu.vendor == vendor for gpu in host.gpus)]
    if not vendors:
        if host.gpus:
            return GpuMode.NONE, Choice(
                ChoiceKey.GPU, BY_DEVICES, f"{_counted(host)}: they come in with /dev", "machine"
            )
        return GpuMode.NONE, Choice(ChoiceKey.GPU, GpuMode.NONE.value, "no GPU is seen here", "machine")
    way = VENDOR_WAYS[vendors[0]]
    how = "carried in by specification or device nodes" if runtime == "bwrap" else f"{runtime} finds the driver"
    return way, Choice(ChoiceKey.GPU, way.value, f"{_counted(host)}; {how}", "machine")


def _counted(host: Host) -> str:
    counts = {vendor: sum(gpu.vendor == vendor for gpu in host.gpus) for vendor in LOOKED_FOR}
    return ", ".join(f"{count} {vendor} GPU{'s' * (count > 1)}" for vendor, count in counts.items() if count)
