"""An image made before is copied only where it stands as it was noted, and is of the same lock."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argosy.builder.bases.engines import EngineOptions
from argosy.builder.image_cache import (
    MAX_REMEMBERED,
    copy_cached_image,
    copy_unchanged,
    memo_file,
    read_remembered,
    read_state,
    remember_image,
    replace_own_output,
)
from argosy.builder.inputs import BuildInputs
from argosy.builder.records import BuildRequest, StepTimes
from argosy.core.errors import ImageError, UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images.formats import OutputFormat
from argosy.images.open import open_image
from argosy.images.part_digest import describe_part
from argosy.images.sif.write import FileSlice, plan_json_part, plan_overlay_part, plan_system_part, write_sif
from argosy.recipes.lock import Lock, LockedBase, LockedSource, LockedStep, Tools, render_lock
from argosy.recipes.project_file import read_project
from argosy.recipes.recipe import Recipe
from tests.unit.machines import real_session

LOCK = Lock(
    base=LockedBase("base.sqfs", "sha256:" + "a" * 64, 1, "amd64"),
    tools=Tools("0.1.0", mksquashfs="4.5.1"),
    time=1,
    content="sha256:" + "b" * 64,
)
SUPERBLOCK = 96
"""Bytes of a squashfs before the data of its files."""


@pytest.fixture(scope="module")
def squashfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("again")
    (folder / "tree").mkdir()
    words = ["mksquashfs", str(folder / "tree"), str(folder / "x.sqfs")]
    subprocess.run([*words, "-quiet", "-no-progress"], check=True)
    return folder / "x.sqfs"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return real_session(tmp_path)


@pytest.fixture
def make(tmp_path: Path, squashfs: Path, session: Session) -> Callable[[str, Lock], Path]:
    """Give what writes an image of a lock, and notes it."""

    def write(name: str, lock: Lock) -> Path:
        part = FileSlice(squashfs, 0, squashfs.stat().st_size)
        parts = (
            plan_system_part(part, arch="amd64"),
            plan_overlay_part(part, group=1, arch="amd64"),
            plan_json_part("argosy.lock", render_lock(lock).encode(), group=1),
        )
        path = tmp_path / name
        path.unlink(missing_ok=True)
        write_sif(path, parts, uuid=uuid.UUID(int=1), time=1, arch="amd64")
        remember_image(BuildRequest((), "", path), lock, session)
        return path

    return write


@pytest.fixture
def spec(tmp_path: Path) -> BuildRequest:
    return BuildRequest((), "", tmp_path / "new.sif", locked="argosy.lock")


def notes_of(spec: BuildRequest, session: Session, lock: Lock = LOCK) -> tuple[str, ...] | None:
    """Say what a build tells that copies; None where it would go on to install."""
    report = copy_cached_image(spec, BuildInputs(Recipe(), "", lock), StepTimes(session))
    return report.notes if report else None


def test_an_image_of_the_same_lock_is_copied_and_the_copy_is_used_when_the_first_is_removed(
    make: Callable[[str, Lock], Path], spec: BuildRequest, session: Session
) -> None:
    first = make("first.sif", LOCK)
    data = first.read_bytes()
    assert notes_of(spec, session) == (f"copied from {first}, which has the same content",)
    assert spec.output.read_bytes() == data
    first.unlink()
    later = replace(spec, output=spec.output.with_name("later.sif"))
    assert notes_of(later, session) == (f"copied from {spec.output}, which has the same content",)
    with pytest.raises(UsageError, match="already exists"):
        notes_of(later, session)


def rewrite(path: Path) -> None:
    """Change a byte of the layer, and nothing that the file's header says."""
    data = bytearray(path.read_bytes())
    data[-600] ^= 1
    path.write_bytes(data)
    os.utime(path, (5, 5))


def rewrite_and_restore_time(path: Path) -> None:
    """Change a byte of a file in the layer, and set the time of the last change back, as `touch -r` does."""
    before, status = describe_part(path, 0, 0), path.stat()
    data = bytearray(path.read_bytes())
    data[open_image(path).image.layer_offset + SUPERBLOCK] ^= 1
    while describe_part(path, 0, 0) == before:  # the clock of the file system has ticks
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def other_file(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.sif"))


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, 4711, 4711)


@pytest.mark.parametrize(
    "change",
    [rewrite, rewrite_and_restore_time, other_file, move_away, give_away, lambda path: os.truncate(path, 9000)],
)
def test_a_modified_image_is_skipped(
    make: Callable[[str, Lock], Path], spec: BuildRequest, session: Session, change: Callable[[Path], None]
) -> None:
    change(make("first.sif", LOCK))
    assert notes_of(spec, session) is None
    assert not spec.output.exists()


def test_an_image_that_is_written_to_while_it_is_copied_is_refused(
    make: Callable[[str, Lock], Path], tmp_path: Path
) -> None:
    path = make("first.sif", LOCK)
    state = read_state(path)
    assert state
    os.utime(path, (5, 5))
    with pytest.raises(ImageError, match="changed during the copy"):
        copy_unchanged(state, tmp_path / "copy")


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": EngineOptions(no_cache=True)},
        {"site": "lumi"},
        {"base": "other.sif"},
        {"flatten": True},
        {"form": OutputFormat.SQSH},
        {"after": (Path("last.sh"),)},
        {"before": (Path("first.sh"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_build_with_other_settings_is_not_reused(
    make: Callable[[str, Lock], Path], spec: BuildRequest, session: Session, changes: dict[str, Any]
) -> None:
    make("first.sif", LOCK)
    assert notes_of(replace(spec, **changes), session) is None


def test_a_note_of_another_lock_is_ignored(
    make: Callable[[str, Lock], Path], spec: BuildRequest, session: Session
) -> None:
    make("first.sif", LOCK)
    other = replace(LOCK, variables=(("A", "1"),))
    assert notes_of(spec, session, other) is None
    lies = memo_file(other, session.paths.cache, flatten=None)
    lies.write_text(memo_file(LOCK, session.paths.cache, flatten=None).read_text())
    assert notes_of(spec, session, other) is None
    for text in ("", "[1]", '[{"path": 1}]', '[{"path": 1, "inode": [], "size": 1, "changed": 1}]', "{}", "7"):
        lies.write_text(text)
        assert notes_of(spec, session, other) is None


def test_an_image_of_another_packer_than_the_locks_and_the_installed_one_is_skipped(
    make: Callable[[str, Lock], Path], spec: BuildRequest, session: Session
) -> None:
    make("first.sif", replace(LOCK, tools=Tools("0.1.0", mksquashfs="3.0")))
    assert notes_of(spec, session) is None
    assert notes_of(spec, session, replace(LOCK, tools=Tools("0.1.0", mksquashfs="3.0"))) is not None


def test_an_image_in_a_folder_of_odd_bytes_is_made_and_not_noted(
    make: Callable[[str, Lock], Path], session: Session
) -> None:
    assert make(os.fsdecode(b"caf\xe9.sif"), LOCK).is_file()
    assert read_remembered(memo_file(LOCK, session.paths.cache, flatten=None)) == ()


def test_the_newest_few_images_of_a_lock_are_noted_once_each(
    make: Callable[[str, Lock], Path], session: Session
) -> None:
    paths = [make(f"{number % 6}.sif", LOCK) for number in range(7)]
    noted = read_remembered(memo_file(LOCK, session.paths.cache, flatten=None))
    assert [each.path for each in noted] == [str(path) for path in paths[: -MAX_REMEMBERED - 1 : -1]]


STEP = '[image]\nbase = "root"\n[[step]]\nrun = "true"\n'


@pytest.mark.parametrize(
    ("table", "lock", "may"),
    [
        ('[image]\npip = "env/requirements.txt"\n', {"sources": ("requirements.txt",)}, True),
        ('[image]\npip = "requirements.txt"\n', {"sources": ("environment.yml",)}, False),
        ('[image]\npip = "requirements.txt"\n', {}, False),
        (STEP, {"steps": (LockedStep(run=("true",)),)}, True),
        (STEP, {}, False),
    ],
)
def test_a_build_of_a_project_replaces_only_the_projects_own_image(
    make: Callable[[str, Lock], Path], tmp_path: Path, session: Session, table: str, lock: dict[str, Any], *, may: bool
) -> None:
    sources = tuple(LockedSource(name, "a" * 64) for name in lock.get("sources", ()))
    image = make("own.sif", replace(LOCK, sources=sources, steps=lock.get("steps", ())))
    file = tmp_path / "argosy.toml"
    file.write_text(table.replace("[image]\n", '[image]\noutput = "own.sif"\n'))
    request = BuildRequest((), "", image, project=read_project(file))
    assert replace_own_output(request, session).force is may
    elsewhere = make("other.sif", replace(LOCK, sources=sources))
    assert not replace_own_output(replace(request, output=elsewhere), session).force


def test_a_damaged_output_of_a_project_is_not_replaced(tmp_path: Path, session: Session) -> None:
    file, image = tmp_path / "argosy.toml", tmp_path / "own.sif"
    file.write_text('[image]\npip = "requirements.txt"\noutput = "own.sif"\n')
    request = BuildRequest((), "", image, project=read_project(file))
    for content in (None, b"", b"x" * 40_000, b"#!/usr/bin/env run-singularity\n" + b"\0SIF_MAGIC\0" * 9):
        if content is not None:
            image.write_bytes(content)
        assert not replace_own_output(request, session).force
