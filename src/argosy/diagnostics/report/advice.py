"""Decide what a report says first: what happened, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.bench.result import BUS, BenchResult
from argosy.core.findings import Finding, State, has_failed
from argosy.core.plural import count
from argosy.core.shell import quote
from argosy.diagnostics.report.compare import PROGRAM
from argosy.diagnostics.report.model import Comparison
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.slurm.text import ENDED

OF_GPUS = ("GPUs", "network")

SCRIPT_SAYS = re.compile(r"^argosy: (?!job |verdict:)(.+)$", re.MULTILINE)
"""A line of the job script about a failure; it also writes how the job ended, and the verdict."""

RAISED = re.compile(r"^(?:\[?rank\d+\]?: ?| *\d+: )?((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*)$")
"""The last line of a Python traceback: the exception, with the rank that torchrun or srun writes before it."""

FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""A frame of a Python traceback."""

PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")
"""Parts of the paths of frames that do not belong to the user's program."""

NOTHING = "There is nothing to fix."

MOST_CHANGES = 3
"""Differences from the last run that passed in the next step; the section has all."""

UNKNOWN_CAUSE = "the output contains no error that Argosy knows: read its last lines below"


def summarize(
    subject: str, facts: JobFacts, findings: Sequence[Finding], output: str, results: Sequence[BenchResult] = ()
) -> str:
    """Say in one sentence what happened to a job or run, for example ``job 7``.

    Parameters
    ----------
    output
        Output of the job; for a job that failed early, the script says there what failed.
    results
        Results of the job if it was a benchmark.
    """
    name = _sentence(subject)
    restarts = f", after {count(facts.restarts, 'restart')}" if facts.restarts else ""
    if facts.kind != ENDED:
        return f"{name} {facts.meaning}{restarts}."
    if facts.first:
        raised = find_exception(facts.last_lines)
        return f"{name} failed: {facts.first.text}{f': {raised[0]}' if raised else ''}{restarts}."
    if facts.code and _failed_early(facts):
        reasons = SCRIPT_SAYS.findall(output)
        reason = f": {reasons[-1]}" if reasons else f" (code {facts.code})"
        return f"{name} failed before its first rank started{reason}{restarts}."
    if facts.code:
        return f"{name} {facts.meaning} (code {facts.code}){restarts}."
    checks = _summarize_checks(findings)
    speed = _compare_with_expected(results)
    how = "ended with code 0" if has_failed(findings) else "ended well"
    return f"{name} {how}{restarts}{f': {checks}' if checks else ''}{f'; {speed}' if speed else ''}."


def _summarize_checks(findings: Sequence[Finding]) -> str:
    """Say how many checks passed, or which ones failed."""
    failed = [each.what for each in findings if each.state is State.FAIL]
    if failed:
        return f"{len(failed)} of {count(len(findings), 'check')} failed ({', '.join(failed)})"
    passed = sum(each.state is State.OK for each in findings)
    return f"{count(passed, 'check')} passed" if passed else ""


def _compare_with_expected(results: Sequence[BenchResult]) -> str:
    """Say which bandwidth a job measured, and the expected one; empty if none is expected."""
    peaks = [(results[0].peak(nodes, BUS), speed) for nodes, speed in results[0].expected.items()] if results else []
    found = [f"{peak.value:.4g} GB/s of {speed:.4g} expected" for peak, speed in peaks if peak]
    return found[-1] if found else ""


def _failed_early(facts: JobFacts) -> bool:
    """Return whether a job of Argosy failed by itself before a rank started."""
    return facts.state.split(maxsplit=1)[0] == "FAILED" and bool(facts.submitted) and not facts.ranks


def advise(
    facts: JobFacts, errors: Sequence[KnownError], findings: Sequence[Finding], compared: Comparison | None = None
) -> str:
    """Say what to do next: the fix of the first known cause, else about the first failed check."""
    compared = compared or Comparison()
    causes = [each for each in errors if each.level != "symptom"]
    raised = find_exception(facts.last_lines) if facts.code else None
    if raised and not causes:
        who = f"Rank {facts.first.rank}" if facts.first else "The program"
        correct = "Correct the program or its arguments, and launch it again."
        return f"{who} raised the exception{raised[1]}. {correct}"
    causes = causes or list(errors[:1])
    if facts.code and causes:
        cause, fix = causes[0].cause, f"{_sentence(fill_names(causes[0].fix, facts))}."
        known = raised is not None and raised[0] in cause  # the summary has the exception
        return fix if known else f"{_sentence(cause)}. {fix}"
    if facts.advice:
        return f"{_sentence(facts.advice)}."
    failed = find_failed_check(findings)
    if failed:
        return _advise_on_check(failed, facts, compared)
    if facts.kind == ENDED and facts.code:
        return f"{_sentence(UNKNOWN_CAUSE)}."
    return NOTHING if facts.kind == ENDED and findings else ""


def _advise_on_check(finding: Finding, facts: JobFacts, compared: Comparison) -> str:
    """Say what to do about a failed check: a run that passed shows what does not cause it."""
    if not compared.job:
        return f"{_sentence(finding.what)}: {fill_names(finding.hint, facts)}."
    same = f"the same {join_names(compared.same)}" if compared.same else "other settings"
    network = f" It used {compared.network}." if compared.network else ""
    passed = f"job {compared.job}, the last run that passed its checks, with {same}."
    if not compared.changes:
        return f"Nothing differs from {passed}{network} These are not the cause."
    what = "Only the recorded arguments differ" if changes_only_arguments(compared) else "Some settings differ"
    return f"{what} from {passed}{network} The likely cause is the difference: {describe_changes(compared)}."


def changes_only_arguments(compared: Comparison) -> bool:
    """Return whether nothing but the arguments differs: compared runs have the same program."""
    return all(each.name == PROGRAM for each in compared.changes)


def describe_changes(compared: Comparison) -> str:
    """Say how a job differs from the last run that passed, for example ``image is 'b.sif', and was 'a.sif'``."""
    return "; ".join(
        f"{each.name} is '{each.now or 'not set'}', and was '{each.before or 'not set'}'"
        for each in compared.changes[:MOST_CHANGES]
    )


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence, for example ``image, nodes and options``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def fill_names(text: str, facts: JobFacts) -> str:
    """Replace the placeholders of a hint by the job's number and its output."""
    text = re.sub(r"\bJOB\b", facts.id, text)
    return re.sub(r"\bLOG\b", lambda _: quote(facts.output), text) if facts.output else text


def find_exception(lines: Sequence[str]) -> tuple[str, str] | None:
    """Find the Python exception at the end of a program: its text, and its place in the user's code.

    Parameters
    ----------
    lines
        The last lines of the program.
    """
    found = [(number, match) for number, line in enumerate(lines) if (match := RAISED.match(line))]
    if not found:
        return None
    number, match = found[-1]
    frames = [frame for line in lines[:number] if (frame := FRAME.search(line))]
    own = [frame for frame in frames if not any(part in frame[1] for part in PACKAGES)]
    place = f" in {own[-1][1]}, line {own[-1][2]} ({own[-1][3]})" if own else ""
    return match[1].rstrip("."), place


def find_failed_check(findings: Sequence[Finding]) -> Finding | None:
    """Return the first failed check that has a hint."""
    return next((each for each in findings if each.state is State.FAIL and each.hint), None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def relevant_findings(findings: Sequence[Finding], plan: LaunchPlan | None) -> tuple[Finding, ...]:
    """Return the findings of `argosy verify` for the page, which says at its top how the job ended.

    A job without GPUs has no findings about GPUs and their network that nothing shows.
    """
    without_gpus = plan is not None and not plan.shape.gpus_per_node
    return tuple(
        each
        for each in findings
        if each.what != "end" and not (without_gpus and each.what in OF_GPUS and each.state is State.UNKNOWN)
    )


def explain_missing_bandwidth(facts: JobFacts, compared: Comparison) -> str:
    """Say why a failed job measured no bandwidth; empty if the last run that passed measured none either."""
    if not facts.code or not compared.bandwidth:
        return ""
    measured = f"job {compared.job}, the last run that passed, measured {compared.bandwidth}"
    return f"Bus bandwidth: not measured, the job ended before ({measured})."


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


def list_commands(
    facts: JobFacts, plan: LaunchPlan | None, findings: Sequence[Finding], errors: Sequence[KnownError]
) -> Iterator[tuple[str, str]]:
    """Yield command lines that are useful in addition to the next steps, the most useful first: purpose and line."""
    script = quote(str(Path(facts.record) / "job.sh"))
    if plan and not plan.is_job:
        yield "Run it again", f"sh {script}"
        return
    if facts.kind != ENDED:
        yield "Cancel the job", f"argosy cancel {facts.id}"
    elif plan and facts.record and not facts.code and not has_failed(findings):
        yield "Launch it again", f"sbatch {script}"
    yield "See the output", f"argosy logs {facts.id}"
    if errors:
        yield "Find the cause of the failure", f"argosy why {facts.id}"
    if not findings:
        yield "Check network, GPUs and cores", f"argosy verify {facts.id}"
    if plan:
        yield "See the reason of each value", f"argosy explain {facts.id}"
