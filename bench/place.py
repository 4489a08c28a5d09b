"""Run a measuring process here or in the lab, each time a fresh one; what it measures is told by its task."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from argosy.core.store import remove_path, work_folder
from bench.inputs import bench_folder

REPO = Path(__file__).parents[1]
LAB_PYTHON = "/opt/argosy-dev/bin/python"
"""Where lab/in puts the interpreter that has Argosy's dependencies."""

DISK_BYTES = 16 << 30
"""Size of a new file system; its file is sparse."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a measuring process runs, and as whom.

    Attributes
    ----------
    words
        What leads to a Python there.
    """

    name: str
    words: tuple[str, ...]


HERE = Place("this machine", (sys.executable,))


def lab(*mounts: Path) -> Place:
    """Give the lab's one-shot login node: a real Apptainer, an ordinary user, the same files and file systems."""
    binds = tuple(word for folder in (bench_folder(), *mounts) for word in ("-b", str(folder)))
    words = (str(REPO / "lab/in"), "-u", "alice", "-w", str(REPO), *binds, "--", LAB_PYTHON)
    return Place("the lab, as an ordinary user", words)


def why_no_lab() -> str:
    """Say what keeps the lab from running here; empty where nothing does."""
    if os.geteuid() != 0:
        return "the lab with its real Apptainer needs root"
    missing = [name for name in ("mmdebstrap", "unshare", "setpriv") if shutil.which(name) is None]
    return f"the lab needs {', '.join(missing)}" if missing else ""


@contextmanager
def open_folder() -> Iterator[Path]:
    """Give an empty folder that every user may write to, seen under one path here and in the lab."""
    with work_folder(bench_folder() / "work") as work:
        work.chmod(0o755)
        folder = work / "open"
        folder.mkdir()
        folder.chmod(0o1777)
        try:
            yield folder
        finally:
            remove_path(folder)


@contextmanager
def new_file_system() -> Iterator[Path]:
    """Give an empty folder like `open_folder`, for root on a new ext4 with a journal.

    What other programs did to the machine's file system then changes no figure.  An ext4 without a journal, for
    example, skips each inode that was removed in the last minutes whenever it creates a file
    (``recently_deleted`` in the kernel's fs/ext4/ialloc.c): it then takes twice the time to unpack wheels.
    """
    with open_folder() as folder:
        if os.geteuid() != 0:
            yield folder
            return
        disk, mount = folder / "disk.img", folder / "disk"
        mount.mkdir()
        disk.touch()
        os.truncate(disk, DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(disk))
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(disk)).strip()
        try:
            _run("mount", "-o", "noinit_itable", device, str(mount))
        finally:
            _run("losetup", "--detach", device)  # the kernel does it when the file system is unmounted
        try:
            mount.chmod(0o1777)
            yield mount
        finally:
            _run("umount", str(mount))


def _run(*words: str) -> str:
    return subprocess.run(words, stdin=subprocess.DEVNULL, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_task(place: Place, task: object, answer: type[Answer]) -> Answer:
    """Have a fresh process carry out a task.

    Raises
    ------
    RuntimeError
        When it failed, with what it said.
    """
    with open_folder() as folder:
        given, got = folder / "task.json", folder / "answer.json"
        given.write_bytes(msgspec.json.encode(task))
        words = (*place.words, "-m", "bench.worker", type(task).__name__, str(given), str(got))
        done = subprocess.run(words, cwd=REPO, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode or not got.is_file():
            raise RuntimeError(f"{task}\nin {place.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return msgspec.json.decode(got.read_bytes(), type=answer)
