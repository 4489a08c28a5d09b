"""Folders of packages come into a build as copies: a build may write into them, and leaves nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.backends.backends import RootfsSpec
from argosy.builder.backends.container import BuildContainer
from argosy.builder.python import local_sources
from argosy.builder.python.local_sources import bring_in, repository_around
from argosy.core.model import Bind, Choice
from tests.unit.machines import make_session


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name in ("src/mine/__init__.py", ".git/HEAD", "venv/pyvenv.cfg", "venv/lib/x.py", "src/__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "pyproject.toml").touch()
    (folder / "big.sif").touch()
    (folder / "link").symlink_to("src")
    (folder / "gone").symlink_to("nowhere")
    return folder


def build_container(folder: Path) -> BuildContainer:
    return BuildContainer(Choice("build-backend", "root", "", ""), RootfsSpec("", 0), "", make_session(folder))


def test_a_package_is_a_copy_without_what_is_no_source(tmp_path: Path, package: Path) -> None:
    (bind,) = bring_in((str(package), "/no/such/folder"), build_container(tmp_path), tmp_path / "work")
    copy = Path(bind.source)
    assert (bind.target, bind.read_only, copy.is_relative_to(tmp_path / "work")) == (str(package), False, True)
    found = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_symlink() or path.is_file()}
    assert found == {"src/mine/__init__.py", ".git/HEAD", "pyproject.toml", "link", "gone"}


def test_the_repository_around_a_package_is_shown_for_its_tags(tmp_path: Path, package: Path) -> None:
    (package / "models").mkdir()
    (package / "models/pyproject.toml").touch()
    around, copy = bring_in((str(package / "models"),), build_container(tmp_path), tmp_path / "work")
    assert around == Bind(str(package), str(package), read_only=True)
    assert (copy.target, copy.read_only) == (str(package / "models"), False)
    assert repository_around(package / "models", package / "home") is None
    assert repository_around(package, tmp_path / "home") is None


def test_other_folders_and_files_are_shown_as_they_are(tmp_path: Path) -> None:
    assert bring_in((str(tmp_path),), build_container(tmp_path), tmp_path / "work") == (
        Bind(str(tmp_path), str(tmp_path), read_only=True),
    )


def test_a_package_with_data_beside_it_is_built_where_it_is(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_sources, "MOST_FILES", 2)
    assert bring_in((str(package),), build_container(tmp_path), tmp_path / "work") == (
        Bind(str(package), str(package)),
    )
    assert list((tmp_path / "work/sources").iterdir()) == []
