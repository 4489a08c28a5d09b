"""Options that several commands share, and the session that their stories act with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from argosy.core.errors import ArgosyError
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import BothReporters, PlainReporter, QuietReporter, Reporter, Session
from argosy.host import probe

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Decorated = Callable[..., Any]

LONGEST_SENTENCE = 1000
"""Characters; no first sentence of a command's help is longer."""


class WholeLines(click.Group):
    """A group whose help gives the first sentence of each command whole; click cuts it to what fits into a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's list."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self.commands[name].get_short_help_str(LONGEST_SENTENCE)) for name in names])


class JobGroup(WholeLines):
    """A group beside whose commands people write the number of a job."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that tells of one job."""
        if args and args[0][:1].isdigit() and args[0] not in self.commands:
            ctx.fail(f"{args[0]!r} is no command; of one job tells: argosy jobs show {args[0]}")
        return super().resolve_command(ctx, args)


class NamedPath(click.Path):
    """A path that is not empty: an unset variable of the shell would else mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty word."""
        if value == "":
            self.fail("an empty word names no file or folder; is a variable of your shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class SiteName(click.types.StringParamType):
    """A site: the name of a profile, or a profile's file."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - likewise
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer the names that begin so; files where none does."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - a shell asks for it

        from argosy.sites.read import search_path, site_names  # noqa: PLC0415 - likewise

        names = site_names(search_path(os.environ, Path.cwd()))
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


SITE = SiteName()
NAMED = NamedPath(path_type=Path)
NAMED_TEXT = NamedPath(readable=False)
"""The same as it was written: it may also be an image's reference."""


def open_session(
    *, verbose: bool = False, quiet: bool = False, plain: bool = False, work: str = "", log: TextIO | None = None
) -> Session:
    """Open a session that reports on standard error.

    Parameters
    ----------
    plain
        Write whole lines on a terminal, too.
    log
        A file that gets every step and every command, whatever is shown.
    """
    shown = _reporter(verbose=verbose, quiet=quiet, plain=plain)
    written = PlainReporter(log, verbose=True) if log else None
    hear = [*([lambda line: click.echo(line, err=True)] if verbose else []), *([written.note] if written else [])]

    def echo(line: str) -> None:
        for each in hear:
            each(line)

    reporter = BothReporters(shown, written) if written else shown
    return probe.open_session(reporter=reporter, echo=echo if hear else None, work=work)


@contextmanager
def build_log(path: Path | None) -> Iterator[TextIO | None]:
    """Open a log file that must be new; an error that ends the work is its last words."""
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
        from argosy.cli.terminal import TerminalReporter  # noqa: PLC0415 - rich takes 40 ms to import

        return TerminalReporter()
    return PlainReporter(verbose=verbose)


def print_json(value: object) -> None:
    """Print a report for programs, on standard output."""
    click.echo(json.dumps(value, indent=1, sort_keys=True))
