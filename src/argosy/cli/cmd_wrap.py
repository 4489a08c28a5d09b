"""`argosy wrap`: words to a `WrapRequest` or `UpdateRequest`; their reports to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from argosy.cli.building import package_options
from argosy.cli.common import NAMED, NAMED_TEXT, WholeLines, open_session, print_json
from argosy.cli.findings import print_findings
from argosy.core.errors import UsageError
from argosy.core.model import GpuMode
from argosy.core.os_errors import missing_file
from argosy.core.progress import render_commands
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word
from argosy.images.identify import render_size
from argosy.recipes.build_options import PACKAGE_ROWS
from argosy.recipes.option_row import option_name
from argosy.runtimes.container_plan import parse_bind
from argosy.wrap.model import Settings, UpdateRequest, WrapReport, WrapRequest
from argosy.wrap.prefix import history as read_history
from argosy.wrap.prefix import prune as prune_prefix
from argosy.wrap.prefix import rollback as go_back
from argosy.wrap.prefix import update as update_prefix
from argosy.wrap.prefix import wrap as wrap_new
from argosy.wrap.request import DEFAULT_BASE, plan_recipe, refuse_unused, script_paths


class ShortForm(WholeLines):
    """A group in which `wrap SOURCE …` means `wrap new SOURCE …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `new` in front where the first word is no command of the group, nor a misspelt one."""
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            self._refuse_misspelt(args, ctx)
            args = ["new", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, args: list[str], ctx: click.Context) -> None:
        """Name the nearest command where the first word is no file, and no prefix is named, which `new` needs."""
        if any(word.startswith("--prefix") for word in args) or Path(args[0]).exists():
            return
        near = suggest_word(args[0], self.commands)
        if near:
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near}'?", ctx)


@click.group(cls=ShortForm)
def wrap() -> None:
    """Wrap an environment or an image, so that its commands feel installed.

    \b
    argosy wrap environment.yml --prefix /project/me/env         the short form of 'wrap new'
    argosy wrap vendor.sif -w /opt/venv/bin --prefix /project/me/torch
    export PATH=/project/me/env/bin:$PATH
    """  # noqa: D301


def _start_options(command: Any) -> Any:
    """Add the options that say how commands start; not given, an update keeps what was said before."""
    for option in reversed(
        (
            click.option("-w", "--wrapper-paths", "paths", multiple=True, type=NAMED_TEXT, metavar="PATH[,PATH…]",
                         help="Folders or programs inside whose commands are wrapped."),
            click.option("-B", "--bind", "binds", multiple=True, metavar="SRC[:DST[:ro]]",
                         help="Bind mount, repeatable."),
            click.option("--environ", type=NAMED, help="File of variables to set inside."),
            click.option("--gpu", type=click.Choice([way.value for way in GpuMode]),
                         help="How GPUs enter.  [default: auto]"),
            click.option("--host/--no-host", default=None, help="Show the host's own system folders inside."),
            click.option("--runtime", default=None, metavar="NAME", help="apptainer, singularity or bwrap."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _report_options(command: Any) -> Any:
    """Add the options of what reports."""
    command = click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")(command)
    command = click.option("-v", "--verbose", is_flag=True, help="Show each command.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")(command)


def _settings(old: Settings, given: dict[str, Any]) -> Settings:
    """Give the settings: what was given, else what was there."""
    from argosy.wrap.request import read_environ  # noqa: PLC0415 - a few options need it

    paths = tuple(part for text in given["paths"] for part in text.split(",") if part)
    return Settings(
        paths=paths or old.paths,
        binds=tuple(map(parse_bind, given["binds"])) or old.binds,
        variables=read_environ(given["environ"]) if given["environ"] else old.variables,
        gpu=GpuMode(given["gpu"]) if given["gpu"] else old.gpu,
        host=old.host if given["host"] is None else given["host"],
        runtime=old.runtime if given["runtime"] is None else given["runtime"],
    )


@wrap.command("new")
@click.argument("sources", nargs=-1, required=True, type=NAMED_TEXT)
@click.option("--prefix", required=True, type=NAMED, help="Folder to make; an empty one will do.")
@click.option("--base", default="", metavar="BASE", help=f"Base of a build.  [default: {DEFAULT_BASE}]")
@_start_options
@click.option("--at", default="", metavar="PATH", help="Where an installation is found inside.  [default: as it says]")
@package_options
@click.option("--pre-install", "before", multiple=True, type=NAMED, help="Script to run inside before installing.")
@click.option("--post-install", "after", multiple=True, type=NAMED, help="Script to run inside after installing.")
@click.option("--copy", is_flag=True, help="Copy an image into the prefix instead of linking to it.")
@click.option(
    "--flatten/--no-flatten",
    default=None,
    help="One partition, or base and layer.  [default: one, where the runtime mounts images]",
)
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@_report_options
def new(sources: tuple[str, ...], prefix: Path, base: str, at: str, before: tuple[Path, ...],
        after: tuple[Path, ...], *, copy: bool, flatten: bool | None, work_dir: str,
        as_json: bool, verbose: bool, quiet: bool, **given: Any) -> None:  # fmt: skip
    """Wrap SOURCES into a new prefix.

    SOURCES are environment files, as of argosy build; or one image: a SIF, squashfs or root file system, or
    docker://NAME; or one installation: its folder, or an archive that conda-pack made elsewhere.
    """
    session = open_session(verbose=verbose, quiet=quiet, work=work_dir)
    recipe = plan_recipe(sources, base or DEFAULT_BASE, copy=copy, flatten=flatten, at=at, asked_base=bool(base))
    recipe = replace(recipe, default_base=bool(recipe.base) and not base)
    refuse_unused(recipe, {option_name(name): given[name] for name in PACKAGE_ROWS if name != "site"})
    choices = {row.field or name: given[name] for name, row in PACKAGE_ROWS.items()}
    recipe = replace(recipe, before=script_paths(before), after=script_paths(after), **choices)
    report = wrap_new(WrapRequest(prefix.absolute(), recipe, _settings(Settings(), given)), session)
    _say(report, prefix, as_json=as_json, quiet=quiet)


@wrap.command("update")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.argument("what", nargs=-1, metavar="[PACKAGE|FILE]…")
@click.option("--post-install", "after", multiple=True, type=NAMED, help="Script to run inside after installing.")
@click.option("--image", default="", metavar="IMAGE", help="Another image, or the new path of the same image.")
@_start_options
@_report_options
def update(prefix: Path, what: tuple[str, ...], image: str, after: tuple[Path, ...], *,
           as_json: bool, verbose: bool, quiet: bool, **start: Any) -> None:  # fmt: skip
    """Make the next version of DIR, and switch to it at once; what runs keeps its version.

    A PACKAGE is a requirement as pip reads it; a FILE takes the place of the environment file of its name.
    """
    from argosy.wrap.versions import open_prefix  # noqa: PLC0415 - update and check alone

    session = open_session(verbose=verbose, quiet=quiet)
    prefix = prefix.absolute()
    old = open_prefix(prefix)
    files = tuple(str(Path(word).absolute()) for word in what if Path(word).is_file())
    packages = tuple(word for word in what if not Path(word).is_file())
    _refuse_missing(packages)
    request = UpdateRequest(prefix, packages, files, image, script_paths(after))
    _say(update_prefix(request, _settings(old.settings, start), session), prefix, as_json=as_json, quiet=quiet)


def _refuse_missing(packages: tuple[str, ...]) -> None:
    for word in packages:
        if not word.strip():
            raise UsageError("an empty word names no package", hint="is a variable of your shell not set?")
        if word.endswith((".txt", ".yml", ".yaml")):
            raise missing_file(word, Path.cwd())


@wrap.command("rollback")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.argument("number", required=False, default=0, type=int, metavar="[VERSION]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def rollback(prefix: Path, number: int, *, as_json: bool) -> None:
    """Switch DIR to the version before the current one, or to VERSION."""
    report = go_back(prefix.absolute(), number, open_session(quiet=True))
    if as_json:
        print_json(_render_json(report))
    else:
        before = f", {report.previous} before" if report.previous else ""
        click.echo(f"{prefix}: version {report.version.number} now{before} ({report.version.reason})")


@wrap.command("history")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def history(prefix: Path, *, as_json: bool) -> None:
    """List the versions of DIR."""
    rows = read_history(prefix.absolute())
    if as_json:
        print_json([msgspec.to_builtins(version) | {"current": now} for version, now in rows])
        return
    for version, now in rows:
        size = render_size(version.size)
        click.echo(
            f"{'*' if now else ' '} {version.number:>3}  {version.made}  {size:>8}  "
            f"{render_commands(len(version.commands)):>14}  {version.reason}"
        )


@wrap.command("prune")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--keep", default=1, show_default=True, metavar="N", help="Versions before the current one to keep.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def prune(prefix: Path, keep: int, *, as_json: bool) -> None:
    """Remove old versions of DIR: only when no job runs from them."""
    gone = prune_prefix(prefix.absolute(), keep, open_session(quiet=True))
    if as_json:
        print_json({"removed": list(gone)})
    else:
        click.echo(f"removed: {', '.join(map(str, gone))}" if gone else "nothing to remove")


@wrap.command("check")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def check(ctx: click.Context, /, prefix: Path, *, as_json: bool) -> None:
    """Check that the commands of DIR would start here; the code is 7 where they would not."""
    from argosy.wrap.check import check as check_prefix  # noqa: PLC0415 - this command alone

    ctx.exit(print_findings(check_prefix(prefix.absolute(), open_session(quiet=True)), as_json=as_json))


@wrap.command("kernel")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--to", type=NAMED, metavar="FOLDER", help="Jupyter's data folder.  [default: yours]")
@click.option("--name", default="", metavar="NAME", help="What commands call the kernel.  [default: as DIR]")
@click.option("--title", default="", metavar="TEXT", help="What people see.  [default: as DIR]")
@click.option("--force", is_flag=True, help="Replace another kernel of that name.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def kernel(prefix: Path, to: Path | None, name: str, title: str, *, force: bool, as_json: bool) -> None:
    """Let Jupyter start the python of DIR: a kernel specification in your folder, or in FOLDER."""
    from argosy.wrap.kernel import KernelRequest, add_kernel  # noqa: PLC0415 - this command alone

    request = KernelRequest(prefix.absolute(), to.absolute() if to else None, name, title, force)
    spec = add_kernel(request, open_session(quiet=True))
    if as_json:
        print_json({"kernel": spec.parent.name, "file": str(spec)})
    else:
        click.echo(f"{spec.parent.name}: {spec}")


def _render_json(report: WrapReport) -> object:
    """Give a report for programs."""
    return msgspec.to_builtins(report)


def _say(report: WrapReport, shown: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(_render_json(report))
    elif not quiet:
        click.echo(render_report(report, shown))


def render_report(report: WrapReport, shown: Path) -> str:
    """Say what there is now, and how to use it."""
    version = report.version
    size = f"{render_size(version.size)} · {report.seconds:.0f} s"
    commands = render_commands(len(version.commands))
    before = f", {report.previous} is kept" if report.previous else ""
    return "\n".join(
        (
            *report.notes,
            f"{shown}: version {version.number}{before} · {commands} of {version.recipe} · {size}",
            f"use it: {_render_use(str(shown.absolute() / 'bin'))}",
        )
    )


def _render_use(folder: str) -> str:
    if ":" in folder:
        return f"{quote(folder)}/NAME, by its whole path: PATH takes no folder with a colon"
    return f"export PATH={quote(folder)}:$PATH"
