"""Without a container: words and variables verbatim, codes and signals, the programs of a prefix first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.model import Attach, Entry, GpuMode, Image, ImageKind, Person, Variable
from argosy.core.process import Command, RealRunner, Reply
from argosy.core.shell import literal_argv
from argosy.runtimes.bare import BARE

pytestmark = pytest.mark.real

HOSTILE = ("", "two words", "*", "-x", "--", "$HOME", "`id`", "$(id)", "a \"b\" 'c' \\ d", "one\ntwo", "ünï ✓", "end\n")


def entry(folder: Path, prefix: str = "", **variables: str) -> Entry:
    person = Person(os.getuid(), os.getgid(), "somebody", str(folder))
    image = Image(prefix, ImageKind.HOST, "", "")
    forced = tuple(Variable(name, value) for name, value in variables.items())
    return Entry(image, Attach.FLAT, (), forced, str(folder), GpuMode.NONE, contain=False, person=person)


def start(planned: Entry, *command: str, around: str = 'exec "$@"', stdin: str | None = None) -> Reply:
    words = literal_argv(BARE.argv(planned, command))
    return RealRunner().run(Command(("/bin/sh", "-c", around, "sh", *words), stdin=stdin))


def test_arguments_arrive_unchanged(tmp_path: Path) -> None:
    reply = start(entry(tmp_path), "printf", "<%s>\\n", *HOSTILE)
    assert reply.stdout == "".join(f"<{word}>\n" for word in HOSTILE)


def test_variables_arrive_verbatim(tmp_path: Path) -> None:
    planned = entry(tmp_path, **{f"V{number}": word for number, word in enumerate(HOSTILE)})
    script = "".join(f'printf "<%s>\\n" "$V{number}"; ' for number in range(len(HOSTILE)))
    assert start(planned, "sh", "-c", script).stdout == "".join(f"<{word}>\n" for word in HOSTILE)


def test_folder_code_and_standard_input_pass(tmp_path: Path) -> None:
    reply = start(entry(tmp_path), "sh", "-c", "pwd; cat; exit 42", stdin="given\n")
    assert (reply.stdout, reply.code) == (f"{tmp_path}\ngiven\n", 42)


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    script = 'trap "echo warned; exit 9" USR1; echo ready; while :; do sleep 1 & wait $!; done'
    around = (
        f'cd "{tmp_path}"; mkfifo out; "$@" > out & pid=$!; '
        '{ read -r line; [ "$line" != ready ] || kill -USR1 $pid; cat; } < out; wait $pid'
    )
    reply = start(entry(tmp_path), "sh", "-c", script, around=around)
    assert (reply.stdout, reply.code) == ("warned\n", 9)


def test_the_programs_of_a_prefix_come_first(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "mine: $VIRTUAL_ENV"\n')
    python.chmod(0o755)
    (tmp_path / "venv/pyvenv.cfg").touch()
    reply = start(entry(tmp_path, str(tmp_path / "venv")), "python")
    assert reply.stdout == f"mine: {tmp_path}/venv\n"


def test_a_prefix_without_python_fails_and_starts_nothing(tmp_path: Path) -> None:
    reply = start(entry(tmp_path, str(tmp_path / "nowhere")), "echo", "ran")
    assert (reply.stdout, reply.code) == ("", 6)
    assert "nowhere/bin/python" in reply.stderr
