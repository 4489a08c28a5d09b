"""Run programs that must succeed, and make the error of a program that failed."""

from __future__ import annotations

import signal

from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed
from argosy.core.process import Command, OnLine, Reply, Runner, shorten_command

LAST_LINES = 12
"""The most lines of output that an error shows."""
FULL_DISK = (
    "no space left on device",
    "don't have enough free space in",
    "disk quota exceeded",
    "os error 28",
    "os error 122",
)
FULL_DISK_HINT = (
    "free some space or files (df -h, df -i and quota -s show usage; argosy cache gc removes unused files of the "
    "cache), or choose another folder with --work-dir, --output or ARGOSY_CACHE"
)
LIMITS = {
    128 + signal.SIGKILL: "it was killed, probably because memory ran out; retry on a machine with more memory, "
    "for example a compute node",
    128 + signal.SIGXCPU: "it exceeded the CPU time limit (ulimit -t); retry on a compute node",
    128 + signal.SIGXFSZ: "it exceeded the file size limit (ulimit -f); raise it with 'ulimit -f unlimited'",
}
"""Hints for programs that the system ended, by exit code."""

BY_HAND = "run the command by hand to see its whole output"


def run_checked(
    runner: Runner, command: Command, *, doing: str, hint: str = "", on_line: OnLine | None = None
) -> Reply:
    """Run a program that must succeed.

    Raises
    ------
    ToolFailed
        If the exit code is not 0; the evidence is the command and its last lines.
    CheckFailed
        If it failed because the disk is full.
    """
    reply = runner.run(command, on_line)
    if reply.code != 0:
        raise tool_error(command, reply, doing=doing, hint=hint)
    return reply


def tool_error(command: Command, reply: Reply, *, doing: str, hint: str = "") -> ArgosyError:
    """Return the error for a program that failed.

    Parameters
    ----------
    hint
        The next step; by default, to run the command of the evidence by hand.
    """
    text = (reply.stderr.strip() or reply.stdout.strip()).splitlines()
    lines = [f"$ {shorten_command(command)}", *text[-LAST_LINES:], f"(exit code {reply.code})"]
    full = next((line for line in text if any(mark in line.lower() for mark in FULL_DISK)), None)
    if full is not None:
        return CheckFailed(f"{doing} failed: no space left", evidence="\n".join(lines), hint=FULL_DISK_HINT)
    return ToolFailed(f"{doing} failed", evidence="\n".join(lines), hint=LIMITS.get(reply.code, hint or BY_HAND))
