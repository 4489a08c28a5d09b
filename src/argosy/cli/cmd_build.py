"""`argosy build`: words to a `BuildRequest`, its report to text or JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from argosy.builder.build import build as build_image
from argosy.builder.build_plan import LOCK_FILE
from argosy.builder.bundle import build_bundle
from argosy.builder.report import BuildReport, BuildRequest
from argosy.builder.request import request_asked
from argosy.cli.building import building_options, make_build_request
from argosy.cli.cmd_cotainr import cotainr_build, speaks_cotainr
from argosy.cli.common import NAMED, NAMED_TEXT, open_session, print_json
from argosy.core.errors import UsageError
from argosy.core.progress import render_packages
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.formats import FORMATS, OutputFormat
from argosy.images.identify import render_size

STEPS_SHOWN = ("base", "packages", "pack", "copy")
OF_THE_JOB = ("account", "partition", "qos", "time", "mem", "cpus")
"""Options of a build on a compute node, as `argosy.builder.on_node.NodeWishes` has them."""


def _node_options(command: Any) -> Any:
    """Add the options of a build on a compute node."""
    for option in reversed(
        (
            click.option("--on-node", is_flag=True, help="Build on a compute node of --site, and wait (srun)."),
            click.option("--submit", is_flag=True, help="Build as a job of --site; prints its number (sbatch)."),
            click.option("--account", default="", help="Account of the build's job."),
            click.option("--partition", default="", help="Partition of that job.  [default: the site's]"),
            click.option("--qos", default="", help="QOS of that job.  [default: the site's]"),
            click.option("--time", default="", help="Time limit of that job.  [default: the site's, else 1 hour]"),
            click.option("--mem", default="", help="Memory of that job.  [default: the site's]"),
            click.option("--cpus", default=0, help="Cores of that job.  [default: the site's]"),
        )
    ):
        command = option(command)
    return command


WORDS = "argosy.build.words"
"""Where a context keeps the words as they were typed: a build on a node is given them again."""


class BuildCommand(click.Command):
    """A command that understands cotainr's words, too."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Hand a line in cotainr's words to cotainr's command."""
        if speaks_cotainr(args):
            return cotainr_build.make_context(info_name, args, parent, **extra)
        words = tuple(args)  # click takes them out of the list
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[WORDS] = words
        return context


@click.command(cls=BuildCommand)
@click.argument("sources", nargs=-1, type=NAMED_TEXT)
@building_options
@click.option(
    "--locked",
    is_flag=False,
    flag_value=LOCK_FILE,
    default="",
    metavar="[LOCK]",
    help="Install what a lock, or the lock of an image, names to the byte.",
)
@click.option("--bundle", type=NAMED, help="Build what a bundle holds, without a network.")
@click.option("-o", "--output", type=NAMED, default=None, help="The image file to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--flatten", is_flag=True, help="One partition instead of base and layer: faster starts.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="sif",
    show_default=True,
    help="What to write.",
)
@click.option(
    "--no-cache", is_flag=True, help="Carry out all anew: copy no image made before, reuse no layer of a Dockerfile."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, with sizes; make nothing.")
@_node_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def build(
    sources: tuple[str, ...], *, locked: str, bundle: Path | None, output: Path | None, force: bool, flatten: bool,
    form: str, no_cache: bool, dry_run: bool, as_json: bool, verbose: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Build an image from environment files over a base.

    SOURCES are environment files: environment.yml, requirements.txt, pyproject.toml, or the lock of another tool
    (uv.lock, pylock.toml, poetry.lock, Pipfile.lock, pixi.lock, conda-lock.yml, @EXPLICIT).  The base is not rebuilt:
    the environment becomes one layer over it.  A definition file (NAME.def), a Dockerfile, or a folder with one, is
    built and is the base.  Without SOURCES the project file argosy.toml of this folder says what is built; one of
    another folder is named.

    \b
    argosy build environment.yml --base debian:bookworm -o my.sif
    argosy build base.def environment.yml -o my.sif
    argosy build Dockerfile --build-arg VERSION=2 -o my.sif
    argosy build requirements.txt --base vendor-pytorch.sif -o mine.sif
    argosy build --locked my.sif -o the-same-again.sif
    argosy build my.sif --system=NAME --conda-env=environment.yml      (cotainr's words)
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    asked = make_build_request(sources, output, given)
    request = replace(
        asked,
        force=force,
        flatten=flatten,
        form=OutputFormat(form),
        engine=replace(asked.engine, no_cache=no_cache),
        locked=locked,
    )
    if asked.sources or not (sources or bundle):  # else an image alone is named, or a bundle: no project file
        request = request_asked(request, session.host)
    if bundle:
        request = replace(request, base=asked.base, bundle=bundle)  # a project's base is in its bundle
    if dry_run:
        _preview(given, request, session, as_json=as_json)
        return
    if given["on_node"] or given["submit"]:
        _build_elsewhere(given, request, session, as_json=as_json)
        return
    report = build_bundle(bundle, request, session) if bundle else build_image(request, session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output or Path(os.path.relpath(report.output))))


def _preview(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    from argosy.builder.on_node import NodeOptions  # noqa: PLC0415 - where it is asked for
    from argosy.builder.preview import preview_build, preview_on_node, render_preview  # noqa: PLC0415 - likewise

    if request.bundle:
        raise UsageError("a bundle's content is fixed: --dry-run tells nothing new of it", hint="leave --dry-run out")
    if given["on_node"] or given["submit"]:
        preview = preview_on_node(request, NodeOptions(**{name: given[name] for name in OF_THE_JOB}), session)
    else:
        preview = preview_build(request, session)
    if as_json:
        print_json(asdict(preview))
    else:
        click.echo(render_preview(preview))


def _build_elsewhere(given: dict[str, Any], request: BuildRequest, session: Session, *, as_json: bool) -> None:
    """Build on a compute node: now, with the node's output and exit code, or as a job, whose number is printed."""
    from argosy.builder.on_node import (  # noqa: PLC0415 - likewise
        NodeOptions,
        build_on_node,
        submit_build,
    )

    context = click.get_current_context()
    if given["on_node"] and given["submit"]:
        raise UsageError("--on-node waits for the build and --submit does not", hint="leave one of them out")
    words, wishes = context.meta[WORDS], NodeOptions(**{name: given[name] for name in OF_THE_JOB})
    if given["on_node"]:
        context.exit(build_on_node(words, wishes, request, session))
    submitted = submit_build(words, wishes, request, session)
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
            *(line.replace(quote(report.output), quote(str(shown))) for line in report.use),
        )
    )
