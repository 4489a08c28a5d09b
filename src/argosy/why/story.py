"""Explain why a job failed: read what it printed, look for known errors, say cause and fix."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from argosy.errors import UsageError
from argosy.launch.ending import last_runs
from argosy.launch.jobs import JobFacts, find_job
from argosy.launch.record import can_read
from argosy.records import replace
from argosy.schedulers.slurm import ENDED, FROM_OUTSIDE, is_job_id
from argosy.session import Session
from argosy.why.judging import Finding, judge_log, render_finding
from argosy.why.signatures import read_signatures, signature_files

MOST_BYTES = 2 << 20
"""Of a log that is searched, from its end: errors stand there, and each pattern goes through all of it."""

BLOCK = 1 << 20


class Explained(msgspec.Struct, frozen=True):
    """A log, the known errors in it, and, where it is a job's, how that ended."""

    log: str
    findings: tuple[Finding, ...]
    end: str = ""


def explain_log(session: Session, log: str) -> Explained:
    """Find the known errors in a log; of a job that was ended from outside not what only follows of its end.

    Parameters
    ----------
    log
        A file, the number of a job, or ``-`` for standard input.

    Raises
    ------
    UsageError
        When there is no such file or job, or it has written nothing.
    """
    signatures = read_signatures(signature_files(session.host.environment))
    if log == "-":
        return Explained("standard input", judge_log(sys.stdin.buffer.read().decode(errors="replace"), signatures))
    path, facts = _find_log(session, log)
    text, before = _read_end(path)
    found = [each for each in judge_log(text, signatures) if facts is None or _is_told(each, facts)]
    end = facts.verdict if facts and facts.kind == ENDED else f"job {log} {facts.meaning}" if facts else ""
    return Explained(str(path), tuple(replace(each, line=each.line + before) for each in found), end)


def _is_told(finding: Finding, facts: JobFacts) -> bool:
    """Tell whether an error is of the job's own: one that was ended from outside has what follows of its end."""
    return not (facts.code and facts.state.split(maxsplit=1)[0] in FROM_OUTSIDE and finding.level == "symptom")


def _find_log(session: Session, log: str) -> tuple[Path, JobFacts | None]:
    """Give the file of a log, or of what a job printed, and what is known of that."""
    path = Path(log)
    if path.is_file():
        return path, None
    if not is_job_id(log):
        raise UsageError(f"there is no log {log!r}", hint="give a file, the number of a job, or - for standard input")
    facts = find_job(session, log, or_record=True)
    if not facts.output or not can_read(facts.output):
        raise UsageError(f"job {log} has written nothing", evidence=f"it {facts.meaning}; output: {facts.output}")
    return Path(facts.output), facts


def _read_end(path: Path) -> tuple[str, int]:
    """Read the end of a log, and count the lines before it.

    Raises
    ------
    UsageError
        When it cannot be read.
    """
    before, left = 0, 0
    try:
        with path.open("rb") as source:
            left = max(0, source.seek(0, 2) - MOST_BYTES)
            source.seek(0)
            while left > 0:
                block = source.read(min(left, BLOCK))
                before, left = before + block.count(b"\n"), left - max(1, len(block))
            return source.read().decode(errors="replace"), before
    except OSError as error:
        raise UsageError(f"the log {path} cannot be read", evidence=str(error), hint="check the path") from error


def _judge_last_run(session: Session, output: Path) -> tuple[Finding, ...]:
    """Give the known errors of a job's last run: one that was started again goes on with its file."""
    signatures = read_signatures(signature_files(session.host.environment))
    text, before = _read_end(output)
    for start, run in last_runs(text):
        if found := judge_log(run, signatures):
            lines = before + text.count("\n", 0, start)
            return tuple(replace(each, line=each.line + lines) for each in found)
    return ()


def explain_job_end(session: Session, facts: JobFacts) -> str:
    """Name the first cause of a job that failed, and what to do; empty where nothing is known or nothing failed."""
    if not facts.code or not facts.output or not can_read(facts.output):
        return ""
    found = _judge_last_run(session, Path(facts.output))
    told = [each for each in found if _is_told(each, facts)]
    return render_finding(told[0], facts.output) if told else ""
