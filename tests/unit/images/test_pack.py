"""Packing and unpacking: options of mksquashfs, content digests of trees, whiteouts."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import CheckFailed, ImageError, ToolFailed, ToolMissing
from argosy.core.model import Host
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.host.probe import open_session
from argosy.images.squashfs.pack import (
    is_whiteout,
    normalise_tree,
    pack_options,
    pack_tar,
    parse_whiteouts,
    plan_pack,
    restore_whiteouts,
    run_pack,
    run_unsquashfs,
    write_whiteout,
)
from argosy.images.tree_digests import digest_tree
from tests.unit.machines import make_host

FILES = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "ü x", "-c", "d\n"]), min_size=1, max_size=3).map("/".join),
    st.binary(max_size=20),
    min_size=1,
    max_size=8,
)


def host(cpus: int = 4, memory: int = 16 << 30, **environment: str) -> Host:
    return make_host(cpus=cpus, memory=memory, environment=environment)


def make(root: Path, files: dict[str, bytes], order: Callable[[list[str]], list[str]] = list) -> Path:
    root.mkdir()
    for name in order(sorted(files)):
        path = root / name
        if any(other != name and other.startswith(name + "/") for other in files):
            continue  # a name cannot be a file and a folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


@given(files=FILES)
def test_the_digest_does_not_depend_on_the_order_in_which_files_came(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("trees")
    one = make(folder / "one", files)
    two = make(folder / "two", files, order=lambda names: names[::-1])
    assert digest_tree(one) == digest_tree(two)


@given(files=FILES, changed=st.data())
def test_every_byte_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], changed: st.DataObject
) -> None:
    root = make(tmp_path_factory.mktemp("trees") / "one", files)
    before = digest_tree(root)
    victim = changed.draw(st.sampled_from(sorted(p for p in root.rglob("*") if p.is_file())))
    victim.write_bytes(victim.read_bytes() + b"x")
    assert digest_tree(root) != before


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = make(tmp_path / "tree", {"bin/tool": b"#!/bin/sh\n", "lib/a": b"1", "lib/b": b"2"})
    (root / "link").symlink_to("lib/a")
    return root


def touch(tree: Path) -> None:
    os.utime(tree / "lib/a", (1, 1))


def own(tree: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tree / "lib/a", 1, 1)


def relink(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("lib/b")


def link_to_file(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").write_text("lib/a")


@pytest.mark.parametrize("change", [touch, own])
def test_times_and_owners_do_not_count(tree: Path, change: Callable[[Path], None]) -> None:
    before = digest_tree(tree)
    change(tree)
    assert digest_tree(tree) == before


@pytest.mark.parametrize(
    "change",
    [
        relink,
        link_to_file,
        lambda tree: (tree / "bin/tool").chmod(0o755),
        lambda tree: (tree / "lib").chmod(0o700),
        lambda tree: (tree / "lib/a").rename(tree / "lib/c"),
        lambda tree: (tree / "lib/b").unlink(),
        lambda tree: (tree / "empty").mkdir(),
        lambda tree: ((tree / "lib/a").write_bytes(b"2"), (tree / "lib/b").write_bytes(b"1")),
    ],
    ids=["target", "link", "mode", "folder's mode", "name", "absence", "empty folder", "swap"],
)
def test_every_visible_property_changes_the_digest(tree: Path, change: Callable[[Path], object]) -> None:
    before = digest_tree(tree)
    change(tree)
    assert digest_tree(tree) != before


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o007])
def test_a_tree_made_under_any_umask_is_the_same_once_it_is_normalised(tmp_path: Path, umask: int) -> None:
    def lay(root: Path) -> Path:
        (root / "opt/argosy/env/bin").mkdir(parents=True)
        (root / "opt/argosy/env/bin/tool").write_text("x")
        (root / "opt/argosy/env/bin/tool").chmod(0o777 & ~umask | 0o100)
        (root / "opt/argosy/env/text").write_text("y")
        (root / "opt/argosy/env/gone").symlink_to("/nowhere")
        for left in (".lock", ".gitignore", "CACHEDIR.TAG"):
            (root / "opt/argosy/env" / left).write_text(str(umask))
        normalise_tree(root)
        return root

    usual = lay(tmp_path / "usual")
    before = os.umask(umask)
    try:
        other = lay(tmp_path / "other")
    finally:
        os.umask(before)
    assert digest_tree(usual) == digest_tree(other)
    assert (usual / "opt/argosy/env/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert sorted(p.name for p in (usual / "opt/argosy/env").iterdir()) == ["bin", "gone", "text"]


def test_packing_takes_a_share_of_the_memory_and_the_processors_it_may_use() -> None:
    words = pack_options(host(cpus=3, memory=2 << 30), time=7)
    assert words[words.index("-mem") + 1] == "256M"
    assert words[words.index("-processors") + 1] == "3"
    assert words[words.index("-all-time") + 1] == words[words.index("-mkfs-time") + 1] == "7"


@given(st.integers(1 << 20, 1 << 45))
def test_packing_never_takes_less_than_it_needs_nor_a_whole_node(memory: int) -> None:
    words = pack_options(host(memory=memory), time=0)
    assert 64 <= int(words[words.index("-mem") + 1].removesuffix("M")) <= 768


def test_owners_are_kept_only_if_root_made_the_tree() -> None:
    assert "-all-root" in pack_options(host(), time=0)
    assert "-all-root" not in pack_options(host(), time=0, all_root=False)


def test_the_epoch_of_reproducible_builds_does_not_reach_the_packer_twice(tmp_path: Path) -> None:
    command = plan_pack(tmp_path, tmp_path / "x", (), host(SOURCE_DATE_EPOCH="1", PATH="/bin"))
    assert command.env == {"PATH": "/bin"}


def pack_compressed(folder: Path, compression: str, *, cut: int = 0, spoil: int = 0, added: str = "") -> Path:
    """Pack a compressed tar file without its last `cut` bytes, with `spoil` wrong bytes at its end, and more behind."""
    tree = make(folder / "tree", {f"file{n}": os.urandom(40_000) for n in range(8)})
    archive = folder / f"root.tar.{compression}"
    with archive.open("wb") as file:
        words = ["tar", "-C", str(tree), "-cf", "-", "."]
        made = subprocess.run(words, capture_output=True, check=True).stdout
        packed = subprocess.run([compression, "-c"], input=made, capture_output=True, check=True).stdout
        whole = packed[: len(packed) - cut - spoil] + bytes(byte ^ 0xFF for byte in packed[len(packed) - spoil :])
        file.write(whole + added.encode())
    out = folder / "out.sqfs"
    pack_tar(open_session(), archive, out, compression=compression, time=1)
    return out


NEEDS_COMPRESSORS = pytest.mark.skipif(
    not all(map(shutil.which, ("mksquashfs", "gzip", "bzip2", "xz", "zstd"))), reason="a compressor is not installed"
)


@NEEDS_COMPRESSORS
@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd"])
def test_a_compressed_tar_file_is_packed(tmp_path: Path, compression: str) -> None:
    packed = pack_compressed(tmp_path, compression)
    words = ["unsquashfs", "-l", "-d", "", str(packed)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "/file7" in listed.stdout.splitlines()


@NEEDS_COMPRESSORS
@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("damage", [{"spoil": 4}, {"cut": 3}, {"cut": 200_000}], ids=str)
def test_a_damaged_compressed_tar_file_is_refused(tmp_path: Path, compression: str, damage: dict[str, Any]) -> None:
    """A decompressor may write all data before it finds the damage: mksquashfs then ends well."""
    with pytest.raises(ImageError, match=rf"root.tar.{compression} is damaged or incomplete") as error:
        pack_compressed(tmp_path, compression, **damage)
    assert error.value.evidence.startswith(compression)
    assert "again" in error.value.hint


@pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed")
@pytest.mark.parametrize("damage", ["cut in a file", "cut in a header", "spoiled header"])
def test_a_damaged_tar_file_without_compression_is_refused_in_the_same_way(tmp_path: Path, damage: str) -> None:
    """A tar file has checksums of its headers only."""
    tree = make(tmp_path / "tree", {f"file{n}": os.urandom(10_000) for n in range(3)})
    words = ["tar", "-C", str(tree), "-cf", "-", "."]
    made = subprocess.run(words, capture_output=True, check=True).stdout
    header = made.index(b"./file1")
    damaged = {
        "cut in a file": made[: header + 5_000],
        "cut in a header": made[: header + 200],
        "spoiled header": made[: header + 100] + b"x" * 8 + made[header + 108 :],
    }
    (tmp_path / "root.tar").write_bytes(damaged[damage])
    with pytest.raises(ImageError, match=r"root\.tar is damaged or incomplete") as error:
        pack_tar(open_session(), tmp_path / "root.tar", tmp_path / "out.sqfs", compression="none", time=1)
    assert error.value.evidence.startswith("mksquashfs - -tar < ")


@NEEDS_COMPRESSORS
def test_a_warning_of_gzip_about_bytes_behind_the_archive_is_no_damage(tmp_path: Path) -> None:
    assert pack_compressed(tmp_path, "gzip", added="garbage").is_file()


@NEEDS_COMPRESSORS
def test_if_mksquashfs_fails_its_own_message_is_the_evidence(tmp_path: Path) -> None:
    (tmp_path / "out.sqfs").mkdir()
    with pytest.raises(ToolFailed, match=r"packing root.tar.gzip failed") as error:
        pack_compressed(tmp_path, "gzip")
    assert "Destination not block device" in error.value.evidence
    assert "$ mksquashfs - " in error.value.evidence
    assert error.value.evidence.endswith("(exit code 1)")


@NEEDS_COMPRESSORS
def test_a_decompressor_that_the_system_ended_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "bin/xz"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\n[ "$1" != -dc ] || kill -9 $$\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    with pytest.raises(ToolFailed, match=r"packing root.tar.xz failed") as error:
        pack_compressed(tmp_path, "xz")
    assert "memory ran out" in error.value.hint


def test_a_missing_decompressor_is_named(tmp_path: Path) -> None:
    session = replace(open_session(), host=host(PATH=str(tmp_path)), runner=FakeRunner([]))
    with pytest.raises(ToolMissing, match=r"cannot unpack root.tar.zst: zstd is not installed") as error:
        pack_tar(session, tmp_path / "root.tar.zst", tmp_path / "out", compression="zstd", time=1)
    assert "install zstd" in error.value.hint


LISTING = """\
drwxr-xr-x root/root                26 2026-11-21 13:02 /
crw-r--r-- root/root             0,  0 2026-11-21 13:02 /usr/bin/x y
crw-r--r-- root/root             1,  3 2026-11-21 13:02 /dev/null
-rw-r--r-- 0/0                       0 2026-11-21 13:02 /c 0, 0 2026-11-21 13:02 /z
crw------- 2001/2001         0,  0 2026-11-21 13:02 /etc/motd
"""


def test_a_failed_pack_does_not_send_the_user_to_the_removed_tree(tmp_path: Path) -> None:
    runner = FakeRunner([(("mksquashfs",), Reply(1, "", "FATAL ERROR: Out of memory"))])
    with pytest.raises(ToolFailed) as error:
        run_pack(replace(open_session(), runner=runner), tmp_path, tmp_path / "out", time=1)
    assert "Out of memory" in error.value.evidence
    assert "free disk space" in error.value.hint


def test_only_devices_of_number_zero_are_whiteouts() -> None:
    assert parse_whiteouts(LISTING) == ("usr/bin/x y", "etc/motd")


def test_whiteouts_are_created_only_if_missing(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "there").touch()
    (tree / "out").symlink_to(tmp_path)
    restore_whiteouts(tree, ("usr/bin/x y", "there", "out/victim", "../victim"))
    marks = [path for path in (tree / "usr/bin/x y", tree / "usr/bin/.wh.x y") if os.path.lexists(path)]
    assert len(marks) == 1
    assert (tree / "there").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"tree"}


def test_if_the_kernel_forbids_the_device_another_whiteout_is_written_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", forbid)
    restore_whiteouts(tmp_path, ("gone",))
    assert [path.name for path in tmp_path.iterdir()] == [".wh.gone"]
    with pytest.raises(CheckFailed, match="this kernel does not allow whiteouts") as caught:
        write_whiteout(tmp_path / "gone")
    assert "Operation not permitted" in caught.value.evidence


def test_other_files_are_not_whiteouts(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert not is_whiteout(tmp_path / "plain")
    assert not is_whiteout(Path("/dev/null"))


# As root, unsquashfs sets all modes itself.
def test_unpacked_programs_can_be_read_by_others_whatever_the_umask(tmp_path: Path) -> None:
    session, tree = open_session(), tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/sh").touch()
    for path, mode in ((tree, 0o755), (tree / "bin", 0o755), (tree / "bin/sh", 0o755)):
        path.chmod(mode)
    run_pack(session, tree, tmp_path / "image.sqfs", time=1)
    before = os.umask(0o077)
    try:
        run_unsquashfs(session, tmp_path / "image.sqfs", 0, tmp_path / "again", doing="unpacking")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "again/bin/sh").stat().st_mode) == 0o755
