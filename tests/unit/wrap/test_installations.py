"""An installation that is copied into an image gets the files of Argosy's layer that its base does not have."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from argosy.builder.output.assemble import Content, make_whole, write_whole
from argosy.core.layout import APPTAINER_BASE
from argosy.core.session import Session
from argosy.images.flat import base_source
from argosy.images.open import open_image
from argosy.images.sif.write import FileSlice, plan_system_part, whole_of, write_sif
from argosy.images.unpack import find_known
from argosy.recipes.lock import Lock, LockedBase, Tools
from argosy.wrap.installations import pack_folder
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind
from tests.unit.machines import real_session

FILE = APPTAINER_BASE.lstrip("/")
LOCK = Lock(LockedBase("base.sif", "sha256:" + "a" * 64, 1, "amd64"), Tools("0.1.0"), 1, "sha256:" + "b" * 64)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return real_session(tmp_path)


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    program = tmp_path / "tool/bin/hello"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path / "tool"


def pack_base(folder: Path, *names: str, compressor: str = "zstd") -> FileSlice:
    """Pack a root file system with files of these names."""
    tree = folder / "root"
    for name in ("etc/os-release", *names):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("of the base\n")
    words = ["mksquashfs", str(tree), f"{tree}.sqfs", "-noappend", "-quiet", "-no-xattrs", "-comp", compressor]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return whole_of(Path(f"{tree}.sqfs"))


def write_sif_base(folder: Path, *names: str, compressor: str) -> Path:
    """Write an image of another tool."""
    system = plan_system_part(pack_base(folder, *names, compressor=compressor), arch="amd64")
    write_sif(folder / "base.sif", [system], uuid=uuid.UUID(int=1), time=1, arch="amd64")
    return folder / "base.sif"


def write_flat_base(folder: Path, session: Session, *, compressor: str) -> Path:
    """Write a flat image of Argosy, whose layer has Apptainer's file."""
    base, layer = pack_base(folder, compressor=compressor), folder / "layer"
    (layer / FILE).parent.mkdir(parents=True)
    (layer / FILE).write_text("of the layer\n")
    content = Content("base", base, layer, LOCK, "amd64", 1)
    write_whole(folder / "flat.sif", make_whole(content, session, folder), content, [])
    return folder / "flat.sif"


def wrap(installation: Path, base: Path, session: Session) -> tuple[bool, bool]:
    """Wrap an installation, and return whether the base and the layer of the new image have Apptainer's file."""
    folder = installation.parent / "new"
    folder.mkdir()
    pack_folder(PrefixRecipe(PrefixSourceKind.FOLDER, (str(installation),), base=str(base)), folder, session)
    image = open_image(folder / "image.sif").image
    layer = FileSlice(Path(image.path), image.layer_offset, image.layer_size)
    tree = folder / "tree"
    offset = str(base_source(image).slice_at(0, 96).offset)
    words = ["unsquashfs", "-quiet", "-no-progress", "-d", str(tree), "-o", offset, image.path, FILE]
    subprocess.run(words, check=False, capture_output=True)
    return (tree / FILE).exists(), APPTAINER_BASE in find_known(layer, (APPTAINER_BASE,))


@pytest.mark.parametrize("compressor", ["zstd", "xz"])
@pytest.mark.parametrize("names", [(), (FILE,)], ids=["without", "with"])
def test_the_layer_has_apptainers_file_if_the_base_does_not(
    installation: Path, session: Session, names: tuple[str, ...], compressor: str
) -> None:
    base = write_sif_base(installation.parent, *names, compressor=compressor)
    assert wrap(installation, base, session) == (bool(names), not names)


def test_a_file_in_the_layer_of_a_flat_base_is_not_in_the_new_image(installation: Path, session: Session) -> None:
    base = write_flat_base(installation.parent, session, compressor="zstd")
    assert wrap(installation, base, session) == (False, True)


def test_a_file_in_a_layer_that_was_packed_with_the_base_is_in_the_new_image(
    installation: Path, session: Session
) -> None:
    base = write_flat_base(installation.parent, session, compressor="xz")
    assert wrap(installation, base, session) == (True, False)
