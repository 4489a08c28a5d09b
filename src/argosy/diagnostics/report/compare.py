"""Compare a job with the last run of the same command and shape at the same site that passed its checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shell import join, quote
from argosy.diagnostics.report.model import Change, Comparison
from argosy.diagnostics.verify.verify import PROGRAM_WORDS
from argosy.jobs.command_files import CommandFile, read_command_files
from argosy.jobs.history import PastJob, diff_jobs, read_job
from argosy.jobs.query import JobFacts
from argosy.jobs.record import SCRIPT, read_command_line

OWN = frozenset({"--job-name", "--output", "--error"})
"""Settings that differ between any two jobs."""

ARGUMENTS, FILES, IMAGE, PACKAGES = "arguments", "files of the command", "image", "packages"
NODES, VARIABLES, OPTIONS = "nodes", "variables of the launch", "options"

COMMAND = "command"
"""The setting of `diff_jobs` that has the program with its arguments."""

CONTENT = "content of "
"""Prefix of a changed file."""

IN_LOG = " in the log"
"""Suffix of a variable that the network library read."""

VARIABLE = re.compile(r"[A-Z][A-Z0-9_, ]*")
"""The key of a choice that sets variables."""


def compare_jobs(
    session: Session, facts: JobFacts, passed: PastJob, packages: Mapping[str, Mapping[str, str]]
) -> Comparison:
    """Compare a job with an earlier one that passed.

    Parameters
    ----------
    packages
        Packages of the images with a lock, by the folder of the job's record.
    """
    own = read_job(session, facts.id)
    files = (read_command_files(passed.record), read_command_files(own.record))
    changes = [_without_program(Change(*row)) for row in diff_jobs(passed, own) if row[0] not in OWN]
    changes += _changed_files(*files)
    changes += _changed_packages(packages.get(passed.record, {}), packages.get(own.record, {}))
    nodes = passed.run.nodes if passed.run else ""
    if nodes and facts.nodes and nodes != facts.nodes:
        changes.append(Change(NODES, nodes, facts.nodes))
    changed = {_kind(each.name) for each in changes}
    same = tuple(name for name in (ARGUMENTS, IMAGE, NODES, VARIABLES, OPTIONS) if name not in changed)
    seconds = passed.run.ended - passed.run.started if passed.run and passed.run.started else 0
    return Comparison(
        passed.id, _repeat_command(passed.record), tuple(changes), same, _equal_files(*files), seconds=seconds
    )


def _without_program(change: Change) -> Change:
    """Return a changed command as its arguments: compared jobs have the same program."""
    if change.name != COMMAND:
        return change
    before, now = (join(shlex.split(text)[PROGRAM_WORDS:]) for text in (change.before, change.now))
    return Change(ARGUMENTS, before, now)


def _repeat_command(record: str) -> str:
    """Return the command line that launches a job again: the one that was typed, else that of its script."""
    return redact(read_command_line(record)) or f"sbatch {quote(str(Path(record, SCRIPT)))}"


def _kind(name: str) -> str:
    """Return what a changed setting belongs to."""
    if name in {ARGUMENTS, NODES}:
        return name
    if name in {"image", "digest"}:
        return IMAGE
    if name.startswith(CONTENT):
        return FILES
    if name.startswith("package "):
        return PACKAGES
    return VARIABLES if VARIABLE.fullmatch(name) else OPTIONS


def _changed_files(before: Sequence[CommandFile], now: Sequence[CommandFile]) -> Iterator[Change]:
    known = {each.path: each for each in before}
    for each in now:
        old = known.get(each.path)
        if old and not each.same_as(old):
            yield Change(f"{CONTENT}{Path(each.path).name}", _describe_file(old), _describe_file(each))


def _describe_file(file: CommandFile) -> str:
    return f"{file.bytes} bytes" + (f", SHA-256 {file.sha256[:12]}" if file.sha256 else "")


def _equal_files(before: Sequence[CommandFile], now: Sequence[CommandFile]) -> tuple[str, ...]:
    known = {each.path: each for each in before}
    return tuple(Path(each.path).name for each in now if each.path in known and each.same_as(known[each.path]))


def _changed_packages(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted(before.keys() | now.keys()) if before and now else ():
        if before.get(name) != now.get(name):
            yield Change(f"package {name}", before.get(name, ""), now.get(name, ""))


def compare_settings(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> Iterator[Change]:
    """Yield the variables that the network library read in only one of two runs, or with another value."""
    old, new = dict(before), dict(now)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Change(f"{name}{IN_LOG}", old.get(name, ""), new.get(name, ""))
