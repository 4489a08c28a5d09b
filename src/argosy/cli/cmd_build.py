"""`argosy build`: options to a request, and the report to text or JSON.

The modules for bundles, previews and builds on a node are imported only if they are used.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from argosy.builder.build import build_image
from argosy.builder.records import BuildReport, BuildRequest
from argosy.builder.request import resolve_build_request
from argosy.cli.common import open_session
from argosy.cli.compat.cotainr import cotainr_build, is_cotainr
from argosy.cli.options import RUN_MODE, GroupedCommand, option, report_options, table_options
from argosy.cli.output import print_report
from argosy.cli.parameters import NAMED_TEXT
from argosy.core.errors import UsageError
from argosy.core.parse import refuse_folder_name
from argosy.core.render import render_packages, render_size
from argosy.core.session import Session
from argosy.images.formats import OutputFormat, shorten_use
from argosy.recipes.build_options import NODE_ROWS, BuildOptions, NodeJobOptions
from argosy.recipes.option_row import IMAGE, NODE, option_name

STEPS_SHOWN = ("base", "packages", "pack", "copy")

ARGUMENTS = "argosy.build.arguments"
"""Key of the context's `meta` for the arguments as typed: a build on a node gets them again."""


class BuildCommand(GroupedCommand):
    """A command that also accepts the command line of cotainr."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse a command line of cotainr with the cotainr command."""
        if is_cotainr(args):
            return cotainr_build.make_context(info_name, args, parent, **extra)
        arguments = tuple(args)  # click removes them from the list
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[ARGUMENTS] = arguments
        return context


@click.command(cls=BuildCommand)
@click.argument("sources", nargs=-1, type=NAMED_TEXT)
@table_options(BuildOptions)
@option("-o", "--output", group=IMAGE, type=NAMED_TEXT, default=None, metavar="FILE", help="Image file to write.")
@option("--dry-run", group=RUN_MODE, is_flag=True, help="Print the steps and their sizes; build nothing.")
@option(
    "--on-node", group=NODE, is_flag=True,
    help="Build on a compute node of --site, and wait for the result. [Slurm: srun]",
)  # fmt: skip
@option("--submit", group=NODE, is_flag=True, help="Build in a job of --site, and print its id. [Slurm: sbatch]")
@table_options(NodeJobOptions)
@report_options
def build(
    sources: tuple[str, ...], *, output: str | None, dry_run: bool, as_json: bool, verbose: bool, quiet: bool,
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
    argosy build my.sif --system=NAME --conda-env=env.yml    (as cotainr)
    """
    _refuse_job_options(given)
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    request = resolve_build_request(sources, Path(output) if output else None, given, session.host)
    if output and request.form is not OutputFormat.OCI:
        refuse_folder_name(output)
    if dry_run:
        _preview(given, request, session, as_json=as_json)
        return
    if given["on_node"] or given["submit"]:
        _build_elsewhere(given, request, session, as_json=as_json)
        return
    report = _build_bundle(request.bundle, request, session) if request.bundle else build_image(request, session)
    text = render_report(report, Path(output or os.path.relpath(report.output)))
    print_report(report, text, as_json=as_json, quiet=quiet)


def _refuse_job_options(given: dict[str, Any]) -> None:
    """Refuse options of a job for a build on this machine: docker's -t, for example, is the name of an image.

    A build that is only shown is refused for the same options.
    """
    if given["on_node"] and given["submit"]:
        raise UsageError("--on-node and --submit cannot be used together", hint="--on-node waits, --submit does not")
    name = next((name for name in NODE_ROWS if given[name]), "")
    if name and not (given["on_node"] or given["submit"]):
        raise UsageError(
            f"{option_name(name)} is for builds on a compute node",
            evidence=f"{option_name(name)} {given[name]}",
            hint="add --on-node or --submit, or remove it; -o FILE names the image",
        )


def _build_bundle(bundle: Path, request: BuildRequest, session: Session) -> BuildReport:
    from argosy.builder.bundle import build_bundle

    return build_bundle(bundle, request, session)


def _preview(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    from argosy.builder.bundle import bundle_without_packages
    from argosy.builder.on_node import make_node_options
    from argosy.builder.preview import preview_build, preview_on_node, render_preview

    bundle = request.bundle
    with bundle_without_packages(bundle, request, session) if bundle else nullcontext(request) as seen:
        if given["on_node"] or given["submit"]:
            preview = preview_on_node(seen, make_node_options(given, session.host.environment), session)
        else:
            preview = preview_build(seen, session)
    print_report(preview, render_preview(preview), as_json=as_json)


def _build_elsewhere(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    """Build on a compute node: now, with the output and exit code of the node, or as a job, and print its number."""
    from argosy.builder.on_node import build_on_node, make_node_options, submit_build

    context = click.get_current_context()
    arguments, job = context.meta[ARGUMENTS], make_node_options(given, session.host.environment)
    if given["on_node"]:
        context.exit(build_on_node(arguments, job, request, session))
    submitted = submit_build(arguments, job, request, session)
    if not as_json:
        session.reporter.note(f"job {submitted.job} builds {request.output}; see: argosy logs {submitted.job} -f")
    print_report(submitted, submitted.job, as_json=as_json)


def _render_cost(report: BuildReport) -> tuple[str, ...]:
    """Return the sizes of base and packages, and the disk and memory that the build used."""
    if report.cost is None:
        return ()
    sizes = f"base {render_size(report.base_bytes)}, new {render_size(report.cost.new)}"
    packed = f" (packed {render_size(report.layer_bytes)})" if report.form == OutputFormat.SIF.value else ""
    most = f"{render_size(report.cost.disk)} of disk, {render_size(report.cost.memory)} of memory"
    return (f"{sizes}{packed} · at most {most}",)


def render_report(report: BuildReport, shown: Path) -> str:
    """Render the report of a build: contents, duration of the steps, sizes, and how to run the image."""
    steps = {t.step: t.seconds for t in report.timings if t.step in STEPS_SHOWN}
    rest = report.seconds - sum(steps.values())
    if rest >= 1:
        steps["clean up"] = rest
    spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in steps.items())
    took = f" · {report.seconds:.0f} s ({spent})" if spent else ""
    contents = render_packages(report.packages) + (f", Python {report.python}" if report.python else "")
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {contents}, over {report.base}{took}",
            *_render_cost(report),
            *filter(None, (report.partitions,)),
            *(shorten_use(line, report.output, str(shown)) for line in report.use),
        )
    )
