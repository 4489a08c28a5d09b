"""Leases: names that one process at a time holds, and the owner records that tell a dead holder; no flock, no sqlite.

They must hold on network file systems and through ``kill -9``: a name is taken by `os.link`, which is atomic there,
and given up by unlinking; a holder that died is recognised by its record, and its lease is taken away by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict, replace

HEARTBEAT_SECONDS = 10.0
STALE_AFTER_SECONDS = 120.0
"""A lease of another host whose file was not touched for so long belongs to a dead process."""

NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
"""What file systems without hard links answer: vfat, some FUSE."""

READABLE = 0o644
"""Mode of owner records, whatever the umask: other users of a folder must see who holds something."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Owner(msgspec.Struct, frozen=True):
    """Who holds something: enough to tell whether that process still lives.

    Attributes
    ----------
    boot
        The machine's boot and the pid namespace: in another one, numbers of processes mean nothing here.
    started
        Start time of the process, in clock ticks since boot: its number may have been given away again.
    claim
        A random word, so that two records of one process differ.
    """

    host: str
    boot: str
    pid: int
    started: str
    user: str
    what: str
    claim: str = ""

    def __str__(self) -> str:
        """Render for a message."""
        return f"process {self.pid} of {self.user} on {self.host} ({self.what})"


def this_owner(what: str) -> Owner:
    """Describe this process as an owner."""
    pid = os.getpid()
    return Owner(
        host=os.uname().nodename,
        boot=_read_text("/proc/sys/kernel/random/boot_id").strip() + _pid_namespace(),
        pid=pid,
        started=_started(pid),
        user=os.environ.get("USER") or str(os.getuid()),
        what=what,
    )


def is_alive(owner: Owner) -> bool | None:
    """Tell whether an owner still lives; None where only time can tell (another host)."""
    here = this_owner("")
    if (owner.host, owner.boot) != (here.host, here.boot):
        return None
    return _started(owner.pid) == owner.started != ""


class Clock(msgspec.Struct, frozen=True):
    """How time passes for those who wait; tests give another one."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


CLOCK = Clock()


@contextlib.contextmanager
def hold_lock(
    path: Path,
    *,
    what: str,
    waiting: Callable[[Owner], None],
    refusing: Callable[[Owner], None] | None = None,
    clock: Clock = CLOCK,
) -> Iterator[None]:
    """Hold the lease named `path` while the block runs; wait for its present owner, or take it over from a dead one.

    Parameters
    ----------
    path
        The lease file; its folder must exist.
    what
        What is being done, for those who wait.
    waiting
        Told once, with the owner waited for.
    refusing
        Raises an error for an owner that lives; None: wait for it.  An owner on another host lives if it gives a sign
        of life within :data:`STALE_AFTER_SECONDS`.

    Raises
    ------
    CheckFailed
        When the folder cannot be written.
    """
    claim = os.urandom(4).hex()
    mine = path.with_name(f"{path.name}.{os.getpid()}.{claim}")
    stop = threading.Event()
    try:
        with translate_os_errors(path.parent):
            mine.write_text(json.dumps(asdict(replace(this_owner(what), claim=claim))), encoding="utf-8")
            mine.chmod(READABLE)
            _take(path, mine, _Manners(waiting, refusing), clock)
            _sweep_claims(path)
        threading.Thread(target=_heartbeat, args=(path, stop), daemon=True).start()
        yield
    finally:
        with deferred_signals():
            stop.set()
            if _is_mine(path, mine):
                path.unlink(missing_ok=True)
            mine.unlink(missing_ok=True)


class _Manners(msgspec.Struct, frozen=True):
    """What is done about an owner, as `hold_lock` takes it."""

    waiting: Callable[[Owner], None]
    refusing: Callable[[Owner], None] | None = None


def _take(path: Path, mine: Path, manners: _Manners, clock: Clock) -> None:
    told = False
    pause = 0.05
    seen: tuple[int, float] = (0, clock.now())
    while not _claim(path, mine):
        owner, stamp = read_owner(path)
        if not stamp:
            continue  # given up since
        beats = stamp != seen[0] != 0
        if stamp != seen[0]:
            seen = (stamp, clock.now())
        # An owner that cannot be read is being written, or was when its machine went down: only time can tell.
        alive = is_alive(owner) if owner else None
        if alive is False or (alive is None and clock.now() - seen[1] > STALE_AFTER_SECONDS):
            _take_away(path, mine, stamp)
        if owner and manners.refusing and (alive or (alive is None and beats)):
            manners.refusing(owner)
        if owner and alive is not False and not told:
            manners.waiting(owner)
            told = True
        clock.sleep(pause if alive is not False else 0.0)
        pause = min(2.0, pause * 1.5)


def _claim(path: Path, mine: Path) -> bool:
    """Take a free name; tell whether it is ours now."""
    try:
        os.link(mine, path)
    except FileExistsError:
        return _is_mine(path, mine)  # NFS may lose the answer to a link that was made
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        return _claim_without_links(path, mine)
    return True


def _claim_without_links(path: Path, mine: Path) -> bool:
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(mine.read_text(encoding="utf-8"))
        return True
    return False


def _is_mine(path: Path, mine: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.samefile(mine) or (mine.stat().st_nlink == 1 and path.read_bytes() == mine.read_bytes())
    return False


def _take_away(path: Path, mine: Path, stamp: int) -> None:
    """Remove a dead owner's lease, unless somebody quicker has it taken anew.

    One at a time, guarded by a second file: whoever looks and removes must do both before the next one looks.
    """
    guard = path.with_name(path.name + ".taking")
    try:
        guard.touch(exist_ok=False)
    except FileExistsError:
        _drop_old_guard(guard, mine)
        return
    try:
        if read_owner(path)[1] == stamp:
            path.unlink(missing_ok=True)
    finally:
        guard.unlink(missing_ok=True)


def _drop_old_guard(guard: Path, mine: Path) -> None:
    """Remove the guard of a process that died within those two calls; both times are the file server's."""
    mine.touch()
    with contextlib.suppress(FileNotFoundError):
        if mine.stat().st_mtime - guard.stat().st_mtime > STALE_AFTER_SECONDS:
            guard.unlink(missing_ok=True)


def _sweep_claims(path: Path) -> None:
    """Remove the claims of killed processes beside a lease that is ours."""
    for claim in files_beside(path, rf"{re.escape(path.name)}\.\d+\.[0-9a-f]{{8}}"):
        owner, _ = read_owner(claim)
        if (is_alive(owner) is False) if owner else is_older(claim, STALE_AFTER_SECONDS):
            claim.unlink(missing_ok=True)


def files_beside(path: Path, pattern: str) -> list[Path]:
    """Give the files beside `path` whose whole name matches: no glob, since a user's name may hold its marks."""
    return [entry for entry in path.parent.iterdir() if re.fullmatch(pattern, entry.name)]


def is_older(path: Path, seconds: float) -> bool:
    """Tell whether a file was changed last so many seconds ago; false where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime > seconds
    return False


def read_owner(path: Path) -> tuple[Owner | None, int]:
    """Give the owner (None where it cannot be read) and the time of the last sign of life (0: nothing there).

    In a folder that several share, a user with a umask of 077 leaves records that only this user can read.
    """
    stamp = 0
    try:
        stamp = path.stat().st_mtime_ns
        return Owner(**json.loads(path.read_text(encoding="utf-8"))), stamp
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    except (ValueError, TypeError, PermissionError):
        return None, stamp


def _heartbeat(path: Path, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Let INT, TERM and HUP wait while the block runs: removing what is half-made must not stop half-way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    heeded = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, lambda number, _: came.append(number)) for each in heeded}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot (proc(5), stat field 22); empty where there is none.

    A zombie is none: it waits for a parent that may never ask.
    """
    words = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if words and words[0] not in {"Z", "X"} else ""


def _pid_namespace() -> str:
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace", encoding="utf-8")
    return ""
