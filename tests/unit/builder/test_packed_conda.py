"""Which conda packages are packed one by one, and when all of them must be linked."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.conda_packages import PackageMeta, with_dependencies
from argosy.builder.packed.conda import (
    CondaCache,
    changed_packages,
    file_states,
    move_others,
    needs_all_linked,
    packable_names,
)
from argosy.recipes.conda_request import CondaPackage

PREFIX = "opt/argosy/env"


def package(name: str, sha256: str = "f" * 64) -> CondaPackage:
    return CondaPackage(name, "1", "0", f"https://a.example/noarch/{name}-1-0.conda", sha256)


def meta_of(**files: tuple[str, ...]) -> dict[str, PackageMeta]:
    return {name: PackageMeta({"files": listed}) for name, listed in files.items()}


@pytest.mark.parametrize(
    ("files", "for_site", "needed"),
    [
        (("share/a",), True, False),
        (("bin/.a-post-link.sh",), False, True),
        (("etc/conda/activate.d/a.sh",), False, True),
        (("share/b",), False, True),
        (("bin/python",), False, True),
        (("lib/python3.11/site-packages/torch/__init__.py",), True, True),
        (("lib/python3.11/site-packages/torch/__init__.py",), False, False),
    ],
    ids=["plain", "link script", "activation", "shared file", "another python", "torch for a site", "torch"],
)
def test_all_packages_are_linked_if_something_needs_them(
    files: tuple[str, ...], *, for_site: bool, needed: bool
) -> None:
    meta = meta_of(a=files, b=("share/b",))
    assert needs_all_linked((package("a"), package("b")), meta, for_site=for_site) is needed


def test_packages_without_a_hash_and_with_shared_files_are_not_packable() -> None:
    meta = meta_of(a=("x",), b=("x", "b"), c=("c",), d=("d",))
    packages = [package("a"), package("b"), package("c"), package("d", "")]
    assert packable_names(packages, meta) == {"c"}
    assert packable_names([package("c"), package("python", "")], meta_of(c=("c",))) == set()


def test_a_file_that_rattler_moved_is_still_shared() -> None:
    moved = {"_path": "__clobbers__/b/x", "original_path": "x"}
    meta = meta_of(a=("x",)) | {"b": PackageMeta({"files": ["__clobbers__/b/x"], "paths_data": {"paths": [moved]}})}
    assert packable_names([package("a"), package("b")], meta) == set()


def test_a_link_where_another_package_has_a_folder_is_a_shared_path() -> None:
    meta = meta_of(a=("share/out", "share/real/a"), b=("share/out/b/c",), c=("share/c/d",))
    packages = [package("a"), package("b"), package("c")]
    assert packable_names(packages, meta) == {"c"}
    assert packable_names(packages, {name: meta[name] for name in ("b", "c")}) == {"b", "c"}


def test_an_entry_depends_on_the_package_the_python_the_base_and_the_tools(tmp_path: Path) -> None:
    cache = CondaCache(tmp_path, "sha256:base", ("0.28", "4.6"), "python")
    others = (
        CondaCache(tmp_path, "sha256:other", ("0.28", "4.6"), "python"),
        CondaCache(tmp_path, "sha256:base", ("0.29", "4.6"), "python"),
        CondaCache(tmp_path, "sha256:base", ("0.28", "4.6"), "another"),
    )
    entries = {each.entry(package("a")) for each in (cache, *others)} | {cache.entry(package("a", "0" * 64))}
    assert len(entries) == 5
    assert cache.entry(package("a")).name.startswith("a-1-")


def test_changed_and_removed_files_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / PREFIX
    folder.mkdir(parents=True)
    meta = meta_of(same=("same",), changed=("changed",), gone=("gone",))
    for name in meta:
        (folder / name).write_text("before")
    before = file_states(tmp_path, meta)
    (folder / "changed").write_text("afterwards")
    (folder / "gone").unlink()
    assert changed_packages(tmp_path, meta, before) == {"changed", "gone"}


def test_only_files_that_are_not_packed_move(tmp_path: Path) -> None:
    for name in ("a/packed", "a/other", "new/file"):
        (tmp_path / "live" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "live" / name).touch()
    move_others(tmp_path / "live", tmp_path / "layer", {"a", "a/packed"})
    moved = {str(path.relative_to(tmp_path / "layer")) for path in (tmp_path / "layer").rglob("*") if path.is_file()}
    assert moved == {"a/other", "new/file"}


def test_dependencies_are_followed_once() -> None:
    depends = {"python": ["c >=1", "__glibc"], "c": ["d"], "d": ["python"], "alone": []}
    meta = {name: PackageMeta({"depends": names}) for name, names in depends.items()}
    assert set(with_dependencies("python", meta)) == {"python", "c", "d"}
