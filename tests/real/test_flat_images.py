"""What works with base and layer as two partitions works with a flat image: build over it, compare, take the layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argosy.images.flat import base_source
from argosy.images.open import open_image
from argosy.images.sif.format import PartKind
from tests.real.conftest import Shop

pytestmark = pytest.mark.real

FORMS = ("delta", "flat")

Seen = tuple[int, str, set[tuple[str, str]], set[str]]
"""Size of the base, content digest, changes of files, and paths of the layer."""


def info(shop: Shop, image: Path) -> dict[str, str]:
    """Give the facts that `argosy images info` prints."""
    told: dict[str, str] = json.loads(shop.argosy("images", "info", image, "--json").out)
    return told


def paths_in(shop: Shop, squashfs: Path) -> set[str]:
    """Give the paths in a squashfs."""
    tree = shop.folder / f"{squashfs.name}.tree"
    shop.tool("unsquashfs", "-quiet", "-no-progress", "-d", tree, squashfs)
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.name != "argosy.lock"}


def test_a_flat_image_has_a_base_and_a_layer_for_all_that_uses_them(shop: Shop) -> None:
    found, digests = dict[str, Seen](), set[str]()
    for form in FORMS:
        old = shop.build("tinypkg==1.0\n", "--format", form, out=f"{form}.sif")
        new = shop.build("another\n", "--format", form, base=old, out=f"{form}-more.sif")
        lock = open_image(new).lock
        assert lock
        digests |= {lock.base.digest, info(shop, old)["base_digest"]}
        layer = shop.folder / f"{form}.layer"
        assert shop.argosy("images", "export", new, "--format", "layer", "-o", layer).code == 0
        told = json.loads(shop.argosy("images", "diff", old, new, "--json").out)
        files = {(change["sign"], change["path"]) for change in told["files"]}
        found[form] = lock.base.size, lock.content, files, paths_in(shop, layer)
    assert found["flat"] == found["delta"]
    assert ("+", "opt/argosy/env/bin/another") in found["flat"][2]
    assert len(digests) == 1
    sif = shop.sif(shop.folder / "flat-more.sif")
    assert [part.partition.kind for part in sif.parts if part.partition] == [PartKind.PRIMARY_SYSTEM]
    base = base_source(open_image(shop.folder / "flat-more.sif").image)
    assert base.length == base_source(open_image(shop.folder / "delta.sif").image).length


@pytest.mark.soak
def test_flat_images_share_the_unpacked_tree_of_their_base(shop: Shop) -> None:
    first = shop.build("tinypkg\n", out="first.sif")
    second = shop.build("another\n", out="second.sif")
    cache = shop.folder / "runs"
    for image, command in ((first, "tinypkg"), (second, "another")):
        assert shop.argosy("run", image, "--runtime", "bwrap", "--", command, ARGOSY_CACHE=str(cache)).code == 0
    assert sorted(path.name.partition("-")[0] for path in (cache / "trees").iterdir()) == ["layer", "layer", "sha256"]
