"""The catalog as a user meets it: images go into a real registry and come back, by name and version."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real.registry import PASSWORD, Registry, do, running

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

BUSYBOX = Path("/bin/busybox")
SHOW = ("sh", "-c", 'echo "$COLOUR"')
Argosy = Callable[..., "Ended"]


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    missing = [name for name in ("docker-registry", "skopeo", "umoci") if shutil.which(name) is None]
    if missing or not BUSYBOX.exists():
        pytest.skip(f"needs {', '.join(missing) or BUSYBOX}")


@pytest.fixture(scope="module")
def image(pool: Shop) -> Path:
    """Give a small image: a variable over busybox."""
    tree = pool.folder / "catalog-base"
    for name in ("bin", "etc", "tmp", "var/tmp", "proc", "dev", ".singularity.d/env"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(BUSYBOX, tree / "bin/busybox")
    for name in ("cat", "echo", "env", "sh", "true"):
        (tree / "bin" / name).symlink_to("busybox")
    recipe = pool.folder / "catalog.yml"
    recipe.write_text("name: tiny\ndependencies: []\nvariables:\n  COLOUR: deep blue\n")
    done = pool.argosy("build", recipe, "--base", tree, "-o", pool.folder / "catalog.sif")
    assert done.code == 0, done.err
    return pool.folder / "catalog.sif"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("catalog") / "registry", locked=True) as it:
        yield it


@pytest.fixture
def argosy(shop: Shop, registry: Registry) -> Argosy:
    """Start Argosy with a catalog of its own, and with the login that a user keeps."""
    login = shop.folder / "auth.json"
    do("skopeo", "login", "--authfile", login, "--tls-verify=false", "-u", "me", "-p", PASSWORD, registry.address)
    variables = {
        "ARGOSY_IMAGES": str(shop.folder / "images"),
        "ARGOSY_INSECURE_REGISTRIES": registry.address,
        "REGISTRY_AUTH_FILE": str(login),
    }
    return lambda *words, **more: shop.argosy(*words, **(variables | more))


def test_a_sif_file_goes_to_a_registry_and_comes_back_the_same(
    shop: Shop, argosy: Argosy, image: Path, registry: Registry
) -> None:
    place = f"oras://{registry.address}/me/tiny:1"
    pushed = argosy("images", "push", image, place)
    assert pushed.out.startswith(f"{place}@sha256:"), pushed.err
    pulled = argosy("images", "pull", pushed.out.strip(), "tiny:1")
    assert pulled.code == 0, pulled.err
    assert (shop.folder / "images/tiny/1.sif").read_bytes() == image.read_bytes()
    shown = json.loads(argosy("images", "ls", "--json").out)
    assert [(each["name"], each["digest"][:7]) for each in shown] == [("tiny:1", "sha256:")]
    assert argosy("run", "tiny", "--", *SHOW).out == "deep blue\n"
    again = argosy("build", "--locked", "tiny:1", "-o", "again.sif", "--dry-run", "--json")
    assert json.loads(again.out)["locked"], again.err
    over = argosy("build", image.with_suffix(".yml"), "--base", "tiny", "-o", "over.sif", "--dry-run", "--json")
    assert json.loads(over.out)["base_bytes"] == image.stat().st_size, over.err
    assert PASSWORD not in pushed.err + pulled.err


def test_the_catalog_shows_which_images_work_at_a_site(argosy: Argosy, image: Path) -> None:
    def answer(site: str) -> tuple[str, str]:
        (entry,) = json.loads(argosy("images", "ls", "--check", site, "--json", ARGOSY_CACHE=str(cache)).out)
        return entry["works"], entry["reason"]

    cache = image.parent / "fresh-cache"
    argosy("images", "pull", image, "tiny:1")
    works, reason = answer("lumi-g")
    assert works == "unknown"
    assert "bwrap has to unpack the image first" in reason
    assert argosy("run", "tiny", "--", *SHOW, ARGOSY_CACHE=str(cache)).code == 0
    works, reason = answer("lumi-g")
    assert works == "yes"
    assert "the image does not contain PyTorch" in reason
    assert len(list((cache / "contents").iterdir())) == 1
    works, reason = answer("isambard-ai")
    assert works == "no"
    assert reason.startswith("architecture: the image is for amd64")


def test_an_image_of_layers_runs_as_it_did(argosy: Argosy, image: Path, registry: Registry) -> None:
    place = f"docker://{registry.address}/me/layers:1"
    pushed = argosy("images", "push", image, place, "--json")
    assert json.loads(pushed.out)["reference"].startswith(f"{place}@sha256:"), pushed.err
    pulled = argosy("images", "pull", place)
    assert pulled.code == 0, pulled.err
    assert argosy("run", "layers:1", "--", *SHOW).out == "deep blue\n"
    told = argosy("images", "pull", place.replace("docker:", "oras:"), "other")
    assert (told.code, "is not a SIF file" in told.err) == (6, True)


def test_a_registry_without_write_access_names_the_login_and_shows_no_password(
    argosy: Argosy, shop: Shop, image: Path, registry: Registry
) -> None:
    (shop.folder / "none.json").write_text("{}")
    place = f"oras://{registry.address}/me/other:1"
    told = argosy("images", "push", image, place, REGISTRY_AUTH_FILE=str(shop.folder / "none.json"))
    assert told.code == 5
    assert f"skopeo login {registry.address}" in told.err
    told = argosy("images", "push", image, f"docker://me:{PASSWORD}@{registry.address}/me/other:1")
    assert (told.code, PASSWORD in told.err) == (2, False)
    told = argosy("images", "push", image, "docker://127.0.0.1:1/me/other:1")
    assert (told.code, told.err.splitlines()[0]) == (5, "argosy: cannot reach 127.0.0.1:1")  # nothing was packed
    shop.nothing_left()


@pytest.mark.lab
def test_apptainer_pulls_a_pushed_image(shop: Shop, argosy: Argosy, image: Path, registry: Registry) -> None:
    place = f"oras://{registry.address}/me/lab:1"
    assert argosy("images", "push", image, place).code == 0
    os.chown(shop.folder, 2001, 2001)
    login = ("--docker-username", "me", "--docker-password", PASSWORD)
    said = shop.lab("apptainer", "pull", "--no-https", *login, "pulled.sif", place)
    assert said.code == 0, said.err
    assert (shop.folder / "pulled.sif").read_bytes() == image.read_bytes()


def test_a_layer_alone_is_refused_with_its_kind(shop: Shop, image: Path) -> None:
    done = shop.argosy("images", "export", image, "--format", "layer", "-o", "layer.sqsh")
    assert done.code == 0, done.err
    told = shop.argosy("run", "layer.sqsh", "--", "true")
    assert told.code == 125
    assert "is a layer, not a complete image" in told.err
    assert "image-src=/opt/argosy" in told.err
