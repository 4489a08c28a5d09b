"""The root of a container put together folder by folder: what is bound, what is joined, when it needs an overlay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.core.model import Attach, Bind, Devices, Entry, GpuMode, Image, ImageKind, Person
from argosy.wrap.root_entries import How, Root, RootEntry, find_root, read_root_entries
from tests.unit.machines import real_session

NO_DEVICES = Devices()
Find = Callable[..., Root]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Make a layer and a base as they lie unpacked in a prefix."""
    for name in ("base/root/usr/bin", "base/root/etc", "base/root/home", "base/root/opt/vendor", "base/root/var/tmp",
                 "base/root/proc", "layer/root/opt/argosy/env", "layer/root/etc/profile.d"):  # fmt: skip
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "base/root/bin").symlink_to("usr/bin")
    (tmp_path / "base/root/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tmp_path / "base/root/etc/localtime").symlink_to("/nowhere")
    (tmp_path / "base/root/opt/vendor/tool").touch()
    (tmp_path / "layer/root/opt/argosy/env/a").touch()
    (tmp_path / "layer/root/etc/profile.d/zz.sh").write_text("layer\n")
    return tmp_path


@pytest.fixture
def find(cache: Path) -> Find:
    session = real_session(cache / "own")
    names = ("layer", "base")

    def find(*, at: str = "", binds: tuple[Bind, ...] = (), devices: Devices = NO_DEVICES) -> Root:
        trees = tuple(str(cache / name / "root") for name in names)
        image, person = Image("x.sif", ImageKind.SIF, "", "amd64"), Person(1, 1, "a", "/")

        entry = Entry(
            image, Attach.OVERLAY, (), (), "", GpuMode.NONE, contain=True, person=person, trees=trees, devices=devices
        )
        return find_root(entry, cache, "layer", at, binds, session)

    return find


def test_a_folder_of_one_tree_is_bound_one_of_several_is_joined_and_an_empty_one_made(find: Find) -> None:
    assert find().entries == (
        RootEntry("/bin", How.LINK, "usr/bin"),
        RootEntry("/etc", How.BIND, "joined-layer/root/etc"),
        RootEntry("/home", How.FOLDER),
        RootEntry("/opt", How.FOLDER),
        RootEntry("/opt/argosy", How.BIND, "layer/root/opt/argosy"),
        RootEntry("/opt/vendor", How.BIND, "base/root/opt/vendor"),
        RootEntry("/usr", How.BIND, "base/root/usr"),
        RootEntry("/var", How.BIND, "base/root/var"),
    )


def test_the_joined_root_has_files_of_all_trees_and_mount_points_of_the_machine(find: Find, cache: Path) -> None:
    root = find()
    etc = cache / "joined-layer/root/etc"
    assert (etc / "profile.d/zz.sh").read_text() == "layer\n"
    assert [(etc / name).read_bytes() for name in ("hosts", "localtime", "group")] == [b"", b"", b""]
    assert root.users == "root:x:0:0:root:/root:/bin/sh\n"
    assert (cache / "base/root/etc/localtime").is_symlink()
    assert (etc / "passwd").samefile(cache / "base/root/etc/passwd")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_of_a_layer_hides_a_link_of_the_base_and_is_not_merged_with_its_target(
    find: Find, cache: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    outside = tmp_path_factory.mktemp("home")
    outside.chmod(0o700)
    profile = cache / "base/root/etc/profile.d"
    profile.symlink_to(outside) if kind == "link" else profile.touch()
    find()
    assert (list(outside.iterdir()), outside.stat().st_mode & 0o777) == ([], 0o700)
    assert (cache / "joined-layer/root/etc/profile.d/zz.sh").read_text() == "layer\n"


def test_an_existing_version_gives_the_same_root(find: Find, cache: Path) -> None:
    found = find()
    again = read_root_entries(cache, ("layer", "base", found.folder))
    assert [(entry.target, entry.how) for entry in again] == [(entry.target, entry.how) for entry in found.entries]
    assert read_root_entries(cache, ("layer", "base")) == ()


def test_a_link_at_the_path_of_the_hosts_homes_becomes_a_mount_point(find: Find, cache: Path) -> None:
    (cache / "base/root/home").rmdir()
    (cache / "base/root/home").symlink_to("var/home")
    assert [entry.how for entry in find().entries if entry.target == "/home"] == [How.FOLDER]


def test_a_removed_file_of_the_base_needs_an_overlay(find: Find, cache: Path) -> None:
    (cache / "layer/root/etc/.wh.passwd").touch()
    assert find() == Root()
    assert not (cache / "joined-layer").exists()


def test_a_mount_without_a_mount_point_needs_an_overlay(find: Find) -> None:
    assert find(binds=(Bind("/data", "/data/x"), Bind("/data", "/opt/data"), Bind("/x", "/usr/bin"))).entries
    assert find(binds=(Bind("/data", "/usr/share/data"),)) == Root()
    assert find(devices=Devices(binds=(Bind("/lib/libcuda.so", "/usr/lib/libcuda.so"),))) == Root()


def test_the_first_folder_of_an_installation_is_left_to_the_host(find: Find, cache: Path) -> None:
    (cache / "layer/root/project/me/tools").mkdir(parents=True)
    os.truncate(cache / "layer/root/opt/argosy/env/a", 1)
    assert "/project" in {entry.target for entry in find().entries}
    assert "/project" not in {entry.target for entry in find(at="/project/me/tools").entries}
    assert "/opt" in {entry.target for entry in find(at="/opt/tools").entries}
