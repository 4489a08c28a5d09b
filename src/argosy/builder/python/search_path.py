"""Keep a wrapped prefix off Python's search path, so that the names of modules lead into the image at once.

The Python of a wrapped venv has the prefix as its ``sys.prefix``, whose ``lib`` inside is a link into the image.  Left
on the search path both would be in the name of every module, and whatever resolves these names (`inspect`, for one)
asks the host's file system for them each time: ``import torch`` 2,240 times.
"""

from __future__ import annotations

from pathlib import Path

from argosy.core.layout import ENV_PREFIX

FILE = "argosy_prefix.pth"
TEXT = """\
import os, sys; sys.path[:] = map(lambda path, lib=os.getenv("ARGOSY_WRAP", "\\0") + "/lib": \
os.path.realpath(path) if path.startswith(lib) else path, sys.path)
"""
"""Python runs such a line of a file beside its packages when it starts (https://docs.python.org/3/library/site.html)."""


def library_folders(layer: Path) -> list[Path]:
    """Give the folders of modules of a layer's environment: one, but for a layer with two Pythons.

    conda's Python has a link beside its own: ``python3.1`` for the programs that read 3.11 as a number.
    """
    found = (layer / ENV_PREFIX.lstrip("/")).glob("lib/python3*")
    return [folder for folder in found if folder.is_dir() and not folder.is_symlink()]


def site_folders(layer: Path) -> list[Path]:
    """Give the folders that the packages of a layer's environment lie in."""
    return [site for folder in library_folders(layer) if (site := folder / "site-packages").is_dir()]


def write_search_path(layer: Path) -> None:
    """Write the file into the venv of a layer."""
    for folder in site_folders(layer):
        (folder / FILE).write_text(TEXT, encoding="utf-8")
