"""Describe the machine and the tools that a result was made with, without names of hosts or people."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from argosy.core.mounts import file_system_type
from argosy.version import VERSION
from bench.inputs import bench_folder
from bench.place import REPO, why_no_lab

GIBI = 1 << 30

QUIET_LOAD = 1.0
"""Above this load average, other programs take time from what is measured."""

TOOLS: Mapping[str, tuple[str, ...]] = {
    "mksquashfs": ("mksquashfs", "-version"),
    "bwrap": ("bwrap", "--version"),
    "strace": ("strace", "--version"),
}
LAB_TOOLS: Mapping[str, tuple[str, ...]] = {
    "apptainer": ("apptainer", "--version"),
    "mksquashfs (lab)": ("mksquashfs", "-version"),
}
VERSION_NUMBER = re.compile(r"\d+(\.\d+)+")


def read_machine() -> tuple[tuple[str, str], ...]:
    """Give CPU, cores, memory, kernel, file system and load, as pairs of name and fact."""
    information = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", information, re.MULTILINE)
    virtual = " (virtual machine)" if re.search(r"^flags\s*:.*\bhypervisor\b", information, re.MULTILINE) else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBI
    kernel = VERSION_NUMBER.match(platform.release())
    return (
        ("CPU", (model[1] if model else platform.machine()) + virtual),
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("memory", f"{memory:.0f} GiB"),
        ("Linux", kernel[0] if kernel else platform.release()),
        ("files on", file_system_type(bench_folder())),
    )


def read_load() -> float:
    """Give the load average of the last minute: what else ran."""
    return os.getloadavg()[0]


def read_tools() -> tuple[tuple[str, str], ...]:
    """Give the versions of what was measured and of what measured it; those of the lab where there is one."""
    return (("argosy", VERSION), ("Python", platform.python_version()), *_versions())


def _versions() -> Iterator[tuple[str, str]]:
    asked = dict(TOOLS)
    if not why_no_lab():
        asked |= {name: (str(REPO / "lab/in"), "-u", "alice", "--", *words) for name, words in LAB_TOOLS.items()}
    for name, words in asked.items():
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        found = VERSION_NUMBER.search(done.stdout)
        yield name, found[0] if found else "unknown"
