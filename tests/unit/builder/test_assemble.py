"""The copies that a build makes early belong to the image: it does not write the whole image again."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from argosy.builder.bases.base import Base
from argosy.builder.output.assemble import Content, Whole, plan_known_copies, write_delta, write_whole
from argosy.images.open import open_image
from argosy.images.sif.begin import BegunFile
from argosy.images.sif.write import FileSlice, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.join import join_squashfs
from argosy.recipes.lock import Lock, LockedBase, Tools

LOCK = Lock(LockedBase("base.sqfs", "sha256:" + "a" * 64, 1, "amd64"), Tools("0.1.0"), 1, "sha256:" + "b" * 64)


def packed(folder: Path, name: str) -> FileSlice:
    """Give a squashfs with a file and a file in a folder that all of them have."""
    tree = folder / name
    (tree / "shared").mkdir(parents=True)
    for path in (name, f"shared/{name}"):
        (tree / path).write_text(path * 100_000)
    words = ["mksquashfs", str(tree), f"{tree}.sqfs", "-noappend", "-quiet", "-no-xattrs", "-comp", "zstd"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return whole_of(Path(f"{tree}.sqfs"))


def write(output: Path, base: Base, parts: tuple[FileSlice, ...], begun: BegunFile | None, *, flat: bool) -> None:
    if flat:
        whole = Whole(join_squashfs(base.source, parts, time=1), base.source)
        content = Content("x", base.source, None, LOCK, "amd64", 1)
        write_whole(output, whole, content, [], begun)
    else:
        write_delta(output, base, LOCK, join_squashfs(parts[0], parts[1:], time=1), [], begun)


@pytest.mark.parametrize("flat", [True, False])
def test_an_image_is_the_begun_file_with_base_and_parts(tmp_path: Path, *, flat: bool) -> None:
    file, system = tmp_path / "base.sif", plan_system_part(packed(tmp_path, "base"), arch="amd64")
    write_sif(file, [system], uuid=uuid.UUID(int=1), time=0, arch="amd64")
    base = Base("base.sif", open_image(file), lambda: "sha256:" + "a" * 64)
    parts = tuple(packed(tmp_path, name) for name in ("rest", "wheel", "other"))
    folder = tmp_path / "out"
    folder.mkdir()
    with BegunFile(folder / "new.sif") as begun:
        joined = (base.source, *parts) if flat else parts
        begun.copy(plan_known_copies(base, joined[:1], flat=flat))
        begun.copy(plan_known_copies(base, joined, flat=flat))
        begun._wait()
        (early,) = folder.iterdir()
        known = early.stat()
        write(folder / "new.sif", base, parts, begun, flat=flat)
    assert (folder / "new.sif").stat().st_ino == known.st_ino
    write(folder / "plain.sif", base, parts, None, flat=flat)
    assert (folder / "new.sif").read_bytes() == (folder / "plain.sif").read_bytes()
