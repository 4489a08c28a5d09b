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
