"""Find the GPUs of this machine, and choose how they are made available in a container, and which files it needs.

Apptainer finds the files of a driver itself (--nv, --rocm). For bubblewrap they come from the machine's CDI
specification, else from the device nodes and the libraries in the dynamic linker's cache.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from argosy.core.errors import CheckFailed
from argosy.core.layout import GPU_LIBRARIES
from argosy.core.model import Bind, Choice, ChoiceKey, Devices, Gpu, GpuMode, Host
from argosy.core.process import Command, Runner
from argosy.core.render import count

if TYPE_CHECKING:
    from argosy.host.cdi import CdiSpec

BY_DEVICES = "by /dev"
"""Text in a plan for GPUs that only need their device nodes in /dev."""

VENDOR_MODES = {"nvidia": GpuMode.NV, "amd": GpuMode.ROCM}
"""GPU mode of each vendor. Intel GPUs need device nodes only: their user-space driver is part of the image."""

MODE_VENDOR = {GpuMode.NV: "nvidia", GpuMode.NVCCLI: "nvidia", GpuMode.ROCM: "amd"}

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
"""Driver libraries for computing (the compute part of Apptainer's nvliblist.conf).

AMD needs no such list: ROCm's user space is part of the image, and containers only get device nodes
(https://rocm.docs.amd.com, "Running ROCm Docker containers").
"""

LDCONFIG_LINE = re.compile(r"^\s*(\S+)\s+\((.*?)\)\s+=>\s+(/\S.*)$", re.MULTILINE)
STEM = re.compile(r"\.so(\.|$)")

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Folders of CDI files; a file in the second overrides one with the same name in the first (CDI SPEC.md)."""

PCI_VENDORS = {"0x1002": "amd", "0x8086": "intel"}
"""Vendor ids in sysfs; NVIDIA GPUs are found by their device nodes instead."""

NVIDIA_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


def choose_gpu_mode(asked: GpuMode, host: Host, driver: str) -> tuple[GpuMode, Choice]:
    """Choose how GPUs enter the container.

    Parameters
    ----------
    driver
        Text: where the container gets the driver from.

    Raises
    ------
    CheckFailed
        If a GPU mode is requested and no GPU of its vendor is found.
    """
    if asked is GpuMode.NONE:
        return asked, Choice(ChoiceKey.GPU, asked.value, "--gpu none: the container gets no GPUs", "option")
    if asked is GpuMode.AUTO:
        return _choose_by_machine(host, driver)
    vendor = MODE_VENDOR.get(asked)
    seen = [gpu for gpu in host.gpus if vendor in {None, gpu.vendor}]
    if not seen:
        wanted = [vendor] if vendor else list(LOOKED_FOR)
        raise CheckFailed(
            f"cannot use --gpu {asked}: no GPU found on {host.hostname}",
            evidence="\n".join(f"looked for {LOOKED_FOR[name]}: none" for name in wanted),
            hint="run on a node with GPUs, or use --gpu none",
        )
    return asked, Choice(ChoiceKey.GPU, asked.value, f"requested; {_counted(host)}", "option")


def parse_ldconfig(text: str) -> tuple[tuple[str, str], ...]:
    """Parse the output of ``ldconfig -p``: name and path of each 64-bit library."""
    return tuple((name, path) for name, kind, path in LDCONFIG_LINE.findall(text) if "64" in kind)


def plan_devices(
    mode: GpuMode, specs: Sequence[CdiSpec], nodes: Sequence[str], libraries: Iterable[tuple[str, str]]
) -> Devices:
    """Return what a runtime without GPU support must mount and set.

    Parameters
    ----------
    specs
        The machine's CDI specifications; they take precedence.
    nodes
        Existing device nodes.
    libraries
        Name and path of the libraries in the dynamic linker's cache (see `parse_ldconfig`).

    Raises
    ------
    CheckFailed
        If `mode` is CDI and the machine has no specification.
    """
    if mode is GpuMode.NONE:
        return Devices()
    from argosy.host.cdi import choose_devices, join_devices  # noqa: PLC0415 - only for a container with GPUs

    vendor = MODE_VENDOR.get(mode, "")
    chosen = [spec for spec in specs if spec.kind.startswith(CDI_VENDORS.get(vendor, ""))]
    if mode is GpuMode.CDI and not chosen:
        raise CheckFailed(
            "cannot use --gpu cdi: this machine has no CDI specification",
            evidence="looked in /etc/cdi and /var/run/cdi",
            hint="use --gpu auto, or write a specification: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )
    described = [choose_devices(spec) for spec in chosen]
    nvidia = vendor == "nvidia" or any(spec.kind.startswith(CDI_VENDORS["nvidia"]) for spec in chosen)
    found = Devices(nodes=() if chosen else tuple(nodes), binds=_nvidia_binds(libraries) if nvidia else ())
    return join_devices([*described, found])


def _nvidia_binds(libraries: Iterable[tuple[str, str]]) -> tuple[Bind, ...]:
    """Return mounts of the driver's libraries under the names that programs open (``libcuda.so.1``).

    A CDI specification lists the files only (``libcuda.so.550.54``); its hook creates the other names with ldconfig,
    which would write into the image.
    """
    return tuple(
        Bind(path, f"{GPU_LIBRARIES}/{PurePosixPath(name).name}", read_only=True)
        for name, path in dict(reversed(list(libraries))).items()
        if STEM.split(name, maxsplit=1)[0] in NVIDIA_LIBRARIES
    )


def _choose_by_machine(host: Host, driver: str) -> tuple[GpuMode, Choice]:
    vendors = [vendor for vendor in VENDOR_MODES if any(gpu.vendor == vendor for gpu in host.gpus)]
    if not vendors:
        if host.gpus:
            return GpuMode.NONE, Choice(
                ChoiceKey.GPU, BY_DEVICES, f"{_counted(host)}: available through /dev", "machine"
            )
        return GpuMode.NONE, Choice(ChoiceKey.GPU, GpuMode.NONE.value, "no GPU found on this machine", "machine")
    mode = VENDOR_MODES[vendors[0]]
    return mode, Choice(ChoiceKey.GPU, mode.value, f"{_counted(host)}; {driver}", "machine")


def _counted(host: Host) -> str:
    """Say how many GPUs of each vendor the machine has, for example ``4 nvidia GPUs``."""
    numbers = Counter(gpu.vendor for gpu in host.gpus)
    return ", ".join(count(numbers[vendor], f"{vendor} GPU") for vendor in LOOKED_FOR if numbers[vendor])


def read_gpus(dev_root: str = "/dev", sys_root: str = "/sys") -> tuple[Gpu, ...]:
    """Return the GPUs with device nodes; the index of each vendor starts at 0."""
    nvidia = _numbered(Path(dev_root), re.compile(r"nvidia(\d+)\Z"))
    gpus = [Gpu("nvidia", index, str(node)) for index, node in enumerate(nvidia)]
    for vendor in PCI_VENDORS.values():
        if vendor == "amd" and not (Path(dev_root) / "kfd").exists():
            continue  # without /dev/kfd, render nodes are for graphics only
        rendering = _numbered(Path(dev_root) / "dri", re.compile(r"renderD(\d+)\Z"))
        nodes = [node for node in rendering if _vendor(node, sys_root) == vendor]
        gpus += [Gpu(vendor, index, str(node)) for index, node in enumerate(nodes)]
    return tuple(gpus)


def read_nodes(mode: GpuMode, dev_root: str) -> tuple[str, ...]:
    """Return the device nodes that a container needs in a GPU mode."""
    root = Path(dev_root)
    if mode is GpuMode.NONE:
        return ()
    if mode is GpuMode.ROCM:
        return tuple(str(root / name) for name in ("kfd", "dri") if (root / name).exists())
    shared = [root / name for name in NVIDIA_NODES if (root / name).exists()]
    return tuple(map(str, [*_numbered(root, re.compile(r"nvidia(\d+)\Z")), *shared]))


def read_cdi(folders: Sequence[str] = CDI_FOLDERS) -> tuple[CdiSpec, ...]:
    """Read the machine's CDI specifications.

    Raises
    ------
    CheckFailed
        If a file is not a valid specification.
    """
    from argosy.host.cdi import parse_cdi  # noqa: PLC0415 - only for a container with GPUs

    files = {
        path.name: path
        for folder in folders
        for path in sorted(Path(folder).glob("*"))
        if path.suffix in {".json", ".yaml", ".yml"}
    }
    return tuple(parse_cdi(path.read_text(errors="replace", encoding="utf-8"), str(path)) for path in files.values())


def probe_devices(mode: GpuMode, runner: Runner) -> Devices:
    """Return the files and variables that a container needs for the GPUs of this machine.

    Raises
    ------
    CheckFailed
        If a CDI file is invalid, or the mode is CDI and there is none.
    """
    if mode is GpuMode.NONE:
        return Devices()
    ldconfig = next((path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if Path(path).exists()), "")
    known = runner.run(Command((ldconfig, "-p"))).stdout if ldconfig else ""
    return plan_devices(mode, read_cdi(), read_nodes(mode, "/dev"), parse_ldconfig(known))


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the entries of a folder whose names match, sorted by number."""
    found = [(int(match[1]), node) for node in _entries(folder) if (match := pattern.match(node.name))]
    return [node for _, node in sorted(found)]


def _vendor(node: Path, sys_root: str) -> str:
    try:
        return PCI_VENDORS.get(
            (Path(sys_root) / "class/drm" / node.name / "device/vendor").read_text(encoding="utf-8").strip(), ""
        )
    except OSError:
        return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
