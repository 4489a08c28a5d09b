"""Read the lists of files that installed wheels have, and compare them with the files.

A wheel's ``RECORD`` lists its files with their hashes
(https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
"""

from __future__ import annotations

import base64
import binascii
import csv
import os
import posixpath
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.builder.python.base_python import site_folders
from argosy.core.layout import ENV_PREFIX
from argosy.images.tree_digests import Entries, digest_of_entry

RECORD = ".dist-info/RECORD"
MAX_NAMED_FILES = 3

FileList = Mapping[str, str]
"""Path in the layer -> the hash that the wheel lists; empty without one."""


def read_file_lists(layer: Path) -> dict[str, FileList]:
    """Return the existing files of each installed package below the prefix, by the package's name."""
    return {
        _name_of(str(record)): dict(_read_file_list(layer, site, record))
        for site in site_folders(layer)
        for record in sorted(site.glob(f"*{RECORD}"))
    }


def _read_file_list(layer: Path, site: Path, record: Path) -> Iterator[tuple[str, str]]:
    prefix, inside = f"{ENV_PREFIX.lstrip('/')}/", str(site.relative_to(layer))
    for name, digest in _rows(record):
        path = _path_of(inside, name)
        if path.startswith(prefix) and _is_file(f"{layer}/{path}"):
            yield path, digest


def _is_file(path: str) -> bool:
    """Return whether a path is a file or a link, with one call for each of 10,000 files."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def find_altered_packages(tree: Path, entries: Entries, packages: Collection[str]) -> Iterator[str]:
    """Describe the packages whose files differ from their ``RECORD``, with some of these files."""
    for path in entries:
        if path.endswith(RECORD):
            name = _name_of(path)
            if name in packages and (others := list(_others(tree, path, entries))):
                more = f" and {len(others) - MAX_NAMED_FILES} more" if len(others) > MAX_NAMED_FILES else ""
                yield (
                    f"{name} has files that differ from its RECORD: {', '.join(others[:MAX_NAMED_FILES])}{more}; "
                    "either the package was published this way, or the cache is damaged "
                    "(to empty it: argosy cache gc --older-than 0h)"
                )


def _others(tree: Path, record: str, entries: Entries) -> Iterator[str]:
    """Return the files of a ``RECORD`` that exist with another digest.

    Byte code is left out: some wheels contain it, for example that of numpy 1.26, and installers compile it again.
    """
    folder = posixpath.dirname(posixpath.dirname(record))
    for name, digest in _rows(tree / record):
        found = digest_of_entry(entries.get(_path_of(folder, name), b""))
        is_listed = digest.startswith("sha256=") and not name.endswith(".pyc")
        if found and is_listed and found != _hexadecimal(digest.removeprefix("sha256=")):
            yield name


def _name_of(record: str) -> str:
    """Return the name of the package with a ``RECORD``."""
    return canonicalize_name(posixpath.basename(record.removesuffix(RECORD)).rpartition("-")[0])


def _rows(record: Path) -> Iterator[tuple[str, str]]:
    """Return the paths in a ``RECORD``, from the folder that contains the package, and their hashes."""
    with record.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
        for row in csv.reader(lines):
            name, digest = (*row, "", "")[:2]
            if name:
                yield name, digest


def _path_of(folder: str, name: str) -> str:
    """Return the path of a file that a ``RECORD`` names from the folder of its package."""
    is_plain = "./" not in name and "//" not in name and not name.startswith("/")
    return f"{folder}/{name}" if is_plain else posixpath.normpath(posixpath.join(folder, name))


def _hexadecimal(digest: str) -> str:
    try:
        return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    except (binascii.Error, ValueError):
        return ""
