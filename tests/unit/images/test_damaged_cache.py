"""What lies damaged in the cache, after a full disk or a machine that went down, is made or fetched anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from argosy.builder.bases import base as bases
from argosy.builder.bases.base import open_base
from argosy.builder.downloads import fetched_uv, installed_uv
from argosy.core.process import FakeRunner, RealRunner
from argosy.core.session import Session
from tests.unit.machines import make_host, make_session


def pack(file: Path) -> None:
    """Pack an empty folder, which is all that an image needs."""
    (file.parent / "tree").mkdir()
    words = ["mksquashfs", str(file.parent / "tree"), str(file), "-quiet"]
    subprocess.run(words, check=True, capture_output=True)


def test_a_damaged_base_in_the_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bases/debian/base.sqfs"
    made: list[str] = []

    def make_debian(reference: str, _session: Session, _needs: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
        if not file.is_file():
            file.parent.mkdir(parents=True)
            pack(file)
            made.append(reference)
        return file, ()

    monkeypatch.setattr(bases, "make_debian", make_debian)
    session = make_session(tmp_path, runner=FakeRunner())
    whole = open_base("debian:bookworm", session, tmp_path).digest
    file.write_bytes(file.read_bytes()[:100])
    assert open_base("debian:bookworm", session, tmp_path).digest.startswith("sha256:")
    assert whole.startswith("sha256:")
    assert made == ["debian:bookworm"] * 2


@pytest.mark.parametrize(
    ("text", "mode", "whole"),
    [("#!/bin/sh\necho uv 1\n", 0o755, True), ("#!/bin/sh\necho uv 1\n", 0o644, False), ("", 0o755, False)],
    ids=["whole", "not to be started", "empty"],
)
def test_a_cached_uv_that_does_not_run_is_ignored(tmp_path: Path, text: str, mode: int, *, whole: bool) -> None:
    session = make_session(tmp_path, make_host(), RealRunner())
    version = subprocess.run((installed_uv(session.host), "--version"), capture_output=True, text=True, check=True)
    uv = tmp_path / "tools" / f"uv-{version.stdout.split()[1]}-x86_64-unknown-linux-musl/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(text)
    uv.chmod(mode)
    assert (fetched_uv(session) is not None) == whole
