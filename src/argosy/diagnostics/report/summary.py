"""Say in a few sentences what happened to a job, and what it measured."""

from __future__ import annotations

import re
from collections.abc import Sequence

from argosy.bench.result import BUS, BenchResult, Figure
from argosy.core.findings import Finding, State, has_failed
from argosy.core.render import count
from argosy.core.shell import quote
from argosy.diagnostics.report.model import Comparison, ReportCase
from argosy.diagnostics.verify.rules import LEAST_SHARE
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.outputs import names_ranks
from argosy.jobs.query import JobFacts
from argosy.slurm.states import ENDED, state_word

OF_GPUS = ("GPUs", "network")

SCRIPT_SAYS = re.compile(r"^argosy: (?!job |verdict:)(.+)$", re.MULTILINE)
"""A line of the job script about a failure; it also writes how the job ended, and the verdict."""

MUCH_SLOWER = 1.5
"""Factor to the last run that passed that the summary mentions."""

BANDWIDTH = "bandwidth"
"""Subject of the finding about the bandwidth."""


def summarize(case: ReportCase) -> str:
    """Say what happened to a job or run; of a job that failed early, the script wrote to the output what failed."""
    facts, name = case.facts, sentence(case.facts.subject)
    restarts = f", after {count(facts.restarts, 'restart')}" if facts.restarts else ""
    if facts.kind != ENDED:
        return f"{name} {facts.meaning}{restarts}."
    if facts.first:
        raised = f": {case.raised.text}" if case.raised else ""
        return f"{name} failed: {facts.first.text}{raised}{restarts}."
    if facts.code and _failed_early(facts):
        reasons = SCRIPT_SAYS.findall(case.output)
        reason = f": {reasons[-1]}" if reasons else f" (code {facts.code})"
        return f"{name} failed before its first rank started{reason}{restarts}."
    if facts.code is None:
        return f"{name} {facts.meaning}{restarts}."
    if facts.code:
        return f"{name} {facts.meaning} (code {facts.code}){restarts}."
    speed = _compare_with_expected(case)
    checks = _summarize_checks(case.findings, has_speed=bool(speed))
    texts = (f"{name} finished with exit code 0{restarts}", checks)
    how = ", but it " if has_failed(case.findings) else " and "
    return f"{how.join(filter(None, texts))}.{f' {speed}' if speed else ''}"


def _summarize_checks(findings: Sequence[Finding], *, has_speed: bool) -> str:
    """Say how many checks passed, or which failed and why; with `has_speed`, another sentence has the bandwidth."""
    failed = [
        each.what if has_speed and each.what == BANDWIDTH else f"{each.what} ({each.evidence.partition(';')[0]})"
        for each in findings
        if each.state is State.FAIL
    ]
    if failed:
        return f"failed {len(failed)} of {count(len(findings), 'check')}: {join_names(failed)}"
    passed = sum(each.state is State.OK for each in findings)
    checks = f"all {passed} checks" if passed == len(findings) > 1 else f"{passed} of {count(len(findings), 'check')}"
    return f"passed {checks}" if passed else ""


def _compare_with_expected(case: ReportCase) -> str:
    """Compare the bandwidth of a job with the expected one; empty if none is expected."""
    results = case.results
    peaks = [(results[0].peak(nodes, BUS), speed) for nodes, speed in results[0].expected.items()] if results else []
    found = [
        f"Bus bandwidth, as the program printed it: {peak.value:.4g} GB/s; expected {speed:.4g} GB/s, "
        f"at least {LEAST_SHARE * speed:.4g} GB/s ({LEAST_SHARE:.0%}) to pass{_compare_with_passed(case, peak)}."
        for peak, speed in peaks
        if peak
    ]
    return found[-1] if found else ""


def _compare_with_passed(case: ReportCase, peak: Figure) -> str:
    """Say how many times slower a job was than the last run that passed; empty below a factor of 1.5."""
    if len(case.results) < 2:  # noqa: PLR2004 - the second one is that of the last run that passed
        return ""
    before = case.results[1].peak(peak.nodes, BUS)
    times = before.value / peak.value if before and peak.value else 0.0
    return f"; {times:.2g} times slower than {case.results[1].label}" if times >= MUCH_SLOWER else ""


def describe_writer(case: ReportCase) -> str:
    """Return who wrote the last lines of a failed job: the rank that failed first, or the whole output."""
    facts, plan = case.facts, case.plan
    if facts.first and ((plan and plan.logs) or names_ranks(facts.last_lines)):
        return f"rank {facts.first.rank}"
    return "the output"


def _failed_early(facts: JobFacts) -> bool:
    """Return whether a job of Argosy failed by itself before a rank started."""
    return state_word(facts.state) == "FAILED" and bool(facts.submitted) and not facts.ranks


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence, for example ``image, nodes and options``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def capitalise(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Begin a text with a capital letter, and remove its full stop."""
    return capitalise(text).rstrip(".")


def fill_names(text: str, facts: JobFacts) -> str:
    """Replace the placeholders of a hint by the job's number and its output."""
    text = re.sub(r"\bJOB\b", facts.id, text)
    return re.sub(r"\bLOG\b", lambda _: quote(facts.output), text) if facts.output else text


def relevant_findings(
    findings: Sequence[Finding], plan: LaunchPlan | None, facts: JobFacts, compared: Comparison
) -> tuple[Finding, ...]:
    """Return the findings of `argosy verify` for the page, which says at its top how the job ended.

    A job without GPUs has no findings about GPUs and their network that nothing shows. A job whose output has no
    bandwidth, unlike that of the last run that passed, has a finding about it.
    """
    without_gpus = plan is not None and not plan.shape.gpus_per_node
    shown = tuple(
        each
        for each in findings
        if each.what != "end" and not (without_gpus and each.what in OF_GPUS and each.state is State.UNKNOWN)
    )
    missing = explain_missing_bandwidth(facts, compared)
    if missing and all(each.what != BANDWIDTH for each in shown):
        return (*shown, Finding(BANDWIDTH, State.UNKNOWN, missing))
    return shown


def explain_missing_bandwidth(facts: JobFacts, compared: Comparison) -> str:
    """Say that a failed job has no bandwidth; empty if the last run that passed has none either."""
    if not facts.code or not compared.bandwidth:
        return ""
    return f"the output of this job has no measurement (job {compared.job} measured {compared.bandwidth})"


def summarize_results(results: Sequence[BenchResult], passed: str = "") -> str:
    """Say in one sentence which bandwidth a job measured, and compare it; empty for other benchmarks.

    Parameters
    ----------
    passed
        Number of the last job that passed, whose result may be the second one.
    """
    texts, counts = [], set()
    for result in results:
        peaks = [peak for nodes in result.node_counts if (peak := result.peak(nodes, BUS))]
        counts |= {peak.nodes for peak in peaks}
        note = ", the last run that passed" if result.label == f"job {passed}" else ""
        texts += [f"{peak.value:.4g} GB/s on {count(peak.nodes, 'node')} in {result.label}{note}" for peak in peaks]
    if not texts:
        return ""
    expected = [f"{speed:.4g} GB/s on {count(n, 'node')}" for n, speed in results[0].expected.items() if n in counts]
    known = f"; the site's profile expects {', '.join(expected)}" if expected else ""
    return f"Largest bus bandwidth: {', '.join(texts)}{known}."
