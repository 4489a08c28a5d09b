"""Add to an unpacked image what runtimes look for in it; it follows no link of the image, and starts nothing.

Links are the image's: ``.singularity.d -> /etc`` would make a careless writer change the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from argosy.images.oci_config import LAST_SCRIPT, OciConfig, render_scripts
from argosy.store import explained

MOUNT_FOLDERS = ("dev", "etc", "home", "proc", "root", "sys", "tmp", "var", "var/tmp")
MOUNT_FILES = ("etc/hosts", "etc/resolv.conf")
"""What Apptainer mounts over: in a read-only image without overlay a mount point that is missing cannot be made."""

MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}


def furnish_tree(tree: Path, config: OciConfig) -> None:
    """Add the scripts for the image's environment and main program, and the mount points that are missing."""
    with explained(tree):
        tree.chmod(stat.S_IMODE(tree.stat().st_mode) | 0o755)
        for name, text in render_scripts(config).items():
            if name == LAST_SCRIPT and os.path.lexists(tree / name):
                continue  # an image that was made by Apptainer has its own
            _write_script(tree, name, text)
        for name in MOUNT_FOLDERS:
            _add_folder(tree, name)
        for name in MOUNT_FILES:
            parent = tree / Path(name).parent
            if not parent.is_symlink() and parent.is_dir() and not os.path.lexists(tree / name):
                _write_new(tree / name, "", 0o644)


def _write_script(tree: Path, name: str, text: str) -> None:
    """Write a file below folders of our own: a link in their place is replaced."""
    path = tree / name
    for folder in reversed([tree / parent for parent in Path(name).parents if str(parent) != "."]):
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            folder.unlink()
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    path.unlink(missing_ok=True)
    _write_new(path, text, 0o755 if text.startswith("#!") else 0o644)


def _write_new(path: Path, text: str, mode: int) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    path.chmod(mode)


def _add_folder(tree: Path, name: str) -> None:
    path = tree / name
    if any((tree / parent).is_symlink() for parent in Path(name).parents) or os.path.lexists(path):
        return
    path.mkdir()
    path.chmod(MODES.get(name, 0o755))


def make_readable(tree: Path) -> None:
    """Let the packer read what only root may (``/etc/shadow``, ``sudo``): an ordinary user who unpacked owns it all."""
    _allow(str(tree))
    for path in _walk(str(tree)):
        _allow(path)


def _walk(folder: str) -> Iterator[str]:
    """Give a folder's entries before what is below them, so that the caller can first make a closed folder readable."""
    with os.scandir(folder) as entries:
        for entry in list(entries):
            yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path)


def _allow(path: str) -> None:
    mode = os.lstat(path).st_mode
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o400
    if not stat.S_ISLNK(mode) and mode & wanted != wanted:
        os.chmod(path, stat.S_IMODE(mode) | wanted)  # noqa: PTH101 - 100,000 of them: no Path for each
