"""The Python interface in a Python of its own: it builds, runs programs in containers, and goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

RUN = """
import sys
from argosy import api
print("before")
code = api.run(sys.argv[1], ["sh", "-c", "echo inside, $GREETING; exit 5"], env={"GREETING": "hello"}, runtime="bwrap")
print("exit code", code)
"""

BUILD = """
import sys
from argosy import api
report = api.build("requirements.txt", base=sys.argv[1], output="x.sif")
found = api.describe_image(report.output)
print(*(f"{package.name} {package.version}" for package in found.packages))
print(*sorted({each.state for each in api.check_image("x.sif", site="local")}))
"""


def start(shop: Shop, program: str, image: Path) -> tuple[int, str, str]:
    """Run a program in the Python of the tests, with the environment of the shop."""
    done = subprocess.run(
        (sys.executable, "-c", program, image),
        cwd=shop.folder,
        env=shop.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_program_goes_on_after_a_run_and_has_its_exit_code(shop: Shop) -> None:
    assert start(shop, RUN, shop.base) == (0, "before\ninside, hello\nexit code 5\n", "")


def test_an_image_is_built_described_and_checked(shop: Shop) -> None:
    shop.write("requirements.txt", "tinypkg==1.0\n")
    code, out, err = start(shop, BUILD, shop.base)
    assert (code, err) == (0, "")
    assert "tinypkg 1.0" in out
    assert "fail" not in out
