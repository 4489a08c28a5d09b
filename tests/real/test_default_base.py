"""The base where the user names none, on machines that cannot make a Debian."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real.registry import Registry, running

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

SITE = """\
name = "here"
title = "A machine of this test"
checked = "2026-01-01"

[identity]
variables = {{ THIS_SITE = "1" }}
source = "https://site.example"

[[images.bases]]
name = "{base}"
holds = ["python"]
why = "it is there"
source = "https://site.example"
"""


@pytest.fixture(scope="module")
def registry(pool: Shop) -> Iterator[Registry]:
    """Run a registry that has a Debian with Python under the name of Docker Hub's image of Python."""
    if not all(map(shutil.which, ("docker-registry", "skopeo", "umoci"))):
        pytest.skip("needs docker-registry, skopeo and umoci")
    with running(pool.folder / "default-base-registry") as it:
        (pool.folder / "nothing.txt").write_text("")
        words = ("build", pool.folder / "nothing.txt", "--base", pool.base, "--format", "oci-archive")
        made = pool.argosy(*words, "-o", pool.folder / "python.tar")
        assert made.code == 0, made.err
        it.push(f"oci-archive:{pool.folder}/python.tar", "library/python:3.11-slim-bookworm")
        yield it


@pytest.fixture
def bare(shop: Shop) -> Shop:
    """Give a shop whose PATH has all programs but mmdebstrap, and whose cache holds no base yet."""
    programs, cache = shop.folder / "programs", shop.folder / "cache"
    programs.mkdir()
    for folder in reversed(os.environ["PATH"].split(":")):
        for program in Path(folder).glob("*"):
            if program.name != "mmdebstrap":
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    cache.mkdir()
    (cache / "tools").symlink_to(shop.cache / "tools")
    return replace(shop, cache=cache)


def variables(shop: Shop, registry: Registry | None, **more: str) -> dict[str, str]:
    """Give the variables of a machine whose Docker Hub is a registry of this test, or where nobody answers."""
    address = registry.address if registry else "127.0.0.1:1"
    conf = f'[[registry]]\nprefix = "docker.io"\nlocation = "{address}"\ninsecure = true\n'
    settings = shop.home / ".config/containers"
    settings.mkdir(parents=True)
    (settings / "registries.conf").write_text(conf)
    return {"PATH": str(shop.folder / "programs")} | more


def base_of(shop: Shop, prefix: str) -> str:
    record = json.loads((shop.folder / prefix / "versions/1/wrap.json").read_text())
    return str(record["recipe"]["base"])


def test_without_mmdebstrap_the_default_base_comes_from_a_registry(bare: Shop, registry: Registry) -> None:
    words = ("compat", "run", "pip-containerize", "new", "--prefix", "env", bare.write("req.txt", "tinypkg\n"))
    done = bare.argosy(*words, **variables(bare, registry))
    assert done.code == 0, done.err
    assert (
        "the base is docker://python:3.11-slim-bookworm, not debian:bookworm: cannot create debian:bookworm" in done.err
    )
    assert base_of(bare, "env").startswith("docker://python:3.11-slim-bookworm@sha256:")


def test_without_mmdebstrap_the_base_of_the_machines_site_comes_first(bare: Shop) -> None:
    (bare.folder / "argosy-sites").mkdir()
    bare.write("argosy-sites/here.toml", SITE.format(base=bare.base))
    words = ("wrap", bare.write("req.txt", "tinypkg\n"), "--prefix", "env")
    done = bare.argosy(*words, **variables(bare, None, THIS_SITE="1"))
    assert done.code == 0, done.err
    assert f"the base is {bare.base}, not debian:bookworm" in done.err
    assert base_of(bare, "env") == str(bare.base)


@pytest.mark.parametrize("command", ["build", "lock"])
def test_a_build_without_a_base_uses_the_base_of_the_machines_site(bare: Shop, command: str) -> None:
    (bare.folder / "argosy-sites").mkdir()
    bare.write("argosy-sites/here.toml", SITE.format(base=bare.base))
    done = bare.argosy(command, bare.write("req.txt", "tinypkg\n"), "-o", "out", **variables(bare, None, THIS_SITE="1"))
    assert done.code == 0, done.err
    assert f"the base is {bare.base}, not debian:bookworm" in done.err


def test_a_project_without_a_base_uses_the_default(shop: Shop) -> None:
    shop.write("argosy.toml", '[image]\npip = "req.txt"\n')
    shop.write("req.txt", "tinypkg\n")
    done = shop.argosy("build", "-o", "out.sif", "--dry-run")
    assert done.code == 0, done.err
    assert "base         debian:bookworm (the default): " in done.out


@pytest.mark.parametrize("words", [("wrap", "req.txt", "--prefix", "env"), ("build", "req.txt", "-o", "out.sif")])
def test_if_no_base_is_available_one_error_names_all_ways_to_get_one(bare: Shop, words: tuple[str, ...]) -> None:
    bare.write("req.txt", "tinypkg\n")
    done = bare.argosy(*words, **variables(bare, None))
    assert done.code == 4
    assert "cannot create or download any base on this machine" in done.err
    assert "docker://python:3.11-slim-bookworm: " in done.err
    for way in ("mmdebstrap is not installed on this machine", "install mmdebstrap", "skopeo", "--base FILE"):
        assert way in done.err


def test_a_debian_requested_by_name_reports_what_is_missing(bare: Shop) -> None:
    words = ("build", bare.write("req.txt", "tinypkg\n"), "--base", "debian:bookworm", "-o", "out.sif")
    done = bare.argosy(*words, **variables(bare, None))
    assert done.code == 4
    assert "cannot create debian:bookworm: mmdebstrap is not installed on this machine" in done.err
    assert "docker://python:3.11-slim-bookworm" in done.err
    assert "suite's name" not in done.err
