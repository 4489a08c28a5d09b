"""A job does what the script does, or the import reports the part that it does not translate."""

from __future__ import annotations

from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import ImportedScript

COMPUTED = "the script computes it: write its value, or set it in the program"
ENDS = "the script can end here: check the condition before the launch, or in the program"
SIGNS = "it changes how the shell reads * and other signs"


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))


def jobs(*lines: str) -> list[dict[str, Any]]:
    return [dict(job.keys) for job in read(*lines).jobs]


def commands(*lines: str) -> list[list[str]]:
    return [keys["command"] for keys in jobs(*lines)]


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (("if [ -e done ]; then", "exit 0", "fi", "srun ./a"), ("if [ -e done ]; then", ENDS)),
        (("[ -e done ] && exit", "srun ./a"), ("exit", ENDS)),
        (("[ -e x ] || { echo no; exit 1; }", "srun ./a"), ("{ echo no; exit 1; }", ENDS)),
    ],
)  # fmt: skip
def test_what_a_job_does_not_do_is_reported(lines: tuple[str, ...], reported: tuple[str, str]) -> None:
    assert reported in [(each.text, each.note) for each in read(*lines).untranslated]


@pytest.mark.parametrize(
    "lines",
    [
        ("mkdir -p x || { echo no; exit 1; }", "srun ./a"),
    ],
)
def test_a_guard_is_not_reported(lines: tuple[str, ...]) -> None:
    assert not read(*lines).untranslated


def test_what_follows_the_end_of_the_script_is_left_out() -> None:
    imported = read("srun ./a", "exit 0", "export A=1", "srun ./b")
    assert [job.line for job in imported.jobs] == [2]
    assert {each.note for each in imported.translations if each.line > 3} == {"the script ends before it"}
    assert commands("exec ./a", "./b") == [["./a"]]
    assert commands("exec > all.log", "./b") == [["./b"]]


def test_text_on_both_sides_of_a_command_in_backquotes_stays() -> None:
    (keys,) = jobs("export A=tcp:`hostname -s`:1", "srun ./a x`hostname`y")
    assert keys["command"] == ["sh", "-c", 'export A="tcp:${MASTER_ADDR}:1"; exec ./a x$(hostname)y']
