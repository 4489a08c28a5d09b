"""Collect the facts of a report: the job, its record, its output and its image."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

from argosy.bench.result import BenchResult
from argosy.bench.stored import read_results
from argosy.core.errors import ArgosyError
from argosy.core.findings import Finding, has_failed
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.diagnostics.report.cause import changes_only_arguments, cite_lines, explain_cause
from argosy.diagnostics.report.compare import compare_jobs, compare_settings
from argosy.diagnostics.report.model import Comparison, Excerpt, RankRow, Report, ReportCase, Search
from argosy.diagnostics.report.next_steps import list_commands, list_steps
from argosy.diagnostics.report.node_view import job_node
from argosy.diagnostics.report.source import find_exception, read_excerpt, search_arguments, search_frames
from argosy.diagnostics.report.summary import (
    explain_missing_bandwidth,
    join_names,
    relevant_findings,
    summarize,
    summarize_results,
)
from argosy.diagnostics.report.timeline import plan_timeline, unknown_times
from argosy.diagnostics.verify.logs import NetFacts, parse_by_host, parse_netlog
from argosy.diagnostics.verify.rules import name_network
from argosy.diagnostics.verify.verify import find_network_logs, find_passed, planned_profile, verify_facts
from argosy.diagnostics.why.explain import explain_log
from argosy.diagnostics.why.find import KnownError
from argosy.images.open import inspect_squashfs, open_image
from argosy.jobs.command_files import read_command_files
from argosy.jobs.history import read_kept_plan
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.local_run import find_run
from argosy.jobs.outputs import can_read, read_ends_of
from argosy.jobs.query import JobFacts
from argosy.jobs.record import read_command_line, read_plan, read_submission
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.slurm.sbatch import option_value
from argosy.slurm.states import ENDED
from argosy.version import VERSION

T = TypeVar("T")

OUTPUT_LINES, LONGEST_LINE = 200, 400
"""Lines of the output's end on the page, and characters of each."""

MOST_PACKAGES, NETWORK_LINES = 500, 12
"""Packages, and lines about the network on the page."""

NETWORK = re.compile(
    r"^.*(?:NET/OFI|NET/IB|NET/Socket|Using network|Selected [Pp]rovider|GPU Direct RDMA"
    r"|NCCL_(?!DEBUG)\w+ set (?:by|to) ).*$",
    re.MULTILINE,
)
"""Lines of NCCL and RCCL that name the network, or a variable that changes it."""

OF_PROCESS = re.compile(r"^\S+:\d+:\d+ \[\d+\] ")
"""Host, process and GPU, with which NCCL begins a line."""

ADDRESS = re.compile(r":[\d.]+<\d+>")
"""Address of a node, which differs between the lines of its ranks."""


TYPED_FOLDER = re.compile(r"cd ('.+?'|\S+) && ")
"""The beginning of a recorded command line: the folder in which it was typed."""


def collect_report(session: Session, job: str) -> Report:
    """Collect what is known about a job or a run on this machine; parts that cannot be read are empty.

    Parameters
    ----------
    job
        The number or name of a job, the folder of a record, or ``last`` for the newest job or run.

    Raises
    ------
    UsageError
        When neither Slurm nor a record knows the job.
    """
    facts = find_run(session, job)
    output = read_ends_of(facts.output) if facts.output and can_read(facts.output) else ""
    logs = "\n".join((output, *map(read_ends_of, find_network_logs(facts, read_plan(facts.record)))))
    case = _collect_case(session, facts, output, logs)
    missing = explain_missing_bandwidth(facts, case.compared)
    return Report(
        case=case,
        summary=summarize(case),
        cause=explain_cause(case),
        chain=cite_lines(case),
        steps=tuple(list_steps(case)),
        timeline=plan_timeline(facts, output),
        unknown=tuple(unknown_times(facts, case.plan, output)),
        ranks=tuple(_ranks(facts, case.plan)),
        measured=summarize_results(case.results, case.compared.job)
        or (f"Bus bandwidth: {missing}." if missing else ""),
        evidence=_network_lines(logs),
        packages=tuple(_packages(session, case.plan).items())[:MOST_PACKAGES],
        output=_end_of(output),
        commands=tuple(list_commands(case)),
        node=job_node(_site(session, case).node, case.plan.shape.gpus_per_node if case.plan else 0),
        networks=parse_by_host(logs),
        written=time.time(),
        user=session.host.person.name,
        argosy=VERSION,
    )


def _collect_case(session: Session, facts: JobFacts, output: str, logs: str) -> ReportCase:
    plan, submission = _plan(facts.record), read_submission(facts.record)
    net = parse_netlog(logs)
    compared = _compared(session, facts, net)
    findings: tuple[Finding, ...] = _or((), lambda: verify_facts(session, facts)[1].findings)
    case = ReportCase(
        facts=facts,
        plan=plan,
        findings=relevant_findings(findings, plan, facts, compared),
        errors=_errors(session, facts),
        compared=compared,
        raised=find_exception(facts.last_lines) if facts.code else None,
        net=net,
        results=_measured(session, facts.id, compared.job) if not facts.is_local else (),
        output=output,
        typed=redact(read_command_line(facts.record)),
        profile=submission.profile or (plan.site if plan else ""),
        ssh=submission.ssh,
    )
    case = replace(case, search=_search(case))
    return replace(case, excerpt=_excerpt(case))


def _search(case: ReportCase) -> Search | None:
    """Return the lines of the user's program that explain a job."""
    files = read_command_files(case.facts.record)
    program = files[0].path if files else ""
    found = None
    if case.raised:
        found = search_frames(case.raised, _job_folder(case))
    elif program and has_failed(case.findings) and changes_only_arguments(case.compared):
        found = search_arguments(program, case.compared.changes[0])
    is_here = found is not None and (case.ssh or Path(found.path).is_file())
    return replace(found, in_image=found.in_image or not is_here) if found else None


def _job_folder(case: ReportCase) -> str:
    """Return the folder in which a job started, by its recorded command line; empty if it is unknown."""
    typed = None if case.ssh else TYPED_FOLDER.match(case.typed)
    chosen = option_value(case.plan.directives, "--chdir") if case.plan else ""
    found = PurePosixPath(typed[1].strip("'") if typed else "", chosen)
    return str(found) if found.is_absolute() else ""


def _excerpt(case: ReportCase) -> Excerpt | None:
    """Read the lines of the user's program that explain a job; None if the program is not on this machine."""
    started = max((run.started for run in case.facts.runs), default=0)
    return read_excerpt(case.search, started) if case.search and started and not case.ssh else None


def _or(otherwise: T, ask: Callable[[], T]) -> T:
    """Return an answer, or another value if there is none."""
    try:
        return ask()
    except ArgosyError:
        return otherwise


def _plan(record: str) -> LaunchPlan | None:
    return _or(None, lambda: read_kept_plan(Path(record), record)) if record else None


def _errors(session: Session, facts: JobFacts) -> tuple[KnownError, ...]:
    """Find the known errors in the output of a job that did not end well."""
    if not facts.output or not can_read(facts.output) or (facts.kind == ENDED and facts.code == 0):
        return ()
    return explain_log(session, facts.output).errors


def _site(session: Session, case: ReportCase) -> Site:
    """Return the profile of a job's site; its file may lie outside the folders of profiles."""
    return _or(Site(), lambda: load_site(case.profile, session.host)) if case.plan else Site()


def _ranks(facts: JobFacts, plan: LaunchPlan | None) -> Iterator[RankRow]:
    planned = plan.cores if plan else ()
    for each in facts.ranks:
        failed = facts.first is not None and facts.first.rank == each.rank
        yield RankRow(
            each.rank,
            each.host,
            each.local,
            each.cores,
            planned[each.local] if each.local < len(planned) else "",
            each.gpus,
            facts.first.text if failed and facts.first else "",
        )


def _measured(session: Session, job: str, passed: str) -> tuple[BenchResult, ...]:
    """Return what the job measured, followed by the result of the last run that passed."""
    none: tuple[BenchResult, ...] = ()
    both = _or(none, lambda: read_results(session, (job, passed))) if passed else none
    return both or _or(none, lambda: read_results(session, (job,)))


def _compared(session: Session, facts: JobFacts, net: NetFacts) -> Comparison:
    """Compare the job with the last run that passed; runs without a submission are not compared."""
    if not read_submission(facts.record).is_known:
        return Comparison()
    try:
        passed = find_passed(session, Path(facts.record), planned_profile(session, facts))
        if passed is None:
            return Comparison()
        records = (passed.job.record, facts.record)
        packages = {record: _packages(session, _plan(record)) for record in records}
        bandwidth = f"{passed.net.measured.gigabytes:.4g} GB/s" if passed.net.measured else ""
        observed = tuple(compare_settings(passed.net.settings, net.settings))
        compared = compare_jobs(session, facts, passed.job, packages)
        network = _describe_network(passed.net)
        return replace(compared, observed=observed, network=network, cards=passed.net.cards, bandwidth=bandwidth)
    except ArgosyError:
        return Comparison()


def _describe_network(net: NetFacts) -> str:
    """Return the networks of a run with its cards, for example ``InfiniBand (mlx5_0 and mlx5_1)``; empty if unknown."""
    cards = f" ({join_names(net.cards)})" if net.cards else ""
    return f"{join_names([*map(name_network, net.networks)])}{cards}" if net.networks else ""


def _network_lines(logs: str) -> tuple[str, ...]:
    """Return the lines that name the network; lines of several ranks that differ only in addresses are one line."""
    lines = [OF_PROCESS.sub("", redact(line.strip())[:LONGEST_LINE]) for line in NETWORK.findall(logs)]
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(ADDRESS.sub("", line), []).append(line)
    counted = (same[0] + (f"  (written {len(same)} times)" if len(same) > 1 else "") for same in kinds.values())
    return tuple(counted)[:NETWORK_LINES]


def _packages(session: Session, plan: LaunchPlan | None) -> dict[str, str]:
    """Return name and version of the packages in the lock of a plan's image; nothing if it has no lock or is gone."""
    if plan is None or not Path(plan.image).is_file():
        return {}
    lock = _or(None, lambda: inspect_squashfs(open_image(Path(plan.image)), session).lock)
    return {each.name: each.version for each in lock.packages} if lock else {}


def _end_of(output: str) -> str:
    lines = [line[:LONGEST_LINE] for line in output.splitlines()[-OUTPUT_LINES:]]
    return redact("\n".join(lines))
