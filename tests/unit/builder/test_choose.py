"""The bases that may take the default one's place, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.bases import choose
from argosy.builder.bases.choose import open_default_base, other_bases, refuse_base_around
from argosy.core.errors import ToolMissing, UsageError
from argosy.core.records import replace
from argosy.sites.profile_parts import SiteBase
from argosy.sites.read import read_site
from tests.unit.machines import make_session

SITE = read_site("lumi-g")


@pytest.mark.parametrize(
    ("needs", "image"),
    [
        ((), "docker://debian:bookworm-slim"),
        (("python3", "python3-venv"), "docker://python:3.11-slim-bookworm"),
        (("python3", "python3-venv", "git"), "docker://python:3.11-bookworm"),
    ],
)
def test_an_image_of_a_registry_meets_the_needs_of_the_environment(needs: tuple[str, ...], image: str) -> None:
    assert list(other_bases((), needs)) == [image]


def test_an_existing_base_of_the_site_with_python_comes_first(tmp_path: Path) -> None:
    here = tmp_path / "here.sif"
    here.touch()
    bases = (
        SiteBase(name=str(here)),
        SiteBase(name=str(tmp_path / "gone.sif"), holds=("python",)),
        SiteBase(name="docker://site/started", holds=("python",), enter="run"),
        SiteBase(name="docker://site/python", python="3.12"),
    )
    site = replace(SITE, images=replace(SITE.images, bases=bases))
    assert tuple(other_bases((site,), ()))[:2] == (str(here), "docker://site/python")
    assert next(other_bases((site,), ("python3",))) == "docker://site/python"


def test_the_hint_without_any_base_names_those_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = (SiteBase(name="/apps/gone.sif", python="3.11"), SiteBase(name="oras://site/started", enter="run"))
    site = replace(SITE, images=replace(SITE.images, bases=bases))
    monkeypatch.setattr(choose, "sites_here", lambda _host: (site,))
    with pytest.raises(ToolMissing) as missing:
        open_default_base("debian:bookworm", make_session(tmp_path / "cache"), tmp_path)
    assert "; bases of lumi-g: /apps/gone.sif, oras://site/started" in missing.value.hint


def make_rootfs(folder: Path) -> Path:
    for name in ("bin", "etc"):
        (folder / name).mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("base", "work", "output", "what"),
    [
        ("/", "", "/elsewhere/x.sif", "is this whole machine"),
        ("link-to-root", "", "/elsewhere/x.sif", "is this whole machine"),
        ("rootfs", "rootfs/tmp", "/elsewhere/x.sif", "contains the work files"),
        ("rootfs/", "", "rootfs/x.sif", "contains the output"),
        ("around", "", "/elsewhere/x.sif", "contains the work files"),
    ],
)
def test_a_root_file_system_with_folders_that_the_build_writes_to_is_refused(
    base: str, work: str, output: str, what: str, tmp_path: Path
) -> None:
    make_rootfs(tmp_path / "rootfs")
    make_rootfs(tmp_path / "around")
    (tmp_path / "link-to-root").symlink_to("/")
    session = replace(make_session(tmp_path / "around/cache"), work=str(tmp_path / work) if work else "")
    with pytest.raises(UsageError, match=f"cannot build over .*: it {what}") as refused:
        refuse_base_around(str(tmp_path / base), tmp_path / output, session)
    assert str(tmp_path) in refused.value.evidence


def test_a_root_file_system_beside_the_output_is_a_base(tmp_path: Path) -> None:
    make_rootfs(tmp_path / "rootfs")
    session = make_session(tmp_path / "cache")
    for base in ("rootfs", "missing", "rootfs-2"):
        refuse_base_around(str(tmp_path / base), tmp_path / "rootfs-2.sif", session)
    refuse_base_around(str(tmp_path / "rootfs"), Path(), session)
    refuse_base_around("debian:bookworm", tmp_path / "x.sif", session)
    context = make_rootfs(tmp_path / "context")
    (context / "Dockerfile").write_text("FROM scratch\n")
    refuse_base_around(str(context), context / "x.sif", session)  # an engine builds it
