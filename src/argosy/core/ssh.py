"""Run programs on another machine through ssh.

The program is sent on standard input to ``sh -s``, so that any login shell parses only two plain words. Output of the
login shell's profile ends at a marker line and is dropped. Keys, ports, jump hosts and shared connections are set in
``~/.ssh/config``.
"""

from __future__ import annotations

import base64
import re
import sys

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, Unreachable, UsageError
from argosy.core.process import Command, OnBlock, OnLine, Reply, Runner
from argosy.core.records import replace
from argosy.core.shell import join, quote

MARK = "argosy: from here on"
"""Marker line before the output of a remote program."""

NO_CONNECTION = 255
"""Exit code of ssh if it cannot connect; a program may exit with the same code, but after the marker."""

NO_QUESTIONS = ("-o", "BatchMode=yes")
"""Options that prevent password prompts: a background process would wait for an answer for ever."""

END_OF_TEXT = "argosy-end-of-text"

WITH_SLURM = """\
command -v sbatch > /dev/null 2>&1 || [ ! -r /etc/profile ] || . /etc/profile > /dev/null 2>&1 < /dev/null || :
"""
"""Some sites set the PATH of Slurm for login shells only."""


class Remote(msgspec.Struct, frozen=True):
    """A machine that is reachable by ssh, and a folder on it."""

    host: str
    """Destination for ssh: a name from ``~/.ssh/config``, or ``user@name``."""
    folder: str = ""
    """Path, relative to the home folder; empty means the home folder."""


def parse_remote(text: str) -> Remote:
    """Parse ``HOST`` or ``HOST:FOLDER``.

    Raises
    ------
    UsageError
        If the host is empty or looks like an option of ssh.
    """
    host, _, folder = text.partition(":")
    if not re.fullmatch(r"[^-\s/][^\s/]*", host):
        raise UsageError(f"invalid ssh destination {text!r}", hint="use HOST or HOST:FOLDER")
    return Remote(host, folder.removeprefix("~/") if folder != "~" else "")


class OverSsh:
    """Starts programs on another machine, in the environment of a login."""

    def __init__(self, runner: Runner, remote: Remote) -> None:
        self._runner = runner
        self._remote = remote

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run a program to its end in the remote folder.

        Raises
        ------
        Unreachable
            If ssh cannot connect.
        CheckFailed
            If the folder does not exist.
        """
        given = "" if command.stdin_file else _given(command.stdin)
        text = render_text(f"exec {join(command.argv)} {given}", self._remote.folder)
        if command.stdin_file:
            sent = Command((*self._ssh(*NO_QUESTIONS), render_word(text)), stdin_file=command.stdin_file)
        else:
            sent = Command((*self._ssh(*NO_QUESTIONS), "sh -s"), stdin=text)
        reply = self._runner.run(sent, on_line)
        _, mark, out = reply.stdout.partition(f"{MARK}\n")
        if not mark:
            raise self._not_there(reply)
        return replace(reply, stdout=out)

    def run_foreground(self, command: Command, on_stderr: OnBlock | None = None) -> int:
        """Run a remote program on this terminal."""
        return self._runner.run_foreground(Command(self._with_streams(command)), on_stderr)

    def exec_command(self, command: Command) -> int:
        """Replace this process with ssh and the remote program."""
        return self._runner.exec_command(Command(self._with_streams(command)))

    def _ssh(self, *options: str) -> tuple[str, ...]:
        return ("ssh", *options, "--", self._remote.host)

    def _with_streams(self, command: Command) -> tuple[str, ...]:
        """Return the ssh command for a program that reads this process's standard input; it is one argument."""
        program = f"{WITH_SLURM}{_change(self._remote.folder)}exec {join(command.argv)}"
        return (*self._ssh(*(("-t",) if sys.stdin.isatty() else ())), render_word(program))

    def _not_there(self, reply: Reply) -> ArgosyError:
        host, folder, errors = self._remote.host, self._remote.folder, reply.stderr.strip()
        if reply.code == NO_CONNECTION:
            return Unreachable(
                f"cannot connect to {host} by ssh",
                evidence="\n".join(filter(None, (f"$ ssh {host}", errors, f"(exit code {reply.code})"))),
                hint=f"make this work first, without a password prompt: ssh {host} true",
            )
        return CheckFailed(
            f"no such folder on {host}: {folder}" if folder else f"cannot start sh on {host}",
            evidence=errors or f"(exit code {reply.code})",
            hint=suggest_mkdir(host, folder) if folder else f"make this work first: ssh {host} sh",
        )


def suggest_mkdir(host: str, folder: str) -> str:
    """Return the hint to create a remote folder; ssh joins its arguments, and the remote shell reads them again."""
    return f"create it: ssh {host} {quote(f'mkdir -p -- {quote(folder)}')}"


def render_word(program: str) -> str:
    """Render a sh program as one line that every login shell parses; arguments of csh cannot contain newlines."""
    numbers = "".join(f"\\{byte:03o}" for byte in program.encode())
    return f'exec sh -c \'eval "$(printf "{numbers}")"\''


def render_text(program: str, folder: str) -> str:
    """Render the standard input of ``sh -s``: print the marker and run a program in a folder."""
    return f"{WITH_SLURM}{_change(folder)}echo {quote(MARK)}\n{program}\n"


def _change(folder: str) -> str:
    return f"cd -- {quote(folder)} || exit 1\n" if folder else ""


def render_file(path: str, text: str) -> str:
    """Render sh lines that write a text file, or exit if that fails; a missing newline at the end is added."""
    redirection, _, body = _given(text).partition("\n")
    return f"cat > {quote(path)} {redirection} || exit 1\n{body}"


def _given(text: str | None) -> str:
    """Render the redirection of standard input: a here-document whose delimiter is not a line of the text.

    No line may begin like the delimiter: dash 0.5.12 corrupts the first non-ASCII character after a common beginning.
    """
    if text is None:
        return "< /dev/null"
    lines = set(text.splitlines())
    begins = {line[:1] for line in lines}
    end = next((sign for sign in "%@=_:+,^~" if sign not in begins), "") + END_OF_TEXT
    while end in lines:
        end += "-"
    body = text.removesuffix("\n")
    return f"<<'{end}'\n{body}\n{end}"


def render_block(path: str, offset: int, count: int) -> str:
    """Render the sh command that prints bytes of a file for `parse_base64`: replies are text."""
    return f"tail -c +{offset + 1} -- {quote(path)} | head -c {count} | base64"


def parse_base64(text: str) -> bytes:
    """Return the bytes in base64; a text that a lost connection cut has no bytes."""
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def run_text(runner: Runner, program: str) -> Reply:
    """Run a sh program of several lines, local or remote, with empty standard input."""
    return runner.run(Command(("sh", "-s"), stdin=program))
