"""Detached sessions: names, and what is refused; no container is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.locks import hold_lock, this_owner
from argosy.core.records import replace
from argosy.runtimes.run import RunRequest
from argosy.runtimes.sessions import (
    DetachedSession,
    attach_session,
    entry_command,
    list_sessions,
    start_session,
    stop_session,
)
from tests.unit.machines import real_session

HERE = this_owner("session work")
WORK = DetachedSession("work", "my.sif", "bwrap", HERE)


def record(folder: Path, made: DetachedSession) -> None:
    file = real_session(folder).paths.state / "sessions" / f"{made.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.encode(made))


@pytest.mark.parametrize("name", ["", "4711", "a b", "../x", "-x"])
def test_a_name_is_not_a_number_and_not_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="invalid name"):
        start_session(name, RunRequest("my.sif", ()), real_session(tmp_path))


def test_a_running_session_is_not_replaced(tmp_path: Path) -> None:
    record(tmp_path, WORK)
    with pytest.raises(UsageError, match="already exists"):
        start_session("work", RunRequest("my.sif", ()), real_session(tmp_path))


def test_a_session_of_another_machine_is_listed_and_names_it(tmp_path: Path) -> None:
    session = real_session(tmp_path)
    record(tmp_path, replace(WORK, owner=replace(HERE, host="login2", boot="another")))
    assert [each.state for each in list_sessions(session)] == ["unknown"]
    with pytest.raises(UsageError, match="login2"):
        attach_session("work", (), session)
    with pytest.raises(UsageError, match="login2"):
        stop_session("work", session)


def test_a_session_that_ended_is_forgotten(tmp_path: Path) -> None:
    session = real_session(tmp_path)
    record(tmp_path, replace(WORK, owner=replace(HERE, started="1")))
    with pytest.raises(UsageError, match="ended"):
        attach_session("work", (), session)
    assert list_sessions(session) == []
    stop_session("work", session)
    with pytest.raises(UsageError, match="no session"):
        stop_session("work", session)


def test_the_next_start_removes_records_of_sessions_that_ended(tmp_path: Path) -> None:
    session = real_session(tmp_path)
    for name, owner in (("work", HERE), ("far", replace(HERE, host="login2")), ("old", replace(HERE, started="1"))):
        record(tmp_path, replace(WORK, name=name, owner=owner))
    with pytest.raises(UsageError, match="already exists"):
        start_session("work", RunRequest("my.sif", ()), session)
    assert sorted(path.name for path in (session.paths.state / "sessions").iterdir()) == ["far.json", "work.json"]


def test_a_start_does_not_wait_for_another_session_that_is_started_again(tmp_path: Path) -> None:
    session = real_session(tmp_path)
    for name, owner in (("work", HERE), ("old", replace(HERE, started="1"))):
        record(tmp_path, replace(WORK, name=name, owner=owner))
    lock = session.paths.state / "sessions/old.lease"
    with (
        hold_lock(lock, what="session old", waiting=session.waiting),
        pytest.raises(UsageError, match="already exists"),
    ):
        start_session("work", RunRequest("my.sif", ()), session)
    assert lock.with_suffix(".json").exists()


def test_a_session_whose_process_cannot_be_read_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    """The process ends between two looks at it: its number is no longer there."""
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    with pytest.raises(CheckFailed, match="cannot enter the session work") as caught:
        entry_command(replace(WORK, owner=replace(HERE, pid=child.pid)), ("true",), real_session(tmp_path))
    assert "argosy sessions ls" in caught.value.hint
