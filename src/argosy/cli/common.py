"""Groups of commands, and the session of a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.session import BothReporters, PlainReporter, QuietReporter, Reporter, Session
from argosy.host import probe
from argosy.recipes.user_config import configure_folders

LONGEST_SENTENCE = 1000
"""Characters; the first sentence of a command's help is always shorter."""


class WholeLines(click.Group):
    """A group of subcommands: its help does not cut the commands' first sentences to one line, as click does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self.commands[name].get_short_help_str(LONGEST_SENTENCE)) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one if there is none of that name."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            from argosy.cli.mistakes import explain_no_command

            raise explain_no_command(args[0], ctx.command_path, self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def open_session(
    *, verbose: bool = False, quiet: bool = False, plain: bool = False, work: str = "", log: TextIO | None = None
) -> Session:
    """Open a session that reports on standard error.

    Parameters
    ----------
    plain
        Whether to print whole lines on a terminal, too.
    log
        A file that gets every step and every command, independent of `quiet` and `verbose`.
    """
    shown = _reporter(verbose=verbose, quiet=quiet, plain=plain)
    written = PlainReporter(log, verbose=True) if log else None
    listeners = [*([lambda line: click.echo(line, err=True)] if verbose else []), *([written.note] if written else [])]

    def echo(line: str) -> None:
        for listener in listeners:
            listener(line)

    reporter = BothReporters(shown, written) if written else shown
    session = probe.open_session(reporter=reporter, echo=echo if listeners else None, work=work)
    return configure_folders(replace(session, typed=("argosy", *sys.argv[1:])))


@contextmanager
def build_log(path: Path | None) -> Iterator[TextIO | None]:
    """Create a log file; an error that ends the block is its last entry."""
    if path is None:
        yield None
        return
    with translate_os_errors(path.parent), path.open("x", encoding="utf-8") as file:
        try:
            yield file
        except ArgosyError as error:
            file.write(f"argosy: {error}\n")
            raise


def _reporter(*, verbose: bool, quiet: bool, plain: bool) -> Reporter:
    if quiet:
        return QuietReporter()
    if sys.stderr.isatty() and not verbose and not plain:
        from argosy.cli.terminal import TerminalReporter  # rich takes 40 ms to import

        return TerminalReporter()
    return PlainReporter(verbose=verbose)


def report_skipped_profiles(host: Host) -> None:
    """Report the site profiles that cannot be read: their folders of images are missing from a list."""
    from argosy.sites.read import profile_folders, read_sites

    for _ in read_sites(profile_folders(host), lambda error: click.echo(f"skipped: {error}", err=True)):
        pass
