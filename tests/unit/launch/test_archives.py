"""Launches of an image archive for a site that this machine is not part of."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from argosy.core.session import Session
from argosy.images.registry import fetch
from argosy.images.registry.references import Reference
from argosy.images.sif.write import plan_system_part, whole_of, write_sif
from tests.unit.cli.test_cli import argosy, dry_run


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


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize(("chdir", "image"), [("", "new.sif"), ("sub", "../new.sif")])
def test_the_job_of_an_archive_needs_its_image_as_a_file_in_the_submit_folder(chdir: str, image: str) -> None:
    said = dry_run("--site", "lumi-g", *(["--chdir", chdir] if chdir else []), image="docker-archive:a/new.tar")
    assert f"argosy_image={image}\n" in said.stdout
    assert "run first: argosy images pull docker-archive:a/new.tar -o new.sif" in said.stdout
    assert "cache" not in said.stdout.partition("main()")[2].partition("argosy_helpers")[0]


@pytest.mark.usefixtures("fetched")
def test_the_cache_is_not_named_to_someone_who_passed_an_archive() -> None:
    refused = dry_run("--site", "nvidia-pyxis", "--gpus-per-node", "1", image="docker-archive:new.tar")
    assert "docker-archive:new.tar is a SIF file, but pyxis" in refused.stderr
    assert "argosy images export docker-archive:new.tar --format sqsh -o new.sqsh" in refused.stderr
    assert (
        "run it         argosy run docker-archive:new.tar --"
        in argosy("images", "info", "docker-archive:new.tar").stdout
    )
    options = ("--image", "docker-archive:new.tar", "--account", "p", "--script", "v.sh")
    kept = argosy("sites", "validate", "lumi-g", *options)
    assert "the image must be a file at lumi-g" in kept.stderr
    assert "docker-archive:new.tar is an image archive" in kept.stderr
