"""Print the results of benchmarks, and write their plots and pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from argosy.cli.options import add_options, option
from argosy.cli.output import print_report, write_report
from argosy.core.errors import UsageError
from argosy.core.plots import draw, refuse_without_matplotlib
from argosy.core.session import Session
from argosy.core.shell import quote

if TYPE_CHECKING:
    from argosy.bench.result import BenchResult

_svg = option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write the plot as SVG; further plots get the names FILE-2, FILE-3 …",
)
_html = option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write plots and table as one HTML page.",
)
picture_options: Callable[[Any], Any] = add_options(_html, _svg)
"""--html and --svg; both need matplotlib."""


def refuse_undrawable_pictures(html: Path | None, svg: Path | None, *, follow: bool = True) -> None:
    """Refuse plots that cannot be drawn, before anything is measured.

    Raises
    ------
    UsageError
        If the job is only submitted, so there is nothing to draw yet.
    ToolMissing
        If matplotlib is not installed.
    """
    if html or svg:
        refuse_without_matplotlib()
    if (html or svg) and not follow:
        name = "--html" if html else "--svg"
        raise UsageError(
            f"{name} needs --follow: there is no result before the end of the job",
            hint=f"add --follow, or run after the job: argosy bench compare JOB {name} {quote(str(html or svg))}",
        )


def report_results(session: Session, jobs: Sequence[str], *, html: Path | None, svg: Path | None) -> None:
    """Print the table of jobs that ended, and write what is requested."""
    from argosy.bench.stored import read_results

    show_results(read_results(session, jobs), html=html, svg=svg, as_json=False)


def show_results(results: Sequence[BenchResult], *, html: Path | None, svg: Path | None, as_json: bool) -> None:
    """Print results as a table or as JSON, and write the files that are requested."""
    from argosy.bench.show import render_table

    write_pictures(results, html=html, svg=svg)
    print_report(results, render_table(results), as_json=as_json)


def write_pictures(results: Sequence[BenchResult], *, html: Path | None, svg: Path | None) -> None:
    """Write the page and the plots of results."""
    if svg:
        from argosy.bench.show import plots_of

        for number, plot in enumerate(plots_of(results), 1):
            _write(svg if number == 1 else svg.with_stem(f"{svg.stem}-{number}"), draw(plot))
    if html:
        from argosy.bench.show import render_html

        _write(html, render_html(results, " ".join(map(quote, ("argosy", *sys.argv[1:])))))


def _write(path: Path, text: str) -> None:
    write_report(path, text)
    click.echo(f"wrote {path}", err=True)
