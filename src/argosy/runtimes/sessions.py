"""Detached sessions: a container that stays when the connection ends, and that later shells enter by its name.

A process in the container holds it. A later shell joins the namespaces of that process with nsenter, and takes its
environment, so that it sees what the first one saw. This needs no daemon and no root. It works with runtimes whose
namespaces belong to the user: bubblewrap, and Apptainer without setuid.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, ToolFailed, UsageError
from argosy.core.locks import Owner, deferred_signals, hold_lock, is_alive, owner_of
from argosy.core.process import Argv, Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import make_folder, work_folder, write_text
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import start_command
from argosy.runtimes.run import SHELL, RunRequest, prepare_run
from argosy.runtimes.runtime import AUTOMATIC, SCRIPTS

START = (SCRIPTS / "start_session.sh").read_text(encoding="utf-8")
HOLD = (SCRIPTS / "hold_session.sh").read_text(encoding="utf-8")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")
FOLDER = "sessions"


class DetachedSession(msgspec.Struct, frozen=True):
    """A container that a process holds."""

    name: str
    image: str
    runtime: str
    owner: Owner
    """The process that holds it, and its machine."""

    @property
    def state(self) -> str:
        """``running``, ``ended``, or ``unknown`` for a session of another machine."""
        return {True: "running", False: "ended", None: "unknown"}[is_alive(self.owner)]


def start_session(name: str, request: RunRequest, session: Session) -> DetachedSession:
    """Start a container that stays, and record it under a name.

    Raises
    ------
    UsageError
        If the name is not valid or in use, or the runtime cannot do this.
    ToolFailed, CheckFailed
        If the container does not start, or cannot be entered again.
    """
    if not NAME.match(name):
        raise UsageError(
            f"invalid name of a session: {name!r}",
            evidence="a name begins with a letter, and has letters, digits, '_', '.' and '-'",
            hint="choose another name",
        )
    _forget_ended(session)
    with _locked(name, session):
        found = read_session(name, session)
        if found is not None and found.state != "ended":
            raise UsageError(
                f"a session {name} already exists on {found.owner.host}",
                evidence=f"it holds {found.image}",
                hint=f"enter it with argosy attach {name}, or end it with argosy sessions stop {name}",
            )
        plan, _ = prepare_run(request, session)
        if plan.runtime.name not in AUTOMATIC:
            hint = f"use --runtime {' or '.join(AUTOMATIC)}"
            raise UsageError(f"{plan.runtime.name} cannot detach a session", hint=hint)
        owner = owner_of(_hold(plan, session), f"session {name}")
        made = DetachedSession(name, request.image, plan.runtime.name, owner)
        try:
            write_text(_file(name, session), msgspec.json.encode(made).decode())
            _refuse_broken_session(made, session)
        except BaseException:
            _end(made, session)
            raise
        return made


def _forget_ended(session: Session) -> None:
    """Remove the records of sessions that ended."""

    def refuse(owner: Owner) -> None:
        raise UsageError(f"{owner.what} is started again")

    for name in _recorded_names(session):
        if _has_ended(name, session):
            with contextlib.suppress(UsageError), _locked(name, session, refusing=refuse):
                if _has_ended(name, session):  # unless another process started it again
                    _file(name, session).unlink(missing_ok=True)


def _has_ended(name: str, session: Session) -> bool:
    found = read_session(name, session)
    return found is not None and found.state == "ended"


@contextlib.contextmanager
def _locked(name: str, session: Session, *, refusing: Callable[[Owner], None] | None = None) -> Iterator[None]:
    """Lock the name of a session while one process starts or ends it."""
    file = _file(name, session)
    make_folder(file.parent)
    with hold_lock(file.with_suffix(".lease"), what=f"session {name}", waiting=session.waiting, refusing=refusing):
        yield


def _refuse_broken_session(made: DetachedSession, session: Session) -> None:
    """Refuse a session whose container cannot be entered again."""
    again = session.runner.run(entry_command(made, ("/bin/sh", "-c", ":"), session))
    if again.code != 0:
        raise CheckFailed(
            f"{made.runtime} cannot detach a session on this machine",
            evidence=f"its containers cannot be entered again: {again.stderr.strip() or f'exit code {again.code}'}",
            hint="a setuid Apptainer does not allow it, nor bwrap with --contain; use tmux or screen instead",
        )


def _end(found: DetachedSession, session: Session) -> None:
    """End the process that holds a session, and remove its record."""
    with deferred_signals(), contextlib.suppress(ProcessLookupError):
        _file(found.name, session).unlink(missing_ok=True)
        if found.state == "running":
            os.kill(found.owner.pid, signal.SIGTERM)


def _hold(plan: ContainerPlan, session: Session) -> int:
    """Start the process that holds a container, in a session of its own; return its process id."""
    held_by = start_command(plan, ("/bin/sh", "-c", HOLD, "argosy-session"), session)
    with work_folder(session.work_parent()) as work:
        start = ("sh", "-c", START, "argosy-start", str(work / "ready"))
        reply = session.runner.run(replace(held_by, argv=(*start, *held_by.argv)))
    held = re.search(r"^argosy-session (\d+)$", reply.stdout, re.MULTILINE)
    if held is None:
        raise ToolFailed(
            "the container did not start",
            evidence=reply.stdout.strip() or f"exit code {reply.code}",
            hint="start it without --detach to see the cause: argosy shell IMAGE",
        )
    return int(held[1])


def attach_session(name: str, command: Argv, session: Session) -> int:
    """Run a command, or a shell, in a detached session; return its exit code.

    Raises
    ------
    UsageError
        If there is no such session, it ended, or it is on another machine.
    """
    found = _find_here(name, session)
    if found.state == "ended":
        raise UsageError(
            f"the session {name} ended", hint=f"start it again: argosy shell {found.image} --detach {name}"
        )
    return session.runner.run_foreground(entry_command(found, command or SHELL, session))


def entry_command(found: DetachedSession, command: Argv, session: Session) -> Command:
    """Return the command that joins the namespaces of a session; only root's sessions have no user namespace.

    Raises
    ------
    CheckFailed
        If the process that holds the session has ended, or this user may not read its environment.
    """
    pid = found.owner.pid
    user = () if session.host.person.uid == 0 else ("--user", "--preserve-credentials")
    try:
        held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError as error:
        hint = "see whether it still runs: argosy sessions ls"
        raise CheckFailed(f"cannot enter the session {found.name}", evidence=str(error), hint=hint) from error
    environment = dict(os.fsdecode(each).split("=", 1) for each in held if b"=" in each)
    terminal = {name: session.host.environment[name] for name in ("TERM", "LANG") if name in session.host.environment}
    program = session.host.programs.get("nsenter", "/usr/bin/nsenter")
    return Command((program, f"--target={pid}", *user, "--mount", "--wd", "--", *command), env=environment | terminal)


def list_sessions(session: Session) -> list[DetachedSession]:
    """Return the sessions of this user that have not ended, by name."""
    found = (read_session(name, session) for name in _recorded_names(session))
    return [each for each in found if each and each.state != "ended"]


def _recorded_names(session: Session) -> list[str]:
    return sorted(path.stem for path in _file("x", session).parent.glob("*.json"))


def stop_session(name: str, session: Session) -> DetachedSession:
    """End a session; programs that run in it keep their container until they end.

    Raises
    ------
    UsageError
        If there is no such session, or it is on another machine.
    """
    with _locked(name, session):
        found = _find_here(name, session)
        _end(found, session)
    return found


def _find_here(name: str, session: Session) -> DetachedSession:
    """Return a session of this machine."""
    found = read_session(name, session)
    if found is None:
        raise UsageError(f"there is no session {name!r}", hint="'argosy sessions ls' lists them")
    if found.state == "unknown":
        raise UsageError(f"the session {name} is on {found.owner.host}", hint=f"log in there: ssh {found.owner.host}")
    return found


def read_session(name: str, session: Session) -> DetachedSession | None:
    """Return the session of this name; None if there is none."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_file(name, session).read_bytes(), type=DetachedSession)
    return None


def _file(name: str, session: Session) -> Path:
    return session.paths.state / FOLDER / f"{name}.json"
