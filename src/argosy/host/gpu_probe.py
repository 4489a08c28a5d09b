"""Find the GPUs of this machine: device nodes, CDI files, and libraries of the driver."""

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
"""Folders of CDI files; a file in the second overrides one with the same name in the first (CDI SPEC.md)."""

PCI_VENDORS = {"0x1002": "amd", "0x8086": "intel"}
"""Vendor ids in sysfs; NVIDIA GPUs are found by their device nodes instead."""

NVIDIA_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


def read_gpus(dev_root: str = "/dev", sys_root: str = "/sys") -> tuple[Gpu, ...]:
    """Return the GPUs with device nodes; the index of each vendor starts at 0."""
    nvidia = _numbered(Path(dev_root), re.compile(r"nvidia(\d+)\Z"))
    gpus = [Gpu("nvidia", index, str(node)) for index, node in enumerate(nvidia)]
    for vendor in PCI_VENDORS.values():
        if vendor == "amd" and not (Path(dev_root) / "kfd").exists():
            continue  # without /dev/kfd, render nodes are for graphics only
        nodes = [node for node in _render_nodes(dev_root) if _vendor(node, sys_root) == vendor]
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
