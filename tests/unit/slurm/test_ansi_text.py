"""The text between the quotes $'…' is that of bash."""

from __future__ import annotations

import subprocess

import pytest

from argosy.slurm.ansi_text import decode_ansi_text


@pytest.mark.parametrize("text", [r"a\tb\n", r"it\'s \"\\\?", r"\101\x41\u00e9\U0001F600", r"\e[0m\cA\z", "é"])
def test_escapes_are_those_of_bash(text: str) -> None:
    command = ("bash", "-c", f"printf %s $'{text}'")
    shown = subprocess.run(command, env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True).stdout
    assert decode_ansi_text(text) == shown.decode()
