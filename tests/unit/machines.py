"""The machine that unit tests plan for, and sessions: there, which start nothing, and on this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from argosy.core.model import Host, Person
from argosy.core.process import FakeRunner, RealRunner, Runner
from argosy.core.session import Paths, QuietReporter, Session
from argosy.host.probe import probe_host

ALICE = Person(1000, 1000, "alice", "/home/alice")
NOWHERE = Path("/nowhere")


def python_program(text: str) -> str:
    """Write a Python program that starts anywhere: a ``#!`` line takes no blank, and few characters of a path."""
    return f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"\n' '''\n{text}"


class Hearing(QuietReporter):
    """A reporter that keeps what is noted."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def note(self, text: str) -> None:
        """Keep it."""
        self.heard.append(text)


def make_host(*programs: str, **changes: Any) -> Host:
    """Give a login node with these programs in ``/usr/bin``; `changes` are fields of `Host`."""
    usual: dict[str, Any] = {
        "hostname": "ctl",
        "arch": "x86_64",
        "person": ALICE,
        "cwd": "/home/alice",
        "cpus": 8,
        "memory": 8 << 30,
        "programs": {name: f"/usr/bin/{name}" for name in programs},
        "user_namespaces": True,
        "can_mount": False,
        "fuse": True,
    }
    return Host(**usual | changes)


def make_session(folder: Path = NOWHERE, host: Host | None = None, runner: Runner | None = None) -> Session:
    """Give a session whose cache and state are `folder`."""
    paths = Paths(folder, folder, ())
    return Session(host or make_host(), runner or FakeRunner(), paths, QuietReporter())


def real_session(folder: Path) -> Session:
    """Give a session that starts programs on this very machine, and keeps all it makes below `folder`."""
    paths = Paths(folder / "cache", folder / "state", ())
    return Session(probe_host(), RealRunner(), paths, QuietReporter())
