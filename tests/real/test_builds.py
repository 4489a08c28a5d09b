"""`argosy build` end to end, over each kind of base, from each kind of source: what is inside, and that it runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from argosy.images.sif.format import PartKind, Sif, choose_system
from argosy.images.squashfs.superblock import read_superblock

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

ENVIRONMENT = """\
name: tiny
channels: [conda-forge]
dependencies:
  - python >=3.9
  - pip
  - pip:
      - tinypkg ==1.0
variables:
  TINY_COLOUR: "deep `blue` $HOME"
"""
SHOW = "import sys, tinypkg, tinydep; print(sys.prefix, tinypkg.VERSION, tinydep.VERSION)"
SHOWN = "/opt/argosy/env 2.0 1.5\n"


@pytest.fixture(scope="module")
def tree(pool: Shop) -> Path:
    """Unpack the base, for bases that are folders and archives."""
    folder = pool.folder / "tree"
    pool.tool("unsquashfs", "-quiet", "-no-progress", "-d", folder, pool.squashfs)
    return folder


def parts(sif: Sif) -> list[int]:
    return [part.partition.kind for part in sif.parts if part.partition]


def digest_of(path: Path, offset: int = 0, size: int = -1) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return hashlib.sha256(file.read(size)).hexdigest()


def info(shop: Shop, image: Path) -> dict[str, Any]:
    done = shop.argosy("images", "info", image, "--json")
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    return told


def test_requirements_over_a_sif_are_importable_and_runnable(shop: Shop) -> None:
    image = shop.build("tinypkg\n")
    assert shop.run(image, "python", "-c", SHOW).out == SHOWN
    assert shop.run(image, "tinypkg").out == "tinypkg 2.0\n"


BACKEND = """\
import os
import zipfile
import tinypkg

FILES = {
    "compiled/__init__.py": f"AGAINST = {tinypkg.VERSION!r}\\n",
    "compiled-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: compiled\\nVersion: 1.0\\n",
    "compiled-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}

def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(folder, "compiled-1.0-py3-none-any.whl"), "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
        wheel.writestr("compiled-1.0.dist-info/RECORD", "".join(f"{name},,\\n" for name in FILES))
    return "compiled-1.0-py3-none-any.whl"
"""
PYPROJECT = """\
[project]
name = "compiled"
version = "1.0"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def with_source(shop: Shop, backend: str) -> Shop:
    """Return the shop with an index that also has the source of a package, `compiled`."""
    source, wheels = shop.folder / "compiled-1.0", shop.folder / "wheels"
    source.mkdir()
    shutil.copytree(shop.wheels, wheels)
    (source / "backend.py").write_text(backend)
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: compiled\nVersion: 1.0\n")
    shop.tool("tar", "-C", shop.folder, "-czf", wheels / "compiled-1.0.tar.gz", "compiled-1.0")
    return replace(shop, wheels=wheels)


def test_a_package_from_source_is_built_again_over_another_base(shop: Shop, tree: Path) -> None:
    marked = BACKEND.replace("import tinypkg", "MARK = open('/etc/marker').read()").replace("tinypkg.VERSION", "MARK")
    own = with_source(shop, marked)
    shop.build("tinypkg\n")  # so that uv has a cache
    recipe = shop.write("requirements.txt", "compiled\n")
    for marker in ("A", "B"):
        base = shop.folder / marker
        shop.tool("cp", "-al", tree, base)
        (base / "etc/marker").write_text(marker)
        done = own.argosy("build", recipe, "--base", base, "-o", f"{marker}.sif")
        assert done.code == 0, done.err
        said = own.run(shop.folder / f"{marker}.sif", "python", "-c", "import compiled; print(compiled.AGAINST)")
        assert said.out == f"{marker}\n", said.err


def test_a_package_is_built_against_the_images_packages_on_request(shop: Shop) -> None:
    own, show = with_source(shop, BACKEND), ("python", "-c", "import compiled; print(compiled.AGAINST)")
    recipe = shop.write("requirements.txt", "compiled\ntinypkg==1.0\n")
    words = ("build", recipe, "--base", shop.base, "-o", "out.sif")
    apart = own.argosy(*words)
    assert (apart.code, "No module named 'tinypkg'" in apart.err) == (5, True), apart.err
    assert "--no-build-isolation compiled" in apart.err
    done = own.argosy(*words, "--no-build-isolation", "Compiled")
    assert done.code == 0, done.err
    assert own.run(shop.folder / "out.sif", *show).out == "1.0\n"
    again = own.argosy("build", "--locked", "out.sif", "--no-cache", "-o", "again.sif")
    assert again.code == 0, again.err
    assert own.run(shop.folder / "again.sif", *show).out == "1.0\n"


def test_the_base_is_copied_byte_for_byte_and_one_layer_is_added(shop: Shop) -> None:
    image = shop.build("tinypkg\n", "--format", "delta")
    sif = shop.sif(image)
    assert parts(sif) == [PartKind.PRIMARY_SYSTEM, PartKind.OVERLAY]
    system = sif.parts[0]
    assert digest_of(image, system.offset, system.size) == digest_of(shop.squashfs, 0, system.size)


def test_an_environment_file_gives_its_pins_and_its_variables_verbatim(shop: Shop) -> None:
    image = shop.build(ENVIRONMENT)
    assert shop.run(image, "tinypkg").out == "tinypkg 1.0\n"
    assert shop.run(image, "printenv", "TINY_COLOUR").out == "deep `blue` $HOME\n"
    again = shop.argosy("run", image, "--env", "TINY_COLOUR=red", "--", "printenv", "TINY_COLOUR")
    assert again.out == "red\n"


@pytest.mark.parametrize("kind", ["squashfs", "folder", "tar", "tar.gz", "debian:bookworm"])
def test_each_kind_of_base_gives_the_same_environment(shop: Shop, tree: Path, kind: str) -> None:
    base: str | Path = kind
    if kind == "squashfs":
        base = shop.squashfs
    elif kind == "folder":
        base = tree
    elif kind.startswith("tar"):
        base = shop.folder / f"root.{kind}"
        compress = ("--use-compress-program", "gzip -1") if kind == "tar.gz" else ()
        shop.tool("tar", *compress, "-C", tree, "-cf", base, ".")
    image = shop.build("tinypkg\n", base=base)
    shop.sif(image)
    assert shop.run(image, "python", "-c", SHOW).out == SHOWN
    told = info(shop, image)
    assert told["base"] == str(base)
    assert {"name": "tinypkg", "version": "2.0"} in told["packages"]


def test_a_flat_image_is_one_partition_with_the_same_tree(shop: Shop) -> None:
    image = shop.build("tinypkg\n")
    assert parts(shop.sif(image)) == [PartKind.PRIMARY_SYSTEM]
    assert shop.run(image, "python", "-c", SHOW).out == SHOWN
    assert shop.run(image, "stat", "-c", "%U %a", "/opt/argosy/enter", "/etc/shadow").out == "root 755\nroot 640\n"
    told = info(shop, image)
    assert told["kind"] == "sif, flat"
    assert told["made_by_argosy"]


LISTING = r"""set -eu
mount -t overlay overlay -o "ro,lowerdir=$1:$2" "$3"
list() { (cd "$1"; find . -type d -printf '%p %m %U %G %T@\n' -o -printf '%p %y %m %U %G %s %T@ %n %l\n'
         find . -type f -exec sha256sum {} +) | LC_ALL=C sort; }
list "$3" > "$5"
list "$4" > "$6"
"""
"""What an overlay mount shows of a layer and its base, and what a tree holds."""


def test_a_flat_image_has_the_contents_of_an_overlay_mount_of_its_parts(shop: Shop) -> None:
    delta, flat = shop.build(ENVIRONMENT, "--format", "delta", out="delta.sif"), shop.build(ENVIRONMENT, out="flat.sif")
    trees = {name: shop.folder / name for name in ("base", "layer", "joined", "flat", "said", "found")}
    base, layer = shop.sif(delta).parts[:2]
    one = choose_system(shop.sif(flat))
    for name, image, offset in (
        ("base", delta, base.offset),
        ("layer", delta, layer.offset),
        ("flat", flat, one.offset),
    ):
        shop.tool("unsquashfs", "-quiet", "-no-progress", "-o", str(offset), "-d", trees[name], image)
    trees["joined"].mkdir()
    order = ("layer", "base", "joined", "flat", "said", "found")
    shop.tool("unshare", "--mount", "sh", "-c", LISTING, "sh", *(trees[name] for name in order))
    said, found = (trees[name].read_text().splitlines() for name in ("said", "found"))
    assert len(said) > 1000
    assert sorted(set(said) ^ set(found)) == []
    exported = shop.folder / "exported.sif"
    shop.argosy("images", "export", delta, "--format", "sif", "-o", exported)
    assert exported.read_bytes() == flat.read_bytes()


@pytest.mark.parametrize("form", ["delta", "flat"])
def test_an_argosy_image_as_base_keeps_its_packages_and_its_form(shop: Shop, form: str) -> None:
    first = shop.build("tinypkg==1.0\n", "--format", form, out="first.sif")
    second = shop.build("another\n", base=first, out="second.sif")
    assert len(parts(shop.sif(second))) == (1 if form == "flat" else 2)
    told = info(shop, second)
    assert [package["name"] for package in told["packages"]] == ["another", "pip", "tinydep", "tinypkg"]
    assert shop.run(second, "tinypkg").out == "tinypkg 1.0\n"
    assert shop.run(second, "another").out == "another 0.3\n"
    refused = shop.argosy("build", shop.write("r.txt", "tinypkg==2.0\n"), "--base", first, "-o", shop.folder / "no.sif")
    assert refused.code == 7
    assert "tinypkg==1.0" in refused.err
    assert "tinypkg==2.0" in refused.err


def test_info_shows_base_layer_packages_and_how_to_run_the_image(shop: Shop) -> None:
    image = shop.build("tinypkg\n")
    said = shop.argosy("images", "info", image).out
    told = info(shop, image)
    for text in (str(shop.base), told["digest"], told["base_digest"], "tinypkg==2.0", f"argosy run {image} -- python"):
        assert text in said
    assert told["base_digest"] == f"sha256:{digest_of(shop.squashfs)}"
    assert told["kind"] == "sif, flat"


def test_a_build_reports_its_times_and_digests_as_json_alone_on_standard_output(shop: Shop) -> None:
    recipe = shop.write("r.txt", "tinypkg\n")
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "--json")
    report = json.loads(done.out)
    assert report["digest"] == info(shop, shop.folder / "x.sif")["digest"]
    assert {timing["step"] for timing in report["timings"]} >= {"base", "packages", "pack"}
    cost = report["cost"]
    assert 0 < cost["new"] < cost["disk"]
    assert cost["memory"] > 0
    assert report["backend"] == "root"


def test_output_to_a_pipe_has_no_control_codes(shop: Shop) -> None:
    recipe = shop.write("r.txt", "tinypkg\n")
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", TERM="xterm-256color")
    assert done.code == 0
    assert all(character.isprintable() or character == "\n" for character in done.out + done.err)
    assert "root: root can mount file systems" in done.err


def test_the_machines_pip_configuration_is_honoured(shop: Shop) -> None:
    constraint = shop.write("constraint.txt", "tinypkg<2\n")
    config = shop.write(
        "pip.conf", f"[global]\nno-index = true\nfind-links = {shop.wheels}\nconstraint = {constraint}\n"
    )
    image = shop.build("tinypkg\n", PIP_CONFIG_FILE=str(config), PIP_NO_INDEX="", PIP_FIND_LINKS="")
    assert shop.run(image, "tinypkg").out == "tinypkg 1.0\n"


def test_an_output_is_replaced_only_when_forced(shop: Shop) -> None:
    image = shop.build("tinypkg==1.0\n")
    before = digest_of(image)
    recipe = shop.write("r.txt", "tinypkg==2.0\n")
    refused = shop.argosy("build", recipe, "--base", shop.base, "-o", image)
    assert refused.code == 2
    assert "already exists" in refused.err
    assert "--force" in refused.err
    assert digest_of(image) == before
    shop.build("tinypkg==2.0\n", "--force")
    assert shop.run(image, "tinypkg").out == "tinypkg 2.0\n"


def test_a_name_with_marks_of_the_shell_and_of_globs_is_a_name(shop: Shop) -> None:
    image = shop.build("tinypkg\n", out="my [new] *image* 'ü'.sif")
    assert shop.run(image, "tinypkg").out == "tinypkg 2.0\n"


def test_a_user_of_the_cache_leaves_no_tree_of_the_layer_in_the_image(shop: Shop) -> None:
    image = shop.build("tinypkg\n")
    listed = shop.run(image, "find", "/opt/argosy/env", "/opt/argosy", "-maxdepth", "1").out.split()
    assert "/opt/argosy/env/.lock" not in listed
    assert "/opt/argosy/env/CACHEDIR.TAG" not in listed
    everything = shop.run(image, "grep", "-rlF", str(shop.folder), "/opt/argosy/env")
    assert everything.out == ""


def test_byte_code_is_there_and_is_not_checked_against_times(shop: Shop) -> None:
    image = shop.build("tinypkg\n")
    ask = "import tinypkg, importlib.util as u; print(open(u.cache_from_source(tinypkg.__file__), 'rb').read(8)[4])"
    assert shop.run(image, "python", "-c", ask).out == "1\n"  # PEP 552: hash-based, unchecked


@pytest.mark.lab
class TestUnderARealApptainer:
    """A user's own `apptainer exec` and login shells get the environment without knowing of Argosy."""

    @pytest.mark.parametrize("form", ["delta", "flat"])
    def test_plain_exec_and_login_shells_see_the_environment(self, shop: Shop, form: str) -> None:
        image = shop.build(ENVIRONMENT, "--format", form)
        said = shop.lab("apptainer", "exec", image, "python", "-c", SHOW)
        assert said.out == "/opt/argosy/env 1.0 1.5\n", said.err
        said = shop.lab("apptainer", "exec", image, "bash", "-lc", "command -v python; echo $TINY_COLOUR; tinypkg")
        assert said.out == "/opt/argosy/env/bin/python\ndeep `blue` $HOME\ntinypkg 1.0\n", said.err

    def test_environment_scripts_of_the_base_run_before_those_of_argosy(self, shop: Shop, tree: Path) -> None:
        base = shop.folder / "base"
        shop.tool("cp", "-a", tree, base)
        scripts = base / ".singularity.d/env"
        scripts.mkdir(parents=True)
        (scripts / "92-vendor.sh").write_text("export PATH=/vendor/bin:/usr/bin:/bin\nexport VENDOR=kept\n")
        (scripts / "95-more.sh").write_text('export PATH="/more/bin:$PATH"\n')
        image = shop.build("tinypkg\n", base=base)
        ask = 'echo "$PATH $VENDOR"; tinypkg'
        said = shop.lab("apptainer", "exec", image, "sh", "-c", ask)
        path = "/opt/argosy/env/bin:/more/bin:/vendor/bin:/usr/bin:/bin"
        assert said.out == f"{path} kept\ntinypkg 2.0\n", said.err
        said = shop.lab("apptainer", "exec", image, "bash", "-lc", "command -v python; tinypkg")
        assert said.out == "/opt/argosy/env/bin/python\ntinypkg 2.0\n", said.err

    def test_apptainer_lists_the_parts(self, shop: Shop) -> None:
        said = shop.lab("apptainer", "sif", "list", shop.build("tinypkg\n", "--format", "delta"))
        assert "Squashfs/*System" in said.out, said.err
        assert "Squashfs/Overlay" in said.out


@pytest.mark.parametrize("form", ["delta", "flat"])
def test_a_build_over_an_argosy_image_packs_only_new_files_and_is_reproducible(shop: Shop, form: str) -> None:
    flat = form == "flat"
    first = shop.build("tinypkg==1.0\n", "--format", form, out="first.sif")
    second = shop.build("another\n", "--format", form, base=first, out="second.sif")
    again = replace(shop, cache=shop.folder / "another-cache")
    third = again.build("another\n", "--format", form, base=first, out="third.sif")
    assert second.read_bytes() == third.read_bytes()
    whole = shop.build("tinypkg==1.0\nanother\n", "--format", form, out="whole.sif")
    assert shop.run(second, "another").out == shop.run(whole, "another").out == "another 0.3\n"
    assert shop.run(second, "tinypkg").out == "tinypkg 1.0\n"
    show = ("sh", "-c", "cd /opt/argosy/env && find . -type f ! -name '*.lock' -exec sha256sum {} + | sort")
    assert shop.run(second, *show).out == shop.run(whole, *show).out
    assert len(parts(shop.sif(second))) == (1 if flat else 2)
    last = {image: [part for part in shop.sif(image).parts if part.partition][-1] for image in (second, whole)}
    inodes = {image: read_superblock(image, part.offset).inodes for image, part in last.items()}
    assert inodes[second] > inodes[whole]  # with those of the first layer that are replaced: it was joined


def test_a_line_that_its_marker_excludes_is_reported(shop: Shop) -> None:
    recipe = shop.write("requirements.txt", 'tinypkg\nanother; python_version < "3"\n')
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", "x.sif", "--json")
    assert done.code == 0, done.err
    ignored = f"ignored, because their markers do not match the image: {recipe}:2: another"
    assert json.loads(done.out)["notes"] == [ignored]
