"""Packed conda packages: the image has the same bytes whichever of them the cache had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.real.channel import Channel, CondaPackage, File, python_package
from tests.real.conftest import Shop
from tests.real.test_conda import LINKED, TOOL, environment, module

pytestmark = pytest.mark.real

FIRST = CondaPackage("first", "1.0", files={"share/both": File(b"first\n"), "share/first": File(b"1\n")})
SECOND = CondaPackage("second", "1.0", files={"share/both": File(b"second\n"), "share/second": File(b"2\n")})
EMPTY = CondaPackage("empty", "1.0", depends=("plain",))
PLAIN = CondaPackage("plain", "1.0", files={"share/plain": File(b"plain\n")})
OWN_CODE = CondaPackage(
    "own-code",
    "1.0",
    depends=("python",),
    files={
        "lib/python3.11/site-packages/owncode.py": File(b"VALUE = 1\n"),
        "lib/python3.11/site-packages/broken.py": File(b"not Python\n"),
        "lib/python3.11/site-packages/__pycache__/owncode.cpython-311.pyc": File(b"stale"),
        "lib/python3.11/site-packages/__pycache__/broken.cpython-311.pyc": File(b"stale"),
    },
)
PACKAGES = (FIRST, SECOND, EMPTY, PLAIN, OWN_CODE, LINKED, TOOL, module("pip", "24.0"))
MODULES = (module("greet", "1.0"), module("greet", "2.0"), module("onemore", "1.0", "plain"))


@pytest.fixture(scope="module")
def channel(pool: Shop) -> Channel:
    python = python_package()
    if python is None or not shutil.which("zstd"):
        pytest.skip("the Python that runs the tests cannot be moved, or there is no zstd")
    return Channel(pool.folder / "packed-channel").add(python, form="conda").add(*PACKAGES, *MODULES)


@pytest.fixture
def own(shop: Shop) -> Shop:
    """Give a shop with a cache of its own, which no other test fills."""
    return shop.with_cache("own-cache")


def build(shop: Shop, text: str, out: str, *more: str) -> dict[str, Any]:
    """Build over the shop's base, and give the report."""
    recipe = shop.write("environment.yml", text)
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", out, "--force", "--json", *more)
    assert done.code == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


def read(shop: Shop, name: str) -> bytes:
    return (shop.folder / name).read_bytes()


def part_of(shop: Shop, name: str) -> Path:
    return next((shop.cache / "packed").glob(f"{name}-*")) / "part.sqfs"


def test_an_image_of_packed_packages_is_that_of_a_cold_build(own: Shop, channel: Channel) -> None:
    text = environment(channel.url, "python", "greet", "own-code", "empty")
    cold = build(own, text, "cold.sif")
    assert (cold["cached"], cold["together"]) == (0, "")
    shutil.rmtree(own.cache / "conda")
    warm = build(own, text, "warm.sif")
    assert warm["cached"] == warm["packages"] == 5
    assert warm["cost"]["new"] == cold["cost"]["new"]
    assert read(own, "warm.sif") == read(own, "cold.sif")
    assert not list((own.cache / "conda").glob("pkgs/*")), "a packed package was downloaded again"
    assert own.run(own.folder / "warm.sif", "greet").out == "greet 2.0 of conda\n"
    damaged = part_of(own, "greet")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert build(own, text, "again.sif")["cached"] == 4
    assert read(own, "again.sif") == read(own, "cold.sif")
    own.nothing_left()


@pytest.mark.soak
def test_one_package_more_is_packed_alone(own: Shop, channel: Channel) -> None:
    build(own, environment(channel.url, "python", "greet"), "less.sif")
    text = environment(channel.url, "python", "greet", "onemore")
    assert build(own, text, "more.sif")["cached"] == 2
    assert own.run(own.folder / "more.sif", "onemore").out == "onemore 1.0 of conda\n"
    build(own.with_cache("other-cache"), text, "cold.sif")
    assert read(own, "more.sif") == read(own, "cold.sif")


@pytest.mark.soak
def test_the_content_is_that_of_packages_that_are_packed_together(own: Shop, channel: Channel) -> None:
    text = environment(channel.url, "python", "greet", "own-code", "tool", "linked", pip=("tinypkg",))
    apart = build(own, text, "apart.sif")
    together = build(own, text, "together.sqsh", "--format", "sqsh")
    assert "sqsh" in together["together"]
    assert together["digest"] == apart["digest"]


def test_changes_by_link_scripts_and_pip_are_packed_with_the_rest(own: Shop, channel: Channel) -> None:
    text = environment(channel.url, "python", "greet", "plain", "linked", "tool", pip=("tinypkg",))
    cold = build(own, text, "cold.sif")
    assert "read the manual" in cold["notes"]
    warm = build(own, text, "warm.sif")
    # All but linked, whose file its link script changes.
    assert warm["cached"] == 5
    assert read(own, "warm.sif") == read(own, "cold.sif")
    image = own.folder / "warm.sif"
    assert own.run(image, "cat", "/opt/argosy/env/etc/list").out == "first\n/opt/argosy/env linked 1.0\n"
    assert own.run(image, "tinypkg").out == "tinypkg 2.0\n"
    assert own.run(image, "printenv", "TOOL_HOME").out == "/opt/argosy/env/share\n"


@pytest.mark.soak
def test_packages_that_share_a_file_are_packed_with_the_rest(own: Shop, channel: Channel) -> None:
    text = environment(channel.url, "first", "second", "plain")
    build(own, text, "cold.sif")
    assert build(own, text, "warm.sif")["cached"] == 1
    assert read(own, "warm.sif") == read(own, "cold.sif")
    other = own.with_cache("other-cache")
    for name in ("second", "first", "plain"):
        build(other, environment(channel.url, name), "one.sif")
        assert own.run(own.folder / "one.sif", "ls", f"/opt/argosy/env/share/{name}").code == 0
    assert build(other, text, "parts.sif")["cached"] == 1
    assert read(other, "parts.sif") == read(own, "cold.sif")


@pytest.mark.soak
def test_a_lock_and_a_delta_image_use_the_same_parts(own: Shop, channel: Channel) -> None:
    text = environment(channel.url, "python", "greet")
    flat = build(own, text, "flat.sif")
    delta = build(own, text, "delta.sif", "--format", "delta")
    assert (delta["cached"], delta["digest"]) == (2, flat["digest"])
    assert own.run(own.folder / "delta.sif", "greet").out == "greet 2.0 of conda\n"
    (own.folder / "flat.sif").rename(own.folder / "first.sif")
    done = own.argosy("build", "--locked", "first.sif", "-o", "flat.sif", "--json")
    assert done.code == 0, done.err
    assert read(own, "flat.sif") == read(own, "first.sif")


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["userns", "proot"])
def test_each_build_backend_makes_the_same_parts(own: Shop, channel: Channel, backend: str) -> None:
    text = environment(channel.url, "python", "greet", "tool", pip=("tinypkg",))
    build(own, text, "root.sif")
    other = own.with_cache("other-cache")
    for out, cached in (("cold.sif", 0), ("warm.sif", 4)):
        assert build(other, text, out, "--build-backend", backend)["cached"] == cached
        assert read(own, out) == read(own, "root.sif")


def test_the_cache_lists_packed_packages(own: Shop, channel: Channel) -> None:
    build(own, environment(channel.url, "plain"), "one.sif")
    told = json.loads(own.argosy("cache", "info", "--json").out)
    (packed,) = [entry for entry in told["entries"] if entry["kind"] == "packed"]
    assert packed["name"].startswith("packed/plain-1.0-")
    assert packed["bytes"] > 0
    for name in ("bases", "tools"):  # those of all tests are not collected
        (own.cache / name).unlink()
    assert own.argosy("cache", "gc", "--older-than", "0h").code == 0
    assert not list((own.cache / "packed").iterdir())
