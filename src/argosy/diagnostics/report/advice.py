"""Decide what a report says first: what happened, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.bench.result import BUS, BenchResult
from argosy.core.findings import Finding, State
from argosy.core.shell import quote
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.jobs.record import read_submitted
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

UNKNOWN_CAUSE = "the output contains no error that Argosy knows: read its last lines below"


def summarize(subject: str, facts: JobFacts, findings: Sequence[Finding], output: str) -> str:
    """Say in one sentence what happened to a job or run, for example ``job 7``.

    Parameters
    ----------
    output
        Output of the job; for a job that failed early, the script says there what failed.
    """
    name = _sentence(subject)
    restarts = f", after {facts.restarts} restart(s)" if facts.restarts else ""
    if facts.kind != ENDED:
        return f"{name} {facts.meaning}{restarts}."
    if facts.first:
        raised = find_exception(facts.last_lines)
        return f"{name} failed: {facts.first.text}{f': {raised[0]}' if raised else ''}{restarts}."
    if facts.code and _failed_early(facts):
        reasons = SCRIPT_SAYS.findall(output)
        reason = f": {reasons[-1]}" if reasons else f" (code {facts.code})"
        return f"{name} failed before its first rank started{reason}{restarts}."
    code = f" (code {facts.code})" if facts.code else ""
    failed = [each.what for each in findings if each.state is State.FAIL]
    checks = f", but {len(failed)} check(s) failed: {', '.join(failed)}" if failed and not facts.code else ""
    return f"{name} {facts.meaning}{code}{restarts}{checks}."


def _failed_early(facts: JobFacts) -> bool:
    """Return whether a job of Argosy failed by itself before a rank started."""
    return facts.state.split(maxsplit=1)[0] == "FAILED" and bool(facts.submitted) and not facts.ranks


def advise(facts: JobFacts, errors: Sequence[KnownError], findings: Sequence[Finding]) -> str:
    """Say what to do next: the fix of the first known cause, else the hint of the first failed check."""
    causes = [each for each in errors if each.level != "symptom"]
    raised = find_exception(facts.last_lines) if facts.code and not causes else None
    if raised:
        who = f"Rank {facts.first.rank}" if facts.first else "The program"
        return f"{who} raised {raised[0]}{raised[1]}. Correct the program, and launch it again."
    causes = causes or list(errors[:1])
    if facts.code and causes:
        return f"{_sentence(causes[0].cause)}. {_sentence(causes[0].fix)}."
    if facts.advice:
        return f"{_sentence(facts.advice)}."
    hints = [f"{_sentence(each.what)}: {each.evidence}. {_sentence(each.hint)}." for each in findings if _failed(each)]
    if hints:
        return hints[0]
    return f"{UNKNOWN_CAUSE}." if facts.kind == ENDED and facts.code else ""


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


def _failed(finding: Finding) -> bool:
    return finding.state is State.FAIL and bool(finding.hint)


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


def summarize_results(results: Sequence[BenchResult]) -> str:
    """Say in one sentence which bandwidth a job measured, and compare it; empty for other benchmarks."""
    texts = []
    for result in results:
        peaks = [peak for nodes in result.node_counts if (peak := result.peak(nodes, BUS))]
        texts += [f"{peak.value:.4g} GB/s on {peak.nodes} node(s) in {result.label}" for peak in peaks]
    if not texts:
        return ""
    expected = [f"{speed:.4g} GB/s on {n} node(s)" for n, speed in results[0].expected.items()]
    expected = [each for each in expected if any(each.partition(" on ")[2] in text for text in texts)]
    known = f"; the site's profile expects {', '.join(expected)}" if expected else ""
    return f"Largest bus bandwidth: {', '.join(texts)}{known}."


def list_commands(
    facts: JobFacts, plan: LaunchPlan | None, findings: Sequence[Finding], errors: Sequence[KnownError]
) -> Iterator[tuple[str, str]]:
    """Yield command lines that are useful now: purpose and line."""
    if plan and not plan.is_job:
        yield "Run it again", f"sh {quote(str(Path(facts.record) / 'job.sh'))}"
        return
    failed = {each.what for each in findings if each.state is State.FAIL}
    if plan and "network" in failed:
        site = read_submitted(Path(facts.record)).get("profile") or plan.site
        yield "Check the image for this site", f"argosy check {quote(plan.image)} --site {quote(site)}"
    yield "See the output", f"argosy logs {facts.id}"
    if errors:
        yield "Explain the failure", f"argosy why {facts.id}"
    yield "Verify network, GPUs and cores", f"argosy verify {facts.id}"
    if plan and plan.is_job and facts.record:
        yield "Submit the same script again", f"sbatch {quote(str(Path(facts.record) / 'job.sh'))}"
    if plan:
        yield "See why each value was chosen", f"argosy explain {facts.id}"
    if facts.kind != ENDED:
        yield "Cancel the job", f"argosy cancel {facts.id}"
