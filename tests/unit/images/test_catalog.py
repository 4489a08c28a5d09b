"""The catalog of images: names, versions and aliases are files in folders, and nothing else is believed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.builder.bases.base import base_file
from argosy.builder.output.oci import write_sif_layout
from argosy.core.errors import DiskFull, ImageError, SiteError, UsageError
from argosy.core.model import Host
from argosy.core.records import replace
from argosy.core.session import Paths, Session
from argosy.host.probe import open_session
from argosy.images import catalog
from argosy.images.catalog import (
    CatalogName,
    catalog_folders,
    find_in_catalog,
    find_version,
    list_catalog,
    list_dangling,
    list_images_of,
    list_unreadable,
    new_file,
    parse_catalog_name,
    remove_images,
    tag_image,
    with_images_of,
)
from argosy.images.describe import describe_catalog_image, render_age, render_entries
from argosy.images.find import fetch_or_find_image, guess_name, means_reference, pull_image
from argosy.images.identify import FileKind, Kind
from argosy.images.open import open_image
from argosy.images.registry.convert import SIF_LAYER, parse_sif_layer
from argosy.images.registry.references import parse_reference
from argosy.images.squashfs.pack import run_pack
from argosy.sites import read
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.sites.read import read_site
from argosy.sites.software import Images


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Give a session whose catalog holds a:1 (old), a:2 and b."""
    images, project = tmp_path / "images", tmp_path / "project"
    project.mkdir()
    for number, name in enumerate(("a/1", "a/2", "b")):
        path = images / f"{name}.sif"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number + 1))
        os.utime(path, (number * 100, number * 100))
    real = open_session()
    host: Host = replace(real.host, cwd=str(project), environment={})
    return replace(real, host=host, paths=Paths(tmp_path / "cache", tmp_path / "state", (images,)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a", CatalogName("a")),
        ("a:2", CatalogName("a", "2")),
        ("a/2", CatalogName("a", "2")),
        ("py.torch-2:v1+cu", CatalogName("py.torch-2", "v1+cu")),
        ("", None),
        (".hidden", None),
        ("../a", None),
        ("a/../b", None),
        ("a/b/c", None),
        ("a:", None),
        ("/a", None),
        ("docker://a", None),
        ("a b", None),
    ],
)
def test_a_catalog_name_has_at_most_a_version_and_stays_in_the_folder(text: str, word: CatalogName | None) -> None:
    assert parse_catalog_name(text) == word


@pytest.mark.parametrize(("text", "file"), [("a:1", "a/1"), ("a", "a/2"), ("b", "b"), ("a/1", "a/1")])
def test_a_name_alone_is_its_newest_version(session: Session, text: str, file: str) -> None:
    assert find_in_catalog(text, session) == session.paths.images[0] / f"{file}.sif"


def test_latest_is_the_image_with_that_tag_and_not_the_newest(session: Session) -> None:
    link, _ = tag_image("a:1", "a:latest", session)
    assert find_in_catalog("a", session) == link
    assert link.resolve().name == "1.sif"


def test_an_alias_stands_for_the_version_to_which_it_points_and_links_of_the_user_stay(
    session: Session, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/c.sif").write_bytes(b"x")
    (tmp_path / "home").symlink_to(tmp_path / "scratch")
    (tmp_path / "home/d.sif").symlink_to("c.sif")
    (images / "c.sif").symlink_to(tmp_path / "home/d.sif")
    for image, alias in (("a:1", "a:stable"), ("a:1", "other"), ("other", "more:1"), ("b", "a:latest")):
        tag_image(image, alias, session)
    (images / "chain.sif").symlink_to("a/stable.sif")
    names = ("a:stable", "other", "more:1", "chain", "a", "c", "a:1", "missing")
    found = [find_version(name, session) for name in names]
    first = images / "a/1.sif"
    assert found == [first, first, first, first, images / "b.sif", tmp_path / "home/d.sif", None, None]


def test_a_name_in_the_catalog_may_look_like_a_transport(session: Session, tmp_path: Path) -> None:
    image = tmp_path / "images/dock/1.sif"
    image.parent.mkdir()
    image.write_bytes(b"x")
    assert fetch_or_find_image("dock:1", session) == image
    assert not means_reference("dock:1", session)
    assert means_reference("dock://1", session)
    with pytest.raises(UsageError, match="there is no image 'dock:2'") as raised:
        fetch_or_find_image("dock:2", session)
    assert raised.value.hint == "did you mean dock:1?"
    with pytest.raises(UsageError, match="invalid image reference 'orass:1'"):
        fetch_or_find_image("orass:1", session)


def test_an_alias_whose_image_was_removed_says_so_and_is_listed(session: Session, tmp_path: Path) -> None:
    image, _ = tag_image("b", "tools:stable", session)
    tag_image("b", "dock:1", session)
    (tmp_path / "images/b.sif").unlink()
    for name in ("tools:stable", "dock:1"):
        with pytest.raises(UsageError, match=rf"{name} is an alias of \.\./b\.sif, which is gone") as raised:
            fetch_or_find_image(name, session)
        assert f"argosy images tag IMAGE {name}" in raised.value.hint
    with pytest.raises(UsageError, match="which is gone"):
        base_file("tools:stable", session)
    (entry,) = (describe_catalog_image(each) for each in list_dangling(session) if each.path == image)
    assert (entry.name, entry.fault) == ("tools:stable", "alias of ../b.sif, which is gone")
    assert "which is gone" in render_entries([entry], entry.changed)
    image.unlink()
    with pytest.raises(UsageError, match="there is no image") as raised:
        fetch_or_find_image("tools:stable", session)
    assert raised.value.hint.startswith("'argosy images ls' lists the catalog")


LEFT = "{}.4194304.0123abcd.part"
"""Name of a file that a killed process left."""


def test_the_next_copy_and_the_next_alias_remove_what_killed_ones_left(session: Session, tmp_path: Path) -> None:
    images, left = tmp_path / "images", LEFT.format(".new.sqsh")
    tree = tmp_path / "tree"
    tree.mkdir()
    run_pack(session, tree, tmp_path / "new.sqsh", time=1)
    (images / left).touch()
    pull_image(str(tmp_path / "new.sqsh"), session, name="new")
    (images / LEFT.format(".other.sqsh")).touch()
    tag_image("new", "other", session)
    assert sorted(path.name for path in images.iterdir()) == ["a", "b.sif", "new.sqsh", "other.sqsh"]


def test_versions_in_a_folder_of_a_group_are_written_by_the_whole_group(session: Session, tmp_path: Path) -> None:
    (tmp_path / "images").chmod(0o2775)
    before = os.umask(0o077)
    try:
        folder = new_file("new:1", session).parent
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2770


@pytest.mark.parametrize(("folder", "mode"), [(0o2770, 0o040), (0o755, 0o000)])
def test_the_group_of_a_shared_catalog_can_read_a_pulled_image(
    folder: int, mode: int, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    cached = tmp_path / "cache/fetched/x/image.sqsh"
    cached.parent.mkdir(parents=True)
    for file in (cached, tmp_path / "own.sqsh"):
        run_pack(session, tmp_path / "tree", file, time=1)
    cached.chmod(0o600)
    (tmp_path / "images").chmod(folder)
    before = os.umask(0o077)
    try:
        pulled = [
            pull_image(str(source), session, name=f"new:{number}")[0]
            for number, source in enumerate((cached, tmp_path / "own.sqsh"))
        ]
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in pulled] == [mode, mode]
    assert stat.S_IMODE(cached.stat().st_mode) == 0o600


def test_a_full_disk_below_the_catalog_names_its_variable(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    run_pack(session, tmp_path / "tree", tmp_path / "own.sqsh", time=1)

    def fill(_source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(DiskFull) as full:
        pull_image(str(tmp_path / "own.sqsh"), session, name="new")
    assert full.value.hint.endswith(" with ARGOSY_IMAGES")
    with pytest.raises(DiskFull) as full:
        pull_image(str(tmp_path / "own.sqsh"), session, output=tmp_path / "new.sqsh")
    assert full.value.hint.endswith(" with --output")


@pytest.mark.parametrize(
    ("name", "uid", "hint"),
    [
        ("my image.sif", 0, "you own it: chmod u+r '{}'"),
        ("tree", 0, "you own it: chmod u+rx {}"),
        ("my image.sif", 7, "ask its owner for read permission"),
    ],
)
def test_an_unreadable_image_has_a_hint_for_its_owner_or_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, uid: int, hint: str
) -> None:
    (tmp_path / "my image.sif").touch()
    (tmp_path / "tree").mkdir()
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr("argosy.images.open.identify_file", lambda _: FileKind(Kind.UNREADABLE, "unreadable: denied"))
    monkeypatch.setattr(os, "geteuid", lambda: owner + uid)
    with pytest.raises(ImageError) as refused:
        open_image(tmp_path / name)
    assert refused.value.hint == hint.format(tmp_path / name)


def test_a_folder_that_cannot_be_read_is_reported(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_unreadable(session) == []
    (tmp_path / "images/closed").mkdir()
    list_files = Path.iterdir

    def refuse(folder: Path) -> Iterator[Path]:
        if folder.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return list_files(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert list_unreadable(session) == [f"cannot read {tmp_path}/images/closed: Permission denied"]
    shut = replace(session, paths=replace(session.paths, images=(tmp_path / "images/closed", tmp_path / "none")))
    assert list_unreadable(shut) == [f"cannot read {tmp_path}/images/closed: Permission denied"]


def test_an_image_that_another_process_removes_meanwhile_is_not_listed(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "images/gone.sif"
    monkeypatch.setattr(catalog, "_image_files", lambda folder: [gone, *folder.glob("*.sif")])
    assert [str(each.name) for each in list_catalog(session)] == ["a:2", "a:1", "b"]
    monkeypatch.setattr(catalog, "_image_files", lambda folder: [gone, folder / "2.sif"])
    assert find_in_catalog("a", session) == tmp_path / "images/a/2.sif"


def test_two_processes_may_remove_one_image(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_first(_folder: Path) -> list[catalog.CatalogImage]:
        shutil.rmtree(tmp_path / "images/a")
        return []

    monkeypatch.setattr(catalog, "_list_folder", remove_first)
    assert [removed.bytes for removed in remove_images(["a:1"], session)] == [0]


def test_an_alias_has_one_file_whatever_its_targets_are_and_hides_no_image(session: Session) -> None:
    (images,) = session.paths.images
    (images / "new.sqsh").write_bytes(b"new")
    (images / "odd_2.9").write_bytes(b"odd")
    for image, file in (("b", "prod.sif"), ("new", "prod.sqsh"), (str(images / "odd_2.9"), "prod.sif")):
        link, target = tag_image(image, "prod", session)
        assert find_in_catalog("prod", session) == link == images / file
        assert [path.name for path in images.glob("prod*")] == [file]
        assert link.resolve() == target
    with pytest.raises(UsageError, match="an image has this name"):
        tag_image("new", "b", session)


def test_a_copied_image_is_found_by_its_name_whatever_its_file_was_called(session: Session, tmp_path: Path) -> None:
    (images,) = session.paths.images
    tree = tmp_path / "tree"
    tree.mkdir()
    run_pack(session, tree, tmp_path / "foo.sqsh", time=1)
    shutil.copy(tmp_path / "foo.sqsh", tmp_path / "foo.img")
    path, _ = pull_image(str(tmp_path / "foo.img"), session, name="foo")
    assert find_in_catalog("foo", session) == path
    with pytest.raises(UsageError, match="exists"):
        pull_image(str(tmp_path / "foo.sqsh"), session, name="b")
    path, _ = pull_image(str(tmp_path / "foo.sqsh"), session, name="b", force=True)
    assert find_in_catalog("b", session) == path == images / "b.sqsh"


def test_an_alias_can_move_and_an_image_is_never_replaced(session: Session) -> None:
    for wanted in ("a:1", "a:2"):
        link, target = tag_image(wanted, "stable", session)
        assert (link.resolve(), link.readlink()) == (target, Path(f"a/{wanted[-1]}.sif"))
    with pytest.raises(UsageError, match="an image has this name"):
        tag_image("a:1", "b", session)
    with pytest.raises(UsageError, match="not a valid image name"):
        tag_image("a:1", "../b", session)
    with pytest.raises(UsageError, match="catalog names have no file suffix") as raised:
        pull_image(str(session.paths.images[0] / "b.sif"), session, name="c.sif")
    assert raised.value.hint == "use c"
    with pytest.raises(UsageError, match="'' is not a valid image name"):
        pull_image(str(session.paths.images[0] / "b.sif"), session, name="")
    assert (session.paths.images[0] / "b.sif").read_bytes() == b"xxx"


def test_an_image_goes_with_its_aliases_and_an_alias_goes_alone(session: Session) -> None:
    folder = session.paths.images[0]
    tag_image("a:1", "old", session)
    assert remove_images(["old"], session)[0].bytes == 0
    assert (folder / "a/1.sif").is_file()
    tag_image("a:1", "old", session)
    assert remove_images(["a:1"], session)[0].aliases == ("old",)
    tag_image("a:2", "older", session)
    remove_images(["a:2", "older"], session)
    assert [path.name for path in folder.iterdir()] == ["b.sif"]


def test_no_image_is_removed_if_one_of_them_does_not_exist(session: Session) -> None:
    with pytest.raises(UsageError, match="'a:9'"):
        remove_images(["a:1", "a:9"], session)
    assert find_in_catalog("a:1", session)


def test_an_alias_that_leads_nowhere_is_not_listed_and_can_be_removed(session: Session) -> None:
    link, target = tag_image("b", "gone", session)
    target.unlink()
    assert [str(held.name) for held in list_catalog(session)] == ["a:2", "a:1"]
    remove_images(["gone"], session)
    assert not link.is_symlink()


def test_images_of_a_project_are_found_and_never_removed(session: Session) -> None:
    project = Path(session.host.cwd)
    (project / "images").mkdir()
    (project / "images/team.sif").touch()
    assert find_in_catalog("team", session) is None
    (project / "argosy.toml").touch()
    assert find_in_catalog("team", session) == project / "images/team.sif"
    with pytest.raises(UsageError, match="not in your own folder"):
        remove_images(["team"], session)


def test_folders_of_the_site_that_this_machine_belongs_to_are_searched_last(session: Session, tmp_path: Path) -> None:
    profile = Path(session.host.cwd) / "argosy-sites/mine.toml"
    profile.parent.mkdir()
    images = f'[images]\nfolders = ["{tmp_path}/$KIND/x", "$UNKNOWN/y"]\n'
    profile.write_text(f'name = "mine"\ntitle = "mine"\n[identity]\nhosts = ["isle*"]\n{images}')
    environment = {"KIND": "gpu"}
    here = replace(session, host=replace(session.host, hostname="isle7", environment=environment))
    assert catalog_folders(here) == (*session.paths.images, tmp_path / "gpu/x")


def test_a_file_that_is_not_an_image_is_listed_with_the_reason(session: Session) -> None:
    entries = [describe_catalog_image(held) for held in list_catalog(session)]
    assert [(entry.name, entry.newest, bool(entry.fault)) for entry in entries] == [
        ("a:2", True, True),
        ("a:1", False, True),
        ("b", False, True),
    ]
    assert "is not an image" in render_entries(entries, 0.0)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("docker://nvcr.io/nvidia/pytorch:25.01", "pytorch:25.01"),
        ("oras://host:5000/me/it", "it:latest"),
        ("docker://debian@sha256:" + "0" * 64, "debian:latest"),
        ("build/my.sif", "my"),
    ],
)
def test_a_reference_has_a_name_by_itself(image: str, name: str) -> None:
    assert guess_name(image) == name


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0 min"), (120, "2 min"), (7200, "2 h"), (3 * 86400, "3 d")])
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert render_age(seconds) == text


def test_a_sif_file_is_one_blob_of_an_artifact_that_is_read_again(tmp_path: Path) -> None:
    sif = tmp_path / "my.sif"
    sif.write_bytes(b"SIF")
    digest = write_sif_layout(tmp_path / "layout", sif)
    manifest = (tmp_path / "layout/blobs/sha256" / digest.removeprefix("sha256:")).read_text()
    layer = parse_sif_layer(manifest, parse_reference("oras://host.example/me/my:1"))
    assert layer is not None
    assert (tmp_path / "layout/blobs/sha256" / layer.digest.removeprefix("sha256:")).read_bytes() == b"SIF"


def test_a_blob_named_by_a_path_is_not_a_sif_file() -> None:
    reference = parse_reference("oras://host.example/me/my:1")
    evil = json.dumps({"layers": [{"mediaType": SIF_LAYER, "digest": "sha256:../../etc/passwd", "size": 1}]})
    with pytest.raises(ImageError, match="is not a SIF file"):
        parse_sif_layer(evil, reference)


def test_images_of_a_site_that_the_user_names_are_found_by_their_names(session: Session, tmp_path: Path) -> None:
    folder = tmp_path / "images of the site"
    (folder / "nvidiaPytorch24.07/bin").mkdir(parents=True)
    (folder / "nvidiaPytorch24.07/etc").mkdir()
    (folder / "plain").write_bytes(b"hsqs" + bytes(200))
    (folder / "README").write_text("text\n")
    site = Site(images=Images(folders=("$IMAGES", "$NOT_SET/x")))
    there = replace(session, host=replace(session.host, environment={"IMAGES": str(folder)}))
    assert [path.name for path in list_images_of(site, there)] == ["nvidiaPytorch24.07", "plain"]
    assert find_in_catalog("nvidiaPytorch24.07", there) is None
    named = with_images_of(site, there)
    assert find_in_catalog("nvidiaPytorch24.07", named) == folder / "nvidiaPytorch24.07"
    assert find_in_catalog("plain", named) == folder / "plain"
    assert with_images_of(None, there).paths.images == there.paths.images


def test_marenostrum_names_the_folder_of_the_images_that_its_command_lists() -> None:
    assert read_site("mn5-acc").images.folders == ("/gpfs/apps/MN5/ACC/SINGULARITY/SRC/images",)


def test_a_missing_image_is_traced_to_the_profiles_that_hide_a_folder_of_images(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = tmp_path / "etc/sites", tmp_path / "own/argosy/sites/nimbus.toml"
    monkeypatch.setattr(read, "SYSTEM", system)
    images = tmp_path / "shared/base/2026.sif"
    for file in (system / "nimbus.toml", own, images):
        file.parent.mkdir(parents=True)
    images.write_bytes(b"x")
    environment = {"SLURM_CLUSTER_NAME": "nimbus", "XDG_CONFIG_HOME": str(tmp_path / "own")}
    there = replace(session, host=replace(session.host, environment=environment))
    head = 'name = "nimbus"\ntitle = "N"\nscheduler = "slurm"\n'
    marks = f'[identity]\nclusters = ["nimbus"]\n[images]\nfolders = ["{tmp_path}/shared"]\n'
    (system / "nimbus.toml").write_text(head + marks)
    assert find_in_catalog("base:2026", there) == images
    own.write_text(f'{head}[node]\ncores = "8"\n')
    with pytest.raises(UsageError, match="there is no image") as raised:
        fetch_or_find_image("base:2026", there)
    assert f"skipped: invalid profile nimbus.toml: {own}:5: node.cores: expected" in raised.value.evidence
    assert f"or remove the file, to use {system}/nimbus.toml again" in raised.value.evidence
    own.write_text(head)
    with pytest.raises(UsageError, match="there is no image") as raised:
        fetch_or_find_image("base:2026", there)
    assert raised.value.evidence.endswith(f"\n{own} replaces {system}/nimbus.toml")
    own.write_text("foo = 1\n")
    with pytest.raises(SiteError) as invalid:
        load_site("nimbus", there.host)
    assert f"or remove the file, to use {system}/nimbus.toml again" in invalid.value.hint
