"""The architecture of an image that does not record it is that of its shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from argosy.core.errors import ImageError
from argosy.core.model import Image, ImageKind
from argosy.diagnostics.check import check_image
from argosy.host.probe import open_session
from argosy.images import architecture
from argosy.images.architecture import with_architecture
from argosy.images.find import open_reference
from argosy.images.open import refuse_other_arch
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import open_tables

NAMES = {0x3E: "amd64", 0xB7: "arm64", 0x03: ""}


def tree_with_shell(folder: Path, machine: int, size: int = 1000) -> Path:
    """Write a root file system whose shell has an ELF header for a machine."""
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "etc").mkdir()
    (folder / "bin").symlink_to("usr/bin")
    (folder / "usr/bin/sh").symlink_to("../bin/./dash")
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little")
    (folder / "usr/bin/dash").write_bytes(header + os.urandom(size))
    (folder / "usr/bin/a").write_text("before it in the same fragment")
    return folder


def pack(tree: Path, *options: str) -> Image:
    packed = tree.with_suffix(".sqsh")
    words = ["mksquashfs", str(tree), str(packed), "-noappend", "-quiet", "-no-progress", *options]
    subprocess.run(words, check=True)
    return Image(str(packed), ImageKind.SQUASHFS, "", "", base_size=packed.stat().st_size)


@pytest.mark.parametrize("machine", NAMES)
@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize("options", [("gzip",), ("zstd",), ("gzip", "-noD", "-noF"), ("zstd", "-no-fragments")])
def test_the_header_of_the_shell_in_a_squashfs_is_read(
    tmp_path: Path, machine: int, size: int, options: tuple[str, ...]
) -> None:
    image = pack(tree_with_shell(tmp_path / "root", machine, size), "-comp", *options)
    assert with_architecture(image).arch == NAMES[machine]


def test_the_header_of_the_shell_in_a_folder_is_read(tmp_path: Path) -> None:
    tree = tree_with_shell(tmp_path / "root", 0xB7)
    assert with_architecture(Image(str(tree), ImageKind.TREE, "", "")).arch == "arm64"


def test_an_image_whose_shell_cannot_be_read_has_no_known_architecture(tmp_path: Path) -> None:
    assert with_architecture(pack(tree_with_shell(tmp_path / "xz", 0xB7), "-comp", "xz")).arch == ""
    for number, target in enumerate(("sh", "/none", "../../../etc")):
        tree = tree_with_shell(tmp_path / str(number), 0xB7)
        (tree / "usr/bin/sh").unlink()
        (tree / "usr/bin/sh").symlink_to(target)
        assert with_architecture(pack(tree)).arch == ""
    (tmp_path / "cut.sqsh").write_bytes(b"hsqs" + bytes(200))
    assert with_architecture(Image(str(tmp_path / "cut.sqsh"), ImageKind.SQUASHFS, "", "")).arch == ""
    known = Image(str(tmp_path / "none"), ImageKind.SQUASHFS, "", "amd64")
    assert with_architecture(known) == known


def test_an_image_of_another_architecture_without_a_lock_is_refused_before_it_starts(tmp_path: Path) -> None:
    session = open_session()
    other = {"x86_64": 0xB7}.get(session.host.arch, 0x3E)
    image = pack(tree_with_shell(tmp_path / "root", other))
    opened = open_reference(image.path, session)
    with pytest.raises(ImageError, match="is for another architecture"):
        refuse_other_arch(opened.image, session.host.arch)
    site = "isambard-ai" if NAMES[other] == "amd64" else "lumi-g"
    found = {each.what: each for each in check_image(session, image.path, site)}
    assert found["architecture"].state.value == "fail"


def test_a_place_outside_of_any_block_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is a number in the file of somebody else; as many bytes were unpacked before it."""
    image = pack(tree_with_shell(tmp_path / "root", 0xB7), "-comp", "gzip")
    monkeypatch.setattr(architecture, "_offset_in_fragment", lambda _tables, _place: 1 << 30)
    with open_tables(FileSlice(Path(image.path), 0, image.base_size)) as tables:
        place = tables.find("/usr/bin/dash").entry.place
        tables.unpack = lambda _data, most: pytest.fail(f"{most} bytes are unpacked")
        assert architecture._first_bytes(tables, place) == b""
    assert with_architecture(image).arch == ""
