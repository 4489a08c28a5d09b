"""Packages over an image of Argosy: joined with its layer, with the content of a build that unpacks the layer."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.images.flat import layer_source
from argosy.images.open import open_image
from argosy.images.sif.format import PartKind
from argosy.images.tree_digests import digest_tree
from argosy.images.unpack import unpack_source
from tests.real.conftest import Shop
from tests.real.test_forged import forge
from tests.real.test_packed_wheels import build as build_over_base
from tests.real.test_packed_wheels import own
from tests.unit.machines import real_session

__all__ = ["own"]

pytestmark = pytest.mark.real


def extend(shop: Shop, base: str | Path, packages: str, out: str, *more: str) -> dict[str, object]:
    """Build over an image, and give the report."""
    return build_over_base(replace(shop, base=shop.folder / base), packages, out, *more)


def entries(shop: Shop) -> set[Path]:
    return set((shop.cache / "entries").iterdir())


def test_a_package_is_joined_with_the_layer_of_the_base(own: Shop) -> None:
    build_over_base(own, "tinypkg\n", "first.sif")
    added = extend(own, "first.sif", "another\n", "second.sif")
    assert (added["together"], added["packages"]) == ("", 4)
    unpacked = extend(own, "first.sif", "another\n", "second.sqsh", "--format", "sqsh")
    assert "sqsh" in str(unpacked["together"])
    assert added["digest"] == unpacked["digest"]
    ask = "import another, tinypkg, tinydep; print(another.VERSION, tinypkg.VERSION)"
    assert own.run(own.folder / "second.sif", "python", "-c", ask).out == "0.3 2.0\n"
    assert own.run(own.folder / "second.sif", "another").out == "another 0.3\n"
    own.nothing_left()


@pytest.mark.soak
@pytest.mark.parametrize("form", ["flat", "delta"])
def test_a_chain_of_builds_has_the_content_of_one(own: Shop, form: str) -> None:
    build_over_base(own, "tinydep\n", "0.sif", "--format", form)
    for number, packages in enumerate(("tinypkg\n", "another\n", "onemore\n")):
        added = extend(own, f"{number}.sif", packages, f"{number + 1}.sif")
        assert added["together"] == ""
        assert form in str(added["partitions"])
    once = build_over_base(own, "tinydep\ntinypkg\nanother\nonemore\n", "once.sif")
    assert added["digest"] == once["digest"]
    for program, said in (("tinypkg", "tinypkg 2.0"), ("another", "another 0.3"), ("onemore", "onemore 0.1")):
        assert own.run(own.folder / "3.sif", program).out == f"{said}\n"
    exported = own.argosy("images", "export", own.folder / "3.sif", "-o", own.folder / "3-flat.sif", "--format", "sif")
    assert exported.code == 0, exported.err
    assert own.run(own.folder / "3-flat.sif", "onemore").out == "onemore 0.1\n"


@pytest.mark.soak
def test_the_image_has_the_same_bytes_whether_the_cache_knows_the_base(own: Shop) -> None:
    build_over_base(own, "tinypkg\n", "first.sif")
    extend(own, "first.sif", "another\n", "known.sif")
    there = entries(own)
    shutil.copy(own.folder / "first.sif", own.folder / "copy.sif")
    (own.folder / "copy").mkdir()
    (own.folder / "copy.sif").rename(own.folder / "copy/first.sif")
    other = replace(own, cache=own.folder / "other-cache")
    other.cache.mkdir()
    (other.cache / "tools").symlink_to(own.cache / "tools")
    first = own.folder / "first.sif"
    first.rename(own.folder / "kept.sif")
    (own.folder / "copy/first.sif").rename(first)
    extend(other, "first.sif", "another\n", "unknown.sif")
    assert (own.folder / "unknown.sif").read_bytes() == (own.folder / "known.sif").read_bytes()
    for file in there:
        file.write_bytes(file.read_bytes()[:-3])
    extend(own, "kept.sif", "another\n", "damaged.sif")
    assert extend(own, "kept.sif", "another\n", "again.sif")["together"] == ""
    assert (own.folder / "damaged.sif").read_bytes() == (own.folder / "again.sif").read_bytes()


@pytest.mark.soak
def test_a_layer_that_differs_from_its_lock_is_unpacked(own: Shop) -> None:
    build_over_base(own, "tinypkg\n", "genuine.sif", "--format", "delta")
    right = extend(own, "genuine.sif", "another\n", "right.sif")
    forged = forge(own, own.folder / "genuine.sif", PartKind.OVERLAY)
    added = extend(own, forged, "another\n", "added.sif")
    assert "differs from its lock" in str(added["together"])
    assert added["digest"] != right["digest"]


@pytest.mark.soak
def test_a_package_of_the_base_is_replaced_only_on_request(own: Shop) -> None:
    build_over_base(own, "tinypkg==1.0\n", "first.sif")
    recipe = own.write("more.txt", "tinypkg==2.0\n")
    refused = own.argosy("build", recipe, "--base", own.folder / "first.sif", "-o", own.folder / "second.sif")
    assert refused.code == 7, refused.out
    added = extend(own, "first.sif", "tinypkg==2.0\n", "second.sif", "--allow-replace", "tinypkg")
    assert "replaced" in str(added["together"])
    ask = "import tinypkg, importlib.metadata as m; print([d.version for d in m.distributions(name='tinypkg')])"
    assert own.run(own.folder / "second.sif", "python", "-c", ask).out == "['2.0']\n"


@pytest.mark.soak
@pytest.mark.parametrize("form", ["flat", "delta"])
def test_a_wrapped_environment_and_its_update_use_packed_wheels(own: Shop, form: str) -> None:
    build_over_base(own, "tinypkg\n", "seen.sif")
    recipe, prefix = own.write("packages.txt", "tinypkg\n"), own.folder / "prefix"
    wrapped = own.argosy("wrap", recipe, "--prefix", prefix, "--base", own.base, "--format", form)
    assert wrapped.code == 0, wrapped.err
    assert "3 packed before" in wrapped.err
    assert is_flat(prefix, 1) == (form == "flat")
    assert not (own.cache / "layers").exists()
    updated = own.argosy("wrap", "update", prefix, "another")
    assert updated.code == 0, updated.err
    assert is_flat(prefix, 2) == (form == "flat")
    see_linked_trees(own, prefix / "cache/trees", prefix / "versions/2/image.sif")
    for name, said in (("tinypkg", "tinypkg 2.0"), ("another", "another 0.3")):
        assert subprocess.run([prefix / "bin" / name], capture_output=True, text=True, check=True).stdout == f"{said}\n"


@pytest.mark.soak
def test_an_image_of_with_shares_the_unpacked_files_of_its_base(own: Shop) -> None:
    image = own.folder / "first.sif"
    build_over_base(own, "tinypkg\n", image.name)
    assert own.run(image, "tinypkg").code == 0
    started = own.argosy("run", "--with", "another", image, "another")
    assert (started.code, started.out) == (0, "another 0.3\n"), started.err
    assert "unpack" not in started.err
    [added] = (own.cache / "with").glob("*/first.sif")
    see_linked_trees(own, own.cache / "trees", added)


def see_linked_trees(shop: Shop, trees: Path, image: Path) -> None:
    """See that two layers share the files of unchanged packages, and that the tree of the second is complete."""
    modules = list(trees.glob("*/root/opt/argosy/env/lib/python3*/site-packages/tinypkg/__init__.py"))
    assert len(modules) == 2
    assert modules[0].samefile(modules[1])
    [added] = trees.glob("*/root/opt/argosy/env/bin/another")
    layer = layer_source(open_image(image).image)
    assert layer
    unpack_source(real_session(shop.folder), layer, shop.folder / "unpacked", doing="unpacking")
    assert digest_tree(added.parents[4]) == digest_tree(shop.folder / "unpacked")


def is_flat(prefix: Path, version: int) -> bool:
    return open_image(prefix / f"versions/{version}/image.sif").image.layer_offset < 0
