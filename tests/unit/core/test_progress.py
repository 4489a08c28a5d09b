"""Progress for people, and what a build took beside time."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from argosy.builder.python.uv_output import UvProgress
from argosy.builder.records import disk_use, measure_cost
from argosy.core.progress import render_amount, render_packages, render_size
from argosy.core.session import PlainReporter, Step

SAID = """\
Using Python 3.11.7 environment at: /opt/argosy/env
Resolved 3 packages in 832ms
Downloading pandas (10.0MiB)
Downloading numpy (30.0MiB)
 Downloaded pandas
 Downloaded numpy
Prepared 3 packages in 11.35s
Installed 3 packages in 1.19s
Bytecode compiled 3590 files in 1m 32s
 + numpy==2.4.6
"""


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 9, "0 of 100 MB"),
        (25e6, 1, "25 of 100 MB"),
        (25e6, 10, "25 of 100 MB, 30 s left"),
        (5e6, 60, "5 of 100 MB, 19 min left"),
        (100e6, 60, "100 of 100 MB"),
    ],
)
def test_the_time_left_is_shown_once_the_rate_is_known(done: float, seconds: float, text: str) -> None:
    assert render_amount(done, 100e6, seconds) == text


def test_uvs_output_becomes_stages_with_packages_bytes_and_time_left() -> None:
    told: list[str] = []
    now = iter(range(0, 100, 10))
    progress = UvProgress(told.append, clock=lambda: float(next(now)))
    for line in SAID.splitlines():
        progress.hear(line)
    assert told == [
        "fetching 3 packages",
        "downloading pandas: 0 of 10 MB",
        "downloading numpy and 1 more: 0 of 42 MB",
        "downloading numpy: 10 of 42 MB, 60 s left",
        "got 42 of 42 MB",
        "installing 3 packages",
        "compiling the byte code of 3 packages",
    ]


def test_a_log_gets_a_progress_line_only_after_a_silence() -> None:
    out = io.StringIO()
    reporter = PlainReporter(out)
    step = Step("packages", "r.txt", lambda _: None)
    reporter.begin(step)
    reporter.progress(step, "soon")
    reporter.silent_since -= 60
    reporter.progress(step, "downloading torch")
    reporter.progress(step, "soon again")
    assert out.getvalue() == "packages    downloading torch\n"


def test_hard_links_count_once_and_excluded_trees_not_at_all(tmp_path: Path) -> None:
    tree = tmp_path / "layer"
    tree.mkdir()
    (tree / "a").write_bytes(os.urandom(100_000))
    one = disk_use(tree)
    os.link(tree / "a", tree / "b")
    assert disk_use(tree) == one
    assert disk_use(tmp_path, without=tree) == disk_use(tmp_path) - one
    assert disk_use(tmp_path / "nothing") == 0


def test_the_highest_point_is_kept(tmp_path: Path) -> None:
    tree = tmp_path / "layer"
    tree.mkdir()
    (tmp_path / "wheel").write_bytes(os.urandom(1_000_000))
    first = measure_cost(tmp_path, tree)
    (tmp_path / "wheel").unlink()
    second = measure_cost(tmp_path, tree, tmp_path / "nothing", before=first)
    assert second.disk == first.disk > 0
    assert second.memory >= first.memory > 0


def test_sizes_have_decimal_units() -> None:
    assert (render_size(71_400_000), render_size(1_250_000_000)) == ("71 MB", "1.2 GB")


def test_numbers_of_packages_have_singular_and_plural() -> None:
    assert [render_packages(count) for count in (0, 1, 12)] == ["no packages", "1 package", "12 packages"]
