"""`argosy wrap`: options to a `WrapRequest` or `UpdateRequest`, and their reports to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import add_options, force_option, json_option, report_options, table_options, work_dir_option
from argosy.cli.output import print_findings, print_report
from argosy.cli.parameters import NAMED, NAMED_TEXT
from argosy.core.errors import UsageError
from argosy.core.model import GpuMode
from argosy.core.os_errors import missing_file
from argosy.core.records import asdict, replace
from argosy.core.render import count, render_size
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word
from argosy.recipes.build_options import DEFAULT_BASE, FLATTENED, PackageOptions
from argosy.recipes.launch_options import ContainerOptions
from argosy.runtimes.container_plan import parse_bind
from argosy.wrap.model import Settings, UpdateRequest, WrapReport, WrapRequest
from argosy.wrap.prefix import create_prefix, prune_prefix, read_history, rollback_prefix, update_prefix
from argosy.wrap.request import plan_recipe, read_environ, script_paths, with_package_options
from argosy.wrap.versions import open_prefix


class ShortForm(WholeLines):
    """A group in which ``wrap SOURCE …`` means ``wrap new SOURCE …``."""

    usual_command = "new"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``new`` unless the first argument is a command of the group or a misspelt one."""
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            self._refuse_misspelt(args)
            args = [self.usual_command, *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, args: list[str]) -> None:
        """Suggest a command if the first argument is not a file, and ``--prefix`` is missing, which `new` needs."""
        if any(word.startswith("--prefix") for word in args) or Path(args[0]).exists():
            return
        from argosy.cli.hints import WRAP_HINTS
        from argosy.cli.mistakes import same_meaning

        near = same_meaning(args[0], self.commands) or suggest_word(args[0], self.commands)
        if hint := WRAP_HINTS.get(args[0]) or (near and f"did you mean 'argosy wrap {near}'?"):
            raise UsageError(f"argosy wrap has no command {args[0]!r}", hint=hint)


@click.group(cls=ShortForm)
def wrap() -> None:
    """Wrap the commands of an environment or image as plain programs.

    \b
    argosy wrap environment.yml --prefix /project/me/env    short for 'wrap new'
    argosy wrap vendor.sif -w /opt/venv/bin --prefix /project/me/torch
    export PATH=/project/me/env/bin:$PATH
    """


_start_options = add_options(
    click.option("-w", "--wrapper-paths", "paths", multiple=True, type=NAMED_TEXT, metavar="PATH[,PATH…]",
                 help="Folders or programs in the container whose commands are wrapped; PATH finds a name alone."),
    click.option("--environ", type=NAMED, metavar="FILE", help="File of variables to set in the container."),
    click.option("--gpu", type=click.Choice([mode.value for mode in GpuMode]),
                 help="Method to pass GPUs into the container. Default: auto."),
    click.option("--host/--no-host", default=None, help="Show the host's system folders in the container."),
    table_options(ContainerOptions, "bind", "runtime"),
)  # fmt: skip
"""Options for how commands start; an update keeps the values that are not given."""


_before_option, _after_option = (
    click.option(
        f"--{option}", name, multiple=True, type=NAMED, metavar="FILE",
        help=f"Script to run in the image {name} the installation; repeatable.",
    )
    for option, name in (("pre-install", "before"), ("post-install", "after"))
)  # fmt: skip


def _settings(old: Settings, given: dict[str, Any]) -> Settings:
    """Return the given settings, completed by those of the old version."""
    paths = tuple(part for text in given["paths"] for part in text.split(",") if part)
    return Settings(
        paths=paths or old.paths,
        binds=tuple(map(parse_bind, given["bind"])) or old.binds,
        variables=read_environ(given["environ"]) if given["environ"] else old.variables,
        gpu=GpuMode(given["gpu"]) if given["gpu"] else old.gpu,
        host=old.host if given["host"] is None else given["host"],
        runtime=given["runtime"] or old.runtime,
    )


@wrap.command("new")
@click.argument("sources", nargs=-1, required=True, type=NAMED_TEXT)
@click.option(
    "--prefix", required=True, type=NAMED, metavar="DIR", help="Folder to create; it may exist if it is empty."
)
@click.option("--base", default="", metavar="BASE", help=f"Base of a build. Default: {DEFAULT_BASE}.")
@_start_options
@click.option(
    "--at", default="", metavar="PATH",
    help="Path of an installation in the container. Default: the path it was made for.",
)  # fmt: skip
@table_options(PackageOptions)
@_before_option
@_after_option
@click.option("--copy", is_flag=True, help="Copy an image into the prefix instead of linking to it.")
@click.option(
    "--format", "form", type=click.Choice(list(FLATTENED)),
    help="Write one partition (flat), or base and layer (delta). Default: by the base, as argosy build.",
)  # fmt: skip
@work_dir_option
@report_options
def new(sources: tuple[str, ...], prefix: Path, base: str, at: str, before: tuple[Path, ...],
        after: tuple[Path, ...], *, copy: bool, form: str | None, work_dir: str,
        as_json: bool, verbose: bool, quiet: bool, **given: Any) -> None:  # fmt: skip
    """Wrap SOURCES into a new prefix.

    SOURCES are environment files, as for argosy build; or one image: a SIF, squashfs, root file system or
    docker://NAME; or one installation: its folder, or a conda-pack archive.
    """
    session = open_session(verbose=verbose, quiet=quiet, work=work_dir)
    recipe = plan_recipe(sources, base, copy=copy, flatten=FLATTENED[form] if form else None, at=at)
    recipe = with_package_options(recipe, given, session.host.environment)
    recipe = replace(recipe, before=script_paths(before), after=script_paths(after))
    report = create_prefix(WrapRequest(prefix.absolute(), recipe, _settings(Settings(), given)), session)
    print_report(report, render_report(report, prefix), as_json=as_json, quiet=quiet)


@wrap.command("update")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.argument("what", nargs=-1, metavar="[PACKAGE|FILE]…")
@_after_option
@click.option("--image", default="", metavar="IMAGE", help="Use another image, or the new path of the same image.")
@_start_options
@report_options
def update(prefix: Path, what: tuple[str, ...], image: str, after: tuple[Path, ...], *,
           as_json: bool, verbose: bool, quiet: bool, **start: Any) -> None:  # fmt: skip
    """Make the next version of DIR, and switch to it at once; running programs keep their version.

    A PACKAGE is a requirement in pip's syntax; a FILE replaces the environment file of the same name.
    """
    session = open_session(verbose=verbose, quiet=quiet)
    prefix = prefix.absolute()
    old = open_prefix(prefix)
    files = tuple(str(Path(word).absolute()) for word in what if Path(word).is_file())
    packages = tuple(word for word in what if not Path(word).is_file())
    _refuse_missing(packages)
    request = UpdateRequest(prefix, packages, files, image, script_paths(after))
    report = update_prefix(request, _settings(old.settings, start), session)
    print_report(report, render_report(report, prefix), as_json=as_json, quiet=quiet)


def _refuse_missing(packages: tuple[str, ...]) -> None:
    for word in packages:
        if not word.strip():
            raise UsageError("the name of a package is empty", hint="check that the shell variable is set")
        if word.endswith((".txt", ".yml", ".yaml")):
            raise missing_file(word, Path.cwd())


@wrap.command("rollback")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.argument("number", required=False, default=0, type=int, metavar="[VERSION]")
@json_option
def rollback(prefix: Path, number: int, *, as_json: bool) -> None:
    """Switch DIR to the version before the current one, or to VERSION."""
    report = rollback_prefix(prefix.absolute(), number, open_session(quiet=True))
    before = f", {report.previous} before" if report.previous else ""
    text = f"{prefix}: version {report.version.number} now{before} ({report.version.reason})"
    print_report(report, text, as_json=as_json)


@wrap.command("history")
@click.argument("prefix", metavar="DIR", type=NAMED)
@json_option
def history(prefix: Path, *, as_json: bool) -> None:
    """List the versions of DIR."""
    rows = read_history(prefix.absolute())
    lines = [
        f"{'*' if now else ' '} {version.number:>3}  {version.made}  {render_size(version.size):>8}  "
        f"{count(len(version.commands), 'command'):>14}  {version.reason}"
        for version, now in rows
    ]
    report = [asdict(version) | {"current": now} for version, now in rows]
    print_report(report, "\n".join(lines), as_json=as_json)


@wrap.command("prune")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--keep", default=1, metavar="N", help="Number of older versions to keep. Default: 1.")
@json_option
def prune(prefix: Path, keep: int, *, as_json: bool) -> None:
    """Remove old versions of DIR; jobs that run from them must have ended."""
    gone = prune_prefix(prefix.absolute(), keep, open_session(quiet=True))
    text = f"removed: {', '.join(map(str, gone.versions))}" if gone.versions else "nothing to remove"
    if gone.trees and not gone.versions:
        text = f"removed: {', '.join(gone.trees)} (unpacked trees that no version needs)"
    print_report({"removed": gone.versions, "trees": gone.trees}, text, as_json=as_json)


@wrap.command("check")
@click.argument("prefix", metavar="DIR", type=NAMED)
@json_option
@click.pass_context
def check(ctx: click.Context, /, prefix: Path, *, as_json: bool) -> None:
    """Check that the commands of DIR start on this machine; the exit code is 7 if they do not."""
    from argosy.wrap.check import check as check_prefix

    ctx.exit(print_findings(check_prefix(prefix.absolute(), open_session(quiet=True)), as_json=as_json))


@wrap.command("kernel")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--to", type=NAMED, metavar="FOLDER", help="Data folder of Jupyter. Default: yours.")
@click.option("--name", default="", metavar="NAME", help="Name of the kernel. Default: the name of DIR.")
@click.option("--title", default="", metavar="TEXT", help="Title of the kernel in Jupyter. Default: the name of DIR.")
@force_option
@json_option
def kernel(prefix: Path, to: Path | None, name: str, title: str, *, force: bool, as_json: bool) -> None:
    """Add the Python of DIR to Jupyter: write a kernel specification to your data folder, or to FOLDER."""
    from argosy.wrap.activation import KernelRequest, add_kernel

    request = KernelRequest(prefix.absolute(), to.absolute() if to else None, name, title, force)
    spec = add_kernel(request, open_session(quiet=True))
    report = {"kernel": spec.parent.name, "file": str(spec)}
    print_report(report, f"{spec.parent.name}: {spec}", as_json=as_json)


def render_report(report: WrapReport, shown: Path) -> str:
    """Render the report of a new version: commands, size, and how to use it."""
    version = report.version
    size = f"{render_size(version.size)} · {report.seconds:.0f} s"
    commands = count(len(version.commands), "command")
    before = f" (version {report.previous} kept)" if report.previous else ""
    return "\n".join(
        (
            *report.notes,
            f"{shown}: version {version.number}{before} · {commands} of {version.recipe} · {size}",
            f"use it: {_render_use(str(shown.absolute() / 'bin'))}",
        )
    )


def _render_use(folder: str) -> str:
    if ":" in folder:
        return f"{quote(folder)}/NAME, by its absolute path: PATH cannot contain a folder with a colon"
    return f"export PATH={quote(folder)}:$PATH"
