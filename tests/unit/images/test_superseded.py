"""`argosy images gc`: old versions go if a newer one exists and nothing refers to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.records import replace
from argosy.core.session import Paths, Session
from argosy.host.probe import open_session
from argosy.images.cache import list_superseded, remove_superseded
from argosy.images.catalog import tag_image

DAY = 86400.0


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Give a session whose catalog has a:1 to a:3 and b:1, written on these days, and c."""
    for day, name in enumerate(("a/1", "a/2", "a/3", "b/1", "c")):
        path = tmp_path / "images" / f"{name}.sif"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (day * DAY, day * DAY))
    real = open_session()
    host = replace(real.host, cwd=str(tmp_path), environment={})
    return replace(real, host=host, paths=Paths(tmp_path / "cache", tmp_path / "state", (tmp_path / "images",)))


def names(session: Session, since: float) -> list[tuple[str, str]]:
    return sorted((each.name, each.kept) for each in list_superseded(since, session))


def script(session: Session, text: str, written: float) -> Path:
    path = session.paths.state / "runs/20260101-1/job.sh"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    os.utime(path, (written, written))
    return path


def test_only_versions_with_a_newer_one_are_listed(session: Session) -> None:
    assert names(session, 100 * DAY) == [("a:1", ""), ("a:2", "")]


def test_versions_written_since_then_are_not_listed(session: Session) -> None:
    assert names(session, 0.5 * DAY) == [("a:1", "")]


def test_an_alias_and_the_version_that_the_name_alone_means_stay(session: Session) -> None:
    tag_image("a:1", "good", session)
    images = session.paths.images[0]
    (images / "a/2.sif").rename(images / "a/latest.sif")
    assert names(session, 100 * DAY) == [("a:1", "alias good"), ("a:latest", "a alone means it")]
    remove_superseded(100 * DAY, session)
    assert sorted(path.name for path in (images / "a").iterdir()) == ["1.sif", "3.sif", "latest.sif"]


def test_a_version_stays_while_a_job_that_was_launched_since_then_names_it(session: Session) -> None:
    path = script(session, f"apptainer exec {session.paths.images[0]}/a/1.sif true", 50 * DAY)
    assert names(session, 40 * DAY) == [("a:1", f"named by {path}"), ("a:2", "")]
    assert names(session, 60 * DAY) == [("a:1", ""), ("a:2", "")]


def test_images_of_a_project_stay(session: Session, tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text("")
    elsewhere = replace(session, paths=replace(session.paths, images=(tmp_path / "mine",)))
    assert names(elsewhere, 100 * DAY) == []


def test_a_dry_run_removes_nothing(session: Session) -> None:
    images = session.paths.images[0]
    assert [each.name for each in remove_superseded(100 * DAY, session, dry=True)] == ["a:2", "a:1"]
    assert len(list(images.rglob("*.sif"))) == 5
    remove_superseded(100 * DAY, session)
    assert sorted(str(path.relative_to(images)) for path in images.rglob("*.sif")) == ["a/3.sif", "b/1.sif", "c.sif"]


def test_a_folder_that_hides_another_of_the_same_name_loses_only_its_own_version(
    session: Session, tmp_path: Path
) -> None:
    first = tmp_path / "first/a/1.sif"
    first.parent.mkdir(parents=True)
    first.write_bytes(b"y")
    both = replace(session, paths=replace(session.paths, images=(tmp_path / "first", *session.paths.images)))
    remove_superseded(100 * DAY, both)
    assert first.exists()
    assert not (session.paths.images[0] / "a/1.sif").exists()
