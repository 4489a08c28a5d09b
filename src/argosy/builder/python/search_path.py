"""Replace a wrapped prefix in Python's search path by the path in the image.

The Python of a wrapped venv has the prefix as its ``sys.prefix``, whose ``lib`` in the container is a link into the
image.  Without this, every module path contains the prefix, and each lookup of such a path (for example in `inspect`)
asks the host's file system: ``import torch`` does so 2,240 times.
"""

from __future__ import annotations

from pathlib import Path

from argosy.core.layout import ENV_PREFIX

FILE = "argosy_prefix.pth"
TEXT = """\
import os, sys; sys.path[:] = map(lambda path, lib=os.getenv("ARGOSY_WRAP", "\\0") + "/lib": \
os.path.realpath(path) if path.startswith(lib) else path, sys.path)
"""
"""Python runs such lines of a ``.pth`` file at startup (https://docs.python.org/3/library/site.html)."""


def library_folders(layer: Path) -> list[Path]:
    """Return the library folders of a layer's environment: one for each Python.

    conda adds a link ``python3.1`` for programs that read 3.11 as a number; it is left out.
    """
    found = (layer / ENV_PREFIX.lstrip("/")).glob("lib/python3*")
    return [folder for folder in found if folder.is_dir() and not folder.is_symlink()]


def site_folders(layer: Path) -> list[Path]:
    """Return the ``site-packages`` folders of a layer's environment."""
    return [site for folder in library_folders(layer) if (site := folder / "site-packages").is_dir()]


def write_search_path(layer: Path) -> None:
    """Write the file into the venv of a layer."""
    for folder in site_folders(layer):
        (folder / FILE).write_text(TEXT, encoding="utf-8")
