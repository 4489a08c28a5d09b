"""Measure what a piece of work costs: time, CPU, bytes read, memory; and count its calls. It judges nothing."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

KIBIBYTE = 1024
CALL = re.compile(r"^\d+\s+[a-z_0-9]+\((?P<rest>.*)$", re.MULTILINE)
"""A call's first line; ``<... name resumed>`` is its second one, ``+++`` the end of a process."""

OF_OPEN_FILE = re.compile(r'\d+, "",')


@dataclass(frozen=True, slots=True)
class Usage:
    """What a piece of work cost, its ended child processes included."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of user and system time."""
    read: int
    """Bytes asked of read calls (``rchar`` of proc(5)), whether they came from disk or from memory."""
    peak: int
    """Bytes: the largest resident set of any one process so far, so measure each piece of work in a fresh process."""
    system: float
    """The kernel's part of `cpu`."""


def run_metered(work: Callable[[], object]) -> Usage:
    """Do a piece of work and tell what it cost."""
    start, (user, system), read = time.perf_counter(), _cpu_seconds(), _bytes_read()
    work()
    wall, (user_after, system_after) = time.perf_counter() - start, _cpu_seconds()
    kernel = system_after - system
    return Usage(wall, user_after - user + kernel, _bytes_read() - read, _peak_bytes(), kernel)


def _cpu_seconds() -> tuple[float, float]:
    """Give the user and the system time of this process and its ended children."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime for usage in both), sum(usage.ru_stime for usage in both)


def _bytes_read() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "rchar":
            return int(value)
    return 0


def _peak_bytes() -> int:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * KIBIBYTE


def run(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> str:
    """Run a command that must succeed, and return its output; parameters as `subprocess.run`."""
    done = subprocess.run(
        words, cwd=cwd, env=env, pass_fds=pass_fds, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def run_command(words: tuple[str, ...]) -> Usage:
    """Run a command that must succeed, and tell what it cost."""
    return run_metered(partial(run, *words))


def run_cpu(words: Sequence[str]) -> float:
    """Run a command and give the seconds of CPU that it and its children took."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(words)} failed with code {child.returncode}")
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Calls:
    """File-system calls of a program and its children, as strace's class ``%file`` has them."""

    every: int
    named: int
    """Those that name a path.  The others ask about an open file: glibc 2.33 and later say fstat() as a call of
    this class, older ones do not."""


def run_counted(words: Sequence[str]) -> Calls:
    """Run a command under strace(1) and count its file-system calls."""
    with tempfile.NamedTemporaryFile("r") as log:
        traced = ("strace", "-f", "-e", "trace=%file", "-e", "signal=none", "-o", log.name, *words)
        subprocess.run(traced, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return parse_strace(log.read())


def parse_strace(text: str) -> Calls:
    """Count the calls in the log of ``strace -f``."""
    calls = [match["rest"] for match in CALL.finditer(text)]
    if not calls:
        raise ValueError(f"strace logged no call: {text[-200:]!r}")
    return Calls(len(calls), sum(1 for rest in calls if not OF_OPEN_FILE.match(rest)))
