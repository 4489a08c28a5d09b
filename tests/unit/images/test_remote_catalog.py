"""The catalog of another machine, which sh searches there, finds the same files as the catalog of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.process import RealRunner
from argosy.core.records import replace
from argosy.images.catalog import find_in_catalog, find_version
from argosy.images.remote import find_remote_image
from tests.unit.machines import make_session


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return a catalog with versions, aliases of several forms, and a folder that is a link."""
    folder = tmp_path / "a catalog"
    for path in ("tools/1.sif", "tools/2.sqsh", "tools/x/3.sif", "old/latest.sif", "old/9.sif", "one.sif", "plain"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    for age, path in enumerate(("tools/2.sqsh", "tools/1.sif", "old/latest.sif")):
        os.utime(folder / path, (1000 - age, 1000 - age))
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "mine.sif").write_text("disk")
    links = {
        "tools/stable.sif": "1.sif",
        "tools/second.sif": "stable.sif",
        "tools/up.sif": "../one.sif",
        "linked/up.sif": "../one.sif",
        "tools/whole.sif": str(folder / "tools/1.sif"),
        "tools/disk.sif": str(tmp_path / "disk/link.sif"),
        "tools/gone.sif": "0.sif",
    }
    (folder / "linked").symlink_to("tools/x")
    (tmp_path / "disk" / "link.sif").symlink_to("mine.sif")
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("tools:1", "tools/1", "tools", "old", "old:9", "one", "plain", "tools:stable", "tools:second", "tools:up"),
        *(
            "tools:whole",
            "tools:disk",
            "tools:gone",
            "tools:none",
            "none",
            "one.sif",
            "my image",
            "tools:*",
            "linked:up",
        ),
    ],
)
def test_a_name_means_the_same_file_there_as_here(
    name: str, catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOSY_IMAGES", f"/nosuch:{catalog}")
    session = make_session(tmp_path)
    session = replace(session, paths=replace(session.paths, images=(Path("/nosuch"), catalog)))
    here = find_version(name, session) or find_in_catalog(name, session)
    there = find_remote_image(RealRunner(), name, f"{tmp_path}/none/{name}", ())
    assert there == ((str(here), here.stat().st_size) if here else None)


def test_a_file_precedes_a_name_and_folders_of_the_site_follow_the_users(
    catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ARGOSY_IMAGES", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("PROJECT", "a catalog")
    folders = ("/$NOSUCH", f"{tmp_path}/${{PROJECT}}")
    find = RealRunner()
    assert find_remote_image(find, "one", f"{tmp_path}/one", folders) == (f"{catalog}/one.sif", 7)
    own = tmp_path / ".local/share/argosy/images"
    own.mkdir(parents=True)
    (own / "one.sif").write_text("own")
    assert find_remote_image(find, "one", f"{tmp_path}/one", folders) == (f"{own}/one.sif", 3)
    (tmp_path / "one").write_text("file")
    assert find_remote_image(find, "one", f"{tmp_path}/one", folders) == (f"{tmp_path}/one", 4)


def test_a_folder_with_a_variable_that_is_not_set_has_no_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_DISK", raising=False)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "1.sif").write_text("tools")
    folder = f"$NO_SUCH_DISK{tmp_path}"
    assert find_remote_image(RealRunner(), "tools:1", "/nosuch", (folder,)) is None
    monkeypatch.setenv("NO_SUCH_DISK", "/")
    assert find_remote_image(RealRunner(), "tools:1", "/nosuch", (folder,)) is not None
