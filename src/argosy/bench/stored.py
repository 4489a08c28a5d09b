"""Read stored results: of a job, of a sweep over node counts, of earlier jobs, or of a file; list all bandwidths."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from argosy.bench import settings
from argosy.bench.collectives_output import CollectivesOutput, Measured, parse_bandwidth, parse_collectives
from argosy.bench.result import ALGORITHM, BUS, SWEEP, BenchKind, BenchResult, Figure, quartiles
from argosy.bench.startup import CASES, StartupReport
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.parse import decode_json, parse_json
from argosy.core.records import replace
from argosy.core.render import align_rows, count
from argosy.core.session import Session
from argosy.diagnostics.verify.logs import parse_node_tests
from argosy.jobs.history import LATEST, PastJob, past_jobs, read_job
from argosy.jobs.launch_plan import JobShape
from argosy.jobs.outputs import can_read, find_output, read_ends_of
from argosy.jobs.record import read_submission
from argosy.jobs.remote_record import copy_output, session_of
from argosy.sites.load import load_site
from argosy.slurm.queries import is_job_id

EARLIER, MOST_EARLIER = "earlier", 5
"""The word for the earlier comparable jobs of the first result, and how many of them are read."""


EXPECTED_OPERATIONS = ("all_reduce", "bandwidth")
"""Titles of results that the values in site profiles are comparable with."""


def read_results(session: Session, names: Sequence[str]) -> tuple[BenchResult, ...]:
    """Return the results that a user names: job numbers, files, and ``earlier``.

    Raises
    ------
    UsageError
        If a name has no result, or the results are of different kinds.
    """
    results: list[BenchResult] = []
    for name in names:
        if name == EARLIER:
            results += _earlier(session, names[0])
        else:
            results += _read(session, name)
    kinds = {result.kind for result in results}
    if len(kinds) > 1:
        raise UsageError(
            f"results of {' and '.join(sorted(kinds))} cannot be compared",
            hint="compare results of the same command of 'argosy bench'",
        )
    return tuple(results)


def _read(session: Session, name: str) -> tuple[BenchResult, ...]:
    if is_job_id(name) and not Path(name).exists():
        return (_of_job(session, name),)
    return _of_file(Path(name))


def _of_job(session: Session, job: str) -> BenchResult:
    """Return the result of a job, with those of the jobs that were submitted together with it."""
    past = read_job(session, job)
    record = Path(past.record)
    if (record / settings.NOTE).exists():
        return _of_settings(past)
    jobs = _read_sweep(record) or (job,)
    parts = [_of_output(session, read_job(session, each)) for each in jobs]
    measured = [part for part in parts if isinstance(part, BenchResult)]
    missing = tuple(part for part in parts if isinstance(part, str))
    if not measured:
        raise UsageError(
            f"job {job} has no result",
            evidence="\n".join(missing),
            hint=f"wait for its end: argosy logs -f {job}; only jobs of 'argosy bench' and nccl-tests have results",
        )
    label = f"jobs {jobs[0]} to {jobs[-1]}" if len(jobs) > 1 else f"job {job}"
    return replace(
        measured[0],
        label=label,
        figures=tuple(figure for part in measured for figure in part.figures),
        expected={nodes: speed for part in measured for nodes, speed in part.expected.items()},
        notes=(*(note for part in measured for note in part.notes), *missing),
    )


def _read_sweep(record: Path) -> tuple[str, ...]:
    """Return the jobs that were submitted together with that of a record; empty for a single job."""
    try:
        return tuple(map(str, parse_json((record / SWEEP).read_text(encoding="utf-8"))["jobs"]))
    except (OSError, ValueError, KeyError):
        return ()


def _of_output(session: Session, past: PastJob) -> BenchResult | str:
    """Return the result in the output of a job, or why there is none."""
    shape = past.plan.shape
    nodes = shape.nodes
    output = _output_here(session, past)
    if not can_read(output):
        return f"job {past.id} on {count(nodes, 'node')} has no output yet"
    result = _parse_result(read_ends_of(output), nodes)
    if result is None:
        return f"job {past.id} on {count(nodes, 'node')} measured nothing: {past.end}"
    expected = _expected(session, past, shape) if result.title in EXPECTED_OPERATIONS else {}
    return replace(result, label=f"job {past.id}", site=past.site, date=past.submitted[:10], expected=expected)


def _output_here(session: Session, past: PastJob) -> str:
    """Return the output of a job; that of a job submitted by ssh is copied first."""
    record = Path(past.record)
    output = find_output(record, past.id, session.host.person.name)
    if not read_submission(record).ssh:
        return output
    return copy_output(session_of(session, record).runner, record, output)


def _expected(session: Session, past: PastJob, shape: JobShape | None) -> dict[int, float]:
    """Return the bus bandwidth that a site's profile expects for nodes with so many GPUs, by the number of nodes."""
    profile = read_submission(past.record).profile
    try:
        known = load_site(profile, session.host).network.expected
    except ArgosyError:
        return {}
    return {each.nodes: each.gigabytes for each in known if shape and each.gpus_per_node == shape.gpus_per_node}


def _parse_result(text: str, nodes: int = 0) -> BenchResult | None:
    """Parse the output of `argosy bench collectives` or `nodes`, or of nccl-tests; None if it has no result.

    `nodes` is the number of nodes of the job; 0 if only the output tells it.
    """
    if tests := parse_node_tests(text):
        figures = tuple(
            Figure(f"{test.host} {test.device}", quantity, unit, value, value, value)
            for test in tests
            for quantity, (value, unit) in test.figures.items()
        )
        faults = tuple(f"{test.host} {test.device}: {fault}" for test in tests for fault in test.faults)
        return BenchResult(BenchKind.NODES, "", "test of each node", figures, notes=faults)
    if table := parse_collectives(text):
        return BenchResult(BenchKind.COLLECTIVES, "", table.operation or "bandwidth", tuple(_bandwidths(table, nodes)))
    return None


def _bandwidths(table: CollectivesOutput, nodes: int) -> Iterator[Figure]:
    count = table.nodes or nodes
    for row in table.rows:
        yield Figure("", BUS, "GB/s", row.bus, row.low, row.high, count, row.size)
        yield Figure("", ALGORITHM, "GB/s", row.algorithm, row.algorithm, row.algorithm, count, row.size)


def _of_settings(past: PastJob) -> BenchResult:
    variants, runs, what = settings.read_runs(Path(past.record))
    values = {
        name: tuple(run.value for run in runs if run.variant == number and not run.code and run.value is not None)
        for number, name in enumerate(variants)
    }
    unit = "s" if what == settings.SECONDS else ""
    figures = tuple(_spread_figure(name, what, unit, each) for name, each in values.items() if each)
    failed = tuple(f"{name}: no run succeeded" for name, each in values.items() if not each)
    return BenchResult(
        BenchKind.SETTINGS, f"job {past.id}", what, figures, past.site, past.submitted[:10], notes=failed
    )


def _spread_figure(name: str, quantity: str, unit: str, values: Sequence[float]) -> Figure:
    low, high = quartiles(values)
    return Figure(name, quantity, unit, statistics.median(values), low, high, each=tuple(values))


def startup_result(report: StartupReport, label: str = "") -> BenchResult:
    """Return the stored form of a measurement of `argosy bench startup`."""
    figures = tuple(
        Figure(CASES[each.case], "start", "ms", each.median, each.low, each.high, at_once=each.at_once)
        for each in report.figures
    )
    title = f"python -c {report.code!r} by {report.runtime}"
    return BenchResult(BenchKind.STARTUP, label or report.prefix, title, figures, notes=report.notes)


def _of_file(path: Path) -> tuple[BenchResult, ...]:
    """Return the results in a file that ``--json`` wrote, or the one in the output of a job."""
    text = read_ends_of(str(path))
    if text.lstrip().startswith(("[", "{")):
        return _of_json(path)
    result = _parse_result(text)
    if result is None:
        raise UsageError(
            f"{path} contains no result", hint="give a job number, the output of a benchmark, or what --json wrote"
        )
    return (replace(result, label=path.name),)


def _of_json(path: Path) -> tuple[BenchResult, ...]:
    data = path.read_bytes()
    try:
        return decode_json(data, tuple[BenchResult, ...])
    except msgspec.MsgspecError as error:
        try:
            return (startup_result(decode_json(data, StartupReport), path.name),)
        except msgspec.MsgspecError:
            raise UsageError(
                f"{path} contains no result of 'argosy bench'",
                evidence=str(error),
                hint="write one with --json of 'argosy bench compare' or 'argosy bench startup'",
            ) from error


def _earlier(session: Session, first: str) -> Iterator[BenchResult]:
    """Yield the results of earlier jobs of the same site, shape and operation as a job."""
    rows = list_earlier(session)
    at = next((index for index, row in enumerate(rows) if row.job == first), None)
    alike = [row for row in rows[at + 1 :] if row.group == rows[at].group] if at is not None else []
    if not alike:
        raise UsageError(
            f"there is no earlier job to compare with {first}",
            evidence="comparable jobs have the same site, shape and operation",
            hint="list your measurements with: argosy bench history",
        )
    for row in alike[:MOST_EARLIER]:
        found = _of_output(session, read_job(session, row.job))
        if isinstance(found, BenchResult):
            yield found


class EarlierRun(msgspec.Struct, frozen=True):
    """The bandwidth that an earlier job measured."""

    job: str
    date: str
    """Day of its submission, in ISO 8601."""
    measured: Measured
    site: str = ""
    nodes: str = ""
    """Names of the nodes of its last run; empty if its end was not recorded."""
    shape: JobShape = JobShape(0, 0)
    """Shape of the job; without nodes if its plan cannot be read."""

    @property
    def group(self) -> tuple[object, ...]:
        """Return what must be equal for two measurements to be comparable."""
        return (self.site, self.shape, self.measured.operation)


def list_earlier(session: Session, site: str = "") -> tuple[EarlierRun, ...]:
    """Return the measurements of the last jobs, newest first; only those of `site` if it is given."""
    jobs = [job for job in past_jobs(session, most=LATEST) if site in {"", job.site}]
    return tuple(_list_measured(jobs, session))


def _list_measured(jobs: Sequence[PastJob], session: Session) -> Iterator[EarlierRun]:
    for job in jobs:
        output = find_output(Path(job.record), job.id, session.host.person.name)
        found = parse_bandwidth(read_ends_of(output)) if can_read(output) else None
        if found:
            yield EarlierRun(
                job.id, job.submitted[:10], found, job.site, job.run.nodes if job.run else "", job.plan.shape
            )


def render_history(rows: Sequence[EarlierRun]) -> str:
    """Render measurements as a table; compare each with the best of its site, shape and operation."""
    best: dict[tuple[object, ...], float] = {}
    for row in rows:
        best[row.group] = max(row.measured.gigabytes, best.get(row.group, 0.0))
    cells = [("date", "job", "site", "operation", "nodes x ranks", "GB/s", "of the best", "on")]
    for row in rows:
        share = row.measured.gigabytes / best[row.group] if best[row.group] else 1.0
        speed, operation = f"{row.measured.gigabytes:g}", row.measured.operation or "-"
        shape = f"{row.shape.nodes} x {row.shape.ranks_per_node}" if row.shape.nodes else "-"
        cells.append((row.date, row.job, row.site, operation, shape, speed, f"{share:.0%}", row.nodes or "-"))
    return "\n".join(align_rows(cells))
