from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.core.render import render_size
from argosy.images.identify import MEMBERS_LIMIT, FileKind, Kind, identify_file, read_tar_names
from argosy.images.sif.write import write_sif

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIGEST = "0123456789abcdef" * 4
ROOT_FS = ("./", "./bin/sh", "./etc/os-release")
DOCKER = (f"{DIGEST}/", f"{DIGEST}/layer.tar", f"{DIGEST}.json", "manifest.json", "repositories")
NEWER_DOCKER = ("blobs/", f"blobs/sha256/{DIGEST}", "index.json", "manifest.json", "oci-layout")
OCI = (f"blobs/sha256/{DIGEST}", "index.json", "oci-layout")


def tar(*names: str, size: int = 10, layout: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=layout) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = 0 if name.endswith("/") else size
            archive.addfile(member, io.BytesIO(bytes(size)))
    return buffer.getvalue()


def identify(folder: Path, data: bytes, name: str = "thing") -> FileKind:
    (folder / name).write_bytes(data)
    return identify_file(folder / name)


@pytest.mark.parametrize(
    ("data", "kind", "description"),
    [
        (b"", Kind.EMPTY, "an empty file"),
        (b"hsqs" + bytes(996), Kind.SQUASHFS, "a squashfs image of 1.0 kB"),
        (bytes(1080) + b"\x53\xef" + bytes(10), Kind.EXT, "an ext3 or ext4 image of 1.1 kB"),
        (b"\x7fELF\x02", Kind.OTHER, "a program or library (ELF) of 5 bytes"),
        (b"PK\x03\x04", Kind.OTHER, "a zip file of 4 bytes"),
        (b"\x1f\x8bnot whole", Kind.COMPRESSED, "a gzip file of 11 bytes"),
        (b"\x28\xb5\x2f\xfd????", Kind.COMPRESSED, "a zstd file of 8 bytes"),
        (b"  <!DOCTYPE HTML><p>", Kind.TEXT, "an HTML page (was a download refused?)"),
        (b"<html lang=en>", Kind.TEXT, "an HTML page (was a download refused?)"),
        (b'<?xml version="1.0"?><Error>', Kind.TEXT, "an XML text (was a download refused?)"),
        (b'{"errors": []}', Kind.TEXT, "a JSON text (was a download refused?)"),
        (b"#!/bin/sh\n", Kind.TEXT, "a script"),
        (b"Bootstrap: docker\n", Kind.TEXT, "a text file"),
        (bytes(5000), Kind.OTHER, "a file of zeros of 5.0 kB (was a copy interrupted?)"),
        (b"\x00\x01\x02", Kind.OTHER, "a file of unknown kind of 3 bytes"),
    ],
)
def test_a_file_is_identified_by_its_first_bytes(tmp_path: Path, data: bytes, kind: Kind, description: str) -> None:
    found = identify(tmp_path, data)
    assert (found.kind, found.description) == (kind, description)


def test_a_git_lfs_pointer_is_reported_with_the_command_to_get_the_file(tmp_path: Path) -> None:
    assert "git lfs pull" in identify(tmp_path, b"version https://git-lfs.github.com/spec/v1\n").description


def test_a_written_sif_is_identified(tmp_path: Path) -> None:
    write_sif(tmp_path / "a.img", [], uuid=uuid.UUID(int=1), time=0, arch="amd64")
    assert identify_file(tmp_path / "a.img") == FileKind(Kind.SIF, "a SIF image of 32 kB")


def test_a_real_squashfs_is_identified(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    words = ["mksquashfs", str(tmp_path / "tree"), str(tmp_path / "image"), "-quiet", "-no-progress"]
    subprocess.run(words, check=True)
    assert identify_file(tmp_path / "image").kind == Kind.SQUASHFS


@pytest.mark.parametrize(
    ("compress", "compression"),
    [(bytes, "none"), (gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz"), (zstd.compress, "zstd")],
)
@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (ROOT_FS, Kind.TAR),
        (DOCKER, Kind.DOCKER_ARCHIVE),
        (NEWER_DOCKER, Kind.DOCKER_ARCHIVE),
        (OCI, Kind.OCI_ARCHIVE),
        (("manifest.json", "bin/sh"), Kind.DOCKER_ARCHIVE),
        (("etc/manifest.json",), Kind.TAR),
        (("./", "./oci-layout", "./index.json"), Kind.OCI_ARCHIVE),
        (("./",), Kind.TAR),
    ],
)
def test_a_tar_is_identified_by_its_members(
    tmp_path: Path, compress: Callable[[bytes], bytes], compression: str, names: tuple[str, ...], kind: Kind
) -> None:
    found = identify(tmp_path, compress(tar(*names)))
    assert (found.kind, found.compression) == (kind, compression)


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(tmp_path: Path, layout: int) -> None:
    names = ("short", "d" * 60 + "/" + "f" * 60, "end/")
    (tmp_path / "a.tar").write_bytes(tar(*names, layout=layout, size=1000))
    read = list(read_tar_names(tmp_path / "a.tar", "none"))
    assert (read[0], len(read), read[-1].rstrip("/")) == ("short", 3, "end")


def test_layers_before_the_manifest_are_skipped_not_read(tmp_path: Path) -> None:
    size = 60 << 30
    member = tarfile.TarInfo(f"{DIGEST}/layer.tar")
    member.size = size
    with (tmp_path / "big.tar").open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.seek(size, os.SEEK_CUR)
        file.write(tar("manifest.json"))
    assert identify_file(tmp_path / "big.tar").kind == Kind.DOCKER_ARCHIVE


def test_a_compressed_archive_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.images.identify.BUDGET", 4096)
    data = gzip.compress(tar(f"blobs/sha256/{DIGEST}", "index.json", "manifest.json", size=100_000))
    (tmp_path / "a.tar.gz").write_bytes(data)
    assert list(read_tar_names(tmp_path / "a.tar.gz", "gzip")) == [f"blobs/sha256/{DIGEST}"]
    assert identify_file(tmp_path / "a.tar.gz").kind == Kind.OCI_ARCHIVE


def test_a_tar_of_very_many_members_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar(*(f"f{number}" for number in range(MEMBERS_LIMIT + 5)), size=0))
    assert len(list(read_tar_names(tmp_path / "a.tar", "none"))) == MEMBERS_LIMIT


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ((), Kind.EMPTY_DIRECTORY),
        (("oci-layout", "index.json", "blobs/"), Kind.OCI_LAYOUT),
        (("bin/", "etc/"), Kind.ROOT_DIRECTORY),
        (("usr/bin/",), Kind.ROOT_DIRECTORY),
        (("bin/",), Kind.DIRECTORY),
        (("usr/share/", "etc/"), Kind.DIRECTORY),
        (("oci-layout",), Kind.DIRECTORY),
    ],
)
def test_a_directory_is_identified_by_its_entries(tmp_path: Path, entries: tuple[str, ...], kind: Kind) -> None:
    for entry in entries:
        if entry.endswith("/"):
            (tmp_path / entry).mkdir(parents=True)
        else:
            (tmp_path / entry).touch()
    assert identify_file(tmp_path).kind == kind


def test_a_root_directory_whose_bin_is_a_link_is_identified(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "bin").symlink_to("/nowhere/bin")
    assert identify_file(tmp_path).kind == Kind.ROOT_DIRECTORY


def test_a_missing_path_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path / "gone", tmp_path / "file" / "below", tmp_path / "link", "bad\0name"):
        assert identify_file(path).kind == Kind.MISSING


def test_a_circular_link_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert identify_file(tmp_path / "link").kind == Kind.UNREADABLE


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert identify_file(tmp_path / "pipe") == FileKind(Kind.OTHER, "neither a file nor a directory")
    assert identify_file("/dev/null").kind == Kind.OTHER


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_300_000, "12 MB"), (3_400_000_000, "3.4 GB")],
)
def test_file_sizes_have_decimal_units(size: int, words: str) -> None:
    assert render_size(size) == words


MAGICS = [b"", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"hsqs", tar("x")[:512], gzip.compress(tar("x", "y"))[:60]]


@given(magic=st.sampled_from(MAGICS), data=st.binary(max_size=1500))
@settings(max_examples=4 * settings().max_examples)
def test_every_content_has_an_answer(tmp_path_factory: pytest.TempPathFactory, magic: bytes, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(magic + data)
    found = identify_file(path)
    assert found.kind in Kind
    assert found.description.isprintable()


@given(data=st.data())
@settings(max_examples=4 * settings().max_examples)
def test_a_damaged_tar_is_an_explained_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    changed = bytearray(tar("blobs/", "manifest.jso", "x" * 150))
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=12)), max_size=4)):
        changed[place : place + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.tar"
    path.write_bytes(changed)
    assert identify_file(path).description.isprintable()
