"""What all parts of the soak share: the shop of the real tests, and the counts at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from _pytest.terminal import TerminalReporter

from argosy.images.sif.write import plan_system_part, whole_of, write_sif
from tests.real.conftest import pool, shop, tiny

if TYPE_CHECKING:
    from tests.real.conftest import Shop

__all__ = ["pool", "shop", "tiny"]

SEED = os.environ.get("ARGOSY_SEED", "20")
"""Draws the inputs, the moments of kills and the order of arguments; another one draws others."""


@pytest.fixture
def image(shop: Shop, tiny: Path) -> Path:
    """Give a SIF with one static program."""
    out = shop.folder / "tiny.sif"
    write_sif(out, [plan_system_part(whole_of(tiny), arch="amd64")], uuid=UUID(int=7), time=1, arch="amd64")
    out.chmod(0o644)
    return out


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print how much was tried: each test records its counts as properties, which pass between processes."""
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                counts.update({name: count for name, count in report.user_properties if isinstance(count, int)})
    if counts:
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"soak: {told} (ARGOSY_SEED={SEED})")
