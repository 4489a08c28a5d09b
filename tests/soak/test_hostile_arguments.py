"""No value of an option or argument is executed, and each ends in a documented exit code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.cli.app import COMMANDS

pytestmark = pytest.mark.soak

REPO = Path(__file__).parents[2]
SEED = os.environ.get("ARGOSY_SEED", "20")
VALUES = 8


@pytest.mark.skipif(not shutil.which("mksquashfs") or not shutil.which("bwrap"), reason="needs mksquashfs and bwrap")
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_values_are_arguments_and_nothing_else(
    command: str, record_property: Callable[[str, object], None]
) -> None:
    words = (sys.executable, "-m", "tests.soak.arguments", "--command", command, "--seed", SEED)
    done = subprocess.run(
        (*words, "--values", str(VALUES)), cwd=REPO, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counted = re.search(r"^(\d+) calls", done.stdout, re.MULTILINE)
    assert counted is not None
    record_property("hostile arguments", int(counted[1]))
