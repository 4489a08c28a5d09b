"""Split an installed tree into one tree for each wheel, with the files that the wheel's ``RECORD`` lists.

The files move to the same paths in the tree of their wheel. A file that several wheels contain belongs to each of them.
If its content differs, the installed tree has the file of only one wheel, so each of these wheels is installed again,
alone, and split off. In the image, the file of the package whose name is last in the alphabet counts.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from argosy.builder.python.file_lists import FileList, read_file_lists
from argosy.builder.python.installer import Installer
from argosy.builder.python.packages import install_pins
from argosy.builder.python.pins import Pin
from argosy.core.session import Step
from argosy.core.store import link_or_copy

SITE = "/site-packages/"


def split_tree(
    installer: Installer, pins: Collection[Pin], folder: Path, step: Step, *, exact: bool
) -> dict[str, Path]:
    """Move the files of each wheel out of the installer's tree; return the new trees by the packages' names.

    A pin whose marker excludes this machine is not installed, and has no tree.

    Parameters
    ----------
    folder
        Folder for the new trees.
    exact
        Whether the pins come from a lock.

    Raises
    ------
    ToolFailed, CheckFailed
        If a wheel must be installed again, and that fails.
    """
    layer, wheels = installer.layer, {pin.package.name: pin for pin in pins}
    files = {name: listed for name, listed in read_file_lists(layer).items() if name in wheels}
    tops = Counter(top for listed in files.values() for top in {_top_of(path) for path in listed})
    mixed = mixed_packages(files)
    _move_files(layer, {name: listed for name, listed in files.items() if name not in mixed}, tops, folder)
    for name in mixed:
        install_pins(installer, (wheels[name],), step, exact=exact, again=True)
        _move_files(layer, {name: read_file_lists(layer)[name]}, tops, folder)
    return {name: folder / name for name in files}


def mixed_packages(files: Mapping[str, FileList]) -> list[str]:
    """Return the packages that contain a file with the same path and different content, sorted."""
    owners = defaultdict[str, list[str]](list)
    for name, listed in files.items():
        for path in listed:
            owners[path].append(name)
    shared = {path: names for path, names in owners.items() if len(names) > 1}
    differing = (names for path, names in shared.items() if len({files[name][path] for name in names}) > 1)
    return sorted({name for names in differing for name in names})


def _move_files(layer: Path, files: Mapping[str, FileList], tops: Mapping[str, int], folder: Path) -> None:
    """Move files into the trees of their packages; each package gets a link to a shared file.

    Parameters
    ----------
    tops
        Number of packages with files in each folder of ``site-packages``. A folder of one package is moved as a whole,
        which is 50 times faster.
    """
    owners = Counter(path for listed in files.values() for path in listed)
    for name, listed in files.items():
        (folder / name).mkdir(parents=True)
        for path in _moved_paths(listed, tops):
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            owners[path] -= 1
            move = link_or_copy if owners[path] > 0 else os.rename
            move(layer / path, target)


def _top_of(path: str) -> str:
    """Return the folder directly below ``site-packages`` that contains a file; the file itself if there is none."""
    above, site, inside = path.partition(SITE)
    return f"{above}{site}{inside.partition('/')[0]}" if "/" in inside else path


def _moved_paths(listed: FileList, tops: Mapping[str, int]) -> Iterator[str]:
    """Return what to move for a package: its own folders, and its files in folders of several packages."""
    own = {top for path in listed if tops[top := _top_of(path)] == 1}
    yield from sorted(own)
    yield from (path for path in listed if _top_of(path) not in own)
