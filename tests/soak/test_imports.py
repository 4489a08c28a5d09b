"""The jobs of an imported script do what the script does, or the import reports what they do not do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bwrap"),
]

REPO = Path(__file__).parents[2]
SEED = os.environ.get("ARGOSY_SEED", "20")
COUNT = int(os.environ.get("ARGOSY_IMPORTS", "100"))
FOLDER = os.environ.get("ARGOSY_SCRIPTS", "")


@pytest.mark.parametrize("part", range(4))
def test_jobs_do_what_their_scripts_do(part: int, record_property: Callable[[str, object], None]) -> None:
    compare("--seed", SEED, "--first", str(part * COUNT), "--count", str(COUNT), record=record_property)


@pytest.mark.skipif(not FOLDER, reason="ARGOSY_SCRIPTS=FOLDER has job scripts of your own")
def test_jobs_do_what_the_scripts_of_a_folder_do(record_property: Callable[[str, object], None]) -> None:
    compare("--folder", FOLDER, "--count", "1000000", record=record_property)


def compare(*options: str, record: Callable[[str, object], None]) -> None:
    words = (sys.executable, "-m", "tests.soak.import_difference", *options)
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    scripts, calls = (re.search(rf"(\d+) {name}", done.stdout) for name in ("scripts", "calls"))
    assert scripts is not None
    assert calls is not None
    record("imported scripts", int(scripts[1]))
    record("compared calls", int(calls[1]))
