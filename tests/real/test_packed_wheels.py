"""Packed wheels: the image has the same bytes whichever of them the cache had, and damaged ones are replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from argosy.builder.packed.make import BATCH, FIRST_BATCH
from tests.real.conftest import Shop, Wheel

pytestmark = pytest.mark.real

PACKAGES = "tinypkg\nanother\n"


@pytest.fixture
def own(shop: Shop) -> Shop:
    """Give a shop with a cache of its own, which no other test fills."""
    return shop.with_cache("own-cache")


def build(shop: Shop, packages: str, out: str, *more: str) -> dict[str, Any]:
    """Build over the shop's base, and give the report."""
    recipe = shop.write("packages.txt", packages)
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", out, "--force", "--json", *more)
    assert done.code == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


def entries(shop: Shop) -> set[str]:
    """Give the names of the packed wheels, without versions and digests."""
    return {path.name.split("-")[0] for path in (shop.cache / "packed").iterdir()}


def read(shop: Shop, name: str) -> bytes:
    return (shop.folder / name).read_bytes()


def test_an_image_of_packed_wheels_is_that_of_a_cold_build(own: Shop) -> None:
    cold = build(own, PACKAGES, "cold.sif")
    assert (cold["cached"], cold["together"]) == (0, "")
    assert entries(own) == {"pip", "tinypkg", "tinydep", "another"}
    warm = build(own, PACKAGES, "warm.sif")
    assert warm["cached"] == warm["packages"] == 4
    assert warm["cost"]["new"] == cold["cost"]["new"]
    assert read(own, "warm.sif") == read(own, "cold.sif")
    assert own.run(own.folder / "warm.sif", "tinypkg").out == "tinypkg 2.0\n"
    more = build(own, f"{PACKAGES}onemore\n", "more.sif")
    assert (more["cached"], more["packages"]) == (4, 5)
    damaged = next((own.cache / "packed").glob("tinypkg-*")) / "part.sqfs"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    again = build(own, PACKAGES, "again.sif")
    assert again["cached"] == 3
    assert read(own, "again.sif") == read(own, "cold.sif")
    own.nothing_left()


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a folder immutable")
def test_a_damaged_wheel_that_cannot_be_replaced_is_packed_for_this_image(own: Shop) -> None:
    build(own, PACKAGES, "cold.sif")
    entry = next((own.cache / "packed").glob("tinypkg-*"))
    (entry / "part.sqfs").write_bytes(b"damaged")
    subprocess.run(("/usr/bin/chattr", "+i", entry), check=True)
    try:
        assert build(own, PACKAGES, "again.sif")["cached"] == 3
    finally:
        subprocess.run(("/usr/bin/chattr", "-i", entry), check=True)
    assert read(own, "again.sif") == read(own, "cold.sif")


@pytest.mark.soak
def test_the_content_is_that_of_packages_that_are_packed_together(own: Shop) -> None:
    apart = build(own, PACKAGES, "apart.sif")
    together = build(own, PACKAGES, "together.sqsh", "--format", "sqsh")
    assert "sqsh" in together["together"]
    assert together["digest"] == apart["digest"]


@pytest.mark.soak
def test_a_delta_image_uses_the_same_wheels(own: Shop) -> None:
    delta = build(own, PACKAGES, "delta.sif", "--format", "delta")
    assert build(own, PACKAGES, "delta2.sif", "--format", "delta")["cached"] == 4
    assert read(own, "delta.sif") == read(own, "delta2.sif")
    flat = build(own, PACKAGES, "flat.sif")
    assert (flat["cached"], flat["digest"]) == (4, delta["digest"])
    assert own.run(own.folder / "delta2.sif", "tinypkg").out == "tinypkg 2.0\n"


def clashing(shop: Shop) -> Shop:
    """Give a shop with two more packages, which share a file and have different ones with one name."""
    folder = shop.folder / "clashing"
    folder.mkdir()
    for wheel in shop.wheels.iterdir():
        shutil.copy(wheel, folder)
    for name in ("first", "second"):
        both = {"both/same.py": "SAME = 1\n", "both/which.py": f"NAME = {name!r}\n", f"both/{name}.py": f"{name} = 1\n"}
        Wheel(name, "1.0", files=both).write(folder)
    return replace(shop, wheels=folder)


def test_files_that_two_packages_contain_do_not_depend_on_the_order_of_builds(own: Shop) -> None:
    own = clashing(own)
    build(own, "first\nsecond\n", "cold.sif")
    assert build(own, "first\nsecond\n", "warm.sif")["cached"] == 3
    assert read(own, "warm.sif") == read(own, "cold.sif")
    ask = "from both.which import NAME; import both.first, both.second, both.same; print(NAME)"
    assert own.run(own.folder / "warm.sif", "python", "-c", ask).out == "second\n"
    build(own, "first\n", "first.sif")
    ask = "from both.which import NAME; print(NAME)"
    assert own.run(own.folder / "first.sif", "python", "-c", ask).out == "first\n"


@pytest.mark.soak
def test_wheels_packed_in_different_builds_give_the_same_image(own: Shop) -> None:
    own = clashing(own)
    build(own, "first\nsecond\ntinypkg\n", "cold.sif")
    other = replace(own, cache=own.folder / "other-cache")
    other.cache.mkdir()
    for packages in ("tinypkg\n", "second\n", "first\n"):
        build(other, packages, "one.sif")
    assert build(other, "first\nsecond\ntinypkg\n", "warm.sif")["cached"] == 5
    assert read(other, "warm.sif") == read(own, "cold.sif")


@pytest.mark.soak
def test_wheels_of_overlapping_batches_give_the_image_of_wheels_in_other_batches(own: Shop) -> None:
    folder = own.folder / "many-wheels"
    shutil.copytree(own.wheels, folder)
    names = [f"many{number}" for number in range(100, 100 + FIRST_BATCH + 2 * BATCH)]
    for name in names:
        Wheel(name, "1.0").write(folder)
    own = replace(own, wheels=folder)
    build(own, "\n".join(names), "cold.sif")
    ask = f"print(*sorted(__import__(name).__name__ for name in {names}))"
    assert own.run(own.folder / "cold.sif", "python", "-c", ask).out.split() == names
    other = replace(own, cache=own.folder / "other-cache")
    other.cache.mkdir()
    build(other, "\n".join(names[1::2]), "half.sif")
    build(other, "\n".join(names), "warm.sif")
    assert read(other, "warm.sif") == read(own, "cold.sif")


@pytest.mark.soak
def test_packages_of_folders_are_installed_each_time(own: Shop) -> None:
    folder = own.folder / "mine"
    folder.mkdir()
    wheel = Wheel("mine", "1.0").write(folder)
    for out in ("cold.sif", "warm.sif"):
        build(own, f"mine @ file://{wheel}\ntinypkg\n", out)
    assert read(own, "warm.sif") == read(own, "cold.sif")
    assert "mine" not in entries(own)
    assert own.run(own.folder / "warm.sif", "python", "-c", "import mine; print(mine.VERSION)").out == "1.0\n"


def test_the_cache_lists_and_collects_packed_wheels(own: Shop, shop: Shop) -> None:
    build(own, PACKAGES, "one.sif")
    told = json.loads(own.argosy("cache", "info", "--json").out)
    packed = [entry for entry in told["entries"] if entry["kind"] == "packed"]
    assert len(packed) == 4
    assert all(entry["bytes"] > 0 and entry["kept"] == "" for entry in packed)
    for path in (own.cache / "packed").glob("tinydep-*"):
        os.utime(path, (0, 0))
    for name in ("bases", "tools"):  # those of all tests are not collected
        (own.cache / name).unlink()
    assert own.argosy("cache", "gc", "--older-than", "1h").code == 0
    assert entries(own) == {"pip", "tinypkg", "another"}
    for name in ("bases", "tools"):
        (own.cache / name).symlink_to((shop.cache / name).resolve())
    assert build(own, PACKAGES, "two.sif")["cached"] == 3
    assert read(own, "one.sif") == read(own, "two.sif")
