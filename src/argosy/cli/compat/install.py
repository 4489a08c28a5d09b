"""Command lines of other tools that Argosy answers: their words in, a request of ours out; no behaviour lives here.

One module per tool, with a pure function from its words to a request, and one row of `PROGRAMS` per command it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from argosy.core.shell import quote


class ShellFunction(msgspec.Struct, frozen=True):
    """A command of another tool.

    Attributes
    ----------
    tool
        Whose command it is: a tool's commands are installed together.
    entry
        Where the command line that answers it is: ``module:name``.
    what
        What it does, in a line.
    """

    tool: str
    entry: str
    what: str


PROGRAMS: Mapping[str, ShellFunction] = MappingProxyType(
    {
        "cotainr": ShellFunction("cotainr", "argosy.cli.cmd_cotainr:cotainr", "cotainr build, cotainr info"),
        "conda-containerize": ShellFunction(
            "tykky", "argosy.cli.cmd_tykky:conda_containerize", "conda-containerize new, update, advanced"
        ),
        "pip-containerize": ShellFunction(
            "tykky", "argosy.cli.cmd_tykky:pip_containerize", "pip-containerize new, update, advanced"
        ),
        "wrap-container": ShellFunction("tykky", "argosy.cli.cmd_tykky:wrap_container", "wrap commands of an image"),
        "wrap-install": ShellFunction("tykky", "argosy.cli.cmd_tykky:wrap_install", "wrap an installation on disk"),
    }
)
"""The name that users type -> what answers it."""


def programs_of(tools: tuple[str, ...]) -> tuple[str, ...]:
    """Give the commands of some tools; of all, where none is named."""
    return tuple(name for name, program in PROGRAMS.items() if not tools or program.tool in tools)


def tools() -> tuple[str, ...]:
    """Give the tools whose commands are answered."""
    return tuple(dict.fromkeys(program.tool for program in PROGRAMS.values()))


def render_program(name: str, python: str) -> str:
    """Render the file of a command, as `argosy compat install` puts it into a folder of PATH.

    Parameters
    ----------
    python
        The Python that has Argosy.
    """
    return f"""\
#!/bin/sh
# The command line of {PROGRAMS[name].tool}, answered by Argosy; made by 'argosy compat install'.
exec {quote(python)} -P -m argosy.cli compat run {quote(name)} "$@"
"""
