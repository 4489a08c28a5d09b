"""`argosy import`: translate a hand-written job script into a job of argosy.toml."""

from __future__ import annotations

from pathlib import Path

import click

from argosy.cli.common import open_session
from argosy.cli.output import print_json
from argosy.cli.parameters import NAMED, SITE
from argosy.core.errors import UsageError
from argosy.core.records import asdict
from argosy.core.shell import quote
from argosy.launch.import_script.importer import import_script, read_script_text
from argosy.launch.import_script.model import Fate, ImportedScript
from argosy.launch.import_script.write import render_jobs, write_jobs
from argosy.sites.load import load_site

COLORS = {Fate.KEPT: "green", Fate.REPLACED: "green", Fate.LEFT_OUT: None, Fate.NOT_READ: "yellow"}


@click.command("import")
@click.argument("script", type=NAMED)
@click.option(
    "--site", type=SITE, default="", metavar="NAME", help="Site of the job; settings of its profile are left out."
)
@click.option(
    "--name", default="", metavar="NAME", help="Name of the job. Default: the script's --job-name or file name."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("argosy.toml"), show_default=True,
    metavar="FILE", help="Project file to add the job to.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the job's table and change no file.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; change no file.")
def import_job(script: Path, site: str, name: str, output: Path, *, dry_run: bool, as_json: bool) -> None:
    """Translate the hand-written sbatch script SCRIPT into a job of argosy.toml.

    Each line of the script is listed with the matching key, or with the reason why Argosy does not need it.  Parts
    that Argosy cannot translate, such as loops, are listed last.

    \b
    argosy import job.sh
    argosy import job.sh --site lumi-g --name train --dry-run
    """
    profile = load_site(site, open_session(quiet=True).host) if site else None
    imported = import_script(str(script), read_script_text(script), name=name, site=profile)
    if as_json:
        print_json({**asdict(imported), "unread": len(imported.unread)})
        return
    _print_translations(imported)
    if not imported.jobs:
        raise UsageError(
            f"{script} starts no program that Argosy can translate",
            evidence="no line with srun, mpirun, torchrun, python or a container command outside loops and conditions",
            hint="move the start of the program to its own line, or write the table [job.NAME] yourself",
        )
    if dry_run:
        click.echo(f"\n{render_jobs(imported.jobs)}", nl=False)
        return
    write_jobs(output, imported.jobs)
    names = [job.name for job in imported.jobs]
    click.echo(f"\n{output}: {', '.join(f'[job.{each}]' for each in names)}")
    click.echo(f"next: argosy launch {quote(names[0])} --dry-run")


def _print_translations(imported: ImportedScript) -> None:
    """Print the parts of the script with their translation; the parts that were not read come last."""
    rows = [each for each in imported.translations if each.fate is not Fate.NOT_READ]
    for each in (*rows, *imported.unread):
        fate = click.style(f"{each.fate:<8}", fg=COLORS[each.fate])
        click.echo(f"{each.line:>4}  {fate}  {each.text}\n                -> {each.note}")
    if imported.unread:
        click.echo(f"\n{len(imported.unread)} part(s) were not translated: translate them yourself", err=True)
