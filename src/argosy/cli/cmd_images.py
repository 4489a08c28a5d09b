"""`argosy images`: the catalog, and what is in an image."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from argosy.cli.common import SITE, WholeLines, open_session, print_json
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.images.describe import describe_image, render_description
from argosy.images.find import find_image
from argosy.images.formats import FORMATS, OutputFormat, shorten_use
from argosy.images.identify import render_size
from argosy.images.open import inspect_squashfs, open_image


@click.group(cls=WholeLines)
def images() -> None:
    """Keep images by name, tell what is in one, and hand them on."""


@images.command("ls")
@click.option(
    "--site", type=SITE, default="", help="List what a site's profile knows instead: its bases, folders and catalog."
)
@click.option(
    "--has", "wanted", multiple=True, metavar="PACKAGE", help="Only those with it: torch, 'numpy>=2'; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_images(site: str, wanted: tuple[str, ...], *, as_json: bool) -> None:
    """List the images of the catalog: your folder or those of ARGOSY_IMAGES, the project's 'images', the site's."""
    if site:
        return _list_of_site(site, as_json=as_json)
    from argosy.images.catalog import catalog_folders, list_catalog  # noqa: PLC0415 - only here
    from argosy.images.describe import describe_catalog_image, render_entries  # noqa: PLC0415 - only here

    session = open_session(quiet=True)
    if wanted:
        return _list_with(wanted, session, as_json=as_json)
    entries = [describe_catalog_image(held) for held in list_catalog(session)]
    if as_json:
        print_json([asdict(entry) for entry in entries])
    elif entries:
        click.echo(render_entries(entries, time.time()))
    else:
        click.echo(f"no images in {', '.join(map(str, catalog_folders(session)))}")
    return None


def _list_with(wanted: tuple[str, ...], session: Session, *, as_json: bool) -> None:
    """Print the images of the catalog that have all packages of `wanted`, and how many could not be asked."""
    from argosy.images.catalog import list_catalog  # noqa: PLC0415 - only here
    from argosy.images.describe import (  # noqa: PLC0415 - only here
        describe_catalog_image,
        parse_requirements,
        render_entries,
    )

    asked = parse_requirements(wanted)
    entries = [describe_catalog_image(held, asked) for held in list_catalog(session)]
    found = [entry for entry in entries if entry.found]
    if as_json:
        print_json([asdict(entry) for entry in found])
    else:
        click.echo(render_entries(found, time.time()) if found else f"no image is known to have {' and '.join(wanted)}")
    silent = sum(not entry.digest for entry in entries)
    if silent:
        click.echo(
            f"{silent} image(s) without a lock were not asked: argosy images freeze NAME looks into one", err=True
        )


def _list_of_site(name: str, *, as_json: bool) -> None:
    """Print what a profile knows of images."""
    from argosy.builder.resolve import read_named_site  # noqa: PLC0415 - likewise
    from argosy.sites.bases import render_images  # noqa: PLC0415 - likewise

    host = open_session(quiet=True).host
    found = read_named_site(name, host)
    if as_json:
        print_json(msgspec.to_builtins(found.images))
    else:
        click.echo("\n".join(render_images(found)))


@images.command("pull")
@click.argument("image")
@click.argument("name", default=None, required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file instead of a name in the catalog.")
@click.option("--force", is_flag=True, help="Replace the image if there is one of that name.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def pull(image: str, name: str | None, output: Path | None, *, force: bool, as_json: bool) -> None:
    """Bring IMAGE, docker://…, oras://… or a file, into the catalog as NAME or NAME:TAG.

    \b
    argosy images pull docker://debian:bookworm
    argosy images pull oras://registry.example.org/me/digits:2 digits:2
    """  # noqa: D301
    from argosy.images.find import PullRequest, pull_image  # noqa: PLC0415 - only here

    if name and output:
        raise click.UsageError("Give NAME or --output, not both.")
    request = PullRequest(image, name, output.absolute() if output else None, force=force)
    path = pull_image(request, open_session(quiet=as_json))
    size = path.stat().st_size
    if as_json:
        print_json({"image": image, "path": str(path), "bytes": size})
    else:
        click.echo(f"{path}: {render_size(size)}")


@images.command("push")
@click.argument("image")
@click.argument("target")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
def push(image: str, target: str, work_dir: str, *, as_json: bool, verbose: bool) -> None:
    """Put IMAGE into a registry: as layers for every tool (docker://), or as the SIF file itself (oras://).

    \b
    argosy images push my.sif oras://registry.example.org/me/my:1
    argosy images push my.sif docker://registry.example.org/me/my:1
    """  # noqa: D301
    from argosy.builder.output.push import push_image  # noqa: PLC0415 - most commands here only read

    report = push_image(image, target, open_session(verbose=verbose, work=work_dir))
    click.echo(report.reference) if not as_json else print_json(asdict(report))


@images.command("send")
@click.argument("image")
@click.argument("target", metavar="HOST:PATH")
@click.option("--base", default="", metavar="PATH", help="An image there with the same base.  [default: one beside it]")
@click.option("--force", is_flag=True, help="Replace another file of that name.")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
def send(image: str, target: str, base: str, work_dir: str, *, force: bool, as_json: bool, verbose: bool) -> None:
    """Put IMAGE on another machine by ssh; where an image there has the same base, only the layer travels.

    \b
    argosy images send my.sif lumi:/scratch/project_465000001/images/
    """  # noqa: D301
    from argosy.images.send import send_image  # noqa: PLC0415 - most commands here only read

    session = open_session(verbose=verbose, quiet=as_json, work=work_dir)
    report = send_image(image, target, session, base=base, force=force)
    if as_json:
        print_json(asdict(report))
    else:
        how = f"{render_size(report.sent)} of {render_size(report.bytes)} sent" if report.sent else "it was there"
        click.echo(f"{report.target}: {how}, sha256 compared")


@images.command("tag")
@click.argument("image")
@click.argument("alias")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def tag(image: str, alias: str, *, as_json: bool) -> None:
    """Give IMAGE, a name of the catalog or a file, the further name ALIAS; an alias moves when it is given again.

    \b
    argosy images tag digits:2 digits:stable
    """  # noqa: D301
    from argosy.images.catalog import tag_image  # noqa: PLC0415 - only here

    link, target = tag_image(image, alias, open_session(quiet=True))
    if as_json:
        print_json({"alias": str(link), "path": str(target)})
    else:
        click.echo(f"{alias} -> {target}")


@images.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def remove(names: tuple[str, ...], *, as_json: bool) -> None:
    """Remove images, with the aliases that lead to them; of an alias only the name goes."""
    from argosy.images.catalog import remove_image  # noqa: PLC0415 - only here

    session = open_session(quiet=True)
    removed = [remove_image(name, session) for name in names]
    if as_json:
        print_json([asdict(each) for each in removed])
        return
    for each in removed:
        more = f", with its aliases {', '.join(each.aliases)}" if each.aliases else ""
        click.echo(f"removed {each.path}{f': {render_size(each.bytes)}' if each.bytes else ''}{more}")


@images.command("verify")
@click.argument("image")
@click.option("--signed-by", "keys", multiple=True, metavar="KEY", help="Only this key counts: its fingerprint.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def verify(image: str, keys: tuple[str, ...], *, as_json: bool) -> None:
    """Tell who signed IMAGE, and that it is as it was signed; the exit code is 7 where nobody did.

    Apptainer verifies it, with the keys of your keyring ('apptainer key list').
    """
    from argosy.images.signatures import verify_image  # noqa: PLC0415 - likewise
    from argosy.runtimes.container_plan import parse_signer  # noqa: PLC0415 - only here

    signers = verify_image(image, tuple(map(parse_signer, keys)), open_session(quiet=True))
    if as_json:
        print_json({"image": image, "signers": [asdict(signer) for signer in signers]})
        return
    for signer in signers:
        click.echo(f"signed by  {signer.fingerprint}  {signer.name}")
    click.echo(f"{image} is as it was signed")


@images.command("info")
@click.argument("image")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(image: str, *, as_json: bool) -> None:
    """Tell what IMAGE is: base and its digest, layers, sizes, packages, how to run it."""
    session = open_session(quiet=True)
    description = describe_image(inspect_squashfs(open_image(find_image(image, session)), session))
    if as_json:
        print_json(asdict(description))
    else:
        click.echo(render_description(description))


@images.command("freeze")
@click.argument("image")
@click.option(
    "--format",
    "form",
    type=click.Choice(("lock", "requirements", "explicit")),
    default="lock",
    show_default=True,
    help="A lock, a requirements.txt of the pip packages, or an @EXPLICIT list of the conda packages.",
)
def freeze(image: str, form: str) -> None:
    """Tell what is in IMAGE, whoever made it, as a lock: packages of conda, pip, dpkg and rpm."""
    from argosy.builder import freeze as freezing  # noqa: PLC0415 - info and ls need none of it
    from argosy.recipes.lock import render_lock  # noqa: PLC0415 - likewise

    render = {"requirements": freezing.render_requirements, "explicit": freezing.render_explicit}.get(form, render_lock)
    click.echo(render(freezing.freeze(image, open_session(quiet=True))), nl=False)


@images.command("sbom")
@click.argument("image")
def sbom(image: str) -> None:
    """Print the bill of materials of IMAGE as CycloneDX 1.6."""
    from argosy.builder.freeze import freeze as freeze_image  # noqa: PLC0415 - info and ls need none of it
    from argosy.recipes.sbom import render_sbom  # noqa: PLC0415 - likewise

    click.echo(render_sbom(freeze_image(image, open_session(quiet=True))), nl=False)


@images.command("slim")
@click.option("--suggest", is_flag=True, help="Say what to do: what to leave out, remove, or make in a stage.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.argument("image")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def slim(image: str, command: tuple[str, ...], *, suggest: bool, as_json: bool) -> None:
    """Run COMMAND in IMAGE, watched by strace, and tell what of it is never opened; the image stays as it is."""
    from argosy.runtimes.unused_files import render_slimming, slim_image  # noqa: PLC0415 - info and ls need none of it

    found = slim_image(image, command, open_session())
    if as_json:
        print_json(asdict(found))
    else:
        click.echo(render_slimming(found, suggest=suggest))


@images.command("diff")
@click.argument("one")
@click.argument("other")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def diff(one: str, other: str, *, as_json: bool) -> None:
    """Tell what differs between two images: packages, settings, and the files of their layers."""
    from argosy.builder.freeze import compare_images  # noqa: PLC0415 - info and ls need none of it

    found = compare_images(one, other, open_session(quiet=True))
    if as_json:
        print_json(asdict(found))
        return
    for line in (*found.notes, *found.changes, *(f"{change.sign} {change.path}" for change in found.files)):
        click.echo(str(line))
    if not found.changes and not found.files:
        click.echo("the same content over the same base")


@images.command("export")
@click.argument("image")
@click.option("--format", "form", required=True, type=click.Choice(FORMATS), help="What to write.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
def export(
    image: str, form: str, output: Path, work_dir: str, *, force: bool, as_json: bool, verbose: bool
) -> None:  # fmt: skip
    """Write IMAGE in another form; a sif is written flat, as 'apptainer build' wants it.

    \b
    argosy images export my.sif --format sqsh -o my.sqsh
    argosy images export my.sif --format docker-archive -o my.tar
    """  # noqa: D301
    from argosy.builder.output.export import ExportRequest, export_image  # noqa: PLC0415 - most commands here only read

    session = open_session(verbose=verbose, work=work_dir)
    report = export_image(ExportRequest(image, OutputFormat(form), output.absolute(), force=force), session)
    if as_json:
        print_json(asdict(report))
        return
    for line in report.use:
        click.echo(shorten_use(line, report.output, str(output)))
