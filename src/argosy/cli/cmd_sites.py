"""`argosy sites`: show, check, compare, create and validate site profiles."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option
from argosy.cli.output import (
    difference_table,
    fit_table,
    print_findings,
    print_json,
    print_report,
    render_differences,
    write_report,
)
from argosy.cli.parameters import FILE, IMAGE, PARTITION, PICTURE_FILE, REPORT_FILE, SITE
from argosy.core.errors import CheckFailed, SiteError
from argosy.core.findings import FileFinding
from argosy.core.os_errors import reading, translate_os_errors
from argosy.core.records import asdict
from argosy.core.render import count
from argosy.core.shell import quote
from argosy.recipes.user_config import fill_options
from argosy.sites.load import advise_on_new_site, detect_sites, machine_here
from argosy.sites.profile import Site
from argosy.sites.read import profile_folders, read_site, read_sites, site_names
from argosy.sites.show import diff_sites, explain_site, profile_schema
from argosy.slurm.sbatch import JobOptions


@click.group(cls=WholeLines)
def sites() -> None:
    """List, show, check and compare site profiles."""


def _folders() -> tuple[Path, ...]:
    return profile_folders(open_session(quiet=True).host)


def _print_skipped(error: SiteError) -> None:
    click.echo(f"skipped: {error}", err=True)


@sites.command("ls")
@json_option
def list_sites(*, as_json: bool) -> None:
    """List the site profiles: the project's, yours, the system's, and those shipped with Argosy."""
    profiles = list(read_sites(_folders(), _print_skipped))
    report = [{"name": site.name, "title": site.title, "scheduler": site.scheduler} for site in profiles]
    print_report(report, fit_table([(site.name, site.title) for site in profiles]), as_json=as_json)


@sites.command("show")
@click.argument("name", type=SITE)
@click.option("--html", type=PICTURE_FILE, metavar="FILE", help="Write an HTML page with a picture of a node instead.")
@json_option
def show_site(name: str, html: Path | None, *, as_json: bool) -> None:
    """Show a profile: every value with its reason, source, date, and the line it was read from."""
    folders = _folders()
    site, rows = read_site(name, folders), explain_site(name, folders)
    if html:
        from argosy.sites.page import render_site

        write_report(html, render_site(site, rows))
        return
    if as_json:
        facts = {"name": site.name, "title": site.title, "scheduler": site.scheduler}
        print_json({**facts, "open_questions": site.open_questions, "values": rows})
        return
    click.echo(f"{site.name}: {site.title}\nscheduler: {site.scheduler}")
    last = ("", "")
    for row in rows:
        if (row.key.partition(".")[0], row.why) != last:
            click.echo(f"\n# {row.why}" if row.why else "")
        last = (row.key.partition(".")[0], row.why)
        click.echo(f"{row.key} = {row.value}" + (f"  (when {row.when})" if row.when else ""))
        dated = ", ".join(filter(None, (row.proof, row.checked)))
        source = row.source or ("no source" if row.proof == "documented" else "")
        click.echo(f"    {': '.join(filter(None, (dated, source)))}")
        click.echo(f"    {row.origin}" if row.origin else "", nl=bool(row.origin))
    for question in site.open_questions:
        click.echo(f"\nnot known: {question}")


@sites.command("new")
@click.argument("name")
@click.option(
    "-o", "--output", default="", type=FILE, metavar="FILE", help="File to write. Default: argosy-sites/NAME.toml."
)
@click.option("--on-node", is_flag=True, help="Also examine a compute node, with one short job.")
@click.option(
    "--partition", default="", type=PARTITION, metavar="NAME",
    help="Describe the nodes of this partition. Default: Slurm's default partition.",
)  # fmt: skip
@click.option("--account", default="", metavar="NAME", help="Account to charge for --on-node.")
@click.option("--qos", default="", metavar="NAME", help="Quality of service for --on-node.")
@json_option
def new_site(name: str, output: str, partition: str, account: str, qos: str, *, on_node: bool, as_json: bool) -> None:
    """Write a profile of this cluster from Slurm's replies; missing facts are listed as open questions."""
    from argosy.diagnostics.discover.discover import DiscoverRequest, discover_site

    session = open_session(quiet=as_json)
    file = Path(output or f"argosy-sites/{name}.toml")
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    with translate_os_errors(file.parent, "--output"):
        draft = discover_site(session, DiscoverRequest(name, file, today, on_node, partition, account, qos))
    if as_json:
        print_json({"file": str(file), "values": len(draft.facts), "open_questions": draft.questions})
        return
    click.echo(f"{file}: {count(len(draft.facts), 'value')}, {count(len(draft.partitions), 'partition')}")
    for question in draft.questions:
        click.echo(f"not known: {question}")
    called = name if not output else f"./{file}" if not file.is_absolute() else str(file)
    click.echo(f"next: argosy sites lint {quote(str(file))}; argosy launch IMAGE --site {quote(called)} …")
    if not output:
        click.echo(
            f"only this folder knows it; for all of them: install -D -t ~/.config/argosy/sites {quote(str(file))}"
        )


@sites.command("picture")
@click.argument("name", type=SITE)
@click.option("-o", "--output", type=REPORT_FILE, metavar="FILE", help="File to write. Default: standard output.")
def picture(name: str, output: Path | None) -> None:
    """Draw a node of the site as SVG: cores, reserved cores, GPUs, NICs, and where each rank is bound."""
    from argosy.sites.page import draw_site_node

    picture = draw_site_node(read_site(name, _folders()))
    if output:
        write_report(output, picture)
    else:
        click.echo(picture, nl=False)


@sites.command("lint")
@click.argument("files", nargs=-1, type=SITE)
@click.option(
    "--site", "name", type=SITE, default="", metavar="NAME", help="Compare job scripts with this site's profile."
)
@json_option
@click.pass_context
def lint_files(ctx: click.Context, /, files: tuple[str, ...], name: str, *, as_json: bool) -> None:
    """Find invalid, stale or contradictory settings in profiles (.toml, or a site's name) and in job scripts.

    Without FILES, all profiles are checked.  The exit code is 7 if something is found.
    """
    folders = _folders()
    site = read_site(name, folders) if name else None
    found: list[FileFinding] = []
    for file in files or site_names(folders):
        found += _lint_one(file, site, folders, known=not files)
    code = print_findings(found, as_json=as_json)
    if not as_json:
        click.echo(f"{len(found)} found in {count(len(files) or len(site_names(folders)), 'file')}", err=True)
    ctx.exit(code)


def _lint_one(file: str, site: Site | None, folders: tuple[Path, ...], *, known: bool) -> tuple[FileFinding, ...]:
    from argosy.sites.lint.profile_rules import lint_named_profile
    from argosy.sites.lint.script_rules import lint_script

    if known or file.endswith(".toml") or (not Path(file).exists() and "/" not in file and not Path(file).suffix):
        return lint_named_profile(file, folders)
    with reading(file):
        return lint_script(file, Path(file).read_bytes().decode(errors="replace"), site)


@sites.command("diff")
@click.argument("first", type=SITE)
@click.argument("second", type=SITE)
@json_option
def diff(first: str, second: str, *, as_json: bool) -> None:
    """Compare two profiles, value by value."""
    folders = _folders()
    rows = diff_sites(read_site(first, folders), read_site(second, folders))
    print_report(difference_table(rows), render_differences(rows), as_json=as_json)


@sites.command("detect")
@json_option
@click.pass_context
def detect(ctx: click.Context, /, *, as_json: bool) -> None:
    """Detect the site of this machine by host name, ClusterName, variables and files.

    The exit code is 7 if no profile matches, or more than one.
    """
    session = open_session(quiet=True)
    profiles = tuple(read_sites(profile_folders(session.host), _print_skipped))
    machine = machine_here(session.host, profiles)
    found = detect_sites(profiles, machine)
    if as_json:
        print_json({"cluster": machine.cluster, "host": machine.host, "sites": found})
    else:
        for match in found:
            click.echo(f"{match.site}: {'; '.join(match.reasons)}")
        if len(found) != 1:
            seen = f"host {machine.host}, ClusterName {machine.cluster or 'not known'}"
            hidden = [each.name for each in profiles if each.has_slurm and not each.identity.has_marks]
            hint = "choose one with --site, or set a default: argosy config set site NAME"
            hint += advise_on_new_site(session.host)
            click.echo(f"{len(found) or 'no'} profiles match this machine ({seen}): {hint}", err=True)
            click.echo(f"never detected: {', '.join(hidden)}; 'argosy sites show NAME' tells why", err=True)
    ctx.exit(0 if len(found) == 1 else CheckFailed.code)


@sites.command("schema")
def schema() -> None:
    """Print the JSON schema of profiles, for editors."""
    print_json(profile_schema())


@sites.command("validate")
@click.argument("site", type=SITE, default="")
@click.option(
    "--image", default="", type=IMAGE, metavar="IMAGE", help="Also test this image, preferably one with PyTorch."
)
@click.option(
    "--script", type=click.Path(path_type=Path), metavar="FILE", help="Write the job script to FILE and submit nothing."
)
@click.option("--gpus-per-node", "gpus", type=click.IntRange(0), metavar="N", help="GPUs on each node. Default: all.")
@click.option("--account", default="", metavar="NAME", help="Account to charge. [Slurm: --account]")
@click.option(
    "--partition", default="", type=PARTITION, metavar="NAME", help="Partition. Default: the one for short tests."
)
@click.option("--qos", default="", metavar="NAME", help="Quality of service. [Slurm: --qos]")
@click.option("--time", default="", metavar="TIME", help="Time limit. Default: 00:05:00.")
@json_option
def validate(
    site: str, image: str, script: Path | None, gpus: int | None, *, as_json: bool, **options: str
) -> None:  # fmt: skip
    """Validate a profile with one job on 2 nodes (1 if the site has only one) for at most 5 minutes.

    The nodes do not need Argosy.

    SITE is the name or file of a profile. Default: the configured site, else the site of this machine. The job writes
    its results to argosy-validate-JOB.json in this folder; 'argosy sites merge' adds them to the profile.
    """
    from argosy.diagnostics.validate import validate as command

    session = open_session()
    given = fill_options({**options, "site": site}, ("site", "account"), session.host.environment)
    name, asked = command.site_here(session, given.pop("site", "")), JobOptions(**given)
    if script is not None:
        command.write_validation(session, name, script, image=image, options=asked, gpus=gpus)
        click.echo(f"{script}: submit it with: sbatch {quote(str(script))}", err=True)
        return
    stream = sys.stderr.buffer if as_json else None
    done = command.validate_site(session, name, image=image, options=asked, gpus=gpus, stream=stream)
    if as_json:
        print_json({"file": done.file, **asdict(done.result)})
    click.echo(f"add it to the profile: argosy sites merge {quote(done.file)}", err=True)


@sites.command("merge")
@click.argument("result", type=FILE)
@click.option(
    "--into", default="", type=SITE, metavar="NAME|FILE",
    help="Profile to write. Default: your own profile of that site.",
)  # fmt: skip
@click.option("--accept", is_flag=True, help="Replace values that the run contradicts with those of the run.")
@json_option
@click.pass_context
def merge(ctx: click.Context, /, result: str, into: str, *, accept: bool, as_json: bool) -> None:
    """Merge the result of 'argosy sites validate' (its JSON file) into a profile.

    Confirmed values are marked as validated, with date and versions. A shipped profile is first copied to
    ~/.config/argosy/sites. A documented value that the run contradicts is kept, and the exit code is 7.
    """
    from argosy.diagnostics.validate.validate import merge_into_profile

    path, merged = merge_into_profile(open_session(quiet=True), result, into=into, accept=accept)
    code = print_findings(merged.findings, as_json=as_json, profile=str(path))
    if not as_json:
        click.echo(f"wrote {path}")
    ctx.exit(0 if accept else code)
