"""Programs on another machine, by ssh: a runner in front of another one, and the text in which words travel.

What runs there travels on standard input to ``sh -s``, so the login shell there, whichever it is, parses two plain
words.  What a profile of that shell prints comes before a mark, and is left out.  Keys, ports, jump hosts and shared
connections are ssh's own: they stand in ``~/.ssh/config``.
"""

from __future__ import annotations

import re
import sys

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.process import Command, OnBlock, OnLine, Reply, Runner
from argosy.core.records import replace
from argosy.core.shell import join, quote

MARK = "argosy: from here on"
"""Printed before what a program there prints."""

NO_CONNECTION = 255
"""ssh's own exit code where it reached nobody; a program's could be the same, after the mark."""

UNASKED = ("-o", "BatchMode=yes")
"""A question for a password would wait for ever: whoever runs in the background may not read from the terminal."""

END_OF_TEXT = "argosy-end-of-text"

WITH_SLURM = """\
command -v sbatch > /dev/null 2>&1 || [ ! -r /etc/profile ] || . /etc/profile > /dev/null 2>&1 < /dev/null || :
"""
"""Some sites put Slurm on the PATH of login shells alone."""


class Remote(msgspec.Struct, frozen=True):
    """A machine that ssh reaches, and a folder there.

    Attributes
    ----------
    host
        As ssh takes it: a name of ``~/.ssh/config``, or ``user@name``.
    folder
        Empty for the home folder; one that is not absolute is below it.
    """

    host: str
    folder: str = ""


def parse_remote(text: str) -> Remote:
    """Read ``HOST`` or ``HOST:FOLDER``.

    Raises
    ------
    UsageError
        When there is no host, or ssh would take it for an option.
    """
    host, _, folder = text.partition(":")
    if not re.fullmatch(r"[^-\s/][^\s/]*", host):
        raise UsageError(f"{text!r} names no machine", hint="write HOST or HOST:FOLDER, with a host that ssh knows")
    return Remote(host, folder.removeprefix("~/") if folder != "~" else "")


class OverSsh:
    """Starts programs on another machine; the environment is that of a login there."""

    def __init__(self, runner: Runner, remote: Remote) -> None:
        self._runner = runner
        self._remote = remote

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        """Run a program there to its end, in the remote folder.

        Raises
        ------
        CheckFailed
            When ssh does not reach the machine, or the folder is not there.
        """
        given = "" if command.stdin_file else _given(command.stdin)
        text = render_text(f"exec {join(command.argv)} {given}", self._remote.folder)
        if command.stdin_file:
            sent = Command((*self._ssh(*UNASKED), render_word(text)), stdin_file=command.stdin_file)
        else:
            sent = Command((*self._ssh(*UNASKED), "sh -s"), stdin=text)
        reply = self._runner.run(sent, on_line)
        _, mark, out = reply.stdout.partition(f"{MARK}\n")
        if not mark:
            raise self._not_there(reply)
        return replace(reply, stdout=out)

    def run_foreground(self, command: Command, on_stderr: OnBlock | None = None) -> int:
        """Run a program there with this terminal's own streams."""
        return self._runner.run_foreground(Command(self._with_streams(command)), on_stderr)

    def exec_command(self, command: Command) -> int:
        """Let a program there have this process's place."""
        return self._runner.exec_command(Command(self._with_streams(command)))

    def _ssh(self, *options: str) -> tuple[str, ...]:
        return ("ssh", *options, "--", self._remote.host)

    def _with_streams(self, command: Command) -> tuple[str, ...]:
        """Give ssh's words for a program whose standard input is ours: it travels as a word of the login shell's."""
        program = f"{WITH_SLURM}{_change(self._remote.folder)}exec {join(command.argv)}"
        return (*self._ssh(*(("-t",) if sys.stdin.isatty() else ())), render_word(program))

    def _not_there(self, reply: Reply) -> CheckFailed:
        host, folder, said = self._remote.host, self._remote.folder, reply.stderr.strip()
        if reply.code == NO_CONNECTION:
            return CheckFailed(
                f"{host} is not reached by ssh",
                evidence=said,
                hint=f"this must work first, without a question: ssh {host} true",
            )
        return CheckFailed(
            f"there is no folder {folder} at {host}" if folder else f"{host} starts no sh",
            evidence=said or f"(exit code {reply.code})",
            hint=f"make it: ssh {host} mkdir -p {quote(folder)}" if folder else f"this must work first: ssh {host} sh",
        )


def render_word(program: str) -> str:
    """Render a sh program as one line that every login shell parses alike: in csh a word may have no end of line."""
    numbers = "".join(f"\\{byte:03o}" for byte in program.encode())
    return f'exec sh -c \'eval "$(printf "{numbers}")"\''


def render_text(program: str, folder: str) -> str:
    """Render what ``sh -s`` is given: a program that begins in a folder, after the mark."""
    return f"{WITH_SLURM}{_change(folder)}echo {quote(MARK)}\n{program}\n"


def _change(folder: str) -> str:
    return f"cd -- {quote(folder)} || exit 1\n" if folder else ""


def render_file(path: str, text: str) -> str:
    """Render the lines of a sh program that write a text file; a last line without its end gets one."""
    return f"cat > {quote(path)} {_given(text)}"


def _given(text: str | None) -> str:
    """Render where a program's standard input comes from; the word that ends it is none of the text's own lines.

    Nor does a line begin as it does: dash 0.5.12 spoils the first letter in which such a line differs, unless it is
    one of ASCII.
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


def run_text(runner: Runner, program: str) -> Reply:
    """Run a sh program of several lines, here or there; it reads nothing."""
    return runner.run(Command(("sh", "-s"), stdin=program))
