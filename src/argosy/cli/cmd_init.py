"""`argosy init`: start a project."""

from __future__ import annotations

import os
from pathlib import Path

import click

from argosy.cli.common import open_session
from argosy.cli.options import site_option
from argosy.core.shell import quote
from argosy.launch.new_project import TEMPLATE_NAMES, NewProject, holds_project, write_project
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.read import find_environment_files
from argosy.recipes.user_config import configured_site
from argosy.sites.load import load_site, sites_here


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@site_option("Site of the jobs. Default: the configured site, else this machine's.")
@click.option(
    "--template",
    type=click.Choice(TEMPLATE_NAMES),
    help="Program to begin with. Default: ddp; none if FOLDER has Python programs or an environment file.",
)
@click.option("--account", "-A", default="", metavar="NAME", help="Account to charge. [Slurm: --account]")
def init(folder: Path, site: str, template: str | None, account: str) -> None:
    """Write a new project to FOLDER: argosy.toml, requirements.txt and train.py, which runs as it is.

    If FOLDER has Python programs or an environment file, only argosy.toml is written, which names that file.

    \b
    argosy init
    argosy init my-project --site lumi-g --account project_123
    argosy init --template lightning
    """
    site = configured_site(site, os.environ)
    host = open_session(quiet=True).host
    here = () if site else sites_here(host)
    profile = here[0] if len(here) == 1 else load_site(site or "local", host)
    template = template or ("" if holds_project(folder) and not (folder / PROJECT_FILE).exists() else "ddp")
    project = NewProject(folder, template, profile, account, has_gpus=bool(host.gpus))
    for path in write_project(project):
        click.echo(path)
    if project.takes_cpu_torch:
        click.echo('no GPU here: torch_backend = "cpu" in argosy.toml selects the build of PyTorch for the CPU')
    where = "" if folder == Path() else f"cd {quote(str(folder))} && "
    keys = "the command" if find_environment_files(folder) else "sources and the command"
    edit = "" if template else f"set {keys} in {folder / PROJECT_FILE}, then: "
    click.echo(f"next: {edit}{where}argosy build && argosy launch train")
