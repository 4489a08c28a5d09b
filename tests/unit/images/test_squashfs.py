from __future__ import annotations

import os
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from argosy.core.errors import ImageError
from argosy.images.squashfs.superblock import SUPERBLOCK, Superblock, read_superblock, render_compressor

if TYPE_CHECKING:
    from pathlib import Path


def pack(folder: Path, *options: str) -> Path:
    (folder / "tree").mkdir(exist_ok=True)
    (folder / "tree" / "hello").write_text("hello\n" * 1000)
    image = folder / "image.sqfs"
    words = ["mksquashfs", str(folder / "tree"), str(image), "-noappend", "-quiet", "-no-progress", *options]
    subprocess.run(words, check=True)
    return image


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return pack(tmp_path_factory.mktemp("whole"), "-comp", "zstd", "-mkfs-time", "1700000000").read_bytes()


@pytest.mark.parametrize("compressor", ["gzip", "zstd", "xz", "lz4", "lzo"])
def test_the_superblock_has_mksquashfs_compressor_and_block_size(tmp_path: Path, compressor: str) -> None:
    image = pack(tmp_path, "-comp", compressor, "-b", "256K", "-mkfs-time", "77", "-no-xattrs")
    block = read_superblock(image)
    assert (block.compressor, block.block_size, block.mkfs_time, block.inodes) == (compressor, 262144, 77, 2)
    assert image.stat().st_size - 4096 < block.bytes_used <= image.stat().st_size


def test_a_squashfs_inside_a_file_is_read_at_its_offset(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "alone").write_bytes(whole)
    (tmp_path / "inside").write_bytes(b"\xff" * 5000 + whole + b"behind")
    assert read_superblock(tmp_path / "inside", 5000) == read_superblock(tmp_path / "alone")


def test_an_unknown_compressor_shows_as_its_number(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "image").write_bytes(whole[:20] + b"\x63\0" + whole[22:])
    assert read_superblock(tmp_path / "image").compressor == "compressor 99"
    assert render_compressor(0) == "compressor 0"


@pytest.mark.parametrize(
    ("layout", "offset", "value", "words"),
    [
        ("<4s", 0, b"sqsh", "read: b'sqsh'"),
        ("<I", 4, 0, "0 inodes"),
        ("<I", 12, 3 << 12, "blocks of 12288 bytes"),
        ("<I", 12, 1 << 21, "blocks of 2097152 bytes"),
        ("<I", 12, 0, "blocks of 0 bytes"),
        ("<H", 22, 65535, r"2\^65535"),
        ("<H", 28, 3, r"version 3\.0"),
        ("<H", 30, 1, r"version 4\.1"),
        ("<Q", 40, 0, "0 bytes used"),
        ("<Q", 40, 1 << 60, "1152921504606846976 bytes used"),
        ("<Q", 48, 5, "a table at byte 5"),
        ("<Q", 64, 1 << 63, "a table at byte 9223372036854775808"),
    ],
)
def test_an_impossible_number_is_an_error_that_shows_it(
    tmp_path: Path, whole: bytes, layout: str, offset: int, value: int | bytes, words: str
) -> None:
    changed = bytearray(whole)
    struct.pack_into(layout, changed, offset, value)
    (tmp_path / "image").write_bytes(changed)
    with pytest.raises(ImageError, match=words) as caught:
        read_superblock(tmp_path / "image")
    assert str(tmp_path / "image") in caught.value.what
    assert caught.value.hint


def test_a_squashfs_cut_off_anywhere_is_an_error(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "image").write_bytes(whole)
    used = read_superblock(tmp_path / "image").bytes_used
    for cut in [*range(100), used // 2, used - 1]:
        (tmp_path / "image").write_bytes(whole[:cut])
        with pytest.raises(ImageError):
            read_superblock(tmp_path / "image")
    (tmp_path / "image").write_bytes(whole[:used])
    assert read_superblock(tmp_path / "image").bytes_used == used


@pytest.mark.parametrize("offset", [-1, 1 << 40, 1 << 70])
def test_an_offset_outside_of_the_file_is_an_error(tmp_path: Path, whole: bytes, offset: int) -> None:
    (tmp_path / "image").write_bytes(whole)
    with pytest.raises(ImageError):
        read_superblock(tmp_path / "image", offset)


def test_anything_but_a_file_is_an_error_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "gone", "bad\0name"):
        with pytest.raises(ImageError):
            read_superblock(path)


@given(block=st.binary(max_size=200), magic=st.booleans())
@settings(max_examples=4 * settings().max_examples)
def test_arbitrary_bytes_are_a_superblock_within_the_file_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, block: bytes, *, magic: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.sqfs"
    path.write_bytes(b"hsqs" * magic + block)
    try:
        found: Superblock | None = read_superblock(path)
    except ImageError:
        found = None
    assert found is None or found.bytes_used <= path.stat().st_size


@given(st.lists(st.tuples(st.integers(0, SUPERBLOCK.size - 1), st.integers(0, 255)), max_size=4))
@settings(max_examples=4 * settings().max_examples)
@example([])
def test_a_changed_superblock_is_within_the_file_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(whole)
    for at, value in changes:
        data[at] = value
    path = tmp_path_factory.getbasetemp() / "changed.sqfs"
    path.write_bytes(data)
    try:
        assert read_superblock(path).bytes_used <= len(whole)
    except ImageError:
        assert data != whole
