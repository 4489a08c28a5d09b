"""`argosy import`: translate a hand-written job script into a job of argosy.toml."""

from __future__ import annotations

import os
from pathlib import Path

import click

from argosy.cli.common import open_session
from argosy.cli.options import site_option
from argosy.cli.output import print_json
from argosy.cli.parameters import NAMED, REPORT_FILE
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.records import asdict, replace
from argosy.core.shell import quote
from argosy.launch.import_script.files import read_script_text, render_jobs, write_jobs
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedJob, ImportedScript
from argosy.recipes.user_config import configured_site
from argosy.sites.load import load_site, sites_here

COLORS = {Fate.KEPT: "green", Fate.REPLACED: "green", Fate.LEFT_OUT: None, Fate.UNTRANSLATED: "yellow"}
LIST_SITES = "\n'argosy sites ls' lists the names of sites"


@click.command("import")
@click.argument("script", type=NAMED)
@site_option("Site of the job; settings of its profile are left out.")
@click.option(
    "--name", default="", metavar="NAME", help="Name of the job. Default: the script's --job-name or file name."
)
@click.option(
    "-o", "--output", type=REPORT_FILE, default=Path("argosy.toml"), metavar="FILE",
    help="Project file to add the job to. Default: argosy.toml.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the job's table and change no file.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; change no file.")
@click.pass_context
def import_job(
    ctx: click.Context, script: Path, site: str, name: str, output: Path, *, dry_run: bool, as_json: bool
) -> None:
    """Translate the hand-written sbatch script SCRIPT into a job of argosy.toml.

    Each line of the script is listed with the matching key, or with the reason why Argosy does not need it.  Parts
    that Argosy cannot translate, such as loops, are listed last.  If such a part starts a program, it is listed first,
    and the exit code is 7.

    \b
    argosy import job.sh
    argosy import job.sh --site lumi-g --name train --dry-run
    """
    session = open_session(quiet=True)
    host = session.host
    profile = load_site(site, host) if site else None
    imported = import_script(str(script), read_script_text(script), name=name, site=profile, exported=host.environment)
    if site.endswith(".toml"):  # a profile without a place among the sites is found by its path only
        place = str(Path(site).absolute())
        imported = replace(
            imported, jobs=tuple(replace(each, keys={**each.keys, "site": place}) for each in imported.jobs)
        )
    if as_json:
        print_json({**asdict(imported), "untranslated": len(imported.untranslated)})
        ctx.exit(CheckFailed.code if imported.lost else 0)
    lost = [each.loss for each in imported.lost]
    if imported.jobs and not dry_run:
        # Before the list, because a job of this name may exist.
        write_jobs(output, imported.jobs, lost, waiting=session.waiting)
    _print_translations(imported)
    _refuse_script_without_program(imported)
    if dry_run:
        click.echo(f"\n{render_jobs(imported.jobs, comments=lost)}", nl=False)
    else:
        click.echo(f"\n{output}: {', '.join(f'[job.{each.name}]' for each in imported.jobs)}")
    if not lost and any(str(each.keys["image"]).startswith(BARE_PREFIX) for each in imported.jobs):
        click.echo("\nThe jobs run without a container, as in the script. To use one, set 'image' to its file.")
    is_known = site or configured_site("", os.environ)
    here = [each.name for each in sites_here(host)]
    named = "" if is_known else f"--site {here[0] if len(here) == 1 else 'NAME'} "
    launch = f"argosy launch {quote(imported.jobs[0].name)} {named}--dry-run"
    if lost:
        raise CheckFailed(
            f"{script} starts programs that {output} does not contain",
            evidence="\n".join((*lost, *(_describe(job) for job in imported.jobs))),
            hint=f"correct the command, or write a job for each program; then: {launch}",
        )
    if not dry_run:
        click.echo(f"next: {launch}{LIST_SITES if 'NAME' in named else ''}")


def _describe(job: ImportedJob) -> str:
    return f"[job.{job.name}] contains only line {job.line} ({job.program})"


def _refuse_script_without_program(imported: ImportedScript) -> None:
    if not imported.jobs:
        first = (
            "correct these lines as their notes say" if imported.lost else "move the program's start to its own line"
        )
        raise UsageError(
            f"{imported.path} starts no program that Argosy can translate",
            evidence="\n".join(each.loss for each in imported.lost)
            or "no line with srun, mpirun, torchrun, python or a container command outside loops and conditions",
            hint=f"{first}, or write the table [job.NAME] yourself",
        )


def _print_translations(imported: ImportedScript) -> None:
    """Print the parts of the script with their translation: first lost programs, last other untranslated parts."""
    rows = [each for each in imported.translations if each.fate is not Fate.UNTRANSLATED]
    untranslated = [each for each in imported.untranslated if each not in imported.lost]
    for each in (*imported.lost, *rows, *untranslated):
        fate = click.style(f"{each.fate:<14}", fg=COLORS[each.fate])
        text = click.style(each.loss, fg="red", bold=True) if each.lost_programs else each.text
        click.echo(f"{each.line:>4}  {fate}  {text}\n                      -> {each.note}")
    if untranslated:
        parts = "1 part is" if len(untranslated) == 1 else f"{len(untranslated)} parts are"
        click.echo(f"\n{parts} not translated: correct the table by hand", err=True)
