"""The bench itself runs: a quick pass over small images gives every row that the manual's page names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")


def measured(only: str, out: Path) -> dict[str, float]:
    words = (sys.executable, "-m", "bench", "--quick", "--only", only, "--json", str(out))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["key"]: row["value"] for row in json.loads(out.read_text())["rows"]}


@pytest.mark.lab
@NEEDS_ROOT
@pytest.mark.soak
def test_a_script_asks_slurm_nothing_for_two_nodes_and_for_ten_thousand(tmp_path: Path) -> None:
    rows = measured("script", tmp_path / "result.json")
    assert {"script.forks.2", "script.forks.10000", "script.bytes.2", "script.bytes.10000"} <= set(rows)
    assert rows["script.rpcs.2"] == rows["script.rpcs.10000"] == 0


@pytest.mark.lab
@NEEDS_ROOT
@pytest.mark.soak
def test_a_job_of_two_nodes_is_measured_against_the_script_by_hand(tmp_path: Path) -> None:
    rows = measured("job", tmp_path / "result.json")
    assert min(rows["job.hand"], rows["job.argosy"]) > 0
    assert rows["job.difference.low"] <= rows["job.difference"]


@pytest.mark.lab
@NEEDS_ROOT
@pytest.mark.soak
def test_growth_is_measured_for_slurm_alone_a_script_by_hand_and_that_of_argosy(tmp_path: Path) -> None:
    rows = measured("growth", tmp_path / "result.json")
    wanted = {
        f"growth.{script}.{nodes}" for script in ("slurm", "hand", "argosy", "sbcast", "read") for nodes in (1, 2)
    }
    assert min(rows[key] for key in wanted) > 0
    assert {"growth.argosy_hand", "growth.before.10000", "growth.after.10000"} <= set(rows)


@pytest.mark.lab
@NEEDS_ROOT
@pytest.mark.soak
def test_wrapping_is_measured_under_both_runtimes(tmp_path: Path) -> None:
    rows = measured("wrapping", tmp_path / "result.json")
    wanted = {"wrapping.apptainer.many", "wrapping.apptainer.update", "wrapping.bwrap.start.wrapper"}
    assert wanted <= set(rows)
    assert (rows["wrapping.apptainer.forks"], rows["wrapping.apptainer.execs"]) == (0, 1)
    assert rows["wrapping.calls.wrapper"] > 0


@pytest.mark.lab
@NEEDS_ROOT
@pytest.mark.soak
def test_training_is_measured_in_a_container_and_by_wrapped_commands_on_one_node_and_two(tmp_path: Path) -> None:
    rows = measured("training", tmp_path / "result.json")
    assert {f"training.{shape}.wrapper.whole" for shape in ("single", "node", "nodes")} <= set(rows)
    assert all(key.replace("program", "whole") in rows for key in rows if key.endswith("program"))


def test_a_quick_bench_counts_commands_and_plans_and_keeps_nothing(tmp_path: Path) -> None:
    kept = (ROOT / "bench/result.json").read_bytes()
    rows = measured("commands,planning", tmp_path / "result.json")
    wanted = {"commands.help.cpu", "commands.dry_run.calls", "planning.local", "planning.large", "planning.profiles"}
    assert wanted <= set(rows)
    assert min(rows.values()) > 0
    assert (ROOT / "bench/result.json").read_bytes() == kept


@pytest.mark.soak
def test_a_quick_bench_measures_starts_and_memory(tmp_path: Path) -> None:
    rows = measured("start,memory", tmp_path / "result.json")
    wanted = {"start.bwrap.python.1.delta", "start.bwrap.python.8.delta_flat", "memory.bwrap.together_to_one"}
    assert wanted <= set(rows)
    assert min(rows.values()) > 0
    assert "memory.bwrap.mapped" in rows
    assert "start.bwrap.ranks.together_to_one" in rows


@pytest.mark.soak
def test_a_quick_bench_measures_tools_from_the_package_index(tmp_path: Path) -> None:
    rows = measured("peers", tmp_path / "result.json")
    starts = {f"peers.start.{name}" for name in ("argosy", "cotainr", "reframe")}
    scripts = {f"peers.script.{name}" for name in ("argosy", "torchx", "submitit")}
    assert set(rows) == starts | scripts
    assert min(rows.values()) > 0
