"""Call measuring functions in fresh processes, here or in the lab, where files have the same paths."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from argosy.core.store import remove_path, work_folder
from bench.inputs import bench_folder
from bench.meter import run

REPO = Path(__file__).parents[1]
LAB_PYTHON = "/opt/argosy-dev/bin/python"
"""Where lab/in puts the interpreter that has Argosy's dependencies."""

DISK_BYTES = 16 << 30
"""Size of a new file system; its file is sparse."""

Answer = TypeVar("Answer")


Place = tuple[str, ...]
"""The command that starts Python where a measuring process runs."""

HERE: Place = (sys.executable,)


def lab(*mounts: Path) -> Place:
    """Give the lab's one-shot login node: a real Apptainer, an ordinary user, the same files and file systems."""
    binds = tuple(word for folder in (bench_folder(), *mounts) for word in ("-b", str(folder)))
    return (str(REPO / "lab/in"), "-u", "alice", "-w", str(REPO), *binds, "--", LAB_PYTHON)


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
        run("mkfs.ext4", "-q", "-F", str(disk))
        device = run("losetup", "--find", "--show", "--direct-io=on", str(disk)).strip()
        try:
            run("mount", "-o", "noinit_itable", device, str(mount))
        finally:
            run("losetup", "--detach", device)  # the kernel does it when the file system is unmounted
        try:
            mount.chmod(0o1777)
            yield mount
        finally:
            run("umount", str(mount))


def run_in_lab(folder: Path, variables: Mapping[str, str], *words: str) -> str:
    """Run a command in the lab as an ordinary user, in a folder and with these variables only; return its output."""
    there = (str(REPO / "lab/in"), "-u", "alice", "-w", str(folder), "-b", str(folder), "--")
    return run(*there, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *words)


def call_apart(place: Place, work: Callable[..., Answer], *arguments: object) -> Answer:
    """Call a function of a module of the bench in a fresh process; arguments and answer travel as JSON."""
    with open_folder() as folder:
        given, got = folder / "given.json", folder / "answer.json"
        given.write_bytes(msgspec.json.encode((work.__module__, work.__name__, arguments), enc_hook=str))
        run(*place, "-m", "bench.place", str(given), str(got), cwd=REPO)
        return msgspec.json.decode(got.read_bytes(), type=get_type_hints(work)["return"])  # type: ignore[no-any-return]


def _answer(given: Path, got: Path) -> None:
    """Call the function that a file names, in the process that `call_apart` has started."""
    module, name, arguments = msgspec.json.decode(given.read_bytes())
    work = getattr(importlib.import_module(module), name)
    kinds = get_type_hints(work).values()
    answer = work(*(_convert(value, kind) for value, kind in zip(arguments, kinds, strict=False)))
    got.write_bytes(msgspec.json.encode(answer))


def _convert(value: object, kind: Any) -> object:
    return Path(str(value)) if kind is Path else msgspec.convert(value, kind)


if __name__ == "__main__":
    _answer(*map(Path, sys.argv[1:]))
