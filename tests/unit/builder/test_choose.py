"""The bases that may take the default one's place, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.bases.choose import other_bases
from argosy.core.records import replace
from argosy.sites.profile_parts import SiteBase
from argosy.sites.read import read_site

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
