"""An image of Argosy in another format as a base: its packages are as protected as those of the SIF file."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.images.open import open_image
from tests.real.conftest import Shop
from tests.real.registry import running
from tests.real.test_definitions import store
from tests.real.test_packed_wheels import build

__all__ = ["store"]

pytestmark = pytest.mark.real

VERSIONS = "import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))"


@pytest.fixture(scope="module")
def first(pool: Shop) -> Path:
    """Give an image with tinypkg 1.0 and the package that it needs."""
    folder = pool.folder / "converted"
    folder.mkdir()
    build(replace(pool, folder=folder), "tinypkg==1.0\n", "first.sif")
    return folder / "first.sif"


def export(shop: Shop, image: Path, form: str) -> Path:
    output = shop.folder / f"base.{form}"
    done = shop.argosy("images", "export", image, "--format", form, "-o", output)
    assert done.code == 0, done.err
    return output


def versions(shop: Shop, image: Path) -> str:
    done = shop.run(image, "python", "-c", VERSIONS)
    assert done.code == 0, done.err
    return done.out


def see_protected(shop: Shop, base: Path | str, **env: str) -> None:
    """See that another version is refused, replaced on request, and that further packages join those of the base."""
    recipe = shop.write("newer.txt", "tinypkg==2.0\n")
    words = ("build", recipe, "--base", base, "-o", shop.folder / "newer.sif")
    refused = shop.argosy(*words, **env)
    assert refused.code == 7, refused.out
    assert "--allow-replace tinypkg" in refused.err
    done = shop.argosy(*words, "--allow-replace", "tinypkg", **env)
    assert done.code == 0, done.err
    assert versions(shop, shop.folder / "newer.sif") == "[('pip', '24.0'), ('tinydep', '1.5'), ('tinypkg', '2.0')]\n"
    image = shop.build("another\n", out="more.sif", base=base, **env)
    found = versions(shop, image)
    assert found == "[('another', '0.3'), ('pip', '24.0'), ('tinydep', '1.5'), ('tinypkg', '1.0')]\n"
    assert shop.run(image, "tinypkg").out == "tinypkg 1.0\n"
    lock = open_image(image).lock
    assert lock
    assert [package.name for package in lock.packages] == ["another", "pip", "tinydep", "tinypkg"]
    shop.nothing_left(image)


MORE = [pytest.param(form, marks=pytest.mark.soak) for form in ("docker-archive", "oci", "sqsh")]


@pytest.mark.parametrize("form", ["oci-archive", *MORE])
def test_the_packages_of_an_exported_image_stay(shop: Shop, first: Path, form: str) -> None:
    see_protected(shop, export(shop, first, form))


@pytest.mark.soak
def test_the_packages_of_an_image_from_a_registry_stay(shop: Shop, first: Path) -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("needs docker-registry")
    with running(shop.folder / "registry") as registry:
        env = {"ARGOSY_INSECURE_REGISTRIES": registry.address}
        name = f"docker://{registry.address}/first:1"
        done = shop.argosy("images", "push", first, name, **env)
        assert done.code == 0, done.err
        see_protected(shop, name, **env)


@pytest.mark.soak
def test_the_packages_of_an_image_below_a_dockerfile_stay(shop: Shop, first: Path, store: dict[str, str]) -> None:
    archive = export(shop, first, "docker-archive")
    (shop.folder / "context").mkdir()
    old, new = "tinydep-1.5.dist-info", "tinydep-1.4.dist-info"
    run = f"cd /opt/argosy/env/lib/python3*/site-packages && sed -i s/1.5/1.4/ {old}/METADATA && mv {old} {new}"
    (shop.folder / "context/Dockerfile").write_text(f"FROM docker-archive:{archive}\nRUN {run}\n")
    recipe = shop.write("more.txt", "another\n")
    words = ("build", recipe, "--base", shop.folder / "context/Dockerfile", "-o", "more.sif")
    done = shop.argosy(*words, **store)
    assert done.code == 0, done.err
    assert "tinydep 1.4 (locked: 1.5)" in done.err
    found = versions(shop, shop.folder / "more.sif")
    assert found == "[('another', '0.3'), ('pip', '24.0'), ('tinydep', '1.4'), ('tinypkg', '1.0')]\n"


def test_an_environment_without_its_lock_is_no_base(shop: Shop, first: Path) -> None:
    tree = shop.folder / "tree"
    shop.tool("unsquashfs", "-no-xattrs", "-quiet", "-no-progress", "-d", tree, export(shop, first, "sqsh"))
    (tree / "opt/argosy/argosy.lock").unlink()
    recipe = shop.write("more.txt", "another\n")
    done = shop.argosy("build", recipe, "--base", tree, "-o", "more.sif")
    shutil.rmtree(tree)
    assert done.code != 0
    assert "argosy.lock" in done.err
