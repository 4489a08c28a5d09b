"""The measurement of starts: what it counts, what it says, and that a failed start is no figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from argosy.bench.startup import PROGRAM, Calls, StartFigure, StartupReport, count_calls, render_table

REPORT = StartupReport(
    "/p", "apptainer", "import torch",
    tuple(
        StartFigure(case, at_once, ms, ms - 1, ms + 1, 5)
        for at_once in (0, 1, 8) for case, ms in (("bare", 10.0), ("wrapper", 31.5 + at_once))
    ),
    (Calls("bare", 9000, 8000), Calls("wrapper", 9100, 40)),
    ("no runtime line",),
)  # fmt: skip


def measure(tmp_path: Path, *cases: dict[str, object]) -> subprocess.CompletedProcess[str]:
    task = {"cases": [{"env": dict(os.environ), "drop": [str(tmp_path)]} | case for case in cases],
            "at_once": [[1, 2], [3, 1]], "cold": 1}  # fmt: skip
    words = [sys.executable, str(PROGRAM), str(tmp_path / "said")]
    return subprocess.run(words, input=json.dumps(task), capture_output=True, text=True, check=False)


def test_each_mode_is_started_once_uncounted_and_then_first_in_its_turn(tmp_path: Path) -> None:
    order = tmp_path / "order"
    ways: list[dict[str, object]] = [{"name": name, "words": ["sh", "-c", f"echo {name} >> {order}"]} for name in "ab"]
    done = measure(tmp_path, *ways)
    taken = json.loads(done.stdout)
    assert {key: len(values) for key, values in taken["b"].items()} == {"1": 2, "3": 1, "cold": 1}
    assert order.read_text().split() == ["a", "b", "a", "b", "b", "a", *"aaabbb", "a", "b"]


def test_a_failed_start_ends_the_measurement_with_its_output(tmp_path: Path) -> None:
    done = measure(tmp_path, {"name": "wrapper", "words": ["sh", "-c", "echo no image >&2; exit 9"]})
    assert (done.returncode, done.stderr) == (1, "wrapper ended with 9: no image\n")


def test_calls_that_name_a_path_are_counted_and_those_below_the_folder_among_them() -> None:
    trace = (
        '12 openat(AT_FDCWD, "/p/a", O_RDONLY) = 3\n12 newfstatat(3, "", {}, AT_EMPTY_PATH) = 0\n'
        '12 access("/px", R_OK) = -1\n13 execve("/p/bin/python", ["a"], 0x1) = 0\n13 <... stat resumed>) = 0\n'
    )
    assert count_calls("wrapper", trace, "/p") == Calls("wrapper", 3, 2)
    assert count_calls("wrapper", trace, "").shared is None


def test_the_table_has_a_row_for_every_mode() -> None:
    lines = render_table(REPORT).splitlines()
    wrapped = next(line for line in lines if line.startswith("the wrapped command"))
    assert wrapped.split()[3:] == ["31.5", "(30.5-32.5)", "32.5", "(31.5-33.5)", "39.5", "(38.5-40.5)", "9,100", "40"]
    assert lines[-1] == "no runtime line"
