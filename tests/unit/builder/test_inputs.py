"""Steps and stages in a lock: recorded with the digests of their files, given back, and seen when they change."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from argosy.builder.bases.base import Base
from argosy.builder.image_cache import has_same_content
from argosy.builder.inputs import (
    FROM_BUNDLE,
    BuildInputs,
    digest_copied,
    locked_project,
    read_inputs,
    read_lock,
    record_stages,
    record_steps,
    refuse_changed_steps,
    refuse_other_base,
    refuse_other_stage,
)
from argosy.builder.records import BuildRequest
from argosy.core.errors import CheckFailed, ImageError, UsageError
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.images.open import OpenedImage
from argosy.recipes.lock import (
    Lock,
    LockedBase,
    LockedPackage,
    LockedSource,
    LockedStep,
    SourceKind,
    Tools,
    parse_lock,
    render_lock,
)
from argosy.recipes.project_file import Project, read_project
from argosy.recipes.recipe import Recipe
from argosy.recipes.relock import changed_steps
from tests.unit.machines import make_session

DIGEST = "5" * 64
TEXT = f"""\
[image]
base = "debian:bookworm"

[[step]]
run = "echo one"
before = "packages"

[[step]]
copy = ["data", "word.txt"]
to = "/opt/data/"

[[step]]
fetch = {{ url = "https://me:planted@example.org/model.bin", sha256 = "{DIGEST}" }}
to = "/opt/model.bin"

[[stage]]
name = "compile"
base = "debian:bookworm+gcc"
copy = "word.txt"
run = ["cc x.c", "./x"]
results = {{ "x" = "/usr/bin/x" }}
"""
EMPTY = Lock(LockedBase("debian:bookworm", "sha256:" + "a" * 64, 1, "x86_64"), Tools("0.1.0"), 1, "sha256:" + "b" * 64)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/inner").write_text("inner\n")
    (tmp_path / "word.txt").write_text("word\n")
    (tmp_path / "argosy.toml").write_text(TEXT)
    return read_project(tmp_path / "argosy.toml")


def locked(project: Project) -> Lock:
    lock = replace(EMPTY, steps=record_steps(project), stages=record_stages(project))
    return parse_lock(render_lock(lock), "argosy.lock")


def test_a_lock_restores_its_steps(project: Project) -> None:
    lock = locked(project)
    again = locked_project(lock, "argosy.lock", project.folder)
    assert again is not None
    assert (record_steps(again), record_stages(again)) == (lock.steps, lock.stages)
    assert lock.steps[1].copy[1].sha256 == hashlib.sha256(b"word\n").hexdigest()
    assert "planted" not in render_lock(lock)
    assert locked_project(EMPTY, "argosy.lock", project.folder) is None


def test_the_base_of_a_stage_is_locked_by_its_bytes_and_its_registry_digest(project: Project) -> None:
    opened = OpenedImage(Image("/x", ImageKind.SQUASHFS, "", "amd64"))
    base = Base("docker://x/devel@sha256:" + "1" * 64, opened, lambda: "sha256:" + "2" * 64)
    (stage,) = record_stages(project, {"compile": base})
    assert (stage.digest, stage.pinned) == (base.digest, base.reference)
    lock = replace(EMPTY, steps=record_steps(project), stages=(stage,))
    again = parse_lock(render_lock(lock), "argosy.lock")
    assert again.stages == (stage,)
    assert changed_steps(again, record_steps(project), record_stages(project)) == ()
    refuse_other_stage(stage, base)
    with pytest.raises(CheckFailed, match="the base of stage compile is not the one that was locked") as caught:
        refuse_other_stage(stage, replace(base, digesting=lambda: "sha256:" + "3" * 64))
    assert "2222" in caught.value.evidence
    assert "3333" in caught.value.evidence


RESTORE = "restore the locked files, or run argosy lock again"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data/inner", "step 2 has changed: data"),
        ("word.txt", "step 2 has changed: word.txt\nstage compile has changed"),
    ],
)
def test_a_copied_file_that_changed_or_is_gone_is_refused(project: Project, name: str, said: str) -> None:
    lock = locked(project)
    put = f"put the files that steps copy into {project.folder}"
    gone = put if name == "word.txt" else RESTORE  # the folder of the other file still exists
    for change, hint in (("other\n", RESTORE), (None, gone)):
        (project.folder / name).write_text(change) if change else (project.folder / name).unlink()
        with pytest.raises(CheckFailed) as caught:
            locked_project(lock, "argosy.lock", project.folder)
        assert caught.value.evidence == said
        assert caught.value.hint == hint


def test_a_changed_new_or_missing_step_is_named(project: Project) -> None:
    lock = locked(project)
    (project.folder / "argosy.toml").write_text(TEXT.replace("echo one", "echo two") + '\n[[step]]\nrun = "true"\n')
    with pytest.raises(CheckFailed) as caught:
        refuse_changed_steps(lock, read_project(project.path), "argosy.lock")
    assert caught.value.evidence == "step 1 has changed: echo two\nstep 4 is not in the lock: true"
    with pytest.raises(CheckFailed, match="not those that were locked") as caught:
        refuse_changed_steps(lock, None, "argosy.lock")
    assert "stage compile is only in the lock" in caught.value.evidence


def test_an_image_of_other_steps_does_not_match_the_lock(project: Project) -> None:
    lock = locked(project)
    assert has_same_content(lock, lock)
    assert not has_same_content(lock, replace(lock, steps=lock.steps[1:]))
    assert not has_same_content(lock, replace(lock, stages=()))
    added = LockedPackage("other", "1.0", (), SourceKind.LOCAL)
    assert not has_same_content(lock, replace(lock, packages=(*lock.packages, added)))
    assert not has_same_content(lock, replace(lock, content=f"sha256:{'f' * 64}"))
    assert not has_same_content(lock, replace(lock, base=replace(lock.base, digest=f"sha256:{'f' * 64}")))


def test_the_execute_bits_of_a_copied_file_count_and_its_group_bits_do_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    plain = digest_copied(tmp_path)
    (tmp_path / "x").chmod(0o664)
    assert digest_copied(tmp_path) == plain
    (tmp_path / "x").chmod(0o755)
    assert digest_copied(tmp_path) != plain


def test_a_lock_cannot_bring_in_a_step_that_a_project_could_not(tmp_path: Path) -> None:
    odd = replace(EMPTY, steps=(LockedStep(url="ftp://example.org/x", sha256=DIGEST, to="/x"),))
    with pytest.raises(UsageError, match="needs an address"):
        locked_project(odd, "argosy.lock", tmp_path)
    with pytest.raises(ImageError, match="cannot use the lock"):
        parse_lock(render_lock(odd).replace(DIGEST, "5"), "argosy.lock")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "numpy\nflash-attn\n",
            ["--no-build-isolation flash-atn: no line requests this package; did you mean flash-attn?"],
        ),
        ("numpy\n", ["--no-build-isolation flash-atn: no line requests this package"]),
        ("https://x.example/what.zip\n", []),
        ("flash-atn\n", []),
    ],
)
def test_a_package_to_build_last_that_no_line_requests_is_noted(tmp_path: Path, text: str, notes: list[str]) -> None:
    (tmp_path / "r.txt").write_text(text)
    request = BuildRequest(base="", output=tmp_path / "x.sif", sources=(tmp_path / "r.txt",), unisolated=("Flash_Atn",))
    assert list(map(str, read_inputs(request, make_session(tmp_path), None).recipe.notes)) == notes


def test_other_files_and_another_base_than_a_bundles_are_refused_in_its_terms(tmp_path: Path) -> None:
    (tmp_path / "argosy.lock").write_text(render_lock(replace(EMPTY, sources=(LockedSource("own.txt", DIGEST),))))
    (tmp_path / "other.txt").write_text("six\n")
    locked = str(tmp_path / "argosy.lock")
    request = BuildRequest((tmp_path / "other.txt",), "", Path("x.sif"), locked=locked, bundle=tmp_path)
    with pytest.raises(CheckFailed, match="the bundle was made from other files") as files:
        read_inputs(request, make_session(tmp_path), read_lock(locked, make_session(tmp_path)))
    assert files.value.evidence == "other.txt is not in the lock\nown.txt is in the lock but was not passed"
    assert files.value.hint == FROM_BUNDLE
    inputs = BuildInputs(Recipe(), "", EMPTY)
    base = Base("other.sif", OpenedImage(Image("/x", ImageKind.SQUASHFS, "", "amd64")), lambda: "sha256:" + "2" * 64)
    for bundle, hint in ((None, "argosy lock again"), (tmp_path, "argosy bundle again")):
        with pytest.raises(CheckFailed, match="is not the one that was locked") as caught:
            refuse_other_base(inputs, base, bundle)
        assert hint in caught.value.hint
