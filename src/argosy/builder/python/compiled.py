"""Refuse packages that were compiled against another PyTorch than a vendor's build in the base.

A vendor's torch 2.3.0a0+x counts as 2.3.0, so the metadata of torchaudio 2.3.0 agree with it.  The C++ interface of the
two differs: the import fails with an undefined symbol, or the program computes nonsense.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.core.errors import CheckFailed
from argosy.images.torch_build import BUILD

TORCH_LIBRARY = b"libc10.so"
"""A library of PyTorch that every extension module of it is linked with."""


def vendor_torch(builds: Mapping[str, str]) -> str:
    """Return the version of a vendor's PyTorch, whose C++ interface differs from that on the index; empty if none."""
    torch = builds.get("torch", "")
    return "" if BUILD.search(torch) else torch


def refuse_wheels_for_other_torch(folders: Iterable[Path], builds: Mapping[str, str], allowed: Collection[str]) -> None:
    """Refuse an installed package whose extension modules need PyTorch, if the base has a vendor's build of it.

    Packages from a folder, an address or a repository are not checked: their user may have built them for this base.

    Parameters
    ----------
    folders
        The site-packages of the layer.
    builds
        The vendor's builds in the base: name -> version.
    allowed
        Packages that are not checked.

    Raises
    ------
    CheckFailed
        For the first such package.
    """
    torch = vendor_torch(builds)
    if not torch or "torch" in allowed:
        return
    for dist in (dist for folder in folders for dist in distributions(path=[str(folder)])):
        name = canonicalize_name(dist.metadata["Name"])
        if name not in allowed and not _has_address(dist) and _needs_torch(dist):
            raise CheckFailed(
                f"cannot install {name} {dist.version}: it was compiled against a different PyTorch",
                evidence=f"it contains libraries that need {TORCH_LIBRARY.decode()}\nthe base has torch=={torch}",
                hint=f"build it against the base's: replace {name} by {name} @ git+https://…, and pass "
                f"--no-build-isolation {name}; to install this wheel anyway: --allow-replace {name}",
            )


def _has_address(dist: Distribution) -> bool:
    """Return whether a package was not installed from an index (PEP 610)."""
    return any(file.name == "direct_url.json" for file in dist.files or ())


def _needs_torch(dist: Distribution) -> bool:
    """Return whether an extension module of a package is linked with PyTorch."""
    modules = (Path(str(dist.locate_file(file))) for file in dist.files or () if ".so" in file.suffixes)
    return any(module.is_file() and TORCH_LIBRARY in module.read_bytes() for module in modules)
