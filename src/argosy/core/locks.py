"""Lock files that work on network file systems and survive ``kill -9`` of their owner.

A process takes a lock with `os.link`, which is atomic on network file systems too (flock and sqlite are unreliable
there), and releases it with unlink. The lock file records its owner: the next process removes the lock of a dead one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from argosy.core.os_errors import FULL, discard, translate_os_errors
from argosy.core.parse import parse_json
from argosy.core.records import asdict, replace
from argosy.core.render import DAY
from argosy.core.shared_folders import is_regular, read_regular_file

HEARTBEAT_SECONDS = 10.0
STALE_AFTER_SECONDS = 120.0
"""A lock of another host belongs to a dead process if its file was not touched for this time."""

FORGOTTEN_AFTER_SECONDS = 7 * DAY
"""Maximal age of what a process of another or unknown host left: longer than any build or job."""

NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
"""Errors of `os.link` on file systems without hard links: vfat, some FUSE."""

READABLE = 0o644
"""Mode of owner records regardless of the umask: other users of a shared folder must see who holds a lock."""

MOST_BYTES = 1 << 16
"""The largest record of an owner that is read."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Owner(msgspec.Struct, frozen=True):
    """The process that holds a lock, with the data to tell whether it is still alive."""

    host: str
    boot: str
    """Boot id and pid namespace of the process; process ids are only comparable within the same ones."""
    pid: int
    started: str
    """Start time of the process in clock ticks since boot, because process ids are reused."""
    user: str
    what: str
    """Activity of the process."""
    claim: str = ""
    """Random text that makes two records of one process different."""

    def __str__(self) -> str:
        """Render for a message."""
        return f"process {self.pid} of {self.user} on {self.host} ({self.what})"


def this_owner(what: str) -> Owner:
    """Return the owner record of this process."""
    return owner_of(os.getpid(), what)


def owner_of(pid: int, what: str) -> Owner:
    """Return the owner record of a process of this machine."""
    return Owner(
        host=os.uname().nodename,
        boot=_boot_id() + _pid_namespace(),
        pid=pid,
        started=_started(pid),
        user=_user_name(os.getuid()),
        what=what,
    )


def write_owner(path: Path, owner: Owner) -> None:
    """Write the record of an owner. On a full disk it stays empty, so that commands that free space can take a lock.

    Only the age of an empty record tells whether its owner is alive.
    """
    try:
        path.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    except OSError as error:
        if error.errno not in FULL or not path.exists():
            raise


def is_alive(owner: Owner) -> bool | None:
    """Return whether an owner is still running; None if it runs on another host, so that only time can tell."""
    here = this_owner("")
    if (owner.host, owner.boot) != (here.host, here.boot):
        return None
    return _started(owner.pid) == owner.started != ""


def is_abandoned(owner: Owner | None, path: Path) -> bool:
    """Return whether the owner of a path has ended; if only time can tell, whether the path is old."""
    alive = is_alive(owner) if owner else None
    return alive is False or (alive is None and is_older(path, FORGOTTEN_AFTER_SECONDS))


def is_of_this_boot(owner: Owner) -> bool:
    """Return whether a process of this host was started since the last boot, in any pid namespace."""
    return owner.boot.startswith(_boot_id())


class Clock(msgspec.Struct, frozen=True):
    """Source of time for waiting; tests replace it."""

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
    """Hold the lock at `path` while the block runs; wait for its owner, or take the lock over from a dead one.

    Parameters
    ----------
    path
        The lock file; its folder must exist.
    what
        Activity of this process, for messages of waiting processes.
    waiting
        Called once with the owner, if this process must wait.
    refusing
        Called with a live owner, to raise an error instead of waiting. An owner on another host is alive if it touches
        the file within :data:`STALE_AFTER_SECONDS`.

    Raises
    ------
    CheckFailed
        If the folder is not writable.
    """
    claim = os.urandom(4).hex()
    mine = path.with_name(f"{path.name}.{os.getpid()}.{claim}")
    stop = threading.Event()
    try:
        with translate_os_errors(path.parent):
            write_owner(mine, replace(this_owner(what), claim=claim))
            mine.chmod(READABLE)
            _take(path, mine, waiting, refusing, clock)
            _sweep_claims(path)
        threading.Thread(target=_heartbeat, args=(path, stop), daemon=True).start()
        yield
    finally:
        with deferred_signals():
            stop.set()
            if _is_mine(path, mine):
                discard(path)
            discard(mine)


def _take(
    path: Path, mine: Path, waiting: Callable[[Owner], None], refusing: Callable[[Owner], None] | None, clock: Clock
) -> None:
    reported = False
    pause = 0.05
    seen: tuple[int, float] = (0, clock.now())
    while not _claim(path, mine):
        owner, stamp = read_owner(path)
        if not stamp:  # released meanwhile, or the file system shows it to some calls only
            clock.sleep(pause)
            continue
        beats = stamp != seen[0] != 0
        if stamp != seen[0]:
            seen = (stamp, clock.now())
        # An unreadable record is being written, or its machine crashed while writing it: only time can tell.
        alive = is_alive(owner) if owner else None if is_regular(path) else False
        if alive is False or (alive is None and clock.now() - seen[1] > STALE_AFTER_SECONDS):
            _take_away(path, mine, stamp)
        if owner and refusing and (alive or (alive is None and beats)):
            refusing(owner)
        if owner and alive is not False and not reported:
            waiting(owner)
            reported = True
        clock.sleep(pause if alive is not False else 0.0)
        pause = min(2.0, pause * 1.5)


def _claim(path: Path, mine: Path) -> bool:
    """Try to create the lock file; return whether this process holds it."""
    try:
        os.link(mine, path)
    except FileExistsError:
        return _is_mine(path, mine)  # NFS may lose the reply to a successful link call
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
        return path.samefile(mine) or (mine.stat().st_nlink == 1 and _read_record(path) == mine.read_bytes() != b"")
    return False


def _take_away(path: Path, mine: Path, stamp: int) -> None:
    """Remove the lock of a dead owner, unless another process has taken it meanwhile.

    A guard file makes the check and the removal atomic.
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
    """Remove the guard of a process that died between its two calls; both times come from the file server."""
    mine.touch()
    with contextlib.suppress(FileNotFoundError):
        if mine.stat().st_mtime - guard.stat().st_mtime > STALE_AFTER_SECONDS:
            guard.unlink(missing_ok=True)


def _sweep_claims(path: Path) -> None:
    """Remove the claim files of killed processes for a lock that this process holds."""
    for claim in files_beside(path, rf"{re.escape(path.name)}\.\d+\.[0-9a-f]{{8}}"):
        owner, _ = read_owner(claim)
        if (is_alive(owner) is False) if owner else is_older(claim, STALE_AFTER_SECONDS):
            discard(claim)


def files_beside(path: Path, pattern: str) -> list[Path]:
    """Return the files next to `path` whose whole name matches; no glob, because user names may contain wildcards."""
    return [entry for entry in path.parent.iterdir() if re.fullmatch(pattern, entry.name)]


def is_older(path: Path, seconds: float) -> bool:
    """Return whether a file was last changed more than this many seconds ago; false if it does not exist."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > seconds
    return False


def read_owner(path: Path) -> tuple[Owner | None, int]:
    """Return the owner, None if the record is unreadable, and its last sign of life in ns, 0 if there is no file.

    In a shared folder, other users cannot read the record of a user with umask 077.
    """
    stamp = 0
    try:
        stamp = path.lstat().st_mtime_ns
        # msgspec's own parser refuses the text of a path that is not UTF-8.
        return msgspec.convert(parse_json(_read_record(path)), Owner), stamp
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    except (ValueError, msgspec.ValidationError, OSError):
        return None, stamp


def _read_record(path: Path) -> bytes:
    """Read a record, in whose place another user of a shared folder may put a pipe or a link."""
    return read_regular_file(path, most=MOST_BYTES)


def _heartbeat(path: Path, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP until the block ends, so that clean-up is never interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handled = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, lambda number, _: received.append(number)) for each in handled}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot (proc(5), stat field 22); empty if it has ended.

    A zombie has ended: its parent may never wait for it.
    """
    words = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if words and words[0] not in {"Z", "X"} else ""


def _user_name(uid: int) -> str:
    """Return a user's name; without an entry in passwd, USER or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER") or str(uid)


def _boot_id() -> str:
    return _read_text("/proc/sys/kernel/random/boot_id").strip()


def _pid_namespace() -> str:
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace", encoding="utf-8")
    return ""
