"""Keep what tests unpack in memory: most of their time went into making and deleting files on a disk."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNS = 0x00020000
ROOMY_KB = 12_000_000
"""A machine with less memory than this to spare keeps all on its disk."""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Give a folder that every user may pass through, gone at the end with all that is in it.

    Where root has memory to spare it is a file system in memory that only this process and its children see: it ends
    with them, however they end, and nothing has to be deleted.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))  # other users must reach it
    mounted = os.geteuid() == 0 and _spare_kb() >= ROOMY_KB and _own_mounts() and _mount(folder)
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if mounted:
            _succeeds("umount", "--lazy", str(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _spare_kb() -> int:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next((int(words[1]) for words in lines if words[0] == "MemAvailable:"), 0)


def _own_mounts() -> bool:
    """Give this thread, which runs the tests, a namespace for mounts of its own; its children inherit it."""
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
            return _succeeds("mount", "--make-rslave", "/")
    return False


def _mount(folder: Path) -> bool:
    return _succeeds("mount", "-t", "tmpfs", "-o", "mode=755", "argosy-tests", str(folder))


def _succeeds(*words: str) -> bool:
    return subprocess.run(words, check=False, capture_output=True).returncode == 0
