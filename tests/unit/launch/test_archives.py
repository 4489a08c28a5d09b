"""Launches of an image archive for a site that this machine is not part of."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from argosy.core.session import Session
from argosy.images.registry import fetch
from argosy.images.registry.references import Reference
from argosy.images.sif.write import plan_system_part, whole_of, write_sif
from tests.unit.cli.test_cli import dry_run


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """Convert archives to a file in the cache; list each reference, the architecture, and whether sh was found."""
    seen = []
    image = tmp_path / "cache/fetched/1211/image.sif"
    image.parent.mkdir(parents=True)
    base = tmp_path / "base"
    base.write_bytes(b"hsqs" + bytes(4096))
    write_sif(image, [plan_system_part(whole_of(base), arch="amd64")], uuid=uuid.UUID(int=1), time=0, arch="amd64")

    def fetch_image(reference: Reference, session: Session) -> fetch.Fetched:
        seen.append((str(reference), session.host.target, "sh" in session.host.programs))
        return fetch.Fetched(image, str(reference))

    monkeypatch.setattr(fetch, "fetch_image", fetch_image)
    monkeypatch.setattr("argosy.host.probe.PROGRAMS", ("sh",))
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return seen


def test_an_archive_for_a_site_is_converted_with_the_programs_of_this_machine(
    fetched: list[tuple[str, str, bool]],
) -> None:
    said = dry_run("--site", "lumi-g", image="docker-archive:new.tar")
    assert said.returncode == 0, said.stderr
    assert fetched == [("docker-archive:new.tar", "x86_64", True)]
