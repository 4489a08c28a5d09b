"""`argosy build`: words to a `BuildRequest`, its report to text or JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from argosy.builder.build import build_image
from argosy.builder.bundle import build_bundle
from argosy.builder.on_node import build_on_node, make_node_options, submit_build
from argosy.builder.preview import preview_build, preview_on_node, render_preview
from argosy.builder.records import BuildReport, BuildRequest
from argosy.builder.resolve import resolve_build_request
from argosy.cli.cmd_cotainr import cotainr_build, speaks_cotainr
from argosy.cli.common import NAMED, NAMED_TEXT, open_session, print_json
from argosy.cli.options import RUN_MODE, GroupedCommand, option, table_options
from argosy.core.errors import UsageError
from argosy.core.progress import render_packages
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.images.formats import OutputFormat, shorten_use
from argosy.images.identify import render_size
from argosy.recipes.build_options import BuildOptions, NodeJobOptions
from argosy.recipes.option_row import IMAGE, NODE

STEPS_SHOWN = ("base", "packages", "pack", "copy")

WORDS = "argosy.build.words"
"""Key under which a context keeps the arguments as typed: a build on a node gets them again."""


class BuildCommand(GroupedCommand):
    """A command that also accepts the command line of cotainr."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse a command line of cotainr with the cotainr command."""
        if speaks_cotainr(args):
            return cotainr_build.make_context(info_name, args, parent, **extra)
        words = tuple(args)  # click takes them out of the list
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[WORDS] = words
        return context


@click.command(cls=BuildCommand)
@click.argument("sources", nargs=-1, type=NAMED_TEXT)
@table_options(BuildOptions)
@option("-o", "--output", group=IMAGE, type=NAMED, default=None, metavar="FILE", help="Image file to write.")
@option("--dry-run", group=RUN_MODE, is_flag=True, help="Print the steps and their sizes; build nothing.")
@option(
    "--on-node",
    group=NODE,
    is_flag=True,
    help="Build on a compute node of --site, and wait for the result. [Slurm: srun]",
)
@option("--submit", group=NODE, is_flag=True, help="Build in a job of --site, and print its id. [Slurm: sbatch]")
@table_options(NodeJobOptions)
@option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@option("-v", "--verbose", is_flag=True, help="Show the commands that Argosy starts.")
@option("-q", "--quiet", is_flag=True, help="Print only errors.")
def build(
    sources: tuple[str, ...], *, output: Path | None, dry_run: bool, as_json: bool, verbose: bool, quiet: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Build an image from environment files over a base.

    SOURCES are environment files: environment.yml, requirements.txt, pyproject.toml, or the lock file of another tool
    (uv.lock, pylock.toml, poetry.lock, Pipfile.lock, pixi.lock, conda-lock.yml, @EXPLICIT).  The base is not rebuilt:
    the environment becomes one layer over it.  A definition file (NAME.def), a Dockerfile, or a folder that contains
    one, is built first and becomes the base.  Without SOURCES, Argosy builds the project file argosy.toml of this
    folder; give a folder or file to build another project.

    \b
    argosy build environment.yml --base debian:bookworm -o my.sif
    argosy build base.def environment.yml -o my.sif
    argosy build Dockerfile --build-arg VERSION=2 -o my.sif
    argosy build requirements.txt --base vendor-pytorch.sif -o mine.sif
    argosy build --locked my.sif -o the-same-again.sif
    argosy build my.sif --system=NAME --conda-env=environment.yml      (syntax of cotainr)
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    request = resolve_build_request(sources, output, given, session.host)
    if dry_run:
        _preview(given, request, session, as_json=as_json)
        return
    if given["on_node"] or given["submit"]:
        _build_elsewhere(given, request, session, as_json=as_json)
        return
    bundle = request.bundle
    report = build_bundle(bundle, request, session) if bundle else build_image(request, session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output or Path(os.path.relpath(report.output))))


def _preview(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    if request.bundle:
        raise UsageError("--dry-run cannot be used with --bundle", hint="remove --dry-run")
    if given["on_node"] or given["submit"]:
        preview = preview_on_node(request, make_node_options(given), session)
    else:
        preview = preview_build(request, session)
    if as_json:
        print_json(asdict(preview))
    else:
        click.echo(render_preview(preview))


def _build_elsewhere(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    """Build on a compute node: now, with the node's output and exit code, or as a job, whose number is printed."""
    context = click.get_current_context()
    if given["on_node"] and given["submit"]:
        raise UsageError("--on-node and --submit exclude each other", hint="--on-node waits, --submit does not")
    words, job = context.meta[WORDS], make_node_options(given)
    if given["on_node"]:
        context.exit(build_on_node(words, job, request, session))
    submitted = submit_build(words, job, request, session)
    if as_json:
        print_json(asdict(submitted))
        return
    session.reporter.note(f"job {submitted.job} builds {request.output}; see: argosy logs {submitted.job} -f")
    click.echo(submitted.job)


def _render_cost(report: BuildReport) -> tuple[str, ...]:
    """Say how large the packages are, and what the build took beside time."""
    if report.cost is None:
        return ()
    sizes = f"base {render_size(report.base_bytes)}, new {render_size(report.cost.new)}"
    packed = f" (packed {render_size(report.layer_bytes)})" if report.form == OutputFormat.SIF.value else ""
    most = f"{render_size(report.cost.disk)} of disk, {render_size(report.cost.memory)} of memory"
    return (f"{sizes}{packed} · at most {most}",)


def render_report(report: BuildReport, shown: Path) -> str:
    """Say where the time went, what is in the image, and how to run it."""
    steps = {t.step: t.seconds for t in report.timings if t.step in STEPS_SHOWN}
    rest = report.seconds - sum(steps.values())
    if rest >= 1:
        steps["clean up"] = rest
    spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in steps.items())
    took = f" · {report.seconds:.0f} s ({spent})" if spent else ""
    inside = render_packages(report.packages) + (f", Python {report.python}" if report.python else "")
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {inside}, over {report.base}{took}",
            *_render_cost(report),
            *(shorten_use(line, report.output, str(shown)) for line in report.use),
        )
    )
