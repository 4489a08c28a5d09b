"""The command line of cotainr: its words to a `BuildRequest`; `argosy build` understands them, too."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from argosy.cli.common import NAMED
from argosy.version import VERSION

MARKS = ("--system", "--base-image", "--conda-env", "--accept-licenses")
"""Options that `argosy build` itself does not have: where one stands, the line is cotainr's."""


def speaks_cotainr(words: list[str]) -> bool:
    """Tell whether a line of `argosy build` is written in cotainr's words."""
    return any(word.partition("=")[0] in MARKS for word in words)


class CotainrBuild(click.Command):
    """A command whose help says where all other options are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name our own command where an option is none of cotainr's."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = f"argosy build {ctx.params.get('conda_env') or 'environment.yml'} --base BASE -o IMAGE"
            raise click.UsageError(f"cotainr has no option {error.option_name}; with ours: {ours} …", ctx) from error


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(VERSION, message="cotainr, answered by argosy %(version)s")
@click.pass_context
def cotainr(ctx: click.Context) -> None:
    """Build images by the words of cotainr; Argosy does the work.

    \b
    cotainr build my.sif --system=NAME --conda-env=environment.yml --accept-licenses
    cotainr info
    """  # noqa: D301
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cotainr.command("build", cls=CotainrBuild)
@click.argument("image_path", type=NAMED)
@click.option("--base-image", default="", metavar="BASE", help="Base: a file, docker://NAME, debian:SUITE.")
@click.option("--system", default="", metavar="NAME", help="Base of a site, by its name: see 'cotainr info'.")
@click.option("--conda-env", type=NAMED, help="environment.yml; also requirements.txt or a lock.")
@click.option("--accept-licenses", is_flag=True, help="Nothing to accept: no Miniforge is installed.")
@click.option("-v", "--verbose", count=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--log-to-file", is_flag=True, help="Write a log with each command beside you.")
@click.option("--no-color", is_flag=True, help="Plain lines.")
@click.option("--force", is_flag=True, help="Ours: replace the image if it exists; there is no question.")
@click.option("--work-dir", default="", metavar="DIR", help="Ours: folder for work files.")
def cotainr_build(
    image_path: Path, base_image: str, system: str, conda_env: Path | None, work_dir: str, *,
    accept_licenses: bool, verbose: int, quiet: bool, log_to_file: bool, no_color: bool, force: bool,
) -> None:  # fmt: skip
    """Build the image IMAGE_PATH: a conda environment over a base."""
    from argosy.builder.build import build_image  # noqa: PLC0415 - 'cotainr info' and --help build nothing
    from argosy.cli.cmd_build import render_report  # noqa: PLC0415 - likewise
    from argosy.cli.common import build_log, open_session  # noqa: PLC0415 - likewise
    from argosy.cli.compat.cotainr import CotainrWords, plan_request  # noqa: PLC0415 - likewise

    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    words = CotainrWords(image_path, base_image, system, conda_env, force=force, accept_licenses=accept_licenses)
    file = Path(f"cotainr_build_{time.strftime('%Y-%m-%dT%H.%M.%S')}.log") if log_to_file else None
    with build_log(file) as log:
        session = open_session(verbose=bool(verbose), quiet=quiet, plain=no_color, work=work_dir, log=log)
        request = plan_request(words, _systems(session) if system else {})
        report = build_image(request, session)
    if not quiet:
        click.echo(render_report(report, image_path))


@cotainr.command("info")
def cotainr_info() -> None:
    """Tell what builds here, and which systems there are."""
    from argosy.cli.common import open_session  # noqa: PLC0415 - --help needs none of it

    session = open_session()
    runtime = next((name for name in ("apptainer", "singularity", "bwrap") if name in session.host.programs), "none")
    click.echo(f"argosy {VERSION}, Python {sys.version.split()[0]}")
    click.echo(f"container runtime: {runtime}")
    click.echo("systems:")
    for name, system in sorted(_systems(session).items()):
        click.echo(f"  {name:<12} {system.base}  (site {system.site})")


def _systems(session: Any) -> Any:
    from argosy.sites.bases import read_systems  # noqa: PLC0415 - likewise
    from argosy.sites.read import search_path  # noqa: PLC0415 - where a system is named

    return read_systems(search_path(session.host.environment, Path(session.host.cwd)))
