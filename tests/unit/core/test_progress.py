"""Progress for people, and what a build took beside time."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from argosy.builder.python.uv_output import UvProgress
from argosy.builder.records import disk_use, measure_cost
from argosy.core.progress import Meter, drop_bars, read_bar, render_amount, size_of, watch_growth
from argosy.core.render import render_packages, render_seconds, render_size
from argosy.core.session import PlainReporter, Step
from argosy.recipes.conda_worker import Progress

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
        (25e6, 10, "25 of 100 MB, 2.5 MB/s, 30 s left"),
        (5e6, 60, "5 of 100 MB, 83 kB/s, 19 min left"),
        (100e6, 60, "100 of 100 MB"),
    ],
)
def test_the_time_left_is_shown_once_the_rate_is_known(done: float, seconds: float, text: str) -> None:
    assert render_amount(done, 100e6, seconds) == text


def test_a_meter_measures_the_rate_from_the_first_data_on() -> None:
    told: list[str] = []
    now = iter((0.0, 40.0, 41.0, 44.0))
    meter = Meter(told.append, "downloading", 100e6, clock=lambda: next(now))
    for done in (10e6, 15e6, 30e6):
        meter.update(done)
    assert told == [
        "downloading: 10 of 100 MB",
        "downloading: 15 of 100 MB",
        "downloading: 30 of 100 MB, 5.0 MB/s, 14 s left",
    ]


def test_packages_that_condas_cache_has_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(2, {"python": 30_000_000, "tool": 10_000_000})
    cached, downloaded = (progress.on_populate_cache_start(0, name) for name in ("python", "tool"))
    progress.on_populate_cache_complete(cached)
    progress.on_download_progress(progress.on_download_start(downloaded), 5_000_000, None)
    progress.on_populate_cache_complete(downloaded)
    assert capsys.readouterr().err == "downloading tool: 5 of 10 MB\n"


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
        "downloading numpy: 10 of 42 MB",
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
    assert disk_use(tmp_path, without=(tree,)) == disk_use(tmp_path) - one
    assert disk_use(tmp_path / "nothing") == 0


def test_an_excluded_tree_may_be_removed_while_its_folder_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "trees"
    tree.mkdir()
    scandir = os.scandir

    @contextmanager
    def remove_after_listing(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            listed = list(entries)
        tree.rmdir()
        yield listed

    monkeypatch.setattr("argosy.builder.records.os.scandir", remove_after_listing)
    assert disk_use(tmp_path, without=(tree,)) == tmp_path.lstat().st_blocks * 512


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


def test_amounts_without_a_total_and_of_other_things() -> None:
    assert render_amount(25e6, 0, 10) == "25 MB, 2.5 MB/s"
    assert render_amount(30, 120, 10, unit="blocks") == "30 of 120 blocks, 3.0/s, 30 s left"
    assert render_amount(1.5e9, 4e9, 1) == "1.5 of 4.0 GB"
    assert [render_seconds(seconds) for seconds in (40, 300, 10_000, 400_000)] == ["40 s", "5 min", "3 h", "5 d"]


def test_a_meter_reports_twice_per_second_at_most() -> None:
    reports: list[str] = []
    times = iter((0.0, 0.1, 0.2, 1.0, 1.1, 4.0, 4.1))
    meter = Meter(reports.append, "packing", 100e6, clock=lambda: next(times))
    for _ in range(5):
        meter.add(10e6)
    assert reports == ["packing: 30 of 100 MB", "packing: 50 of 100 MB, 10 MB/s, 5 s left"]
    meter.end()
    assert reports[-1] == "packing: 100 of 100 MB"


def test_a_meter_of_a_short_work_reports_nothing() -> None:
    reports: list[str] = []
    meter = Meter(reports.append, "packing", 100, clock=lambda: 0.0)
    meter.add(100)
    meter.end()
    assert reports == []


def test_the_bars_of_the_squashfs_tools_are_read_and_are_no_evidence() -> None:
    """The lines are those of mksquashfs and unsquashfs 4.5.1 in a pipe."""
    reports: list[str] = []
    meter = Meter(reports.append, "packing", unit="blocks", clock=iter(range(0, 90, 3)).__next__)
    for line in ("", "[============/     ]  419/1530  27%", "FATAL ERROR", "[================-] 1322/1322 100%"):
        read_bar(meter, line)
    assert reports == ["packing: 419 of 1530 blocks", "packing: 1322 of 1322 blocks"]
    assert drop_bars("\r[=====/   ] 419/1530  27%\rFATAL ERROR: full\n\r[====|] 420/1530  27%\n") == "FATAL ERROR: full"


def test_a_file_that_another_program_writes_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.core.progress.GROWTH_SECONDS", 0.01)
    folder = tmp_path / "new"
    reported = threading.Event()
    reports: list[str] = []

    def report(text: str) -> None:
        reports.append(text)
        reported.set()

    with watch_growth(Meter(report, "downloading", clock=iter(range(1000)).__next__), folder):
        folder.mkdir()
        (folder / "blob").write_bytes(b"x" * 5000)
        while not any("5.0 kB" in text for text in reports):
            assert reported.wait(60)
            reported.clear()
    assert size_of(folder) == size_of(folder / "blob") == 5000
    assert size_of(tmp_path / "missing") == 0


def test_a_log_gets_an_amount_now_and_then() -> None:
    out = io.StringIO()
    reporter = PlainReporter(out)
    reporter.begin(Step("fetch", "image", lambda _: None))
    reporter.amount("downloading: 1 of 9 MB")
    reporter.silent_since -= 60
    reporter.amount("downloading: 5 of 9 MB")
    reporter.amount("downloading: 6 of 9 MB")
    assert out.getvalue() == "fetch       downloading: 5 of 9 MB\n"
