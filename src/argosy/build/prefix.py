"""Work on the files of a conda prefix: what differs between machines is taken out; nothing is installed or started."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from argosy.conda import CondaPackage
from argosy.layout import ENV_PREFIX
from argosy.scrub import scrub

OF_THIS_MACHINE = ("link", "extracted_package_dir", "package_tarball_full_path", "indexed_timestamp")
"""Words of conda-meta that name the package cache, or the moment."""

_LINK_SCRIPT = re.compile(r"\.(?P<name>.+)-post-link\.sh\Z")


@dataclass(frozen=True, slots=True)
class LinkScript:
    """A script that a package wants to be run once it is installed: its path inside."""

    package: CondaPackage
    inside: str


def tidy_conda_meta(prefix: Path) -> None:
    """Give the records of installed packages one form: the same bytes from any cache, link type and umask."""
    for file in sorted((prefix / "conda-meta").glob("*.json")):
        record = json.loads(file.read_text())
        kept = {key: _scrubbed(key, value) for key, value in record.items() if key not in OF_THIS_MACHINE}
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _scrubbed(key: str, value: object) -> object:
    return scrub(value) if key in {"url", "channel", "schannel"} and isinstance(value, str) else value


def link_scripts(prefix: Path, chosen: Iterable[CondaPackage]) -> tuple[LinkScript, ...]:
    """List the link scripts in a prefix in the order in which their packages are given."""
    found = {match["name"]: path for path in (prefix / "bin").glob(".*") if (match := _LINK_SCRIPT.match(path.name))}
    return tuple(
        LinkScript(package, f"{ENV_PREFIX}/bin/{found[package.name].name}")
        for package in chosen
        if package.name in found
    )


def unshare(prefix: Path) -> None:
    """Make each file that is a hard link into the cache a file of its own."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_nlink > 1:
                copy = path.with_name(f"{name}.argosy-copy")
                shutil.copy2(path, copy)
                copy.replace(path)
