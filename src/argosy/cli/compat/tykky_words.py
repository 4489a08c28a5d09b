"""The command lines of tykky: which options each command has, and what a line says; pure.

Its words: https://github.com/CSCfi/hpc-container-wrapper, ``frontends/*.py``, of versions 0.4 and 0.5.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NoReturn

import msgspec

from argosy.core.errors import UsageError

OURS: Mapping[str, str] = {
    "conda-containerize": "argosy wrap environment.yml --prefix DIR",
    "pip-containerize": "argosy wrap requirements.txt --prefix DIR",
    "wrap-container": "argosy wrap IMAGE -w PATHS --prefix DIR",
    "wrap-install": "argosy wrap FOLDER --prefix DIR",
}
"""Each command, and ours in its place."""

ACTIONS: Mapping[str, Mapping[str, str]] = {
    "conda-containerize": {"new": "FILE", "update": "DIR", "advanced": "YAML"},
    "pip-containerize": {"new": "FILE", "update": "DIR", "advanced": "YAML"},
    "wrap-container": {"": "CONTAINER"},
    "wrap-install": {"": "DIR"},
}
"""What each command does, by its first word where it has several, and what it does that with."""

CONDA, PIP = ("conda-containerize new",), ("pip-containerize new",)
NEW, UPDATE = (*CONDA, *PIP), ("conda-containerize update", "pip-containerize update")
WRAP = ("wrap-container", "wrap-install")

NOTHING_TO_DO: Mapping[str, str] = {
    "mamba": "--mamba: nothing to do: conda packages are solved by a fast solver anyway",
    "uv": "--uv: nothing to do: pip packages are installed by uv anyway",
    "nocache": "--nocache: nothing to do: what was downloaded is checked before it is used again",
}


class Option(msgspec.Struct, frozen=True):
    """An option of tykky.

    Attributes
    ----------
    flags
        Its spellings.
    name
        What `Words` calls it.
    at
        The commands, or command and action, that have it.
    value
        What it takes; empty for a switch.
    """

    flags: tuple[str, ...]
    name: str
    at: tuple[str, ...]
    help: str
    value: str = ""


OPTIONS = (
    Option(("--prefix",), "prefix", (*NEW, *WRAP), "folder to make", "DIR"),
    Option(("--pre-install",), "before", (*NEW, *UPDATE, "wrap-install"), "script to run before installing", "FILE"),
    Option(("--post-install",), "after", (*NEW, *UPDATE, "wrap-install"), "script to run after installing", "FILE"),
    Option(("--environ",), "environ", (*NEW, *UPDATE, *WRAP), "variables to set inside", "FILE"),
    Option(
        ("-w", "--wrapper-paths"),
        "paths",
        (*NEW, *UPDATE, *WRAP),
        "folders and programs inside to wrap",
        "PATH,PATH",
    ),
    Option(
        ("-r", "--requirement", "--requirements-file"),
        "requirements",
        (*CONDA, *UPDATE),
        "packages for pip",
        "FILE",
    ),
    Option(("--pyver",), "python", PIP, "version of Python", "VERSION"),
    Option(("--slim",), "slim", PIP, "over the image python:VERSION-slim"),
    Option(("--system-site-packages",), "system_site_packages", PIP, "not taken over"),
    Option(("--mamba",), "mamba", CONDA, "nothing to do"),
    Option(("--uv",), "uv", NEW, "nothing to do"),
    Option(("--nocache",), "nocache", (*NEW, *UPDATE), "nothing to do"),
    Option(("-y", "--yaml"), "yaml", WRAP, "keys of a tykky configuration", "FILE"),
    Option(("--mask",), "mask", ("wrap-install",), "show it at its original path"),
)
"""Every option of tykky, `--help` apart."""


class Words(msgspec.Struct, frozen=True):
    """What a command line says, whichever command it is; what a command does not have is empty.

    Attributes
    ----------
    action
        ``new``, ``update`` or ``advanced``.
    what
        The file, image, folder or prefix that is named.
    yaml
        A user's configuration.
    """

    program: str
    action: str
    what: str
    prefix: str = ""
    yaml: str = ""
    requirements: str = ""
    environ: str = ""
    paths: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    python: str = ""
    slim: bool = False
    mask: bool = False
    notes: tuple[str, ...] = ()


class Parser(argparse.ArgumentParser):
    """A parser whose errors name our own command."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of leaving."""
        program = self.prog.split()[0]
        raise UsageError(f"{self.prog}: {message}", hint=f"{program} --help; with our own words: {OURS[program]}")


def options_of(program: str, action: str) -> tuple[Option, ...]:
    """Give the options of a command and action."""
    place = f"{program} {action}".strip()
    return tuple(option for option in OPTIONS if place in option.at)


def render_help(program: str) -> str:
    """Render what a command prints that is called without words."""
    return _parser(program).format_help()


def parse_words(program: str, words: list[str]) -> Words:
    """Read a command line; options may be shortened, as tykky's users do.

    Raises
    ------
    UsageError
        For words that tykky does not have, or that we have no word for: what to use.
    """
    given = vars(_parser(program).parse_args(words))
    if given.get("system_site_packages"):
        raise UsageError(
            "--system-site-packages: packages of the host do not go into an image",
            hint="name an image that has them: argosy wrap FILE --base IMAGE --prefix DIR",
        )
    if given.get("uv") and program == "conda-containerize" and not given.get("mamba"):
        raise UsageError("--uv needs --mamba", hint="leave --uv away: pip packages are installed by uv anyway")
    if given.get("paths") == "":
        raise UsageError("-w: an empty word names no path", hint="is a variable of your shell not set?")
    names = Words.__struct_fields__
    taken = {name: value for name, value in given.items() if name in names and value is not None}
    taken["paths"] = tuple(part for part in (given.get("paths") or "").split(",") if part)
    notes = tuple(text for name, text in NOTHING_TO_DO.items() if given.get(name))
    return Words(program=program, notes=notes, **({"action": "new"} | taken))


def _parser(program: str) -> Parser:
    parser = Parser(prog=program, description=f"Answered by Argosy; with its own words: {OURS[program]}")
    actions = ACTIONS[program]
    if "" in actions:
        _add_words(parser, program, "", actions[""])
        return parser
    below = parser.add_subparsers(dest="action", required=True, metavar="|".join(actions))
    for action, what in actions.items():
        _add_words(below.add_parser(action), program, action, what)
    return parser


def _add_words(parser: argparse.ArgumentParser, program: str, action: str, what: str) -> None:
    parser.add_argument("what", metavar=what)
    for option in options_of(program, action):
        if option.value:
            required = option.name == "paths" and program in WRAP
            parser.add_argument(
                *option.flags, dest=option.name, metavar=option.value, help=option.help, required=required
            )
        else:
            parser.add_argument(*option.flags, dest=option.name, help=option.help, action="store_true")
