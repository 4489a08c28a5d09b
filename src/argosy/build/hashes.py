"""The hashes of pip packages where no index gives them: those of the user's own files, and of wheels in folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from argosy.build.pins import Row
from argosy.errors import CheckFailed
from argosy.lock import LockedPackage, SourceKind
from argosy.recipe import PipLine, Recipe
from argosy.store import digest_of_file


def asked_hashes(lines: Iterable[PipLine]) -> dict[str, tuple[str, ...]]:
    """Give the sha256 sums that the user's files write beside packages: they win over those of an index."""
    asked: dict[str, set[str]] = {}
    for line in lines:
        found = (text.partition(":") for text in line.hashes)
        asked.setdefault(line.name, set()).update(digest for algorithm, _, digest in found if algorithm == "sha256")
    return {name: tuple(sorted(digests)) for name, digests in asked.items() if digests}


def refuse_unhashed(recipe: Recipe, chosen: Mapping[str, Row]) -> None:
    """Refuse packages without a hash where others have one, as pip does; pip itself needs none.

    A folder of the user's and a commit that the files name in full need none: `uv export` writes them without.

    Raises
    ------
    CheckFailed
        Naming them.
    """
    asked = asked_hashes((*recipe.pip, *recipe.constraints))
    free = {name for name, row in chosen.items() if _is_folder(row) or _is_commit(row, recipe)}
    bare = [name for name in sorted(chosen) if name not in {*asked, *free, "pip"}]
    if bare:
        first = next((line for line in recipe.pip if line.hashes), None)
        raise CheckFailed(
            f"{', '.join(bare)} would be installed without a hash",
            evidence=f"{first.where}: {first.name} has one, and then all must" if first else "hashes are required",
            hint="make the file anew with all hashes: uv pip compile --generate-hashes, or argosy lock",
        )


def _is_folder(row: Row) -> bool:
    url = row.get("url", "")
    return url.startswith("file://") and Path(unquote(urlsplit(url).path)).is_dir()


def _is_commit(row: Row, recipe: Recipe) -> bool:
    commit = re.search(r"@([0-9a-f]{40})\b", row.get("url", ""))
    return commit is not None and any(commit[1] in line.spec for line in recipe.pip)


def found_hashes(packages: Iterable[LockedPackage], folders: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Give, by package, the sha256 of each of its files in folders of wheels, of which an index tells no hashes."""
    wanted = {(p.name, p.version): p.name for p in packages if p.source is SourceKind.INDEX}
    there = (file for folder in folders if Path(folder).is_dir() for file in sorted(Path(folder).iterdir()))
    files = [(name, file) for file in there if (name := wanted.get(package_of(file.name)))]
    found: dict[str, set[str]] = {name: set() for name in wanted.values()}
    with ThreadPoolExecutor() as pool:
        for (name, _), digest in zip(files, pool.map(digest_of_file, [file for _, file in files]), strict=True):
            found[name].add(digest)
    return {name: tuple(sorted(digests)) for name, digests in found.items()}


def package_of(file: str) -> tuple[str, str]:
    """Give the package and version that the name of a wheel or source names; two empty words for other names."""
    try:
        name, version, *_ = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return "", ""
    return name, str(version)
