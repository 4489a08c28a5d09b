"""Shell text becomes a syntax tree whose words are those of bash, also in the quotes $'…'."""

from __future__ import annotations

import subprocess

import pytest

from argosy.slurm.bash_tree import decode_ansi_text, parse_bash, without_texts
from argosy.slurm.script_reader import parse_commands
from argosy.slurm.script_words import expand, plain_text

VALUES = {"A": "one", "B": "two", "C": "three"}


@pytest.mark.parametrize(
    "line",
    [
        "x $A/$B/c y",
        "x $A:/work,$B/.cache:/cache",
        "x $A.$B.log $C-$A-$B/f",
        "x '$A/$B/c' \"$A/$B/c\" ${A}/$B/c",
        "x a$A/$B/c$C/d",
    ],
)
def test_words_with_several_variables_are_those_of_bash(line: str) -> None:
    (command,) = parse_commands(line)
    values = {name: expand(parse_commands(f"x {value}")[0].words[1], {}) for name, value in VALUES.items()}
    words = [plain_text(each) for word in command.words[1:] for each in expand(word, values)]
    script = f"x() {{ printf '%s\\n' \"$@\"; }}; {line}"
    shown = subprocess.run(["/bin/sh", "-c", script], env=VALUES, capture_output=True, text=True, check=True).stdout
    assert words == shown.splitlines()


def test_an_assignment_of_two_variables_is_one_word() -> None:
    (command,) = parse_commands("DATA=$A/$B/data train")
    assert [name for name, _ in command.assigned] == ["DATA"]
    assert [plain_text(word) for word in command.words] == ["train"]


@pytest.mark.parametrize("text", ["x $", "x $A/$", "x $1/$2/a", "x $A/$(", "\udc80$A/$B"[1:], "$A$B$C/$D"])
def test_odd_text_ends(text: str) -> None:
    assert parse_bash(text).type == "program"


def test_a_correction_that_corrects_nothing_ends() -> None:
    assert parse_bash('R=${1:${}#\n"').type == "program"


@pytest.mark.parametrize("text", [r"a\tb\n", r"it\'s \"\\\?", r"\101\x41\u00e9\U0001F600", r"\e[0m\cA\z", "é"])
def test_escapes_are_those_of_bash(text: str) -> None:
    command = ("bash", "-c", f"printf %s $'{text}'")
    shown = subprocess.run(command, env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True).stdout
    assert decode_ansi_text(text) == shown.decode()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("echo \"a > b\" 'c' $'d'  # e", "echo \"_____\" '_' $'_'  ___"),
        ('A="$(cmd "q" > f)é $X"B=1', 'A="$(cmd "_" > f)___$X"B=1'),
        ("cat <<E > f\nA=1\nE\nB=2", "cat <<E > f\n___\nE\nB=2"),
        ("eval 'A=1'", "eval 'A=1'"),
        ("echo 'a", "echo 'a"),
    ],
)
def test_text_between_quotes_is_no_command(text: str, plain: str) -> None:
    assert without_texts(text) == plain
