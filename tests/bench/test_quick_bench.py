"""The bench itself runs: a quick pass over small images gives every row that the manual's page names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


def test_a_quick_bench_measures_starts_commands_and_plans_and_keeps_nothing(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    kept = set((ROOT / "bench/results").glob("*"))
    words = (sys.executable, "-m", "bench", "--quick", "--only", "start,memory,commands,planning", "--json", str(out))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["key"]: row for row in json.loads(out.read_text())["rows"]}
    wanted = {
        "start.bwrap.python.1.delta", "start.bwrap.python.8.delta_flat", "memory.bwrap.together_to_one",
        "commands.help.cpu", "commands.dry_run.calls", "planning.local", "planning.large",
    }  # fmt: skip
    assert wanted <= set(rows)
    assert all(row["value"] > 0 for row in rows.values())
    assert rows["commands.help.calls"]["value"] <= 700, "what `--help` imports grew"
    assert rows["commands.dry_run.calls"]["value"] <= 1200, "what a local dry run imports grew"
    assert rows["memory.bwrap.mapped"]["value"] > 10, "numpy's libraries alone are more"
    assert set((ROOT / "bench/results").glob("*")) == kept
