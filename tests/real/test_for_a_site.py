"""What is built for a site is checked against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.indexes import add_wheel, serve_indexes

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

SITE = """\
name = "here"
title = "A cluster of a test"
[node]
gpus = 8
gpu_vendor = "amd"
why = "a test"
source = "https://a.example"
checked = "2026-01-01"
"""
VERSION_FILE = "__version__ = {version!r}\ncuda = None\nhip: str | None = {hip!r}\n"


def test_a_torch_without_the_sites_back_end_makes_no_image(shop: Shop) -> None:
    own = shop.folder / "own"
    own.mkdir()
    for version, hip in (("1.0", None), ("2.0", "6.4")):
        text = VERSION_FILE.format(version=version, hip=hip)
        shop.make_wheel("torch", version, files={"torch/version.py": text}).write(own)
    site = shop.write("here.toml", SITE)
    recipe = shop.write("requirements.txt", f"--find-links {own}\n\ntorch==1.0\n")
    words = ("build", recipe, "--base", shop.base, "--site", site, "-o", "out.sif")
    refused = shop.argosy(*words)
    assert refused.code == 7, refused.err
    assert "torch 1.0 cannot use the GPUs of here" in refused.err
    assert "requirements.txt:3: torch is requested here" in refused.err
    assert not (shop.folder / "out.sif").exists()
    recipe.write_text(f"--find-links {own}\n\ntorch==2.0\n")
    built = shop.argosy(*words)
    assert built.code == 0, built.err


def test_torch_comes_from_the_index_for_the_sites_gpus_and_the_lock_knows_it(shop: Shop) -> None:
    root, own = shop.folder / "indexes", shop.folder / "own"
    own.mkdir()
    for wheel in shop.wheels.glob("*.whl"):
        add_wheel(root, "pypi.org/simple", wheel)
    for version, hip, index in (
        ("2.9.1", None, "pypi.org/simple"),
        ("2.9.0+rocm6.3", "6.3", "download.pytorch.org/whl/rocm6.3"),
    ):
        text = VERSION_FILE.format(version=version, hip=hip)
        wheel = shop.make_wheel("torch", version, "tinypkg", files={"torch/version.py": text}).write(own)
        add_wheel(root, index, wheel)
    site = shop.write("here.toml", SITE.replace('why = "a test"', 'rocm = "6.3.1"\nwhy = "a test"'))
    recipe = shop.write("requirements.txt", "torch\n")
    words = ("build", recipe, "--base", shop.base, "--site", site)
    with serve_indexes(root) as (variables, asked):
        built = shop.argosy(*words, "-o", "out.sif", **variables)
        assert built.code == 0, built.err
        refused = shop.argosy(*words, "-o", "other.sif", "--torch-backend", "none", **variables)
        recipe.write_text("torch==2.6.0+rocm6.2.4\n")
        unknown = shop.argosy(*words, "-o", "third.sif", **variables)
    assert asked == {"pypi.org", "download.pytorch.org"}
    why = "the driver of here supports ROCm 6.3.1 [site]"
    assert f"torch comes from https://download.pytorch.org/whl/rocm6.3: {why}" in built.err
    told = shop.argosy("images", "info", "out.sif").out
    assert "torch==2.9.0+rocm6.3" in told
    assert refused.code == 7
    assert "torch 2.9.1 cannot use the GPUs of here" in refused.err
    assert unknown.code == 7, unknown.err
    assert "searched in https://download.pytorch.org" not in unknown.err
    assert "--torch-backend rocm6.2.4" in unknown.err


def test_a_project_takes_a_package_from_the_index_that_it_names(shop: Shop) -> None:
    """Without a lock of uv, too; a newer version on another index is not taken."""
    root, own = shop.folder / "web", shop.folder / "own"
    own.mkdir()
    for version, index in (("2.5", "download.pytorch.org/whl/cpu"), ("2.9.1", "pypi.org/simple")):
        text = VERSION_FILE.format(version=version, hip=None)
        wheel = shop.make_wheel("torch", version, "tinypkg", files={"torch/version.py": text}).write(own)
        add_wheel(root, index, wheel)
    for wheel in shop.wheels.glob("*.whl"):
        add_wheel(root, "pypi.org/simple", wheel)
    recipe = shop.write(
        "pyproject.toml",
        '[project]\nname = "mine"\nversion = "1"\ndependencies = ["torch>=2", "another"]\n'
        '[tool.uv.sources]\ntorch = { index = "cpu" }\n'
        '[[tool.uv.index]]\nname = "cpu"\nurl = "https://download.pytorch.org/whl/cpu"\nexplicit = true\n',
    )
    with serve_indexes(root) as (variables, _):
        built = shop.argosy("build", recipe, "--base", shop.base, "-o", "out.sif", **variables)
    assert built.code == 0, built.err
    told = shop.argosy("images", "info", "out.sif").out
    assert "torch==2.5" in told
    assert "another==0.3" in told
