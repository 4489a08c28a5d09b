"""Mount local package folders as copies, because most builds write into the folder that they build.

setuptools writes ``build`` and ``NAME.egg-info`` there, and includes leftovers of an earlier build in the next wheel.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.core.model import Bind
from argosy.core.os_errors import translate_os_errors
from argosy.core.store import remove_tree

NOT_SOURCE = frozenset({"__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"})
IMAGES = (".sif", ".sqsh", ".sqfs")
MOST_BYTES, MOST_FILES = 512 << 20, 50_000
"""A larger folder also holds data or results; it is built in place, as pip does."""


class _TooMuch(Exception):
    """A folder is too large to copy."""


def _is_package(path: Path) -> bool:
    """Tell whether a folder is the source of a Python package."""
    return any((path / name).is_file() for name in ("pyproject.toml", "setup.py"))


def repository_around(package: Path, home: Path) -> Path | None:
    """Find the git repository around a package's folder: its tags give the version of a workspace member.

    A repository that contains the home folder does not count.
    """
    if (package / ".git").exists():
        return None
    found = next((folder for folder in package.parents if (folder / ".git").is_dir()), None)
    return None if found is None or home.is_relative_to(found) else found


def bring_in(paths: tuple[str, ...], build_container: BuildContainer, work: Path) -> tuple[Bind, ...]:
    """Return bind mounts of existing paths, each at its own path; for package folders, mount a copy."""
    home = Path(build_container.session.host.person.home)
    packages = [Path(path) for path in paths if _is_package(Path(path))]
    around = dict.fromkeys(str(found) for path in packages if (found := repository_around(path, home)))
    binds = [Bind(path, path, read_only=True) for path in around]
    for number, path in enumerate(paths):
        if not Path(path).exists():
            continue
        if not _is_package(Path(path)):
            binds.append(Bind(path, path, read_only=True))
            continue
        copy = work / "sources" / str(number)
        try:
            with translate_os_errors(work):
                _copy(Path(path), copy)
            binds.append(Bind(str(copy), path))
        except _TooMuch:
            remove_tree(copy)
            build_container.session.reporter.note(
                f"{path} is large and is built in place; its build may leave files there"
            )
            binds.append(Bind(path, path))
    return tuple(binds)


def _copy(source: Path, target: Path) -> None:
    """Copy files and links with their times, without unreadable and special files."""
    size = count = 0
    for folder, folders, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        folders[:] = [name for name in folders if not _is_left_out(Path(folder, name))]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder, name)
            if name.endswith(IMAGES):
                continue
            if not path.is_symlink() and (not path.is_file() or not os.access(path, os.R_OK)):
                continue
            size, count = size + path.lstat().st_size, count + 1
            if size > MOST_BYTES or count > MOST_FILES:
                raise _TooMuch
            shutil.copy2(path, here / name, follow_symlinks=False)


def _is_left_out(folder: Path) -> bool:
    return folder.name in NOT_SOURCE or (folder / "pyvenv.cfg").is_file()
