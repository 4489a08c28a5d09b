"""Types of arguments and options: how a value is checked, and how a shell completes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from argosy.core.errors import UsageError
from argosy.core.parse import refuse_folder_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Completed(click.types.StringParamType):
    """A text that the shell completes.

    Parameters
    ----------
    kind
        A key of `argosy.cli.complete.COMPLETIONS`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the values that begin with a text."""
        from argosy.cli.complete import complete

        return complete(self.kind, incomplete, ctx.params)


SPANS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}


class Age(click.types.FloatParamType):
    """An age such as ``12h``, ``30d`` or ``8w``, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds.

        Raises
        ------
        UsageError
            If the value is not a number with a unit.
        """
        found = re.fullmatch(r"(\d{1,9})([hdw])", value)
        if found is None:
            option = param.opts[0] if param else "age"
            raise UsageError(f"invalid {option} {value!r}", hint="write a number with h, d or w, for example 30d")
        return int(found[1]) * SPANS[found[2]]


class ProgramArgument(Completed):
    """An argument of the user's command: its bytes are passed on unchanged."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value unchanged."""
        return value


class NamedPath(click.Path):
    """A path that is not empty; an empty one usually comes from an unset shell variable."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty path."""
        if value == "":
            self.fail("the path is empty; check that the shell variable is set", param, ctx)
        return super().convert(value, param, ctx)


class NewFile(NamedPath):
    """The path of a file to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the name of a folder."""
        refuse_folder_name(str(value))
        return super().convert(value, param, ctx)


IMAGE, SITE, JOB, PARTITION = Completed("image"), Completed("site"), Completed("job"), Completed("partition")
KEY, FILE, FOLDER = Completed("key"), Completed("file"), Completed("folder")
COMMAND = ProgramArgument("file")
NAMED = NamedPath(path_type=Path)
NEW_FILE = NewFile(path_type=Path)
REPORT_FILE = NewFile(dir_okay=False, path_type=Path)
PICTURE_FILE = click.Path(dir_okay=False, path_type=Path)
NAMED_TEXT = NamedPath(readable=False)
"""A path as it was written: it may also be the reference of an image."""

BY_NAME = {"site": SITE, "partition": PARTITION, "after": JOB, "base": IMAGE}
BY_METAVAR = {"FILE": FILE, "PATH": FILE, "DIR": FOLDER, "SRC[:DST[:ro]]": FILE}


def text_type(name: str, metavar: str) -> Completed | click.types.StringParamType:
    """Return the type of an option that takes a text, by its name or the name of its value in the help."""
    return BY_NAME.get(name) or BY_METAVAR.get(metavar) or click.types.StringParamType()


AGE = Age()
