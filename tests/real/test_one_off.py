"""Packages for one start (``--with``): installed over any image, cached, and the image's own packages stay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

PROGRAM = "import sys, another, tinypkg; print(another.__name__, tinypkg.__name__)"


def start(shop: Shop, image: Path | str, *packages: str, **env: str) -> tuple[int, str, str]:
    added = [word for package in packages for word in ("--with", package)]
    done = shop.argosy("run", *added, image, "python", "-c", PROGRAM, **env)
    return done.code, done.out, done.err


def test_a_package_is_added_for_one_start_and_comes_from_the_cache_the_next_time(shop: Shop) -> None:
    image = shop.build("tinypkg==1.0\n")
    before = image.read_bytes()
    assert start(shop, image, "another")[:2] == (0, "another tinypkg\n")
    code, out, err = start(shop, image, "another", PIP_FIND_LINKS=os.devnull)
    assert (code, out) == (0, "another tinypkg\n")
    assert "resolve" not in err
    assert image.read_bytes() == before
    assert start(shop, image)[0] == 1
    program = shop.argosy("run", "--with", "onemore", image, "onemore")
    assert (program.code, program.out) == (0, "onemore 0.1\n")


def test_the_packages_of_the_image_are_never_replaced(shop: Shop) -> None:
    image = shop.build("tinypkg==1.0\n")
    before = set((shop.cache / "with").glob("*/*.sif"))
    code, out, err = start(shop, image, "tinypkg==2.0")
    assert code != 0, out
    assert "tinypkg" in err
    assert "Traceback" not in err
    assert set((shop.cache / "with").glob("*/*.sif")) == before


def test_any_image_gets_packages_and_a_path_is_answered(shop: Shop) -> None:
    done = shop.argosy("run", "--with", "another", shop.base, "python", "-c", "import another; print(1)")
    assert (done.code, done.out) == (0, "1\n"), done.err
    path = shop.argosy("run", "--with", "./mine", shop.base, "true")
    assert "pip install -e" in path.err
    dry = shop.argosy("run", "--dry-run", "--with", "onemore", shop.base, "true")
    assert dry.code == 0, dry.err
    assert "a real run starts" in dry.err
