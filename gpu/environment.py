"""Prepare the machine's environment for the steps, and start programs in it with a time limit.

Argosy comes from this checkout, its dependencies and missing programs from the kit.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[1]
KIT = REPO / "build" / "gpu-kit"
IMAGE = "image.sqsh"
WHEELS = "wheels"
PROGRAMS = "programs"

WHEEL = re.compile(r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl\Z")
TIMED_OUT = 124
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


@dataclass(frozen=True, slots=True)
class Reply:
    """How a program ended."""

    code: int
    """Exit code; 124 after the time limit, 127 if the program does not exist."""
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_lines(self) -> str:
        """Return the end of the output, for a reason."""
        lines = [line for line in (self.stderr + self.stdout).splitlines() if line.strip()]
        return "; ".join(line.strip() for line in lines[-3:])[-400:]


def run(argv: Sequence[str], environment: Mapping[str, str], limit: float) -> Reply:
    """Run a program in a session of its own, and end the whole session at the time limit (in seconds)."""
    start = time.monotonic()
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        child = subprocess.Popen(
            argv, env=dict(environment), stdin=nothing, stdout=pipe, stderr=pipe, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Reply(127, "", str(error), 0.0)
    try:
        stdout, stderr = child.communicate(timeout=max(limit, 1.0))
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
        stderr, code = f"{stderr}\nthe time limit of {limit:.0f} s is over", TIMED_OUT
    return Reply(code, stdout, stderr, round(time.monotonic() - start, 2))
