"""The command line of cotainr: its options to a `BuildRequest`; `argosy build` accepts them, too.

Options and images of cotainr: https://cotainr.readthedocs.io (2025.7.1).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from argosy.builder.records import BuildRequest
from argosy.cli.common import build_log, open_session
from argosy.cli.parameters import NAMED
from argosy.core.errors import UsageError
from argosy.core.layout import PrefixLayout
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean
from argosy.runtimes.runtime import AUTOMATIC
from argosy.sites.bases import System, read_systems
from argosy.sites.read import profile_folders
from argosy.version import VERSION

ONLY_COTAINR = ("--system", "--base-image", "--conda-env", "--accept-licenses")
"""Options that `argosy build` does not have: they identify a command line of cotainr."""

PREFIX = "/opt/cotainr/conda/envs/conda_container_env"
"""Folder of the environment in an image of cotainr."""

URL = "https://github.com/DeiC-HPC/cotainr"
"""Value of a label in every image of cotainr."""


def is_cotainr(arguments: list[str]) -> bool:
    """Return whether arguments of `argosy build` use the syntax of cotainr."""
    return any(argument.partition("=")[0] in ONLY_COTAINR for argument in arguments)


class CotainrOptions(msgspec.Struct, frozen=True):
    """The options of ``cotainr build`` that change the image."""

    image_path: Path
    """The image file to write."""
    base_image: str = ""
    system: str = ""
    """The base, or its name in a site profile; exactly one is set."""
    conda_env: Path | None = None
    """The environment file; None installs nothing."""
    force: bool = False
    """Whether an existing image is replaced. Not an option of cotainr, which asks."""
    accept_licenses: bool = False


def plan_request(options: CotainrOptions, systems: Mapping[str, System]) -> BuildRequest:
    """Return the request that builds the same image as cotainr.

    The environment gets the same path as in cotainr, so that scripts that contain the path continue to work.

    Parameters
    ----------
    systems
        Known values of ``--system``.

    Raises
    ------
    UsageError
        If both or neither of base image and system are given, or no site knows the system.
    """
    if bool(options.base_image) == bool(options.system):
        raise UsageError(
            (
                "--base-image and --system cannot be used together"
                if options.system
                else "--base-image or --system is missing"
            ),
            hint="--base-image takes the same values as --base; 'cotainr info' lists the systems",
        )
    system = _find_system(options.system, systems) if options.system else System(options.base_image, "")
    return BuildRequest(
        sources=(options.conda_env,) if options.conda_env else (),
        base=system.base,
        output=options.image_path.absolute(),
        force=options.force,
        site=system.site,
        prefix_layout=PrefixLayout(PREFIX, render_labels(options), own_python=True),
    )


def _find_system(name: str, systems: Mapping[str, System]) -> System:
    if name in systems:
        return systems[name]
    raise UsageError(
        f"no site profile has a system {name!r}",
        evidence=f"known: {', '.join(sorted(systems)) or 'none'}",
        hint=did_you_mean(name, systems, "give the base itself: --base-image=BASE", form="--system={}"),
    )


def render_labels(options: CotainrOptions) -> tuple[tuple[str, str], ...]:
    """Return the labels of an image of cotainr, with Argosy as the program that built it."""
    command = ["cotainr", "build", str(options.image_path)]
    command += [f"--base-image={options.base_image}"] if options.base_image else []
    command += [f"--system={options.system}"] if options.system else []
    command += [f"--conda-env={options.conda_env}"] if options.conda_env else []
    command += ["--accept-licenses"] if options.accept_licenses else []
    return (
        ("cotainr.command", " ".join(map(quote, command))),
        ("cotainr.version", f"answered by argosy {VERSION}"),
        ("cotainr.url", URL),
    )


class CotainrBuild(click.Command):
    """A command whose error for an unknown option names the command of Argosy."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            command = f"argosy build {ctx.params.get('conda_env') or 'environment.yml'} --base BASE -o IMAGE"
            raise UsageError(
                f"cotainr has no option {error.option_name}", hint=f"use Argosy's options: {command} …"
            ) from error


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(VERSION, message="cotainr, answered by argosy %(version)s")
@click.pass_context
def cotainr(ctx: click.Context) -> None:
    """Build images with the options of cotainr; Argosy does the work.

    \b
    cotainr build my.sif --system=NAME --conda-env=environment.yml --accept-licenses
    cotainr info
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cotainr.command("build", cls=CotainrBuild)
@click.argument("image_path", type=NAMED)
@click.option("--base-image", default="", metavar="BASE", help="Base: a file, docker://NAME, debian:SUITE.")
@click.option("--system", default="", metavar="NAME", help="Base of a site, by its name: see 'cotainr info'.")
@click.option("--conda-env", type=NAMED, help="environment.yml, requirements.txt or a lock file.")
@click.option("--accept-licenses", is_flag=True, help="Accepted without effect: no Miniforge is installed.")
@click.option("-v", "--verbose", count=True, help="Show the commands that Argosy starts.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("--log-to-file", is_flag=True, help="Write a log with each command to this folder.")
@click.option("--no-color", is_flag=True, help="Print plain lines without colours.")
@click.option("--force", is_flag=True, help="Replace the image if it exists. (Argosy only)")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for temporary files. (Argosy only)")
def cotainr_build(
    image_path: Path, base_image: str, system: str, conda_env: Path | None, work_dir: str, *,
    accept_licenses: bool, verbose: int, quiet: bool, log_to_file: bool, no_color: bool, force: bool,
) -> None:  # fmt: skip
    """Build the image IMAGE_PATH: a conda environment over a base."""
    from argosy.builder.build import build_image  # 'cotainr info' and --help build nothing
    from argosy.cli.cmd_build import render_report  # it imports this module

    if verbose and quiet:
        raise UsageError("--verbose and --quiet cannot be used together", hint="use one of these options")
    options = CotainrOptions(image_path, base_image, system, conda_env, force=force, accept_licenses=accept_licenses)
    file = Path(f"cotainr_build_{time.strftime('%Y-%m-%dT%H.%M.%S')}.log") if log_to_file else None
    with build_log(file) as log:
        session = open_session(verbose=bool(verbose), quiet=quiet, plain=no_color, work=work_dir, log=log)
        report = build_image(plan_request(options, _systems(session) if system else {}), session)
    if not quiet:
        click.echo(render_report(report, image_path))


@cotainr.command("info")
def cotainr_info() -> None:
    """Show the container runtime of this machine, and the systems."""
    session = open_session()
    runtime = next((name for name in AUTOMATIC if name in session.host.programs), "none")
    click.echo(f"argosy {VERSION}, Python {sys.version.split()[0]}")
    click.echo(f"container runtime: {runtime}")
    click.echo("systems:")
    for name, system in sorted(_systems(session).items()):
        click.echo(f"  {name:<12} {system.base}  (site {system.site})")


def _systems(session: Session) -> Mapping[str, System]:
    return read_systems(profile_folders(session.host))
