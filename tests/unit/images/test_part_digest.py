"""The remembered digests of an image's parts: whose memos are believed, and for which file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from argosy.images.part_digest import cached_digest, describe_part, part_digest

DATA = b"0123456789"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "x.sif"
    file.write_bytes(b"head" + DATA + b"tail")
    return file


def memo_of(cache: Path) -> Path:
    (memo,) = (cache / "digests").iterdir()
    return memo


def test_a_digest_is_that_of_the_parts_bytes_and_is_remembered(image: Path, tmp_path: Path) -> None:
    part = describe_part(image, 4, len(DATA))
    assert cached_digest(part, tmp_path) == ""
    assert part_digest(part, tmp_path) == f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    assert cached_digest(part, tmp_path) == part_digest(part, tmp_path)


def test_without_remember_nothing_is_written(image: Path, tmp_path: Path) -> None:
    assert part_digest(describe_part(image, 0, 4), tmp_path / "cache", remember=False)
    assert not (tmp_path / "cache").exists()


def test_a_file_whose_bytes_changed_under_the_same_times_has_another_digest(image: Path, tmp_path: Path) -> None:
    before, status = describe_part(image, 4, len(DATA)), image.stat()
    known = part_digest(before, tmp_path)
    while True:  # the clock of the file system has ticks
        image.write_bytes(b"head" + DATA[::-1] + b"tail")
        os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns))
        after = describe_part(image, 4, len(DATA))
        if after != before:
            break
    assert (after.modified, after.length, after.inode) == (before.modified, before.length, before.inode)
    assert part_digest(after, tmp_path) != known


def test_a_memo_is_valid_for_its_own_file_only(image: Path, tmp_path: Path) -> None:
    """Who may write into the cache could rename the memo of another file."""
    other = tmp_path / "other.sif"
    other.write_bytes(b"other bytes, of another length")
    part, forged = describe_part(image, 0, 8), describe_part(other, 0, 8)
    part_digest(forged, tmp_path)
    memo = memo_of(tmp_path)
    memo.rename(memo.with_name(memo.name.replace(forged.name, part.name)))
    assert cached_digest(part, tmp_path) == ""
    assert part_digest(part, tmp_path) == f"sha256:{hashlib.sha256(image.read_bytes()[:8]).hexdigest()}"


@pytest.mark.parametrize("text", [b"", b"{", b'{"part": 1, "digest": "sha256:0"}', b"\xff"])
def test_a_damaged_memo_is_ignored(image: Path, tmp_path: Path, text: bytes) -> None:
    part = describe_part(image, 4, len(DATA))
    digest = part_digest(part, tmp_path)
    memo_of(tmp_path).write_bytes(text)
    assert cached_digest(part, tmp_path) == ""
    assert part_digest(part, tmp_path) == digest


def test_a_path_that_is_not_utf_8_has_a_digest(image: Path, tmp_path: Path) -> None:
    strange = image.rename(Path(os.fsdecode(os.fsencode(image) + b"\xe9")))
    assert part_digest(describe_part(strange, 4, len(DATA)), tmp_path) == f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_a_memo_of_another_user_is_ignored(image: Path, tmp_path: Path) -> None:
    part = describe_part(image, 4, len(DATA))
    digest = part_digest(part, tmp_path)
    memo = memo_of(tmp_path)
    memo.write_text(memo.read_text().replace(digest, "sha256:planted"))
    assert cached_digest(part, tmp_path) == "sha256:planted"
    os.chown(memo, 4711, 4711)
    assert cached_digest(part, tmp_path) == ""
    assert part_digest(part, tmp_path) == digest


def test_a_pipe_in_the_place_of_a_memo_is_not_waited_for(image: Path, tmp_path: Path) -> None:
    part = describe_part(image, 4, len(DATA))
    digest = part_digest(part, tmp_path)
    memo = memo_of(tmp_path)
    memo.unlink()
    os.mkfifo(memo)
    assert (cached_digest(part, tmp_path), part_digest(part, tmp_path)) == ("", digest)


def test_an_image_in_a_folder_that_is_not_utf8_has_a_digest(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "x.sif").write_bytes(DATA)
    part = describe_part(folder / "x.sif", 0, len(DATA))
    assert part_digest(part, tmp_path / "cache") == f"sha256:{hashlib.sha256(DATA).hexdigest()}"
