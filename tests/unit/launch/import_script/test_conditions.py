"""Loops and conditions of a script: which variables they change, and which of their text is only printed."""

from __future__ import annotations

from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript

ENDS = "the script can end here: check the condition before the launch, or in the program"


def read(*lines: str) -> ImportedScript:
    return import_script("j.sh", "\n".join(("#!/bin/bash", *lines, "")))


def untranslated(*lines: str) -> dict[str, str]:
    return {each.text: each.note for each in read(*lines).untranslated}


def keys(*lines: str) -> dict[str, Any]:
    (job,) = read(*lines).jobs
    return dict(job.keys)


@pytest.mark.parametrize(
    "print_help",
    [
        'echo "  export DATA=/path"',
        "echo '  export DATA=/path'",
        "printf '%s\\n  export DATA=/path\\n' usage",
        "echo $'set it:\\n export DATA=/path'",
        "cat <<END\n  export DATA=/path\nEND",
        "# for example:  export DATA=/path\n  echo help",
    ],
)
def test_a_text_that_a_condition_prints_sets_no_variable(print_help: str) -> None:
    guard = ('if [[ -z "${DATA:-}" ]]; then', f"  {print_help}", "  exit 1", "fi")
    lines = (*guard, 'export PYTHONPATH="${DATA}/src:${PYTHONPATH:-}"', "srun python a.py --data $DATA")
    assert untranslated(*lines) == {guard[0]: ENDS}
    assert 'export PYTHONPATH="${DATA}/src:${PYTHONPATH:-}"' in keys(*lines)["command"][2]


def test_a_text_that_a_condition_prints_writes_no_file() -> None:
    imported = read('if [ -n "$V" ]; then', '  echo "usage: $0 <in> > out"', "fi", "srun ./a")
    assert [each.fate for each in imported.translations if each.line == 2] == [Fate.LEFT_OUT]


@pytest.mark.parametrize(
    "line",
    ['LR="0.2"', "export LR='0.2'", 'eval "export LR=0.2"', 'true "${LR:=0.2}"', 'echo "$((LR = 2))"', 'read -r "LR"'],
)
def test_a_condition_with_quotes_can_set_a_variable(line: str) -> None:
    assert "$LR" in untranslated('if [ -n "$FAST" ]; then', f"  {line}", "fi", "srun ./a $LR")


OPTIONS = ("while [[ $# -gt 0 ]]; do", '  case $1 in --lr) LR="$2"; shift 2;; esac', "done")


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (("LR=0.1", *OPTIONS, "srun ./a --lr $LR"), "fixed at 0.1; lines 3 to 5 can change it"),
        (("LR=0.1", *OPTIONS, 'A="--lr $LR"', "A+=' -v'", "srun ./a $A"), "fixed at 0.1; lines 3 to 5 can change it"),
        (("LR=", *OPTIONS, "srun ./a $LR.py"), "fixed at an empty value; lines 3 to 5 can change it"),
        (("LR=1", "if [ $X = 1 ]; then LR=2; fi", "srun -n $LR ./a"), "fixed at 1; line 3 can change it"),
        (("LR=1", "if [ $X = 1 ]; then LR=2; fi", "export LR", "srun ./a"), "fixed at 1; line 3 can change it"),
        (("LR=1", "if [ $X = 1 ]; then LR=2; fi", "export L=x$LR", "srun ./a"), "fixed at 1; line 3 can change it"),
        (("LR=a", "if [ $X = 1 ]; then LR=b; fi", "cd /$LR", "srun ./a"), "fixed at a; line 3 can change it"),
        (("LR=a", "if [ $X = 1 ]; then LR=b; fi", "mkdir $LR", "srun ./a"), "fixed at a; line 3 can change it"),
        (("LR=1", "[ $X = 1 ] && LR=2", "srun ./a $LR"), "fixed at 1; line 3 can change it"),
        (("LR=1", "read -r LR < f", "srun ./a $LR"), "fixed at 1; line 3 can change it"),
        (("LR=1", "f() {", "  LR=$1", "}", "f 3", "srun ./a $LR"), "fixed at 1; lines 3 to 5 can change it"),
        (("f() { LR=$1; }", "LR=1", "if [ $1 ]; then f 3; fi", "srun ./a $LR"), "fixed at 1; line 4 can change it"),
        (("LR=1", "if [ $X = 1 ]; then LR=2; fi", "for i in 1; do LR=$i; done", "srun ./a $LR"),
         "fixed at 1; line 3 and line 4 can change it"),
        (("LR=1", *(3 * ("if [ $X = 1 ]; then LR=2; fi",)), "srun ./a $LR"),
         "fixed at 1; line 3, line 4 and line 5 can change it"),
    ],
)  # fmt: skip
def test_a_variable_that_keeps_its_first_value_is_reported(lines: tuple[str, ...], note: str) -> None:
    assert untranslated(*lines)["$LR"] == f"{note}: write the value into the table"


@pytest.mark.parametrize(
    "lines",
    [
        ("LR=1", "if [ $X = 1 ]; then LR=2; fi", "LR=3", "srun ./a $LR"),
        ("LR=1", "A=$LR", "if [ $X = 1 ]; then LR=2; fi", "srun ./a $A"),
        ("LR=1", "if [ $X = 1 ]; then LR=2; fi", "A=$LR", "srun ./a"),
        ("LR=1", "f() { LR=2; }", "srun ./a $LR"),
        ("LR=$(hostname)", "if [ $X = 1 ]; then LR=${LR%% *}; fi", "srun ./a $LR"),
        ("LR=$(cat f)", "if [ $X = 1 ]; then LR=2; fi", "srun ./a $LR"),
        ("LR=1", "f() { local LR=2 B; LR=3; echo $LR; }", "f", "srun ./a $LR"),
    ],
)
def test_a_value_that_no_line_changes_is_not_reported(lines: tuple[str, ...]) -> None:
    assert "$LR" not in untranslated(*lines)


@pytest.mark.parametrize(
    ("head", "is_array"),
    [
        ("while [[ $# -gt 0 ]]; do", False),
        ('while [ -n "${1:-}" ]; do', False),
        ("while getopts 'l:' opt; do", False),
        ('for each in "$@"; do', False),
        ("for each; do", False),
        ("while :; do shift;", False),
        ("for each in $(awk '{print $1}' runs); do", True),
        ("for lr in 1 2; do", True),
    ],
)
def test_only_a_loop_over_runs_is_advised_to_be_a_job_array(head: str, *, is_array: bool) -> None:
    note = untranslated(head, "  LR=$each", "done", "srun ./a $LR")[head]
    assert ("job array" in note) is is_array
    assert ("it reads the arguments of the script" in note) is not is_array
