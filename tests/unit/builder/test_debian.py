"""The Debian bases in the cache: what belongs to their key, and the time of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.bases.debian import debian_file, explain_bootstrap, make_debian
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.session import Session
from tests.unit.machines import make_host, make_session

SNAPSHOT = "deb https://snapshot.debian.org/archive/debian/20260101T000000Z bookworm main"


def session_with(folder: Path, **environment: str) -> Session:
    host = make_host("mmdebstrap", environment=environment)
    return make_session(folder, host, FakeRunner([((), Reply(1, "", "no"))]))


@pytest.mark.parametrize("other", [{"ARGOSY_DEBIAN_MIRROR": SNAPSHOT}, {"SOURCE_DATE_EPOCH": "1700000000"}], ids=str)
def test_a_base_from_another_mirror_or_with_other_times_is_another_base(tmp_path: Path, other: dict[str, str]) -> None:
    usual = debian_file("debian:bookworm", session_with(tmp_path), ())
    assert debian_file("debian:bookworm", session_with(tmp_path, **other), ()) != usual
    assert debian_file("debian:bookworm", session_with(tmp_path, **dict.fromkeys(other, "")), ()) == usual


def test_a_base_is_made_with_the_time_of_the_variable(tmp_path: Path) -> None:
    session = session_with(tmp_path, SOURCE_DATE_EPOCH="1700000000")
    with pytest.raises(ArgosyError):
        make_debian("debian:bookworm", session, ())
    assert isinstance(session.runner, FakeRunner)
    (command,) = session.runner.seen
    assert command.env is not None
    assert command.env["SOURCE_DATE_EPOCH"] == "1700000000"


@pytest.mark.parametrize("text", ["now", "@1700000000", "-1", "1.5", "²", "9" * 5000, str(1 << 32)])
def test_a_time_that_is_not_a_number_of_seconds_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="invalid SOURCE_DATE_EPOCH") as error:
        make_debian("debian:bookworm", session_with(tmp_path, SOURCE_DATE_EPOCH=text), ())
    assert "seconds since 1970" in error.value.hint


def test_a_disk_that_is_nearly_full_is_refused_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argosy.builder.bases.debian.SPACE", 1 << 60)
    session = session_with(tmp_path)
    with pytest.raises(CheckFailed, match="cannot create debian:bookworm: no space left") as error:
        make_debian("debian:bookworm", session, ())
    assert "are needed" in error.value.evidence
    assert isinstance(session.runner, FakeRunner)
    assert session.runner.seen == []


@pytest.mark.parametrize(
    "told",
    [
        "E: failed to execute mmdebstrap: No such file or directory",
        "E: newuidmap 42 0 1000 1 failed",
        "E: unable to pick chroot mode automatically",
        "E: something else",
    ],
)
def test_the_base_that_a_hint_names_has_the_python_that_a_build_of_packages_needs(told: str) -> None:
    error = explain_bootstrap("bookworm", "", Command(("mmdebstrap",)), Reply(1, "", told))
    assert "use another base, for example docker://python:3.11-slim-bookworm" in error.hint
