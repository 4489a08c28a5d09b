"""`argosy images`: the catalog, and the contents of images."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from argosy.cli.common import WholeLines, open_session, report_skipped_profiles
from argosy.cli.options import force_option, json_option, site_option, verbose_option, work_dir_option
from argosy.cli.output import fit_table, print_report
from argosy.cli.parameters import AGE, COMMAND, IMAGE, NAMED_TEXT, NEW_FILE, SITE
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.parse import refuse_folder_name
from argosy.core.render import count, render_size
from argosy.images.describe import describe_image, render_age, render_description
from argosy.images.find import open_reference
from argosy.images.formats import FORMATS, OutputFormat, shorten_use

ADD_HINT = "add one with: argosy images pull docker://NAME, or for a file: argosy images pull FILE NAME"


@click.group(cls=WholeLines)
def images() -> None:
    """List, inspect, compare, pull, push and export images."""


@images.command("ls")
@site_option("List the bases, folders and catalog of a site profile instead.")
@click.option(
    "--has", "wanted", multiple=True, metavar="PACKAGE",
    help="List only images that contain PACKAGE, for example torch or 'numpy>=2'; repeatable.",
)  # fmt: skip
@click.option(
    "--check", "target", type=SITE, default="", metavar="SITE",
    help="Show whether each image works at SITE, or why not, as 'argosy check' does.",
)  # fmt: skip
@json_option
def list_images(site: str, wanted: tuple[str, ...], target: str, *, as_json: bool) -> None:
    """List the images of the catalog: those of your folder or ARGOSY_IMAGES, of the project, and of the site."""
    if site:
        return _list_of_site(site, as_json=as_json)
    from argosy.images.catalog import catalog_folders, list_catalog, list_dangling, list_unreadable
    from argosy.images.describe import (
        describe_catalog_image,
        parse_requirements,
        render_entries,
    )

    session, asked = open_session(quiet=True), parse_requirements(wanted)
    report_skipped_profiles(session.host)
    for line in list_unreadable(session):
        click.echo(line, err=True)
    entries = every = [describe_catalog_image(held, asked) for held in list_catalog(session)]
    if wanted:
        entries = [entry for entry in every if entry.found]
    elif not target:
        gone = map(describe_catalog_image, list_dangling(session))
        entries = every = sorted([*entries, *gone], key=lambda entry: entry.name.partition(":")[0])
    if target:
        from argosy.diagnostics.check import check_entries

        entries = check_entries(entries, target, session)
    folders = ", ".join(map(str, catalog_folders(session)))
    none = f"no image contains {' and '.join(wanted)}" if every else f"no images in {folders}\n  -> {ADD_HINT}"
    print_report(entries, render_entries(entries, time.time()) if entries else none, as_json=as_json)
    silent = sum(not entry.digest for entry in every) if wanted else 0
    if silent:
        click.echo(f"not searched: {count(silent, 'image')} without a lock; see: argosy images freeze NAME", err=True)
    return None


def _list_of_site(name: str, *, as_json: bool) -> None:
    """Print the images in the profile of a site, and the files in its folders if they can be read here."""
    from argosy.images.catalog import list_images_of
    from argosy.sites.bases import render_images
    from argosy.sites.load import load_site

    session = open_session(quiet=True)
    found = load_site(name, session.host)
    files = list_images_of(found, session)
    report = msgspec.to_builtins(found.images) | {"files": [str(path) for path in files]}
    lines = (*render_images(found), *(f"image     {path.name}: {path}" for path in files))
    print_report(report, "\n".join(lines), as_json=as_json)


@images.command("pull")
@click.argument("image", type=IMAGE)
@click.argument("name", default=None, required=False)
@click.option("-o", "--output", type=NEW_FILE, metavar="FILE", help="Write a file instead of an entry in the catalog.")
@force_option
@json_option
def pull(image: str, name: str | None, output: Path | None, *, force: bool, as_json: bool) -> None:
    """Copy IMAGE, docker://…, oras://… or a file, into the catalog as NAME or NAME:TAG.

    \b
    argosy images pull docker://debian:bookworm
    argosy images pull oras://registry.example.org/me/digits:2 digits:2
    """
    from argosy.images.find import pull_image

    if name and output:
        raise UsageError("NAME and --output cannot be used together", hint="use one of the two")
    file = output.absolute() if output else None
    path, size = pull_image(image, open_session(quiet=as_json), name=name, output=file, force=force)
    report = {"image": image, "path": str(path), "bytes": size}
    print_report(report, f"{path}: {render_size(size)}", as_json=as_json)


@images.command("push")
@click.argument("image", type=IMAGE)
@click.argument("target")
@work_dir_option
@json_option
@verbose_option
def push(image: str, target: str, work_dir: str, *, as_json: bool, verbose: bool) -> None:
    """Copy IMAGE to a registry: as layers for any tool (docker://), or as a SIF file (oras://).

    \b
    argosy images push my.sif oras://registry.example.org/me/my:1
    argosy images push my.sif docker://registry.example.org/me/my:1
    """
    from argosy.builder.output.push import push_image

    report = push_image(image, target, open_session(verbose=verbose, work=work_dir))
    print_report(report, report.reference, as_json=as_json)


@images.command("send")
@click.argument("image", type=IMAGE)
@click.argument("target", metavar="HOST:PATH")
@click.option(
    "--base", default="", metavar="PATH", help="Image file on HOST with the same base. Default: one in the same folder."
)
@force_option
@work_dir_option
@json_option
@verbose_option
def send(image: str, target: str, base: str, work_dir: str, *, force: bool, as_json: bool, verbose: bool) -> None:
    """Copy IMAGE to another machine by ssh; if an image there has the same base, only the layer is sent.

    \b
    argosy images send my.sif lumi:/scratch/project_465000001/images/
    """
    from argosy.images.remote import send_image

    session = open_session(verbose=verbose, quiet=as_json, work=work_dir)
    report = send_image(image, target, session, base=base, force=force)
    how = f"{render_size(report.sent)} of {render_size(report.bytes)} sent" if report.sent else "it was already there"
    print_report(report, f"{report.target}: {how}, sha256 compared", as_json=as_json)


@images.command("tag")
@click.argument("image", type=IMAGE)
@click.argument("alias")
@json_option
def tag(image: str, alias: str, *, as_json: bool) -> None:
    """Add the name ALIAS for IMAGE, a catalog name or a file; an existing alias is moved.

    \b
    argosy images tag digits:2 digits:stable
    """
    from argosy.images.catalog import tag_image

    link, target = tag_image(image, alias, open_session(quiet=True))
    print_report({"alias": str(link), "path": str(target)}, f"{alias} -> {target}", as_json=as_json)


@images.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=IMAGE)
@json_option
def remove(names: tuple[str, ...], *, as_json: bool) -> None:
    """Remove images and their aliases; for an alias, remove only the alias.

    NAME without a tag is the newest version of the image; NAME:TAG is another one.
    """
    from argosy.images.catalog import remove_images

    session = open_session(quiet=True)
    removed = remove_images(names, session)
    lines = []
    for each in removed:
        more = f", with its aliases {', '.join(each.aliases)}" if each.aliases else ""
        lines.append(f"removed {each.path}{f': {render_size(each.bytes)}' if each.bytes else ''}{more}")
    print_report(removed, "\n".join(lines), as_json=as_json)


@images.command("gc")
@click.option(
    "--older-than", "older", type=AGE, default="30d", metavar="TIME",
    help="Remove versions that were written TIME ago or earlier, for example 12h or 8w. Default: 30d.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def gc(older: float, *, dry_run: bool, as_json: bool) -> None:
    """Remove old versions NAME:TAG from your own folder if NAME has a newer version.

    A version stays if an alias points to it, or if a job that you launched within TIME uses it.

    \b
    argosy images gc --older-than 8w --dry-run
    """
    from argosy.images.cache import remove_superseded

    now = time.time()
    found = remove_superseded(now - older, open_session(quiet=True), dry=dry_run)
    verb = "would remove" if dry_run else "removed"
    lines = []
    for each in found:
        what = f"{each.path}, {render_size(each.bytes)}, {render_age(now - each.changed)} old"
        lines.append(f"kept {what}: {each.kept}" if each.kept else f"{verb} {what}")
    gone = [each for each in found if not each.kept]
    lines.append(f"{verb} {render_size(sum(each.bytes for each in gone))} in {count(len(gone), 'image')}")
    print_report(found, "\n".join(lines), as_json=as_json)


@images.command("verify")
@click.argument("image", type=IMAGE)
@click.option(
    "--signed-by", "keys", multiple=True, metavar="KEY",
    help="Fingerprint of an accepted key; repeatable. Default: any key.",
)  # fmt: skip
@json_option
def verify(image: str, keys: tuple[str, ...], *, as_json: bool) -> None:
    """Verify the signatures of IMAGE; the exit code is 7 if it has none or was changed.

    Apptainer verifies them with the keys of your keyring ('apptainer key list').
    """
    from argosy.images.signatures import verify_image
    from argosy.runtimes.container_plan import parse_signer

    signers = verify_image(image, tuple(map(parse_signer, keys)), open_session(quiet=True))
    lines = [f"signed by  {signer.fingerprint}  {signer.name}" for signer in signers]
    text = "\n".join((*lines, f"{image} is unchanged since it was signed"))
    print_report({"image": image, "signers": signers}, text, as_json=as_json)


@images.command("info")
@click.argument("image", type=IMAGE)
@json_option
def info(image: str, *, as_json: bool) -> None:
    """Describe IMAGE: base and its digest, layers, sizes, packages, how to run it."""
    session = open_session(quiet=True)
    description = describe_image(open_reference(image, session))
    print_report(description, render_description(description), as_json=as_json)


@images.command("freeze")
@click.argument("image", type=IMAGE)
@click.option(
    "--format", "form", type=click.Choice(("lock", "requirements", "explicit")), default="lock",
    help="A lock, a requirements.txt of the pip packages, or an @EXPLICIT list of the conda packages. Default: lock.",
)  # fmt: skip
def freeze(image: str, form: str) -> None:
    """Print the contents of any IMAGE as a lock: packages of conda, pip, dpkg and rpm."""
    from argosy.builder import freeze as freezing
    from argosy.recipes.lock import render_lock

    render = {"requirements": freezing.render_requirements, "explicit": freezing.render_explicit}.get(form, render_lock)
    click.echo(render(freezing.freeze(image, open_session(quiet=True))), nl=False)


@images.command("sbom")
@click.argument("image", type=IMAGE)
def sbom(image: str) -> None:
    """Print the bill of materials of IMAGE as CycloneDX 1.6."""
    from argosy.builder.freeze import freeze as freeze_image
    from argosy.recipes.sbom import render_sbom

    click.echo(render_sbom(freeze_image(image, open_session(quiet=True))), nl=False)


@images.command("scan")
@click.argument("image", type=IMAGE)
@json_option
@click.pass_context
def scan(ctx: click.Context, /, image: str, *, as_json: bool) -> None:
    """Find known vulnerabilities of the Python packages in IMAGE with pip-audit; the exit code is 7 if there are any.

    \b
    argosy images scan my.sif
    """
    from argosy.diagnostics.scan import render_scan, scan_image, summarize

    found = scan_image(image, open_session(quiet=as_json))
    text = "\n".join(filter(None, (fit_table(render_scan(found)), summarize(found))))
    print_report(found, text, as_json=as_json)
    ctx.exit(CheckFailed.code if found.found else 0)


@images.command("slim")
@click.option("--suggest", is_flag=True, help="Suggest what to omit, remove, or move to a build stage.")
@json_option
@click.argument("image", type=IMAGE)
@click.argument("command", nargs=-1, type=COMMAND)
def slim(image: str, command: tuple[str, ...], *, suggest: bool, as_json: bool) -> None:
    """Run COMMAND in IMAGE under strace, and list the files that it never opens; the image is not changed."""
    from argosy.runtimes.unused_files import render_slimming, slim_image

    found = slim_image(image, command, open_session())
    print_report(found, render_slimming(found, suggest=suggest), as_json=as_json)


@images.command("diff")
@click.argument("one", type=IMAGE)
@click.argument("other", type=IMAGE)
@json_option
def diff(one: str, other: str, *, as_json: bool) -> None:
    """Compare two images: packages, settings, and the files of their layers."""
    from argosy.builder.freeze import compare_images, render_files

    found = compare_images(one, other, open_session(quiet=True))
    same = [] if found.changes or found.files else ["the same contents over the same base, as both images record"]
    lines = (*found.notes, *found.changes, *render_files(found.files), *same)
    print_report(found, "\n".join(map(str, lines)), as_json=as_json)


@images.command("export")
@click.argument("image", type=IMAGE)
@click.option("--format", "form", required=True, type=click.Choice(FORMATS), help="Format to write.")
@click.option("-o", "--output", required=True, type=NAMED_TEXT, metavar="FILE", help="File to write.")
@force_option
@work_dir_option
@json_option
@verbose_option
def export(
    image: str, form: str, output: str, work_dir: str, *, force: bool, as_json: bool, verbose: bool
) -> None:  # fmt: skip
    """Write IMAGE in another format; a SIF is written with one partition, as 'apptainer build' expects.

    \b
    argosy images export my.sif --format sqsh -o my.sqsh
    argosy images export my.sif --format docker-archive -o my.tar
    """
    from argosy.builder.output.export import ExportRequest, export_image

    if form != OutputFormat.OCI:
        refuse_folder_name(output)
    session = open_session(verbose=verbose, work=work_dir)
    report = export_image(ExportRequest(image, OutputFormat(form), Path(output).absolute(), force=force), session)
    lines = [shorten_use(line, report.output, output) for line in report.use]
    print_report(report, "\n".join(lines), as_json=as_json)
