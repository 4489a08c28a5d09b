"""Leases are held by one process at a time, and are taken from the dead: by start time, boot and signs of life."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.locks import (
    HEARTBEAT_SECONDS,
    STALE_AFTER_SECONDS,
    Clock,
    Owner,
    deferred_signals,
    hold_lock,
    is_abandoned,
    is_alive,
    read_owner,
    this_owner,
    write_owner,
)
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict, replace

TRUE, SLEEP = (shutil.which(name) or name for name in ("true", "sleep"))


@dataclass(slots=True)
class FakeTime:
    """Time that passes only when somebody sleeps; what happens meanwhile is given as a function."""

    seconds: float = 0.0
    slept: int = 0
    meanwhile: list[object] = field(default_factory=list)

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept += 1
        for action in self.meanwhile:
            assert callable(action)
            action()


def nobody_waits(owner: Owner) -> None:
    pytest.fail(f"waited for {owner}")


@pytest.fixture
def dead() -> Owner:
    """Describe a process of this machine that has ended."""
    with subprocess.Popen((TRUE,)) as child:
        child.wait()
    return replace(this_owner("building"), pid=child.pid, started="1")


@pytest.fixture
def elsewhere() -> Owner:
    return replace(this_owner("building x.sif"), host="login7", pid=4711, user="bob")


def leave(path: Path, owner: Owner) -> None:
    path.write_text(json.dumps(asdict(owner)))


def test_a_lease_file_exists_only_while_the_lease_is_held(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        assert (tmp_path / "x").exists()
        assert json.loads((tmp_path / "x").read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_is_given_up_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_the_lease_of_a_dead_process_is_taken_at_once(tmp_path: Path, dead: Owner) -> None:
    leave(tmp_path / "x", dead)
    passed = FakeTime()
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits, clock=passed.clock()):
        assert json.loads((tmp_path / "x").read_text())["pid"] == os.getpid()
    assert passed.seconds == 0


def test_a_reused_process_number_does_not_keep_a_dead_owner_alive() -> None:
    mine = this_owner("w")
    assert is_alive(mine)
    assert is_alive(replace(mine, started=str(int(mine.started) - 1))) is False


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen((SLEEP, "60")) as child:
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = replace(this_owner("w"), pid=child.pid, started=started)
        assert is_alive(owner)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
        assert is_alive(owner) is False
        leave(tmp_path / "x", owner)
        with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
            pass


@pytest.mark.parametrize("change", [{"host": "login7"}, {"boot": "another"}])
def test_only_age_decides_about_processes_elsewhere_or_before_a_reboot(change: dict[str, str]) -> None:
    assert is_alive(replace(this_owner("w"), **change)) is None  # type: ignore[arg-type] # both are text


def test_a_lease_of_another_machine_is_taken_after_it_was_not_refreshed_for_long(
    tmp_path: Path, elsewhere: Owner
) -> None:
    leave(tmp_path / "x", elsewhere)
    passed, told = FakeTime(), list[Owner]()
    with hold_lock(tmp_path / "x", what="w", waiting=told.append, clock=passed.clock()):
        pass
    assert told == [elsewhere]
    assert STALE_AFTER_SECONDS < passed.seconds < STALE_AFTER_SECONDS + 10
    assert "process 4711 of bob on login7 (building x.sif)" in str(told[0])


def test_refreshing_keeps_a_lease_of_another_machine_indefinitely(tmp_path: Path, elsewhere: Owner) -> None:
    path = tmp_path / "x"
    leave(path, elsewhere)
    beats = iter(range(1, 10**6))
    passed = FakeTime()

    def beat() -> None:
        if passed.seconds > 10 * STALE_AFTER_SECONDS:
            path.unlink(missing_ok=True)
        elif path.exists():
            os.utime(path, ns=(0, next(beats)))

    passed.meanwhile.append(beat)
    with hold_lock(path, what="w", waiting=lambda _: None, clock=passed.clock()):
        pass
    assert passed.seconds > 10 * STALE_AFTER_SECONDS


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0\0\0"])
def test_an_unreadable_lease_is_waited_for_without_using_the_cpu_and_then_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    passed = FakeTime()
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits, clock=passed.clock()):
        pass
    assert passed.seconds > STALE_AFTER_SECONDS
    assert passed.slept < 200


def test_waiting_for_a_live_owner_is_reported_once(tmp_path: Path) -> None:
    told = list[Owner]()
    passed = FakeTime()

    def end() -> None:
        if passed.slept == 5:
            (tmp_path / "x").unlink()

    passed.meanwhile.append(end)
    leave(tmp_path / "x", this_owner("something else"))
    with hold_lock(tmp_path / "x", what="w", waiting=told.append, clock=passed.clock()):
        pass
    assert [owner.what for owner in told] == ["something else"]
    assert passed.slept == 5


def test_a_lease_that_another_process_took_over_is_not_removed(tmp_path: Path, elsewhere: Owner) -> None:
    path = tmp_path / "x"
    with hold_lock(path, what="w", waiting=nobody_waits):
        path.unlink()
        leave(path, elsewhere)
    assert json.loads(path.read_text())["host"] == "login7"
    assert list(tmp_path.iterdir()) == [path]


def test_claims_of_killed_processes_are_swept_and_those_of_the_living_stay(
    tmp_path: Path, dead: Owner, elsewhere: Owner
) -> None:
    for name, owner in (("x.1.00000001", dead), ("x.2.00000002", elsewhere), ("x.old.1.00000003", dead)):
        leave(tmp_path / name, owner)
    (tmp_path / "x.4.00000004").write_text("")
    os.utime(tmp_path / "x.4.00000004", (0, 0))
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.2.00000002", "x.old.1.00000003"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_a_lease_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "x"
    told = list[Owner]()
    passed = FakeTime(meanwhile=[lambda: path.unlink(missing_ok=True)])
    with hold_lock(path, what="first", waiting=nobody_waits):
        with hold_lock(path, what="second", waiting=told.append, clock=passed.clock()):
            assert json.loads(path.read_text())["what"] == "second"
        assert [owner.what for owner in told] == ["first"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error_of_the_user(tmp_path: Path) -> None:
    gone = hold_lock(tmp_path / "no/x", what="w", waiting=nobody_waits)
    with pytest.raises(UsageError, match="no such folder"), gone:
        pass


def test_another_error_of_the_file_system_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(CheckFailed, match="quota"), hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        pass


def test_a_broken_pipe_is_not_a_file_system_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), translate_os_errors(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_an_old_guard_of_a_dead_process_is_removed(tmp_path: Path, dead: Owner) -> None:
    leave(tmp_path / "x", dead)
    (tmp_path / "x.taking").touch()
    os.utime(tmp_path / "x.taking", (0, 0))
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits, clock=FakeTime().clock()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_at_a_time_gets_the_lease_of_a_dead_one(tmp_path: Path, dead: Owner) -> None:
    leave(tmp_path / "x", dead)
    inside, most, lock = 0, 0, threading.Lock()

    def want() -> None:
        nonlocal inside, most
        with hold_lock(tmp_path / "x", what="w", waiting=lambda _: None, clock=Clock(sleep=lambda _: time.sleep(0))):
            with lock:
                inside += 1
                most = max(most, inside)
            os.sched_yield()
            with lock:
                inside -= 1

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def test_a_lease_is_refreshed_many_times_before_it_would_expire() -> None:
    assert HEARTBEAT_SECONDS * 5 < STALE_AFTER_SECONDS


@pytest.fixture
def caught() -> Iterator[list[int]]:
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_a_signal_waits_until_cleaning_is_done(caught: list[int]) -> None:
    with deferred_signals():
        signal.raise_signal(signal.SIGTERM)
        assert caught == []
    assert caught == [signal.SIGTERM]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with deferred_signals():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@given(st.builds(Owner, *[st.text()] * 2, st.integers(), *[st.text()] * 4))
def test_a_record_of_any_owner_never_counts_as_alive_here_unless_it_is_this_boot(owner: Owner) -> None:
    assert is_alive(owner) is None


ODD_RECORDS = (
    '{"pid": [1]}',
    '{"host": 1, "boot": 2, "pid": "x", "started": {}, "user": [], "what": null}',
    '{"pid": 1e999}',
)


def plant(path: Path, kind: str) -> None:
    """Make a file that another user may leave in a shared folder in the place of a record."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "link to a pipe":
        os.mkfifo(path.with_name("pipe"))
        path.symlink_to("pipe")
    elif kind == "large":
        path.write_text(" " * 100_000 + json.dumps(asdict(this_owner("w"))))
    else:
        path.write_text(kind)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to itself", "link to a pipe", "large", *ODD_RECORDS])
def test_an_odd_record_of_an_owner_is_unreadable_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "x", kind)
    owner, stamp = read_owner(tmp_path / "x")
    assert (owner, stamp > 0) == (None, True)
    assert is_abandoned(owner, tmp_path / "x") is False


@pytest.mark.parametrize("kind", ["pipe", "link to itself", "link to a pipe"])
def test_a_special_file_in_the_place_of_a_lock_is_removed_at_once(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "x", kind)
    passed = FakeTime()
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits, clock=passed.clock()):
        assert read_owner(tmp_path / "x")[0] is not None
    assert passed.seconds == 0


def test_a_special_file_in_the_place_of_a_claim_is_skipped(tmp_path: Path) -> None:
    for number, kind in enumerate(("pipe", "folder")):
        plant(tmp_path / f"x.{number}.0123abcd", kind)
        os.utime(tmp_path / f"x.{number}.0123abcd", (0, 0))
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x.1.0123abcd"]


def test_a_lock_that_became_a_pipe_is_left(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "x", what="w", waiting=nobody_waits):
        (tmp_path / "x").unlink()
        os.mkfifo(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_record_of_an_owner_keeps_text_that_is_not_utf8(tmp_path: Path) -> None:
    owner = this_owner(f"writing {os.fsdecode(bytes([233]))}")
    write_owner(tmp_path / "x", owner)
    assert read_owner(tmp_path / "x")[0] == owner


def test_a_link_that_leads_nowhere_is_no_lock(tmp_path: Path) -> None:
    """Another user of a shared folder may put one there; waiting for its owner would never end."""
    path = tmp_path / "x"
    path.symlink_to(tmp_path / "nowhere")
    with hold_lock(path, what="w", waiting=nobody_waits, clock=Clock(lambda: 0.0, lambda _: None)):
        assert not path.is_symlink()
        assert read_owner(path)[0] is not None


@pytest.mark.parametrize("variables", [{}, {"USER": "somebody"}])
def test_an_owner_has_the_users_name_even_without_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """cron and containers start programs without USER, and sudo may leave that of another user."""
    monkeypatch.setattr(os, "environ", variables)
    assert this_owner("w").user == pwd.getpwuid(os.getuid()).pw_name


def test_an_owner_without_an_entry_in_passwd_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    monkeypatch.setattr(os, "environ", {})
    assert this_owner("w").user == "987654"
