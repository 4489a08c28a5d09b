"""The bench's arithmetic and rendering: quartiles, ratios, budgets, tables, and what is read from tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.plots import RowPlot
from bench.__main__ import PARTS, main, parse_arguments
from bench.figures_page import SECTIONS, SUMMARY, render_page
from bench.growth import read_starts, start_rows
from bench.inputs import SHAPES_AN_IMAGE, SOURCE
from bench.job import median_interval, read_times
from bench.meter import Calls, parse_strace
from bench.page import (
    PAGE,
    RESULT,
    read_result,
    read_seconds,
    render_claim,
    render_growth_table,
    render_result,
    sbcast_seconds,
)
from bench.plots import PLOTS, plot_parts
from bench.records import Budget, Result, Row, many, one, ratio_of, render_number
from bench.script import Before, count_before
from bench.start import pairwise
from bench.table import render_result_page
from bench.training import SHARED, read_variants, render_scripted, training_rows
from bench.wrapping import count_until, phase_rows, read_phases

STRACE = """\
7 execve("/bin/sh", ["sh"], 0x7ffe /* 40 vars */) = 0
7 newfstatat(AT_FDCWD, "/usr/lib", {st_mode=S_IFDIR|0755, ...}, 0) = 0
7 newfstatat(3, "", {st_mode=S_IFREG|0644, ...}, AT_EMPTY_PATH) = 0
7 openat(AT_FDCWD, "/etc/x", O_RDONLY <unfinished ...>
8 access("/etc/y", R_OK) = -1 ENOENT (No such file or directory)
7 <... openat resumed>) = 3
8 +++ exited with 0 +++
"""


JOB = """\
7 execve("/usr/bin/sh", ["sh", "job.sh"], 0x7ffe /* 9 vars */) = 0
7 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD <unfinished ...>
8 execve("/usr/bin/scontrol", ["scontrol", "show", "hostnames"], 0x55 /* 9 vars */) = 0
8 connect(3, {sa_family=AF_UNIX, sun_path="/run/nscd/socket"}, 110) = -1 ENOENT
8 connect(3, {sa_family=AF_INET, sin_port=htons(6817), sin_addr=inet_addr("10.77.0.1")}, 16) = 0
8 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0}, 88) = 9
7 vfork()                                = 10
10 execve("/x/srun", ["srun", "sh"], 0x55 /* 9 vars */) = 0
10 clone(child_stack=NULL, flags=SIGCHLD) = 11
"""


def result(*rows: Row) -> Result:
    return Result("2026-01-02", "python -m bench", (("CPU", "One"), ("cores", "2")), (("bwrap", "0.8"),), rows, ("so",))


def test_a_figure_taken_several_times_is_its_median_with_quartiles() -> None:
    row = many("start.a", "a", [4, 1, 2, 3, 5], "ms")
    assert (row.value, row.low, row.high, row.runs) == (3, 1.5, 4.5, 5)


def test_a_figure_taken_once_is_its_own_quartiles() -> None:
    row = many("start.a", "a", [7.5], "ms")
    assert (row.value, row.low, row.high, row.runs) == (7.5, 7.5, 7.5, 1)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=40))
def test_a_median_is_between_its_quartiles(values: list[float]) -> None:
    row = many("start.a", "a", values, "ms")
    assert row.low <= row.value <= row.high


def test_the_group_of_a_row_is_the_first_part_of_its_key() -> None:
    assert one("packing.delta.wall", "delta", 1, "s").group == "packing"


@pytest.mark.parametrize(
    ("value", "budget", "verdict"),
    [
        (1.1, Budget(1.1), "met"),
        (1.11, Budget(1.1), "NOT MET"),
        (50, Budget(50, at_least=True), "met"),
        (49.9, Budget(50, at_least=True), "NOT MET"),
        (1, None, ""),
    ],
)
def test_a_budget_is_met_up_to_its_limit(value: float, budget: Budget | None, verdict: str) -> None:
    assert one("a.b", "b", value, "x", budget=budget).verdict == verdict


def test_a_ratio_is_taken_to_the_row_that_is_named() -> None:
    rows = (one("a.x", "x", 8, "s", against="a.y"), one("a.y", "y", 2, "s"))
    assert ratio_of(rows[0], rows) == 4


def test_a_ratio_needs_the_other_row_with_a_value() -> None:
    alone = one("a.x", "x", 8, "s", against="a.y")
    assert ratio_of(alone, (alone,)) is None
    assert ratio_of(alone, (alone, one("a.y", "y", 0, "s"))) is None
    assert ratio_of(one("a.z", "z", 1, "s"), (alone,)) is None


def test_series_are_compared_round_by_round() -> None:
    assert pairwise((2.0, 9.0), (1.0, 3.0)) == [2, 3]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00912, "0.009"), (0.5, "0.5"), (1.0, "1"), (9.876, "9.88"), (63.51, "63.5"), (1864, "1,864")],
)
def test_numbers_show_three_digits_that_count(value: float, text: str) -> None:
    assert render_number(value) == text


def test_a_table_has_figure_spread_ratio_budget_and_verdict() -> None:
    text = render_result_page(
        result(
            one("a.flat", "flat", 10, "s"),
            many("a.delta", "delta", [4, 5, 6], "s", against="a.flat", budget=Budget(2)),
        )
    )
    line = next(line for line in text.splitlines() if line.startswith("| delta"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["delta", "5 s", "4 – 6", "3", "0.5 x", "<= 2 s", "NOT MET"]  # noqa: RUF001
    assert "- Machine: CPU One, cores 2\n" in text
    assert text.endswith("- so\n")


def test_each_group_has_a_table_with_equal_bars() -> None:
    rows = (one("a.x", "x | y", 1, "s"), one("b.y", "long name of it", 2, "s"))
    lines = render_result_page(result(*rows)).splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## a", "## b", "## run"]
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {8}
    assert len({len(line) for line in tables[:3]}) == 1


def test_the_page_begins_with_a_summary_and_has_the_parts_by_command() -> None:
    rows = (
        one("start.apptainer.python.1.flat", "flat", 140, "ms"),
        one("start.apptainer.python.1.plain", "plain", 100, "ms"),
        one("building.changed", "one more", 11, "s", budget=Budget(10)),
    )
    lines = render_page(result(*rows), {"start": "![S](figures/start.svg)"}).splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:4]] == [
        ["`argosy build`", "one package more", "11 s", "", ""],
        ["`argosy run`", "start of Python, Apptainer", "140 ms", "100 ms, image by mksquashfs", "1.4 x"],
    ]
    assert "0 of 1 budgets are met. Not met:" in lines
    assert "- [building](#building): *one more* is 11 s, its budget <= 10 s" in lines
    heads = [line for line in lines if line.startswith(("#", "!"))]
    assert heads == [
        "## argosy build",
        "### building",
        "## argosy run",
        "### start",
        "![S](figures/start.svg)",
        "## The run",
    ]
    assert lines[-1] == "- so"


def test_every_part_of_the_bench_has_a_place_on_the_page() -> None:
    assert sorted(part for parts in SECTIONS.values() for part in parts) == sorted(PARTS)
    measured = {row.key for row in read_result(RESULT).rows}
    assert {key for each in SUMMARY for key in (each.key, each.other) if key} <= measured


def test_the_page_is_that_of_the_kept_result_and_every_part_with_a_plot_shows_it() -> None:
    kept, page = read_result(RESULT), PAGE.read_text()
    pictures = [each for each in page.splitlines() if each.startswith("![")]
    assert len(pictures) == len(plot_parts(kept.rows)) > 8
    tables = [line for line in render_page(kept, {}).splitlines() if line]
    assert [line for line in page.splitlines() if line in set(tables)] == tables


def test_a_plot_has_the_rows_that_were_measured_with_budget_and_spread() -> None:
    rows = (
        many("commands.help.cpu", "help", [70, 71, 72], "ms", budget=Budget(100)),
        one("commands.nothing.cpu", "nothing", 16, "ms"),
    )
    plot = plot_parts(rows)["commands"]
    assert isinstance(plot, RowPlot)
    bars = [(bar.name, bar.value, bar.low, bar.limit, bar.accent) for bar in plot.rows]
    assert bars == [("python -c pass", 16, None, None, False), ("argosy --help", 71, 70, 100, True)]
    assert plot_parts(rows[:1]) == {}
    assert set(PLOTS) <= set(PARTS)


def test_the_readme_quotes_the_measured_figure_and_stays_otherwise_unchanged() -> None:
    text = "was [68 times faster](docs/reference/figures.md#building) than [7 times faster](elsewhere)"
    assert render_claim(text, result(one("building.cold.faster", "faster", 69.97, "x"))) == text.replace("68", "70")
    assert render_claim(text, result(one("start.x", "x", 99, "x"))) == text


def test_an_earlier_run_is_shown_beside_the_new_one() -> None:
    before = result(one("a.x", "x", 4, "s"), one("a.gone", "gone", 4, "s"))
    text = render_result_page(result(one("a.x", "x", 2, "s"), one("a.new", "new", 3, "s")), before)
    lines = {line.split()[1]: line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")}
    assert [cell.strip() for cell in lines["x"][-2:]] == ["4", "0.5 x"]
    assert [cell.strip() for cell in lines["new"]] == ["new", "3 s", "", "1", *[""] * 5]
    assert "gone" not in lines


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    kept = result(
        many("a.x", "x", [1, 2, 3], "s", against="a.y", budget=Budget(2, at_least=True)), one("a.y", "y", 1, "")
    )
    path = tmp_path / "kept.json"
    path.write_text(render_result(kept))
    assert read_result(path) == kept


@pytest.mark.parametrize("text", ["", "{}", '{"date": 3}'])
def test_an_invalid_result_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"kept\.json"):
        read_result(path)


def test_calls_are_counted_once_each_and_those_that_name_a_path_apart() -> None:
    assert parse_strace(STRACE) == Calls(every=5, named=4)


def test_a_log_of_strace_without_a_call_is_refused() -> None:
    with pytest.raises(ValueError, match="no call"):
        parse_strace("7 +++ exited with 127 +++\n")


def test_images_are_made_again_after_a_change_of_the_modules_that_shape_them() -> None:
    assert [pattern for pattern in SHAPES_AN_IMAGE if not any(SOURCE.glob(pattern))] == []


def test_a_run_that_would_be_kept_is_refused_on_a_loaded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.__main__.read_load", lambda: 4.2)
    monkeypatch.setattr("sys.argv", ["bench"])
    with pytest.raises(SystemExit, match=r"the load average is 4\.2"):
        main()


def test_parts_are_run_in_the_bench_s_order_whatever_the_order_asked() -> None:
    assert parse_arguments(["--only", "planning,packing"]).only == ("packing", "planning")


def test_an_unknown_part_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--only", "packin"])
    assert "packing, building, wrapping, start, memory, commands, planning" in capsys.readouterr().err


def test_forks_and_slurm_requests_are_counted_until_the_ranks_start() -> None:
    assert count_before(JOB) == Before(forks=2, rpcs=1)
    with pytest.raises(RuntimeError, match="never came to srun: no scontrol"):
        count_before(JOB.partition("7 vfork")[0], "no scontrol")


def test_forks_and_programs_are_counted_until_the_runtime_takes_the_process() -> None:
    assert count_until(JOB, "srun") == (2, 2)
    assert count_until(JOB, "sh") == (0, 0)
    with pytest.raises(RuntimeError, match="apptainer was never started"):
        count_until(JOB, "apptainer")


def test_a_script_is_timed_by_the_first_and_the_last_of_its_ranks() -> None:
    argosy, hand = read_times("argosy 1000000 4000000 3000000\nhand 1000000 2000000\n")
    assert (argosy.first, argosy.last, hand.first, hand.last) == ((2.0,), (3.0,), (1.0,), (1.0,))
    with pytest.raises(RuntimeError, match="started no rank"):
        read_times("hand 1000000\n")


def test_the_interval_of_a_median_is_that_of_the_tables_and_of_few_values_all() -> None:
    assert median_interval(list(range(1, 31))) == (10, 21)
    assert median_interval([3, 1, 2]) == (1, 3)


def test_trainings_are_grouped_by_shape_beside_the_plain_container() -> None:
    lines = [
        f"{shape} {way} 0 {seconds}000000000 {seconds / 2}"
        for shape in ("single", "node", "nodes")
        for way, seconds in (("container", 4), ("wrapper", 5), ("scripted", 6), ("container", 4), ("wrapper", 7))
    ]
    rows = {row.key: row for row in training_rows(read_variants("\n".join(lines)))}
    assert len(rows) == 18
    assert (rows["training.node.wrapper.whole"].value, rows["training.node.wrapper.program"].value) == (6, 3)
    assert ratio_of(rows["training.node.wrapper.whole"], tuple(rows.values())) == 1.5


def test_an_unfinished_training_gives_no_figure() -> None:
    with pytest.raises(RuntimeError, match="did not tell its time: single wrapper 1 2"):
        read_variants("single wrapper 1 2 ")


@pytest.mark.parametrize("words", [[], ["a b", "$HOME", "*", "it's"]])
def test_the_wrapper_of_many_programs_does_start_its_program(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "common.sh").write_text(SHARED)
    file = tmp_path / "bin/print"
    file.write_text(render_scripted(("env",), "/usr/bin/printf"))
    file.chmod(0o755)
    done = subprocess.run([file, "<%s>", *words], capture_output=True, text=True, check=False)
    assert done.stdout == ("".join(f"<{word}>" for word in words) or "<>"), done.stderr


STARTS = """\
slurm 1 1000000000 2000000000 1
slurm 64 1000000000 2063000000 64
hand 1 1000000000 2500000000 1
hand 64 1000000000 8800000000 64
argosy 1 1000000000 2600000000 1
argosy 64 1000000000 9530000000 64
"""


def test_growth_is_the_cost_of_one_more_node() -> None:
    rows = {row.key: row for row in start_rows(read_starts(STARTS))}
    assert rows["growth.hand.64"].value == pytest.approx(7.8)
    nodes = [rows[f"growth.{script}.node"].value for script in ("slurm", "hand", "argosy")]
    assert nodes == pytest.approx([1, 100, 110])
    assert rows["growth.argosy_hand"].verdict == "met"
    with pytest.raises(RuntimeError, match="63 of 64 ranks of the script hand"):
        read_starts("hand 64 1 2 63\n")


def test_large_jobs_are_computed_from_figures_and_assumptions() -> None:
    assert [read_seconds(nodes) for nodes in (1, 1000, 10_000)] == [5, 25, 250]
    assert [sbcast_seconds(nodes) for nodes in (1, 8, 9, 64, 1000, 10_000)] == [5, 5, 10, 10, 20, 25]
    values = {f"growth.{phase}.{nodes}": 0.5 for phase in ("before", "after") for nodes in (64, 1000, 10_000)}
    table = render_growth_table({**values, "growth.argosy.1": 1.75, "growth.slurm.1": 1, "planning.large": 2})
    assert "| container, on all nodes at once | 0.75 | 0.75 | 0.75 |" in table
    assert "| verdict: read these files | 0.513 | 0.7 | 2.5 |" in table


PREFIX_START = """\
1 100.000 execve("/p/bin/python", ["/p/bin/python", "-c", "pass"], 0x1 /* 3 vars */) = 0
3 100.001 execve("/usr/local/bin/bwrap", ["bwrap", "--bind", "/a", "/a"], 0x1 /* 3 vars */) = -1 ENOENT (No such file)
3 100.002 execve("/usr/bin/bwrap", ["bwrap", "--ro-bind", "/t/usr", "/usr", "--bind", "/home", "/home"], 0x1) = 0
4 100.006 execve("/bin/sh", ["/bin/sh", "-c", "echo", "argosy-hold"], 0x1 /* 3 vars */) = 0
1 100.007 execve("/usr/bin/nsenter", ["nsenter", "--target", "4"], 0x1 /* 3 vars */) = 0
1 100.009 execve("/p/bin/python", ["/p/bin/python", "-c", "pass"], 0x1 /* 3 vars */) = 0
"""


def test_the_phases_of_a_wrapped_start_are_read_from_its_programs() -> None:
    assert read_phases(PREFIX_START) == pytest.approx((2, 4, 3), abs=1e-3)
    rows = {row.key: row.value for row in phase_rows([PREFIX_START])}
    assert rows["wrapping.bwrap.phase.mounts"] == pytest.approx(4, abs=1e-3)
    assert rows["wrapping.bwrap.binds"] == 2
    with pytest.raises(RuntimeError, match="bwrap did not start"):
        read_phases("\n".join(PREFIX_START.splitlines()[:2]))
