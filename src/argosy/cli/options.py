"""Make the options of the command line from the rows of a table, and show them in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from click.core import ParameterSource

from argosy.cli.parameters import NAMED, SITE, text_type
from argosy.core.errors import UsageError
from argosy.recipes.option_row import CONTAINER, GROUPS, Row, is_list, option_name, rows, types

Decorated = Callable[..., Any]

RUN_MODE, GENERAL = "Execution", "General"
GROUP_ORDER = (*GROUPS, RUN_MODE, GENERAL)


class GroupedOption(click.Option):
    """An option with a group in the help, and synonyms that are accepted but not shown."""

    def __init__(self, *args: Any, group: str = GENERAL, synonyms: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.synonyms = synonyms

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value; refuse an empty one, which usually comes from an unset shell variable."""
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE and "" in (value if self.multiple else (value,)):
            name = next(each for each in self.opts if each.startswith("--"))
            raise UsageError(f"the value of {name} is empty", hint="check that the shell variable is set")
        return value, source

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; refuse ``=x``, the value of ``-A=x`` as in getopt, and ``--`` after a missing value."""
        if isinstance(value, str) and value.startswith("="):
            raise click.BadParameter(f"{value!r} begins with '='", ctx, self)
        if value and "--" in (value if self.multiple else (value,)):
            raise click.BadParameter("'--' is not a value", ctx, self)
        return super().type_cast_value(ctx, value)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help without the synonyms."""
        with self._without_synonyms():
            return super().get_help_record(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the option's name in errors, without the synonyms."""
        with self._without_synonyms():
            return super().get_error_hint(ctx)

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return click's additions to the help text, without the range of a number."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra

    @contextmanager
    def _without_synonyms(self) -> Iterator[None]:
        every = self.opts
        self.opts = [name for name in every if name not in self.synonyms]
        try:
            yield
        finally:
            self.opts = every


class GroupedCommand(click.Command):
    """A command whose help shows the options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section for each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUP_ORDER}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups[getattr(parameter, "group", GENERAL)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class RunCommand(GroupedCommand):
    """A command whose options end at COMMAND: ``argosy run IMAGE python -c …`` needs no ``--``, as in Apptainer."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``--`` before COMMAND, the second argument that is not an option."""
        options = (each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.is_flag)
        valued = {name for each in options for name in each.opts}
        at, has_image = 0, False
        while at < len(args) and args[at] != "--":
            if args[at].startswith("-"):
                at += 2 if args[at] in valued else 1
            elif has_image:
                args = [*args[:at], "--", *args[at:]]
            else:
                at, has_image = at + 1, True
        return super().parse_args(ctx, args)


def table_options(table: Any, *names: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds the options of a table to a command.

    Parameters
    ----------
    names
        Options to add. Default: all options of the table.
    """
    kinds = types(table)
    chosen = {name: row for name, row in rows(table).items() if not names or name in names}
    return add_options(*(_option(name, row, kinds[name]) for name, row in chosen.items()))


def add_options(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds several options; the help shows them in this order."""

    def add(command: Decorated) -> Decorated:
        for each in reversed(options):
            command = each(command)
        return command

    return add


def _option(name: str, row: Row, kind: Any) -> Callable[[Decorated], Decorated]:
    names = (*filter(None, (row.short,)), option_name(name), *row.synonyms, name)
    form = {"synonyms": row.synonyms, "help": row.help, "metavar": row.metavar or None, **_form(name, row, kind)}
    return option(*names, group=row.group, **form)


def _form(name: str, row: Row, kind: Any) -> dict[str, Any]:
    if kind is bool:
        return {"is_flag": True}
    if row.bare:
        default = 0 if isinstance(row.bare, int) else ""
        return {"is_flag": False, "flag_value": row.bare, "default": default, "type": type(row.bare)}
    if is_list(kind):
        return {"multiple": True, "type": text_type(name, row.metavar)}
    if kind is not int and not row.choices and row.kind != "file":
        return {"default": "", "type": text_type(name, row.metavar)}
    plain = click.IntRange(min=1) if kind is int else click.Choice(row.choices) if row.choices else NAMED
    return {"type": plain, "default": None}


def option(*names: str, group: str = GENERAL, **form: Any) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds one option of a group."""
    return click.option(*names, cls=GroupedOption, group=group, **form)


def site_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds ``--site``, with this help."""
    return click.option("--site", type=SITE, default="", metavar="NAME", help=text)


with_option = option(
    "--with", "packages", group=CONTAINER, multiple=True, metavar="PKG",
    help="Add a Python package for this start; repeatable. Packages of the image keep their versions. [uv: --with]",
)  # fmt: skip
json_option = option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
verbose_option = option("-v", "--verbose", is_flag=True, help="Show the commands that Argosy starts.")
quiet_option = option("-q", "--quiet", is_flag=True, help="Print only errors.")
force_option = option("--force", is_flag=True, help="Replace the output if it exists.")
work_dir_option = option(
    "--work-dir", default="", type=text_type("", "DIR"), metavar="DIR",
    help="Folder for temporary files. Default: TMPDIR or the cache.",
)  # fmt: skip
report_options = add_options(json_option, verbose_option, quiet_option)
"""Options of the commands that work for a while and report at the end."""
