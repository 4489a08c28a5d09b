"""The same recipe over the same base gives the same bytes, whatever else is different."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from argosy.core.layout import ROOT

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

WAYS = (
    "as it is",
    "umask 0077",
    "umask 0007",
    "one processor",
    "another cache and work folder",
    "a cache with its wheels elsewhere",
    "another name and time",
)


def image_bytes(shop: Shop, way: str) -> tuple[str, str]:
    """Build in some way; give the content digest and that of the file."""
    recipe = shop.write("r.txt", "tinypkg\nanother\n")
    output = shop.folder / ("x.sif" if way != "another name and time" else "y.sif")
    words = ["build", str(recipe), "--base", str(shop.base), "-o", str(output), "--force", "--json"]
    around: tuple[str, ...] = ()
    env: dict[str, str] = {}
    own = shop
    if way.startswith("umask"):
        around = ("sh", "-c", f'{way}; exec "$0" "$@"')
    elif way == "one processor":
        around = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    elif way.startswith("another cache"):
        own = replace(shop, cache=shop.folder / "cache")
        words += ["--work-dir", str(shop.folder / "elsewhere")]
    elif way.startswith("a cache"):
        own = replace(shop, cache=shop.folder / "cache")
        own.cache.mkdir()
        (shop.folder / "wheels").mkdir()
        (own.cache / "uv").symlink_to(shop.folder / "wheels")
    elif way.startswith("another name"):
        env = {"SOURCE_DATE_EPOCH": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    done = own.argosy(*words, around=around, **env)
    assert done.code == 0, done.err
    return json.loads(done.out)["digest"], hashlib.sha256(output.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def first(pool: Shop) -> tuple[str, str]:
    return image_bytes(pool, WAYS[0])


@pytest.mark.parametrize("way", WAYS)
def test_the_same_recipe_gives_the_same_file(shop: Shop, first: tuple[str, str], way: str) -> None:
    assert image_bytes(shop, way) == first


@pytest.mark.soak
def test_a_delta_image_is_the_same_file_each_time_too(shop: Shop) -> None:
    shop.build("tinypkg\n", "--format", "delta", out="one.sif")
    shop.build("tinypkg\n", "--format", "delta", out="two.sif")
    assert (shop.folder / "one.sif").read_bytes() == (shop.folder / "two.sif").read_bytes()


def test_another_recipe_gives_another_digest(shop: Shop, first: tuple[str, str]) -> None:
    image = shop.build("tinypkg==1.0\nanother\n")
    told = json.loads(shop.argosy("images", "info", image, "--json").out)
    assert told["digest"] != first[0]


APPEND = f"for f in {ROOT}/env/lib/python3*/site-packages/tinypkg/__init__.py; do echo 'changed = True' >> $f; done\n"


def test_a_script_or_a_step_that_changes_a_package_changes_no_other_image(shop: Shop, first: tuple[str, str]) -> None:
    recipe, script = shop.write("r.txt", "tinypkg\nanother\n"), shop.write("after.sh", APPEND)
    project = f'[image]\nbase = "{shop.base}"\npip = "r.txt"\n\n[[step]]\nrun = """{APPEND}"""\n'
    shop.write("argosy.toml", project)
    ask = ("python", "-c", "import tinypkg; print(tinypkg.changed)")
    wrapped = shop.argosy(
        *("wrap", str(recipe), "--base", str(shop.base), "--prefix", "p", "--post-install", str(script))
    )
    assert wrapped.code == 0, wrapped.err
    stepped = shop.argosy("build", "-o", "stepped.sif")
    assert stepped.code == 0, stepped.err
    for image in ("p", "stepped.sif"):
        assert shop.argosy("run", image, "--", *ask).out == "True\n"
    assert image_bytes(shop, WAYS[0]) == first
