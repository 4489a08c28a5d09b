"""`argosy cache`: show what the cache contains, and remove entries."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option
from argosy.cli.output import fit_table, print_report
from argosy.cli.parameters import AGE
from argosy.core.errors import UsageError
from argosy.core.render import DAY, render_size
from argosy.core.session import Session
from argosy.images.cache import KINDS, NOTES, REASONS, CacheEntry, MayRun, collect, list_entries
from argosy.images.describe import render_age
from argosy.jobs.local_run import may_run

UNUSED_SECONDS = 30.0 * DAY
"""Default age of entries that gc removes."""

UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}


@click.group(cls=WholeLines)
def cache() -> None:
    """Show what the cache contains, and remove entries."""


@cache.command("info")
@click.option("-v", "--verbose", is_flag=True, help="Show each entry, not only each kind.")
@json_option
def info(*, verbose: bool, as_json: bool) -> None:
    """Show the contents of the cache: purpose, size and last use."""
    session = open_session(quiet=True)
    now = time.time()
    entries = list_entries(session, _open_jobs(session, now))
    rows = []
    for kind, (what, are_counted) in KINDS.items():
        inside = [entry for entry in entries if entry.kind == kind]
        if inside:
            last = render_age(now - max(entry.used for entry in inside))
            number = f" ({len(inside)})" if are_counted else ""
            rows.append((_size(inside), f"{kind:<10} {what}{number}, last used {last} ago"))
        rows += _rows(inside, now) if verbose and kind != NOTES else []
    cache = str(session.paths.cache)
    total = (_size(entries), f"{'total':<10} in {cache}")
    print_report({"cache": cache, "entries": entries}, fit_table([*rows, total]), as_json=as_json)


@cache.command("gc")
@click.option(
    "--older-than", "older", type=AGE, metavar="TIME",
    help="Remove entries unused for TIME, for example 12h or 8w. Default: 30d, unless --keep is given.",
)  # fmt: skip
@click.option(
    "--keep", default="", metavar="SIZE",
    help="Remove the least recently used entries until the cache has at most SIZE, for example 20G.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def gc(older: float | None, keep: str, *, dry_run: bool, as_json: bool) -> None:
    """Remove entries that were unused for 30 days, or those that the options select.

    Entries stay if a running command uses them, or if the script of a job names them that you launched in the last 30
    days.
    """
    now = time.time()
    age = UNUSED_SECONDS if older is None and not keep else older
    since, most = 0.0 if age is None else now - age, _parse_bytes(keep)
    session = open_session(quiet=as_json)
    done = collect(session, since, most, may_run=_open_jobs(session, now), dry=dry_run)
    verb = "would remove" if dry_run else "removed"
    total = f"{verb} {_size(done.removed).strip()} in {_count(done.removed)}"
    table = fit_table(_rows(done.removed, now))
    text = "\n".join(filter(None, (table, total, *_render_held(done.held))))
    print_report(done.removed, text, as_json=as_json)


def _open_jobs(session: Session, now: float) -> MayRun:
    """Return the function that tells whether the job of a script may wait or run."""

    def is_open(script: Path, written: float) -> bool:
        return may_run(script.parent, written, session.host.hostname, now)

    return is_open


def _render_held(held: Sequence[CacheEntry]) -> Iterator[str]:
    """Render a line for each reason to keep entries that are beyond the limits."""
    for reason, why in REASONS.items():
        if entries := [each for each in held if each.reason == reason]:
            yield f"kept {_size(entries).strip()} in {_count(entries)}: {why}"


def _count(entries: Sequence[CacheEntry]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries)} entries"


def _rows(entries: Sequence[CacheEntry], now: float) -> list[tuple[str, str]]:
    """Return a row for each entry; one for all notes, because there may be thousands."""
    notes = [entry for entry in entries if entry.kind == NOTES]
    rows = [_row(entry, now) for entry in entries if entry.kind != NOTES]
    return [*rows, (_size(notes), f"  {KINDS[NOTES][0]} ({len(notes)})")] if notes else rows


def _row(entry: CacheEntry, now: float) -> tuple[str, str]:
    kept = f", {entry.kept}" if entry.kept else ""
    return _size([entry]), f"  {entry.name}, last used {render_age(now - entry.used)} ago{kept}"


def _size(entries: Sequence[CacheEntry]) -> str:
    return f"{render_size(sum(entry.bytes for entry in entries)):>9}"


def _parse_bytes(text: str) -> int:
    if re.fullmatch("0+", text):
        return 0
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT])B?", text.upper())
    if text and found is None:
        raise UsageError(f"invalid --keep {text!r}", hint="write a size with its unit, for example 500M or 20G")
    return int(float(found[1]) * UNITS[found[2]]) if found else -1
