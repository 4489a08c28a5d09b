"""No input makes a reader fail with anything but an explained error, hang, or take all memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.soak.parsers import PARSERS

pytestmark = pytest.mark.soak

REPO = Path(__file__).parents[2]
INPUTS = int(os.environ.get("ARGOSY_INPUTS", "5000"))
SEED = os.environ.get("ARGOSY_SEED", "20")


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_damaged_input_is_read_or_refused(name: str, record_property: Callable[[str, object], None]) -> None:
    words = (sys.executable, "-m", "tests.soak.fuzz", name, "--seed", SEED, "--inputs", str(INPUTS))
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}"
    record_property("fuzzed inputs", INPUTS)
