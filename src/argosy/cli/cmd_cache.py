"""`argosy cache`: what the cache holds, and removing what is not needed."""

from __future__ import annotations

import re
import time

import click

from argosy.cli.common import WholeLines, open_session, print_json
from argosy.core.records import asdict
from argosy.images.cache import KINDS, CacheEntry, Limits, collect, list_entries
from argosy.images.describe import render_age
from argosy.images.identify import render_size

UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}
SPANS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}


@click.group(cls=WholeLines)
def cache() -> None:
    """Tell what the cache holds, and remove what is not needed."""


@cache.command("info")
@click.option("-v", "--verbose", is_flag=True, help="Each entry, not only each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(*, verbose: bool, as_json: bool) -> None:
    """Tell what lies in the cache: what it is, how large, when it was used last."""
    session = open_session(quiet=True)
    entries = list_entries(session)
    if as_json:
        print_json({"cache": str(session.paths.cache), "entries": [asdict(entry) for entry in entries]})
        return
    now = time.time()
    for kind, (what, are_counted) in KINDS.items():
        inside = [entry for entry in entries if entry.kind == kind]
        if inside:
            last = render_age(now - max(entry.used for entry in inside))
            count = f" ({len(inside)})" if are_counted else ""
            click.echo(f"{_size(inside):>9}  {kind:<10} {what}{count}, last used {last} ago")
        for entry in inside if verbose else ():
            click.echo(_line(entry, now))
    click.echo(f"{_size(entries):>9}  {session.paths.cache}")


@cache.command("gc")
@click.option(
    "--older-than", "older", default="", metavar="TIME", help="Remove what was unused for TIME: 12h, 30d, 8w."
)
@click.option("--keep", default="", metavar="SIZE", help="Remove the longest unused until SIZE is left: 500M, 20G.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def gc(older: str, keep: str, *, dry_run: bool, as_json: bool) -> None:
    """Remove what was not used for 30 days, or as the options say; what runs, builds and job scripts need stays."""
    now = time.time()
    age = _span(older or ("" if keep else "30d"))
    limits = Limits(now - age if age is not None else 0.0, _bytes(keep))
    gone = collect(limits, open_session(quiet=as_json), dry=dry_run)
    if as_json:
        print_json([asdict(entry) for entry in gone])
        return
    for entry in gone:
        click.echo(_line(entry, now))
    entries = "1 entry" if len(gone) == 1 else f"{len(gone)} entries"
    click.echo(f"{'would remove' if dry_run else 'removed'} {_size(gone).strip()} in {entries}")


def _line(entry: CacheEntry, now: float) -> str:
    kept = f", {entry.kept}" if entry.kept else ""
    return f"{_size([entry]):>9}    {entry.name}, last used {render_age(now - entry.used)} ago{kept}"


def _size(entries: list[CacheEntry] | tuple[CacheEntry, ...]) -> str:
    return render_size(sum(entry.bytes for entry in entries))


def _span(text: str) -> float | None:
    found = re.fullmatch(r"(\d+)([hdw])", text)
    if text and found is None:
        raise click.BadParameter(f"{text!r} is no time; write 12h, 30d or 8w.", param_hint="--older-than")
    return int(found[1]) * SPANS[found[2]] if found else None


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.upper())
    if text and found is None:
        raise click.BadParameter(f"{text!r} is no size; write 500M or 20G.", param_hint="--keep")
    return int(float(found[1]) * UNITS[found[2]]) if found else -1
