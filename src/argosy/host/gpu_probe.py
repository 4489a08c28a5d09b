"""Look for GPUs on this machine: device nodes, CDI files, the driver's libraries; it decides nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from argosy.core.model import Devices, Gpu, GpuMode
from argosy.core.process import Command, Runner
from argosy.host.gpus import parse_ldconfig, plan_devices

if TYPE_CHECKING:
    from argosy.host.cdi import CdiSpec

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where specifications lie; one in the second folder overrides its namesake in the first (CDI SPEC.md)."""

PCI_VENDORS = {"0x1002": "amd", "0x8086": "intel"}
"""Vendor ids in sysfs; NVIDIA's GPUs are counted by their own nodes."""

NVIDIA_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


def read_gpus(dev_root: str = "/dev", sys_root: str = "/sys") -> tuple[Gpu, ...]:
    """Give the GPUs whose device nodes are here, each vendor's counted from 0."""
    nvidia = _numbered(Path(dev_root), re.compile(r"nvidia(\d+)\Z"))
    gpus = [Gpu("nvidia", index, str(node)) for index, node in enumerate(nvidia)]
    for vendor in PCI_VENDORS.values():
        if vendor == "amd" and not (Path(dev_root) / "kfd").exists():
            continue  # without ROCm's own node a render node is for graphics only
        nodes = [node for node in _render_nodes(dev_root) if _vendor(node, sys_root) == vendor]
        gpus += [Gpu(vendor, index, str(node)) for index, node in enumerate(nodes)]
    return tuple(gpus)


def read_nodes(way: GpuMode, dev_root: str) -> tuple[str, ...]:
    """Give the device nodes that a container needs for GPUs of this kind."""
    root = Path(dev_root)
    if way is GpuMode.NONE:
        return ()
    if way is GpuMode.ROCM:
        return tuple(str(root / name) for name in ("kfd", "dri") if (root / name).exists())
    shared = [root / name for name in NVIDIA_NODES if (root / name).exists()]
    return tuple(map(str, [*_numbered(root, re.compile(r"nvidia(\d+)\Z")), *shared]))


def read_cdi(folders: Sequence[str] = CDI_FOLDERS) -> tuple[CdiSpec, ...]:
    """Read the machine's CDI specifications.

    Raises
    ------
    CheckFailed
        When a file is none, naming file and field.
    """
    from argosy.host.cdi import parse_cdi  # noqa: PLC0415 - where there is a GPU

    files = {
        path.name: path
        for folder in folders
        for path in sorted(Path(folder).glob("*"))
        if path.suffix in {".json", ".yaml", ".yml"}
    }
    return tuple(parse_cdi(path.read_text(errors="replace", encoding="utf-8"), str(path)) for path in files.values())


def probe_devices(way: GpuMode, runner: Runner) -> Devices:
    """Ask this machine what must be carried into a container for its GPUs.

    Raises
    ------
    CheckFailed
        When a CDI file is wrong, or the way is CDI and there is none.
    """
    if way is GpuMode.NONE:
        return Devices()
    ldconfig = next((path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if Path(path).exists()), "")
    known = runner.run(Command((ldconfig, "-p"))).stdout if ldconfig else ""
    return plan_devices(way, read_cdi(), read_nodes(way, "/dev"), parse_ldconfig(known))


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Give the entries of a folder whose names match, in the order of their numbers."""
    found = [(int(match[1]), node) for node in _entries(folder) if (match := pattern.match(node.name))]
    return [node for _, node in sorted(found)]


def _render_nodes(dev_root: str) -> list[Path]:
    return _numbered(Path(dev_root) / "dri", re.compile(r"renderD(\d+)\Z"))


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
