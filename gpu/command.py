"""Start a program with a time limit."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Reply:
    """How a program ended."""

    code: int
    """Exit code; 124 after the time limit, 127 if the program does not exist."""
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_lines(self) -> str:
        """Return the end of the output, for a reason."""
        lines = [line for line in (self.stderr + self.stdout).splitlines() if line.strip()]
        return "; ".join(line.strip() for line in lines[-3:])[-400:]


def run(argv: Sequence[str], environment: Mapping[str, str], limit: float) -> Reply:
    """Run a program in a session of its own, and end the whole session at the time limit (in seconds)."""
    start = time.monotonic()
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Reply(127, "", str(error), 0.0)
    try:
        stdout, stderr = child.communicate(timeout=max(limit, 1.0))
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
        stderr, code = f"{stderr}\nthe time limit of {limit:.0f} s is over", TIMED_OUT
    return Reply(code, stdout, stderr, round(time.monotonic() - start, 2))


def show(argv: Sequence[str]) -> str:
    """Return a command line as a person would type it."""
    return shlex.join(argv)
