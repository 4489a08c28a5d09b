"""Flat images: the base in them is found again byte for byte, and the layer with everything that it removed."""

from __future__ import annotations

import os
import stat
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.core.errors import ImageError
from argosy.core.session import Session
from argosy.images.flat import BASE_NAME, FlatLayer, find_base_spans, plan_base_part, source_of
from argosy.images.part_digest import describe_part, describe_spans, part_digest
from argosy.images.remote import send_image
from argosy.images.sif.format import DataType, Sif
from argosy.images.sif.read import read_sif
from argosy.images.sif.write import FileSlice, NewPart, plan_json_part, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.join import join_squashfs
from argosy.images.squashfs.superblock import SplitFile
from argosy.images.unpack import find_layer, unpack_source
from tests.unit.machines import real_session

WHITEOUT = None
BASE: dict[str, str | None] = {
    "bin/sh": "shell",
    "etc/old": "old",
    "etc/kept": "kept",
    "usr/big": os.urandom(1200 << 10).hex(),
    "lib/a": "a",
}
LAYER: dict[str, str | None] = {
    "opt/argosy/env/x": "x",
    "etc/old": "new",
    "etc/more": "more",
    "lib": WHITEOUT,
    "bin/sh": WHITEOUT,
}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return real_session(tmp_path)


def pack(folder: Path, name: str, files: Mapping[str, str | None], *options: str) -> Path:
    """Pack files; those without content are whiteouts."""
    tree = folder / f"{name}.tree"
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            os.mknod(tree / path, stat.S_IFCHR | 0o644, 0)
        else:
            (tree / path).write_text(content)
    out = folder / f"{name}.sqfs"
    argv = ["mksquashfs", str(tree), str(out), "-noappend", "-quiet", "-no-progress", "-all-root", *options]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return out


def flat_image(folder: Path, base: Path, layers: list[Path], name: str = "flat.sif") -> Sif:
    """Write a flat image of a base and layers."""
    path = folder / name
    joined = join_squashfs(whole_of(base), [whole_of(layer) for layer in layers], time=0)
    parts = [plan_base_part(whole_of(base)), plan_system_part(joined, arch="amd64"), plan_json_part("n", b"1")]
    write_sif(path, parts, uuid=uuid.UUID(int=1), time=0, arch="amd64")
    return read_sif(path)


def base_in(sif: Sif) -> SplitFile:
    """Return the base in a flat image."""
    assert sif.system
    found = source_of(sif.path, find_base_spans(sif, sif.system))
    assert isinstance(found, SplitFile)
    return found


def layer_in(sif: Sif) -> FlatLayer:
    """Return the layer in a flat image."""
    assert sif.system
    return FlatLayer(FileSlice(sif.path, sif.system.offset, sif.system.size), base_in(sif))


def files_of(tree: Path) -> dict[str, str | None]:
    """Read a tree in the form of `pack`."""
    found = ((str(path.relative_to(tree)), path) for path in tree.rglob("*"))
    return {name: WHITEOUT if path.is_char_device() else path.read_text() for name, path in found if not path.is_dir()}


@pytest.mark.parametrize(
    "options", [("-comp", "zstd"), ("-comp", "gzip"), ("-comp", "gzip", "-b", "1M", "-no-exports")]
)
def test_the_base_in_a_flat_image_is_that_of_the_build(
    tmp_path: Path, session: Session, options: tuple[str, ...]
) -> None:
    base, layer = pack(tmp_path, "base", BASE, *options), pack(tmp_path, "layer", LAYER, "-no-xattrs", *options)
    found = base_in(flat_image(tmp_path, base, [layer]))
    spans = tuple((part.offset, part.length) for part in found.slices)
    cache = session.paths.cache
    whole = part_digest(describe_part(base, 0, base.stat().st_size), cache)
    assert part_digest(describe_spans(found.path, spans), cache) == whole
    unpack_source(session, found, tmp_path / "out", doing="unpacking")
    assert files_of(tmp_path / "out") == BASE
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out"]


def test_the_layer_of_a_flat_image_is_that_of_the_build(tmp_path: Path, session: Session) -> None:
    base = pack(tmp_path, "base", BASE)
    above = [pack(tmp_path, "layer", LAYER), pack(tmp_path, "more", {"opt/argosy/env/y": "y", "etc/more": "most"})]
    layer = layer_in(flat_image(tmp_path, base, above))
    assert find_layer(layer) == (("etc/more", "etc/old", "opt"), ("bin/sh", "lib"))
    unpack_source(session, layer, tmp_path / "out", doing="unpacking")
    assert files_of(tmp_path / "out") == LAYER | {"opt/argosy/env/y": "y", "etc/more": "most"}


def test_a_new_layer_over_the_base_in_a_flat_image_gives_the_bytes_of_one_over_the_base(tmp_path: Path) -> None:
    base, other = pack(tmp_path, "base", BASE), pack(tmp_path, "other", {"opt/argosy/z": "z"})
    old = flat_image(tmp_path, base, [pack(tmp_path, "layer", LAYER)], "old.sif")
    new = flat_image(tmp_path, base, [other], "new.sif")
    found = base_in(old)
    parts = [
        plan_base_part(found),
        plan_system_part(join_squashfs(found, [whole_of(other)], time=0), arch="amd64"),
        plan_json_part("n", b"1"),
    ]
    write_sif(tmp_path / "again.sif", parts, uuid=uuid.UUID(int=1), time=0, arch="amd64")
    assert (tmp_path / "again.sif").read_bytes() == new.path.read_bytes()


def test_a_damaged_description_of_the_base_is_named(tmp_path: Path) -> None:
    base = pack(tmp_path, "base", BASE)
    broken = NewPart(DataType.GENERIC, base.read_bytes()[:96], name=BASE_NAME)
    small = plan_system_part(whole_of(pack(tmp_path, "small", {"a": "a"})), arch="amd64")
    write_sif(tmp_path / "x.sif", [broken, small], uuid=uuid.UUID(int=1), time=0, arch="amd64")
    sif = read_sif(tmp_path / "x.sif")
    assert sif.system
    with pytest.raises(ImageError):
        find_base_spans(sif, sif.system)


@pytest.mark.parametrize("there", ["flat", "delta"])
def test_the_files_of_the_base_are_not_sent_to_a_machine_that_has_them(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    ssh, far = tmp_path / "bin/ssh", tmp_path / "far"
    for folder in (ssh.parent, far):
        folder.mkdir()
    ssh.write_text('#!/bin/sh\nfor program; do :; done\nexec sh -c "$program"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    base = pack(tmp_path, "base", BASE)
    image = flat_image(tmp_path, base, [pack(tmp_path, "layer", LAYER)])
    if there == "flat":
        flat_image(far, base, [pack(tmp_path, "other", {"opt/other": "other"})], "old.sif")
    else:
        system = plan_system_part(whole_of(base), arch="amd64")
        write_sif(far / "old.sif", [system], uuid=uuid.UUID(int=1), time=0, arch="amd64")
    report = send_image(str(image.path), f"far:{far}", session)
    assert report.base_from == f"{far}/old.sif"
    assert report.sent < image.size - base.stat().st_size * 0.9
    assert (far / "flat.sif").read_bytes() == image.path.read_bytes()
