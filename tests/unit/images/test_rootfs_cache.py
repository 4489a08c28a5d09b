"""Trees of layers that are kept for the next build, and lent to the cache of a prefix."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed
from argosy.core.layout import LOCK
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images import rootfs_cache as trees
from argosy.images import tree_digests
from argosy.images.rootfs_cache import (
    LayerTree,
    link_layer,
    link_unchanged,
    return_layer,
    store_layer,
    take_layer,
    unpack_cached,
)
from argosy.images.sif.write import FileSlice, whole_of
from argosy.images.squashfs.pack import run_pack, run_unsquashfs
from argosy.images.tree_digests import (
    STATES_FILE,
    describe_remembering,
    digest_entries,
    digest_tree,
    file_clock,
    states_beside,
)
from tests.unit.machines import real_session

SITE = "opt/argosy/env/lib/python3.11/site-packages"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return real_session(tmp_path)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    for name in (f"{SITE}/pkg/data/a.py", f"{SITE}/top.py", "opt/argosy/env/pyvenv.cfg", "opt/argosy/enter"):
        file = tmp_path / "work/layer" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "work/layer/opt/argosy/enter").chmod(0o755)
    (tmp_path / "work/layer/opt/argosy/env/lib64").symlink_to("lib")
    return tmp_path / "work/layer"


def noted(tree: Path) -> str:
    return digest_entries(describe_remembering(tree))


def test_one_build_takes_the_tree_that_another_kept(session: Session, layer: Path, tmp_path: Path) -> None:
    store_layer(session, "key", layer)
    assert not layer.exists()
    assert take_layer(session, "key", tmp_path / "one")
    assert (tmp_path / "one/opt/argosy/enter").read_text() == "opt/argosy/enter"
    assert not take_layer(session, "key", tmp_path / "two")


def test_the_tree_of_another_user_of_the_cache_is_left_to_that_one(
    session: Session, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_layer(session, "key", layer)
    monkeypatch.setattr(os, "geteuid", lambda: layer.parent.stat().st_uid + 1)
    assert not take_layer(session, "key", tmp_path / "one")
    monkeypatch.undo()
    assert take_layer(session, "key", tmp_path / "one")


def test_a_tree_that_is_kept_already_stays(session: Session, layer: Path) -> None:
    store_layer(session, "key", layer)
    layer.mkdir()
    store_layer(session, "key", layer)
    assert layer.exists()
    assert (session.paths.cache / "layers/key/opt/argosy/enter").exists()


def test_a_linked_layer_is_equal_and_files_that_a_build_rewrites_are_its_own(
    session: Session, layer: Path, tmp_path: Path
) -> None:
    store_layer(session, "key", layer)
    link_layer(session, "key", tmp_path, "key")
    kept, lent = session.paths.cache / "layers/key", tmp_path / "trees/key/root"
    names = sorted(str(path.relative_to(kept)) for path in kept.rglob("*"))
    assert names == sorted(str(path.relative_to(lent)) for path in lent.rglob("*"))
    assert (lent / "opt/argosy/env/lib64").readlink() == Path("lib")
    assert (lent / "opt/argosy/enter").stat().st_mode & 0o777 == 0o755
    shared = {name for name in names if (kept / name).is_file() and (kept / name).samefile(lent / name)}
    assert shared == {f"{SITE}/pkg/data/a.py"}


@pytest.mark.parametrize("kept", ["nothing", "no venv"])
def test_nothing_is_linked_without_a_stored_venv(session: Session, layer: Path, tmp_path: Path, kept: str) -> None:
    if kept == "no venv":
        (layer / "opt/argosy/env/pyvenv.cfg").unlink()
        store_layer(session, "key", layer)
    link_layer(session, "key", tmp_path, "key")
    assert not (tmp_path / "trees").exists()


def settled(tree: Path) -> Path:
    """Give the tree when the clock of its file system has gone on since it changed last."""
    last = max(path.lstat().st_ctime_ns for path in tree.rglob("*"))
    while file_clock(tree) <= last:
        pass
    states_beside(tree).unlink()
    return tree


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the files that are read for a digest."""
    seen: list[str] = []
    plain = tree_digests._hash_file

    def hash_file(path: str) -> str:
        seen.append(Path(path).name)
        return plain(path)

    monkeypatch.setattr(tree_digests, "_hash_file", hash_file)
    return seen


def test_a_stored_tree_is_not_read_again_even_after_it_was_linked(
    session: Session, layer: Path, tmp_path: Path, read: list[str]
) -> None:
    digest = noted(settled(layer))
    assert sorted(read) == ["a.py", "enter", "pyvenv.cfg", "top.py"]
    for count in (1, 2):
        store_layer(session, "key", layer)
        link_layer(session, "key", tmp_path / str(count), "key")
        assert not list((tmp_path / str(count)).rglob(f"*{STATES_FILE}"))
        assert take_layer(session, "key", layer)
        read.clear()
        assert noted(layer) == digest
        assert read == []
        assert digest == digest_tree(layer)


def rewrite_in_secret(file: Path) -> None:
    status = file.stat()
    file.write_text(file.read_text().swapcase())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_equal_length(file: Path) -> None:
    other = file.with_name("other")
    other.write_text(file.read_text().swapcase())
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)


def change_the_mode(file: Path) -> None:
    file.chmod(0o755)


def remove(file: Path) -> None:
    file.unlink()


def add_one(file: Path) -> None:
    file.with_name("more.py").write_text("")


def point_a_link_elsewhere(file: Path) -> None:
    link = next(folder for folder in file.parents if folder.name == "env") / "lib64"
    link.unlink()
    link.symlink_to("bin")


CHANGES = [point_a_link_elsewhere, rewrite_in_secret, replace_by_equal_length, change_the_mode, remove, add_one]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_read_again_whatever_times_it_shows(layer: Path, change: Callable[[Path], None]) -> None:
    before = noted(settled(layer))
    change(layer / SITE / "top.py")
    assert noted(layer) == digest_tree(layer) != before


@pytest.mark.parametrize("change", [None, *CHANGES])
def test_an_unchanged_borrowed_layer_is_returned(
    session: Session, layer: Path, tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    noted(settled(layer))
    (layer / LOCK.lstrip("/")).write_text("{}")  # it tells the digest, so it comes after it
    store_layer(session, "key", layer)
    assert take_layer(session, "key", layer)
    if change:
        change(layer / SITE / "top.py")
    return_layer(session, "key", layer)
    assert take_layer(session, "key", tmp_path / "again") == (change is None)
    assert not change or layer.exists()


@pytest.mark.parametrize("notes", [b"", b"{", b'{"device": 1, "files": {"a": 5}}'])
def test_damaged_notes_are_ignored(session: Session, layer: Path, notes: bytes) -> None:
    digest = noted(settled(layer))
    states_beside(layer).write_bytes(notes)
    return_layer(session, "key", layer)
    assert layer.exists()
    assert noted(layer) == digest


def test_a_tree_with_an_undecodable_name_has_a_digest_and_no_notes(layer: Path) -> None:
    Path(os.fsdecode(os.fsencode(layer) + b"/\xff")).write_text("x")
    assert noted(settled(layer)) == noted(layer) == digest_tree(layer)


def test_a_failed_unpacking_suggests_a_damaged_image(session: Session, tmp_path: Path) -> None:
    damaged = tmp_path / "x.sqfs"
    damaged.write_bytes(b"hsqs" + bytes(5000))
    with pytest.raises(ToolFailed, match=r"unpacking x\.sqfs failed") as caught:
        run_unsquashfs(session, damaged, 0, tmp_path / "tree", doing="unpacking x.sqfs")
    assert "damaged" in caught.value.hint


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("create_inode: could not create character device tree/dev/null, because you're not superuser!", None),
        ("create_inode: failed to create symlink tree/bin/sh, because Disk quota exceeded", CheckFailed),
        ("create_inode: failed to create symlink tree/bin/sh, because No space left on device", CheckFailed),
        ("set_attributes: failed to change mode tree/bin, because Input/output error", ToolFailed),
        ("create_inode: failed to create hardlink, because Operation not permitted", ToolFailed),
    ],
)
def test_an_unpacked_tree_may_lack_devices_and_nothing_else(
    session: Session, tmp_path: Path, line: str, error: type[ArgosyError] | None
) -> None:
    (tmp_path / "tree").mkdir()
    runner = FakeRunner([(("unsquashfs", "-quiet"), Reply(2, f"{line}\n", ""))])
    expected = pytest.raises(error, match=r"unpacking x\.sqfs failed") if error else nullcontext()
    with expected:
        run_unsquashfs(replace(session, runner=runner), Path("x.sqfs"), 0, tmp_path / "tree", doing="unpacking x.sqfs")


def test_an_unpacked_tree_is_not_stored_under_a_claimed_key(session: Session, layer: Path) -> None:
    noted(settled(layer))
    return_layer(session, "claimed", layer)
    assert layer.exists()
    assert not (session.paths.cache / "layers/claimed").exists()


@pytest.mark.parametrize("foreign", ["renamed", "of another user", "of an earlier version"])
def test_a_tree_is_used_under_its_own_key_and_by_its_owner_alone(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    def unsquashed(_session: Session, source: FileSlice, tree: Path) -> None:
        tree.mkdir()
        (tree / "from").write_text(source.path.name)

    monkeypatch.setattr(trees, "_unpack", unsquashed)
    forged = unpack_cached(session, FileSlice(tmp_path / "forged", 0, 1), key="sha256:11")
    place = forged.parent.with_name("sha256-22")
    if foreign == "renamed":
        forged.parent.rename(place)
    elif foreign == "of an earlier version":
        forged.parent.rename(place.with_name("22"))
    else:
        forged.parent.rename(place)
        (place / "key").write_text("sha256:22")
        monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
        monkeypatch.setattr(os, "getegid", lambda: place.stat().st_gid)
        with pytest.raises(CheckFailed, match="in the cache belong to another user"):
            unpack_cached(session, FileSlice(tmp_path / "genuine", 0, 1), key="sha256:22")
        return
    genuine = unpack_cached(session, FileSlice(tmp_path / "genuine", 0, 1), key="sha256:22")
    assert (genuine / "from").read_text() == "genuine"


def test_an_image_that_changes_while_it_is_unpacked_leaves_no_tree(session: Session, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    packed = tmp_path / "x.sqfs"
    run_pack(session, tmp_path / "empty", packed, time=1)
    with pytest.raises(ImageError, match="changed while it was unpacked"):
        unpack_cached(session, whole_of(packed), key="sha256:11", look_again=lambda: "sha256:22")
    assert not (session.paths.cache / "trees/sha256-11").exists()


def describe(session: Session, layer: Path, key: str) -> LayerTree:
    """Pack a layer, and describe its tree."""
    entries = {name: entry for name, entry in tree_digests.describe_entries(layer).items() if name != LOCK[1:]}
    (layer / LOCK[1:]).write_text(f"lock of {key}\n")
    packed = layer.with_name(f"{key}.sqfs")
    run_pack(session, layer, packed, time=7)
    return LayerTree(key, whole_of(packed), entries)


def change(layer: Path) -> None:
    (layer / f"{SITE}/top.py").write_text("other\n")
    (layer / f"{SITE}/pkg/data/a.py").unlink()
    (layer / "opt/argosy/env/lib64").unlink()
    (layer / "opt/argosy/env/lib64").symlink_to("other")
    (layer / f"{SITE}/new/empty").mkdir(parents=True)
    (layer / f"{SITE}/new/b.py").write_text("new\n")


def test_a_tree_is_made_of_links_to_the_unchanged_files_of_another(session: Session, layer: Path) -> None:
    old = describe(session, layer, "old")
    first = unpack_cached(session, old.packed, key="old")
    change(layer)
    new = describe(session, layer, "new")
    link_unchanged(session, old, new)
    tree = session.paths.cache / "trees/new/root"
    assert digest_tree(tree) == digest_tree(layer)
    assert unpack_cached(session, new.packed, key="new") == tree
    assert (tree / "opt/argosy/enter").samefile(first / "opt/argosy/enter")
    assert not (tree / f"{SITE}/top.py").samefile(first / f"{SITE}/top.py")


def test_a_linked_layer_has_no_setuid_files(session: Session, layer: Path, tmp_path: Path) -> None:
    (layer / "opt/argosy/enter").chmod(0o4755)
    store_layer(session, "key", layer)
    link_layer(session, "key", tmp_path, "key")
    assert (tmp_path / "trees/key/root/opt/argosy/enter").stat().st_mode & 0o7777 == 0o755


def test_a_linked_tree_has_no_setuid_files(session: Session, layer: Path) -> None:
    old = describe(session, layer, "old")
    unpack_cached(session, old.packed, key="old")
    change(layer)
    (layer / f"{SITE}/new/b.py").chmod(0o4755)
    link_unchanged(session, old, describe(session, layer, "new"))
    assert (session.paths.cache / f"trees/new/root/{SITE}/new/b.py").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("lacking", ["opt/argosy/enter", "."])
def test_a_layer_is_unpacked_if_the_other_tree_is_not_complete(session: Session, layer: Path, lacking: str) -> None:
    old = describe(session, layer, "old")
    unpack_cached(session, old.packed, key="old")
    missing = session.paths.cache / "trees/old/root" / lacking
    missing.unlink() if missing.is_file() else shutil.rmtree(missing.parent)
    change(layer)
    new = describe(session, layer, "new")
    link_unchanged(session, old, new)
    assert not list((session.paths.cache / "trees").glob("*new*"))
    assert digest_tree(unpack_cached(session, new.packed, key="new")) == digest_tree(layer)
