"""Compare a job with the last run of the same site, shape and program that passed its checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.diagnostics.report.model import Change, Comparison
from argosy.jobs.history import PastJob, diff_jobs, read_job
from argosy.jobs.query import JobFacts
from argosy.jobs.record import read_command_line

OWN = frozenset({"--job-name", "--output", "--error"})
"""Settings that differ between any two jobs."""

PROGRAM, IMAGE, PACKAGES, NODES, VARIABLES, OPTIONS = "program", "image", "packages", "nodes", "variables", "options"

VARIABLE = re.compile(r"[A-Z][A-Z0-9_, ]*")
"""The key of a choice that sets variables."""


def compare_jobs(
    session: Session, facts: JobFacts, passed: PastJob | None, packages: Mapping[str, Mapping[str, str]]
) -> Comparison:
    """Compare a job with an earlier one.

    Parameters
    ----------
    passed
        The last run that passed; None if there is none.
    packages
        Packages of the images with a lock, by the folder of the job's record.
    """
    if passed is None:
        return Comparison()
    own = read_job(session, facts.id)
    changes = [Change(*row) for row in diff_jobs(passed, own) if row[0] not in OWN]
    changes += _changed_packages(packages.get(passed.record, {}), packages.get(own.record, {}))
    nodes = passed.run.nodes if passed.run else ""
    if nodes and facts.nodes and nodes != facts.nodes:
        changes.append(Change(NODES, nodes, facts.nodes))
    changed = {_kind(each.name) for each in changes}
    known = (PROGRAM, IMAGE, *((PACKAGES,) if packages.get(own.record) else ()), NODES, VARIABLES, OPTIONS)
    same = tuple(name for name in known if name not in changed)
    return Comparison(passed.id, _repeat_command(passed.record), tuple(changes), same)


def _repeat_command(record: str) -> str:
    """Return the command line that launches a job again: the one that was typed, else that of its script."""
    return redact(read_command_line(record)) or f"sbatch {quote(str(Path(record, 'job.sh')))}"


def _kind(name: str) -> str:
    """Return what a changed setting belongs to."""
    if name in {PROGRAM, NODES}:
        return name
    if name in {"image", "digest"}:
        return IMAGE
    if name.startswith("package "):
        return PACKAGES
    return VARIABLES if VARIABLE.fullmatch(name) else OPTIONS


def _changed_packages(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    """Yield the packages that differ between two images, if both have a lock."""
    for name in sorted(before.keys() | now.keys()) if before and now else ():
        if before.get(name) != now.get(name):
            yield Change(f"package {name}", before.get(name, ""), now.get(name, ""))
