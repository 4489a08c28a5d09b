"""What forms of an image say: use, environment, tar and configuration; no program is started."""

from __future__ import annotations

import json
import shlex
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.builder.output.assemble import merge_trees
from argosy.builder.output.export import (
    ExportRequest,
    export_image,
    parse_image_environment,
    refuse_output,
    reserve_output,
    write_enroot_files,
)
from argosy.builder.output.oci import (
    ImageConfig,
    Layering,
    write_docker_archive,
    write_layer,
    write_layout,
    write_layout_archive,
)
from argosy.core.errors import ArgosyError, ImageError, UsageError
from argosy.core.layout import Activation, parse_env_script, render_env_script
from argosy.core.store import atomic_folder
from argosy.images.formats import OutputFormat, refuse_suffix, render_layer_variables, render_use, shorten_use
from tests.unit.machines import make_session

VALUES = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=20)
PAIRS = st.lists(st.tuples(st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True), VALUES), max_size=4).map(tuple)
FOLDERS = st.lists(st.tuples(st.sampled_from(["PATH", "MANPATH"]), st.just("/opt/argosy/a 'b'")), max_size=2)
FACTS = ImageConfig("amd64", 7, (("PATH", "/a:/b"),), (("argosy.content", "sha256:1"),), ("python",))


@given(FOLDERS.map(tuple), PAIRS, PAIRS)
def test_a_layers_environment_is_read_as_it_was_written(
    prepend: tuple[tuple[str, str], ...], identity: tuple[tuple[str, str], ...], default: tuple[tuple[str, str], ...]
) -> None:
    activation = Activation(prepend, identity, default)
    assert parse_env_script(render_env_script(activation)) == activation


def test_a_layer_is_used_by_a_bind_and_enter_or_by_variables() -> None:
    activation = Activation((("PATH", "/opt/argosy/env/bin"),), (("VIRTUAL_ENV", "/opt/argosy/env"),), (("A", "b c"),))
    lines = render_use(OutputFormat.LAYER, Path("/x/my.sqsh"), base="b.sif", program="python", activation=activation)
    bind = "-B /x/my.sqsh:/opt/argosy:image-src=/opt/argosy"
    assert lines[0] == f"run it: apptainer exec {bind} b.sif /opt/argosy/enter python"
    assert lines[2:] == render_layer_variables(activation)
    assert "export APPTAINERENV_PREPEND_PATH=/opt/argosy/env/bin" in lines
    assert "export SINGULARITYENV_A='b c'" in lines


def test_a_name_that_begins_with_a_dash_is_not_shown_as_an_option() -> None:
    none = Activation((), (), ())
    told = [
        render_use(form, Path("-x y.img"), base="", program="true", activation=none)
        for form in (OutputFormat.SIF, OutputFormat.SQSH, OutputFormat.DOCKER_ARCHIVE)
    ]
    assert [lines[0] for lines in told] == ["run it: argosy run './-x y.img' -- true"] * 3
    assert told[1][1] == "or:     apptainer exec './-x y.img' true"
    assert told[2][1] == "or:     docker load -i './-x y.img'"


def test_a_squashfs_is_named_to_pyxis_by_its_whole_path_since_it_takes_others_for_references() -> None:
    none = Activation((), (), ())
    told = render_use(OutputFormat.SQSH, Path("img/torch.sqsh"), base="", program="python", activation=none)
    assert told[2] == f"or:     srun --container-image={shlex.quote(f'{Path.cwd()}/img/torch.sqsh')} python"


def test_the_pyxis_line_has_the_whole_path_and_other_lines_the_typed_name() -> None:
    assert shorten_use("run it: argosy run /home/a/x.sqsh", "/home/a/x.sqsh", "x.sqsh") == "run it: argosy run x.sqsh"
    line = "or:     srun --container-image=/home/a/x.sqsh python"
    assert shorten_use(line, "/home/a/x.sqsh", "x.sqsh") == line


def test_the_images_part_of_a_started_programs_environment_is_kept() -> None:
    rows = "HOME=/root PWD=/ APPTAINER_NAME=x LD_LIBRARY_PATH=/vendor:/.singularity.d/libs LANG= V=w PATH=/v/bin"
    text = "\0".join([*rows.split(), "BAD NAME=1", "TWO=a\nb", ""])
    assert parse_image_environment(text) == (("PATH", "/v/bin"), ("LD_LIBRARY_PATH", "/vendor"), ("V", "w"))


def test_enroot_gets_no_value_that_it_would_expand(tmp_path: Path) -> None:
    write_enroot_files(tmp_path, (("A", "b c"), ("X", "${HOME}")))
    assert (tmp_path / "etc/environment").read_text() == "A=b c\n"
    assert (tmp_path / "etc/rc").stat().st_mode & 0o777 == 0o755


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Give a base with a link where the layer has a folder, and a layer."""
    base, layer = tmp_path / "base", tmp_path / "layer"
    (base / "usr/opt").mkdir(parents=True)
    (base / "opt").symlink_to("/usr/opt")
    (base / "a").write_text("a")
    (base / "b").hardlink_to(base / "a")
    (layer / "opt/argosy").mkdir(parents=True)
    (layer / "opt/argosy/enter").write_text("#!/bin/sh\n")
    return base, layer


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {info.name: info for info in archive}


def test_a_layer_follows_the_links_of_its_base_and_is_roots(trees: tuple[Path, Path], tmp_path: Path) -> None:
    base, layer = trees
    made = write_layer(layer, tmp_path, Layering("it", time=7, under=base, compress=True))
    found = members(made.blob.path)
    assert list(found) == ["usr/opt/argosy", "usr/opt/argosy/enter"]
    assert {(info.uid, info.gid, info.uname, info.mtime) for info in found.values()} == {(0, 0, "", 7)}


def test_equal_trees_give_equal_layers_and_hard_links_stay(trees: tuple[Path, Path], tmp_path: Path) -> None:
    base, _ = trees
    first, second = (write_layer(base, tmp_path, Layering("it", time=7, compress=True)) for _ in range(2))
    assert first.blob.digest == second.blob.digest
    plain = write_layer(base, tmp_path, Layering("it", time=7))
    assert plain.blob.digest == plain.diff_id == first.diff_id
    assert members(plain.blob.path)["b"].islnk()


def test_a_layout_and_dockers_archive_name_the_same_layers(trees: tuple[Path, Path], tmp_path: Path) -> None:
    blobs = tmp_path / "layout/blobs/sha256"
    blobs.mkdir(parents=True)
    layers = [write_layer(trees[0], blobs, Layering("it", time=7))]
    digest = write_layout(tmp_path / "layout", FACTS, layers)
    index = json.loads((tmp_path / "layout/index.json").read_text())
    assert index["manifests"][0]["digest"] == digest
    manifest = json.loads((blobs / digest.removeprefix("sha256:")).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["created"] == "1970-01-01T00:00:07Z"
    assert config["config"] == {"Env": ["PATH=/a:/b"], "Cmd": ["python"], "Labels": {"argosy.content": "sha256:1"}}
    write_layout_archive(tmp_path / "oci.tar", tmp_path / "layout", time=7)
    assert {"blobs", "blobs/sha256", "index.json", "oci-layout"} <= set(members(tmp_path / "oci.tar"))
    write_docker_archive(tmp_path / "docker.tar", blobs, FACTS, layers, tag="it:latest")
    assert f"{layers[0].blob.hex}.tar" in members(tmp_path / "docker.tar")


@pytest.mark.parametrize(
    ("name", "form", "hint"),
    [
        ("x.zip", "sif", "name it x.sif"),
        ("x.tar", "sif", "name it x.sif; or add --format oci-archive or --format docker-archive"),
        ("x.sqsh", "sif", "name it x.sif; or add --format sqsh or --format layer"),
        ("x.sif", "sqsh", "name it x.sqsh; or add --format sif"),
        ("x.tar.gz", "docker-archive", "name it x.tar"),
    ],
)
def test_a_name_with_the_suffix_of_another_kind_of_file_is_refused(name: str, form: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not a name for a file of the format {form}") as caught:
        refuse_suffix(Path(name), OutputFormat(form))
    assert caught.value.hint == hint
    assert caught.value.evidence.endswith(", or none")


@pytest.mark.parametrize("name", ["x", "x.sif", "X.SIF", "x.img", "torch-2.7", "py-3.11.2rc1", ".hidden"])
def test_usual_names_and_versions_are_names_of_a_sif_file(name: str) -> None:
    refuse_suffix(Path(name), OutputFormat.SIF)


def test_a_layout_replaces_only_a_layout(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuse_output(out, OutputFormat.OCI, force=False)
    (out / "precious").mkdir(parents=True)
    with pytest.raises(UsageError, match="already exists"):
        refuse_output(out, OutputFormat.OCI, force=True)
    (out / "index.json").touch()
    (out / "oci-layout").touch()
    refuse_output(out, OutputFormat.OCI, force=True)
    with pytest.raises(UsageError, match="already exists"):
        refuse_output(out, OutputFormat.OCI, force=False)


def test_a_folder_that_fails_half_way_keeps_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()

    def fill() -> None:
        with atomic_folder(out, replace=True) as folder:
            (folder / "new").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]


def test_a_folder_that_cannot_take_the_place_of_the_old_one_leaves_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    with pytest.raises(ArgosyError), atomic_folder(out, replace=True) as folder:
        folder.rmdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]


@pytest.mark.parametrize("link", ["../../outside", "{tmp_path}/outside"])
def test_a_link_in_a_base_never_leads_a_layer_out_of_its_tree(link: str, tmp_path: Path) -> None:
    base, layer, outside = tmp_path / "work/base", tmp_path / "layer", tmp_path / "outside"
    base.mkdir(parents=True)
    outside.mkdir()
    (layer / "opt").mkdir(parents=True)
    (layer / "opt/file").write_text("new")
    (base / "opt").symlink_to(link.format(tmp_path=tmp_path))
    merge_trees(layer, base, root=base)
    assert list(outside.iterdir()) == []


def test_more_links_than_the_kernel_follows_do_not_lead_a_layer_out_of_its_tree(tmp_path: Path) -> None:
    base, layer, outside = tmp_path / "base", tmp_path / "layer", tmp_path / "outside"
    for folder in (base, outside, layer / "l0"):
        folder.mkdir(parents=True)
    (layer / "l0/.bashrc").write_text("new")
    for number in range(40):
        (base / f"l{number}").symlink_to(f"/l{number + 1}")
    (base / "l40").symlink_to(outside)
    with pytest.raises(ImageError, match="more than 40 symbolic links"):
        merge_trees(layer, base, root=base)
    assert list(outside.iterdir()) == []


def test_a_refused_export_leaves_the_temporary_file_of_a_running_one(tmp_path: Path) -> None:
    session, output = make_session(tmp_path), tmp_path / "out.sif"
    begun = tmp_path / ".out.sif.1.deadbeef.part"
    with reserve_output(output, OutputFormat.SIF, session, force=False):
        begun.touch()
        with pytest.raises(ArgosyError, match="no image"):
            export_image(ExportRequest(str(tmp_path / "no.sif"), OutputFormat.SIF, output), session)
        assert begun.exists()
    with reserve_output(output, OutputFormat.SIF, session, force=False):
        assert not begun.exists(), "its process no longer holds the lock"
