"""Prepare the machine's environment for the steps: Argosy from this checkout, its dependencies and carried programs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

REPO = Path(__file__).parents[1]
KIT = REPO / "build" / "gpu-kit"
IMAGE = "image.sqsh"
WHEELS = "wheels"
PROGRAMS = "programs"

WHEEL = re.compile(r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl\Z")
CPYTHON = re.compile(r"cp3(\d+)\Z")


def fits(wheel: str, minor: int) -> bool:
    """Return whether a wheel works with CPython 3.`minor`; the kit contains wheels of one platform only."""
    match = WHEEL.search(wheel)
    if match is None:
        return False
    for tag in match["python"].split("."):
        if tag in {"py3", f"cp3{minor}"}:
            return True
        stable = CPYTHON.match(tag)
        if stable and match["abi"] == "abi3" and int(stable[1]) <= minor:
            return True
    return False


def unpack_wheels(folder: Path, target: Path, minor: int) -> None:
    """Unpack the wheels that fit into a folder for PYTHONPATH, once; neither pip nor a network is needed."""
    if target.exists():
        return
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    for wheel in sorted(folder.glob("*.whl")):
        if fits(wheel.name, minor):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(draft)
    draft.rename(target)


def prepare_environment(kit: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which ``python3 -m argosy`` works on this machine.

    Missing programs (bubblewrap, unsquashfs) come from the kit, after those of the machine.
    """
    paths = [str(REPO / "src")]
    wheels = kit / WHEELS
    if importlib.util.find_spec("msgspec") is None and wheels.is_dir():
        site = kit / f"site-3.{sys.version_info.minor}"
        unpack_wheels(wheels, site, sys.version_info.minor)
        paths.append(str(site))
    before = filter(None, [base.get("PYTHONPATH", "")])
    programs = filter(None, [base.get("PATH", os.defpath), str(kit / PROGRAMS)])
    return {
        **base,
        "PYTHONPATH": os.pathsep.join([*paths, *before]),
        "PATH": os.pathsep.join(programs),
        "XDG_CACHE_HOME": base.get("XDG_CACHE_HOME") or str(kit / "cache"),
    }


def has_program(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether a program is on the PATH of the steps."""
    return shutil.which(name, path=environment["PATH"]) is not None
