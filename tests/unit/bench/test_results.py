"""Stored results of benchmarks: read from jobs and files, shown side by side as a table, plots and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.bench.collectives_output import parse_collectives
from argosy.bench.requests import launch_sweep, parse_node_counts
from argosy.bench.result import ALGORITHM, BUS, BenchKind, BenchResult, Figure
from argosy.bench.show import plots_of, render_html, render_table
from argosy.bench.stored import read_results
from argosy.cli.app import app
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.plots import LinePlot, RowPlot
from argosy.core.session import Session
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.launch.submit import Launched
from tests.unit.machines import make_session
from tests.unit.plans import plan_text

OWN = """\
# all_reduce · {ranks} ranks on {nodes} nodes · nccl on H100 · torch 2.7
#       size         time      algbw      busbw        low       high   (GB/s)
      64 KiB      0.050 ms      1.311      1.966      1.900      2.000
       4 GiB     10.000 ms    {alg} {bus} {low} {high}
# Peak bus bandwidth : {bus} GB/s at 4 GiB
"""
NCCL = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    30.10    0.00    0.00      0    29.80    0.00    0.00      0
   134217728      33554432     float     sum      -1   1000.0  134.22  251.66      0   1000.5  134.15  251.53      0
# Avg bus bandwidth    : 125.83
"""
NODES = """\
# node node1 gpu 0 (H100): matmul 700.125 TFLOP/s, memory 3000.5 GB/s
# node node1 gpu 1 (H100): matmul 650.000 TFLOP/s, memory 2900.5 GB/s
# node node2 gpu 0 (H100): matmul 100.000 TFLOP/s, memory 3000.5 GB/s | wrong: a copy in its memory differs
"""


def own(nodes: int, bus: float) -> str:
    return OWN.format(ranks=4 * nodes, nodes=nodes, alg=bus / 1.5, bus=bus, low=bus * 0.9, high=bus * 1.05)


def keep(session: Session, job: str, text: str | None, *, nodes: int = 1, **notes: object) -> Path:
    """Write the record and the output of a job."""
    record = session.paths.state / "runs" / f"20260102-0304{int(job):02}-x"
    record.mkdir(parents=True)
    output = record / "job.out"
    if text is not None:
        output.write_text(text)
    submitted = {"job": job, "site": "lab", "time": "2026-01-02T03:04:05", "output": str(output)}
    (record / "submitted.json").write_text(json.dumps(submitted))
    plan = plan_text(name="bench", site="lab", shape={"nodes": nodes, "ranks_per_node": 4})
    (record / "job.json").write_text(plan)
    for name, note in notes.items():
        (record / f"{name}.json").write_text(json.dumps(note))
    return record


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path)


def test_a_table_is_parsed_with_its_spread_and_old_tables_have_none() -> None:
    table = parse_collectives(own(2, 90))
    assert table is not None
    assert (table.operation, table.nodes) == ("all_reduce", 2)
    last = table.rows[-1]
    assert (last.size, last.bus, last.low, last.high, last.seconds) == (4 << 30, 90, 81, 94.5, 0.01)
    old = parse_collectives("     1 MiB      0.500 ms      2.000      3.000\n")
    assert old is not None
    assert [(row.bus, row.low, row.high) for row in old.rows] == [(3, 3, 3)]
    assert parse_collectives("nothing 1 2 3\n") is None


def test_the_tables_of_nccl_tests_and_of_labelled_ranks_are_parsed() -> None:
    table = parse_collectives("".join(f"0: {line}\n" for line in NCCL.splitlines()))
    assert table is not None
    assert [(row.size, row.algorithm, row.bus) for row in table.rows] == [(8, 0, 0), (1 << 27, 134.22, 251.66)]
    assert table.rows[-1].seconds == pytest.approx(0.001)


def test_jobs_that_were_submitted_together_are_one_table_over_nodes_in_both_units(session: Session) -> None:
    jobs = ("11", "12", "13")
    for job, nodes, bus in (("11", 1, 2628.8), ("12", 2, 1230.8)):
        keep(session, job, own(nodes, bus), nodes=nodes, sweep={"jobs": jobs})
    keep(session, "13", None, nodes=4, sweep={"jobs": jobs})
    (result,) = read_results(session, ("12",))
    assert (result.label, result.site, result.node_counts) == ("jobs 11 to 13", "lab", (1, 2))
    lines = [line.split("  ") for line in render_table((result,)).splitlines()]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert cells[0] == ["all_reduce: jobs 11 to 13 (lab, 2026-01-02)"]
    assert cells[2][2:5] == ["bus GB/s", "bus Gb/s", "spread"]
    assert cells[3] == ["1", "4 GiB", "2,629", "21,030", "2,366 to 2,760", "1,753", "14,020"]
    assert cells[4][:4] == ["2", "4 GiB", "1,231", "9,846"]
    assert cells[6] == ["job 13 on 4 nodes has no output yet"]
    over_nodes, sizes = plots_of((result,))
    assert isinstance(over_nodes, LinePlot)
    assert [line.name for line in over_nodes.lines] == [BUS, ALGORITHM]
    points = over_nodes.lines[0].points
    assert [(point.x, point.y) for point in points] == [(1, 2628.8), (2, 1230.8)]
    assert points[0].low == pytest.approx(2365.92)
    assert isinstance(sizes, LinePlot)
    assert [line.name for line in sizes.lines] == ["1 node", "2 nodes"]


def test_a_job_is_compared_with_earlier_ones_and_with_a_file_by_size(session: Session, tmp_path: Path) -> None:
    keep(session, "5", own(2, 80), nodes=2)
    keep(session, "6", own(2, 100), nodes=2)
    other = tmp_path / "nccl.out"
    other.write_text(NCCL)
    results = read_results(session, ("6", "earlier", str(other)))
    assert [result.label for result in results] == ["job 6", "job 5", "nccl.out"]
    lines = render_table(results).splitlines()
    assert any("job 5" in line and line.endswith("0.80 x") for line in lines)
    (plot,) = plots_of(results)
    assert isinstance(plot, LinePlot)
    assert [line.name for line in plot.lines] == ["job 6, 2 nodes", "job 5, 2 nodes", "nccl.out"]


def test_jobs_on_different_numbers_of_nodes_are_a_table_over_nodes(session: Session) -> None:
    keep(session, "5", own(4, 80), nodes=4)
    keep(session, "6", own(1, 300), nodes=1)
    lines = render_table(read_results(session, ("5", "6"))).splitlines()
    assert [line.split()[:5] for line in lines[3:]] == [["1", "4", "GiB", "job", "6"], ["4", "4", "GiB", "job", "5"]]


def test_results_travel_as_json_and_the_page_escapes_them(session: Session, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    hostile = "<script>alert(1)</script>"
    figures = (Figure(hostile, "seconds of a run", "s", 2.5, 2.4, 2.7, each=(2.4, 2.5, 2.7)),)
    results = (BenchResult(BenchKind.SETTINGS, "job 1", "seconds of a run", figures, notes=(hostile,)),)
    file = tmp_path / "kept.json"
    file.write_bytes(json.dumps([json.loads(render_json(results))]).encode())
    assert read_results(session, (str(file),)) == results
    page = render_html(results, f"argosy bench compare '{hostile}'")
    assert hostile not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<svg") == 1


def render_json(results: Sequence[BenchResult]) -> str:
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(results[0]).decode()


def test_a_node_test_shows_the_slowest_devices_and_the_faults(session: Session) -> None:
    keep(session, "7", NODES, nodes=2)
    results = read_results(session, ("7",))
    matmul, memory = plots_of(results)
    assert isinstance(matmul, RowPlot)
    assert [row.name for row in matmul.rows] == [
        "median of 3 device(s)", "node2 gpu 0", "node1 gpu 1", "node1 gpu 0",
    ]  # fmt: skip
    assert matmul.rows[0].value == 650
    assert (matmul.unit, memory.title) == ("TFLOP/s", "test of each node: memory")
    assert "node2 gpu 0: wrong: a copy in its memory differs" in render_table(results)


def test_settings_have_each_run_as_a_dot(session: Session) -> None:
    record = keep(session, "8", "", variants={"variants": ["as planned", "A=1"], "what": "seconds of a run"})
    runs = [(1, 0, 0, "2.0"), (1, 1, 0, "3.0"), (2, 0, 0, "2.5"), (2, 1, 1, "9")]
    (record / "runs.txt").write_text("".join("argosy-variant {} {} {} {}\n".format(*run) for run in runs))
    (plot,) = plots_of(read_results(session, ("8",)))
    assert isinstance(plot, RowPlot)
    assert [(row.name, row.value, row.each) for row in plot.rows] == [
        ("as planned", 2.25, (2.0, 2.5)), ("A=1", 3.0, (3.0,)),
    ]  # fmt: skip
    assert plot.unit == "s"


@pytest.mark.parametrize(
    ("names", "what"),
    [(("9",), "no record of job 9"), (("7", "5"), "cannot be compared"), (("5", "earlier"), "no earlier job"),
     (("4",), "job 4 has no result")],
)  # fmt: skip
def test_results_that_cannot_be_compared_are_refused_with_the_next_step(
    session: Session, names: tuple[str, ...], what: str
) -> None:
    keep(session, "4", "Traceback: no torch\n")
    keep(session, "5", own(2, 80), nodes=2)
    keep(session, "7", NODES, nodes=2)
    with pytest.raises(UsageError, match=what) as raised:
        read_results(session, names)
    assert raised.value.hint


def test_numbers_of_nodes_are_read_in_their_order() -> None:
    assert parse_node_counts("1,2,4,8,16") == (1, 2, 4, 8, 16)
    for text in ("", "0", "1,,2", "a", "-1"):
        with pytest.raises(UsageError, match="invalid --nodes"):
            parse_node_counts(text)


def plan(scheduler: str) -> LaunchPlan:
    return LaunchPlan("x", "lab", scheduler, "x.sif", "", JobShape(1, 1), "", ("sbatch",), ())


def test_jobs_of_a_sweep_know_each_other_and_an_error_tells_those_before_it(tmp_path: Path) -> None:
    requests = [
        LaunchRequest(f"{BARE_PREFIX}x", ("true",), resources=ResourceRequest(nodes=nodes)) for nodes in (1, 2, 4)
    ]

    def start(request: LaunchRequest) -> Launched:
        record = tmp_path / str(request.resources.nodes)
        record.mkdir(exist_ok=True)
        if request.resources.nodes == 4:
            raise CheckFailed("the partition has 2 nodes", evidence="sbatch: error")
        return Launched(0, f"1{request.resources.nodes}", str(record))

    with pytest.raises(CheckFailed) as raised:
        launch_sweep(requests, lambda _: plan("slurm"), start)
    assert raised.value.evidence == "sbatch: error\nsubmitted before: 11, 12"
    assert json.loads((tmp_path / "1/sweep.json").read_text()) == {"jobs": ["11", "12"]}
    with pytest.raises(UsageError, match="need a cluster with Slurm"):
        launch_sweep(requests, lambda _: plan("local"), start)


def test_a_dry_run_prints_the_script_of_each_number_of_nodes_and_plots_need_a_result() -> None:
    words = ["bench", "collectives", "bare:", "--site", "lumi-g", "--account", "project_1", "--nodes", "1,2"]
    words += ["--time", "10:00"]
    done = CliRunner().invoke(app, [*words, "--ranks-per-node", "4", "--dry-run"])
    lines = [line for line in done.output.splitlines() if line.startswith("#SBATCH --nodes")]
    assert lines == ["#SBATCH --nodes=1", "#SBATCH --nodes=2"]
    assert done.output.count("argosy_ranks_per_node=4") == 2
    fixed = CliRunner().invoke(app, [*words, "--ranks", "4", "--dry-run"])
    assert str(fixed.exception).startswith("--ranks cannot be used with several --nodes")
    refused = CliRunner().invoke(app, [*words, "--svg", "a.svg"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.hint == "add --follow, or run after the job: argosy bench compare JOB --svg a.svg"


def test_the_command_writes_the_plots_and_the_page_of_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for name, bus in (("a.out", 90), ("b.out", 45)):
        (tmp_path / name).write_text(own(1, bus) + NCCL)
    files = [str(tmp_path / name) for name in ("a.out", "b.out")]
    words = ["bench", "compare", *files, "--svg", str(tmp_path / "p.svg"), "--html", str(tmp_path / "p.html")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert any("b.out" in line and line.endswith("0.50 x") for line in done.output.splitlines())
    assert (tmp_path / "p.svg").read_text().count("<svg") == 1
    assert "b.out" in (tmp_path / "p.html").read_text()
    stored = CliRunner().invoke(app, ["bench", "compare", *files, "--json"])
    (tmp_path / "kept.json").write_text(stored.stdout)
    again = CliRunner().invoke(app, ["bench", "compare", str(tmp_path / "kept.json")])
    assert again.output.splitlines()[2:] == [line for line in done.stdout.splitlines() if "wrote" not in line][2:]


def test_plots_of_a_run_without_a_job_are_refused_before_it_starts() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = CliRunner().invoke(app, ["bench", "nodes", "bare:", "--gpu", "none", "--follow", "--svg", "a.svg"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.hint.endswith("argosy bench compare run.out --svg FILE")
