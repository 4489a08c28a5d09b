"""`argosy compat`: commands of other tools, answered by Argosy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from argosy.cli.common import WholeLines
from argosy.core.errors import UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.shell import quote
from argosy.core.store import refuse_existing, write_text
from argosy.core.suggest import did_you_mean


class ForeignCommand(msgspec.Struct, frozen=True):
    """A command of another tool."""

    tool: str
    """Name of the tool; its commands are installed together."""
    entry: str
    """The click command that answers it: ``module:name``."""
    what: str
    """Its purpose, in one line."""


TYKKY = "argosy.cli.compat.tykky"
PROGRAMS: Mapping[str, ForeignCommand] = {
    "cotainr": ForeignCommand("cotainr", "argosy.cli.compat.cotainr:cotainr", "cotainr build, cotainr info"),
    "conda-containerize": ForeignCommand(
        "tykky", f"{TYKKY}:conda_containerize", "conda-containerize new, update, advanced"
    ),
    "pip-containerize": ForeignCommand("tykky", f"{TYKKY}:pip_containerize", "pip-containerize new, update, advanced"),
    "wrap-container": ForeignCommand("tykky", f"{TYKKY}:wrap_container", "wrap commands of an image"),
    "wrap-install": ForeignCommand("tykky", f"{TYKKY}:wrap_install", "wrap an installation on disk"),
}
"""Name of a command -> how it is answered."""


def programs_of(tools: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commands of some tools; without a tool, all commands."""
    return tuple(name for name, program in PROGRAMS.items() if not tools or program.tool in tools)


def known_tools() -> tuple[str, ...]:
    """Return the tools whose commands are answered."""
    return tuple(dict.fromkeys(program.tool for program in PROGRAMS.values()))


def render_program(name: str, python: str) -> str:
    """Render the file of a command, as `argosy compat install` writes it to a folder of PATH.

    Parameters
    ----------
    python
        The Python in which Argosy is installed.
    """
    return f"""\
#!/bin/sh
# The command line of {PROGRAMS[name].tool}, answered by Argosy; written by 'argosy compat install'.
exec {quote(python)} -P -m argosy.cli compat run {quote(name)} "$@"
"""


@click.group(cls=WholeLines)
def compat() -> None:
    """Install the commands of cotainr and tykky; they call Argosy.

    \b
    argosy compat ls
    argosy compat install ~/.local/bin       then: cotainr build my.sif …
    argosy compat run cotainr build --help      without installing anything
    """


@compat.command("ls")
def list_programs() -> None:
    """List the commands."""
    for name, program in PROGRAMS.items():
        click.echo(f"{name:<20} {program.what}")


@compat.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("tool", nargs=-1, type=click.Choice(known_tools()))
@click.option("--force", is_flag=True, help="Replace existing commands.")
def install(folder: Path, tool: tuple[str, ...], *, force: bool) -> None:
    """Install the commands of TOOL into FOLDER; without TOOL, those of all tools."""
    from argosy.cli.compat.tykky_arguments import render_files

    name = PROGRAMS[str(folder)].tool if str(folder) in PROGRAMS else str(folder)
    if name in known_tools() and not folder.is_dir():
        hint = f"give the folder first: argosy compat install ~/.local/bin {name}"
        raise UsageError(f"{folder} is a tool, not a folder", hint=hint)
    names = programs_of(tool)
    with translate_os_errors(folder, "FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
    programs = {name: render_program(name, sys.executable) for name in names}
    texts = programs | (render_files(str(folder.absolute())) if "wrap-install" in names else {})
    for name in texts:
        refuse_existing(folder / name, force=force, otherwise="choose another folder, or use")
    for name, text in texts.items():
        write_text(folder / name, text, mode=0o755 if name in programs else 0o644, force=force)
        click.echo(folder / name)


@compat.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_program(program: str, arguments: tuple[str, ...]) -> object:
    """Run PROGRAM with its own ARGUMENTS."""
    if program not in PROGRAMS:
        raise UsageError(
            f"there is no command {program!r}",
            evidence=f"known: {', '.join(PROGRAMS)}",
            hint=did_you_mean(program, PROGRAMS, "see 'argosy compat ls'"),
        )
    module, _, name = PROGRAMS[program].entry.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name)
    code: object = command.main(list(arguments), prog_name=program, standalone_mode=False)
    return code
