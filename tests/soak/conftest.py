"""What all parts of the soak share: the shop of the real tests, and the counts at the end of a run."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from _pytest.terminal import TerminalReporter

from tests.real.conftest import pool, shop, tiny

__all__ = ["pool", "shop", "tiny"]

SEED = os.environ.get("ARGOSY_SEED", "20")
"""Draws the inputs, the moments of kills and the order of arguments; another one draws others."""


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
