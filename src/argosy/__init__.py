"""Argosy: from an environment file to a verified multi-node GPU run in a container."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from os import stat

ROOT = __path__[0]


class OwnModules:
    """Finds the modules of this package where they must lie, so that folders are not searched for them.

    Python's own finder looks at the folder before each module, and in each sub-package for three names of compiled
    ones: a seventh of all file-system calls of a start, and on a shared file system the calls are the start.
    What does not lie there (a zip file, compiled modules) is left to Python's finder.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004 - Python's signature
        """Say where a module is, as `importlib.abc.MetaPathFinder` asks it."""
        if not name.startswith("argosy."):
            return None
        place = f"{ROOT}/{name.removeprefix('argosy.').replace('.', '/')}"
        for file, folders in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            try:
                stat(file)  # noqa: PTH116 - pathlib is not loaded yet
            except OSError:
                continue
            spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
            spec.submodule_search_locations = folders
            spec.has_location = True
            return spec
        return None


sys.meta_path.insert(0, OwnModules)
