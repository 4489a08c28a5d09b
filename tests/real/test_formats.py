"""Each form of an image: written, read by the programs it is for, and run; over a base of one static program."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from argosy.images.sif.write import whole_of
from argosy.images.squashfs.tables import device_nodes

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

BUSYBOX = Path("/bin/busybox")
APPLETS = "cat echo env ls printf readlink sh test true"
SHOW = ("sh", "-c", 'printf "%s\n" "$VENDOR" "$COLOUR" "$PATH"')
RECIPE = "name: tiny\ndependencies: []\nvariables:\n  COLOUR: deep `blue`\n"
SHOWN = "kept\ndeep `blue`\n/opt/argosy/env/bin:/vendor/bin:/bin\n"
ARCHIVES = {"oci": "oci", "oci-archive": "oci-archive", "docker-archive": "docker-archive"}


@pytest.fixture(scope="module")
def base(pool: Shop) -> Path:
    """Give a root file system of busybox, with a vendor's environment, as a folder."""
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    tree = pool.folder / "tiny"
    for name in ("bin", "etc", "usr/opt", "tmp", "var/tmp", "proc", "dev", ".singularity.d/env"):
        (tree / name).mkdir(parents=True)
    (tree / "opt").symlink_to("usr/opt")
    shutil.copy2(BUSYBOX, tree / "bin/busybox")
    for name in APPLETS.split():
        (tree / "bin" / name).symlink_to("busybox")
    (tree / ".singularity.d/env/10-vendor.sh").write_text("export VENDOR=kept PATH=/vendor/bin:/bin\n")
    (tree / ".singularity.d/env/99-base.sh").touch()  # without it Apptainer drops what is forced
    return tree


@pytest.fixture(scope="module")
def image(pool: Shop, base: Path) -> Path:
    recipe = pool.folder / "tiny.yml"
    recipe.write_text(RECIPE)
    done = pool.argosy("build", recipe, "--base", base, "-o", pool.folder / "tiny.sif")
    assert done.code == 0, done.err
    return pool.folder / "tiny.sif"


def export(shop: Shop, image: Path, form: str, name: str = "") -> tuple[Path, dict[str, Any]]:
    output = shop.folder / (name or f"out.{form}")
    done = shop.argosy("images", "export", image, "--format", form, "-o", output, "--json")
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    return output, told


def inspect(*words: str) -> Any:
    done = subprocess.run(
        (shutil.which("skopeo") or "skopeo", "inspect", *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("form", [*ARCHIVES, "sqsh", "sif"])
def test_each_form_runs_with_the_environment_of_base_and_layer(shop: Shop, image: Path, form: str) -> None:
    output, _ = export(shop, image, form)
    done = shop.run(output, *SHOW)
    assert done.out == SHOWN, done.err


@pytest.mark.parametrize("form", ["sqsh", "layer", "sif"])
def test_only_its_owner_reads_an_export_with_umask_077(shop: Shop, image: Path, form: str) -> None:
    private = ("sh", "-c", 'umask 0077; exec "$0" "$@"')
    done = shop.argosy("images", "export", image, "--format", form, "-o", f"private.{form}", around=private)
    assert done.code == 0, done.err
    assert (shop.folder / f"private.{form}").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("form", ARCHIVES)
def test_skopeo_reads_layers_labels_and_environment(shop: Shop, image: Path, form: str) -> None:
    output, _ = export(shop, image, form)
    told = inspect(f"{form}:{output}")
    assert len(told["Layers"]) == 2
    assert told["Labels"]["argosy.content"].startswith("sha256:")
    assert {"VENDOR=kept", "COLOUR=deep `blue`"} <= set(told["Env"])


def test_an_exported_layer_behind_a_link_is_no_base(shop: Shop, image: Path) -> None:
    output, _ = export(shop, image, "oci-archive")
    recipe = shop.write("more.yml", RECIPE)
    done = shop.argosy("build", recipe, "--base", output, "-o", shop.folder / "more.sif")
    assert done.code != 0
    assert "/opt in it is a link" in done.err
    done = shop.argosy("build", recipe, "--base", image, "-o", shop.folder / "more.sif")
    assert done.code == 0, done.err


def test_the_same_image_gives_the_same_bytes_again(shop: Shop, image: Path) -> None:
    first, second = (export(shop, image, "docker-archive", name)[0] for name in ("one.tar", "two.tar"))
    assert first.read_bytes() == second.read_bytes()


def test_a_build_writes_the_requested_format(shop: Shop, base: Path, image: Path) -> None:
    recipe = shop.write("tiny.yml", RECIPE)
    for form in ("layer", "oci-archive"):
        done = shop.argosy("build", recipe, "--base", base, "-o", f"my.{form}", "--format", form)
        assert done.code == 0, done.err
    shop.nothing_left()
    told = (
        inspect(f"oci-archive:{path}")["Digest"]
        for path in (shop.folder / "my.oci-archive", export(shop, image, "oci-archive")[0])
    )
    assert len(set(told)) == 1


def test_a_squashfs_for_enroot_has_no_device_nodes(shop: Shop, base: Path) -> None:
    packed, made = shop.folder / "nodes.sqfs", shop.folder / "made.sqsh"
    shop.tool("mksquashfs", base, packed, "-quiet", "-no-progress", "-p", "dev/null c 666 0 0 1 3")
    recipe = shop.write("tiny.yml", RECIPE)
    done = shop.argosy("build", recipe, "--base", packed, "-o", made, "--format", "sqsh")
    assert done.code == 0, done.err
    assert device_nodes(whole_of(packed)) == ("dev/null",)
    assert device_nodes(whole_of(made)) == ()


@pytest.mark.lab
def test_apptainer_runs_the_squashfs_and_the_layer_bound_over_a_base(shop: Shop, image: Path) -> None:
    whole, _ = export(shop, image, "sqsh")
    said = shop.lab("apptainer", "exec", whole, *SHOW)
    assert said.out == SHOWN, said.err
    assert "COLOUR=deep `blue`" in shop.lab("apptainer", "exec", whole, "cat", "/etc/environment").out
    layer, told = export(shop, image, "layer")
    variables = "\n".join(line for line in told["use"] if line.startswith("export "))
    bind = f"{layer}:/opt/argosy:image-src=/opt/argosy"
    bare = shop.folder / "bare.sqsh"
    shop.tool("mksquashfs", shop.folder.parent / "tiny", bare, "-quiet", "-no-progress")
    said = shop.lab("apptainer", "exec", "-B", bind, bare, "/opt/argosy/enter", *SHOW)
    assert said.out == SHOWN, said.err
    script = f'{variables}\nexec apptainer exec --no-eval -B "$@"'
    said = shop.lab("sh", "-c", script, "sh", bind, bare, *SHOW)
    assert said.out == SHOWN, said.err


@pytest.mark.lab
def test_apptainer_reads_the_oci_archive_as_an_ordinary_user(shop: Shop, image: Path) -> None:
    output, _ = export(shop, image, "oci-archive")
    said = shop.lab("apptainer", "exec", f"oci-archive:{output}", *SHOW)
    assert said.out == SHOWN, said.err
