"""`argosy compat`: commands of other tools, answered by Argosy."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from argosy.cli.common import WholeLines
from argosy.cli.compat.install import PROGRAMS, programs_of, render_program, tools
from argosy.core.errors import UsageError


@click.group(cls=WholeLines)
def compat() -> None:
    """Commands of other tools, answered by Argosy.

    \b
    argosy compat ls
    argosy compat install ~/.local/bin          then: cotainr build my.sif --system=NAME …
    argosy compat run cotainr build --help      without installing anything
    """  # noqa: D301


@compat.command("ls")
def list_programs() -> None:
    """List the commands."""
    for name, program in PROGRAMS.items():
        click.echo(f"{name:<20} {program.what}")


@compat.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("tool", nargs=-1, type=click.Choice(tools()))
@click.option("--force", is_flag=True, help="Replace commands that are there.")
def install(folder: Path, tool: tuple[str, ...], *, force: bool) -> None:
    """Put the commands of TOOL (of all tools, where none is named) into FOLDER."""
    from argosy.cli.compat.tykky_shell import render_files  # noqa: PLC0415 - installing only
    from argosy.core.os_errors import translate_os_errors  # noqa: PLC0415 - likewise
    from argosy.core.store import atomic_file, refuse_existing  # noqa: PLC0415 - likewise

    names = programs_of(tool)
    with translate_os_errors(folder, "FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
    programs = {name: render_program(name, sys.executable) for name in names}
    texts = programs | (render_files(str(folder.absolute())) if "wrap-install" in names else {})
    for name in texts:
        refuse_existing(folder / name, force=force, otherwise="choose another folder, or use")
    for name, text in texts.items():
        with atomic_file(folder / name, force=force) as beside:
            beside.write_text(text, encoding="utf-8")
            beside.chmod(0o755 if name in programs else 0o644)
        click.echo(folder / name)


@compat.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("program")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def run_program(program: str, words: tuple[str, ...]) -> object:
    """Run PROGRAM with its own WORDS."""
    if program not in PROGRAMS:
        raise UsageError(f"there is no command {program!r}", evidence=f"known: {', '.join(PROGRAMS)}")
    module, _, name = PROGRAMS[program].entry.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name)
    code: object = command.main(list(words), prog_name=program, standalone_mode=False)
    return code
