"""Parse the command lines of tykky, and render its shell code: the function `tykky`, and completion.

Source of the options: https://github.com/CSCfi/hpc-container-wrapper, ``frontends/*.py``, of versions 0.4 and 0.5.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from argosy.core.errors import UsageError
from argosy.core.shell import quote

ARGOSY: Mapping[str, str] = {
    "conda-containerize": "argosy wrap environment.yml --prefix DIR",
    "pip-containerize": "argosy wrap requirements.txt --prefix DIR",
    "wrap-container": "argosy wrap IMAGE -w PATHS --prefix DIR",
    "wrap-install": "argosy wrap FOLDER --prefix DIR",
}
"""Command of tykky -> command of Argosy."""

ACTIONS: Mapping[str, Mapping[str, str]] = {
    "conda-containerize": {"new": "FILE", "update": "DIR", "advanced": "YAML"},
    "pip-containerize": {"new": "FILE", "update": "DIR", "advanced": "YAML"},
    "wrap-container": {"": "CONTAINER"},
    "wrap-install": {"": "DIR"},
}
"""Command -> its subcommands (empty if it has none) -> the name of their argument."""

CONDA, PIP = ("conda-containerize new",), ("pip-containerize new",)
NEW, UPDATE = (*CONDA, *PIP), ("conda-containerize update", "pip-containerize update")
WRAP = ("wrap-container", "wrap-install")

NOTHING_TO_DO: Mapping[str, str] = {
    "mamba": "--mamba has no effect: Argosy always uses a fast solver for conda packages",
    "uv": "--uv has no effect: Argosy always installs pip packages with uv",
    "nocache": "--nocache has no effect: Argosy verifies cached files before it uses them",
}
"""Options without effect -> note for the user."""

TEMPLATES = Path(__file__).parents[1] / "templates"
ACTIVATE, COMPLETION, FISH = "tykky.sh", "tykky-completion.bash", "tykky.fish"


class TykkyOption(msgspec.Struct, frozen=True):
    """An option of tykky."""

    flags: tuple[str, ...]
    """Its names on the command line."""
    name: str
    """Field of `Arguments`."""
    at: tuple[str, ...]
    """The commands that have it, each with its subcommand."""
    help: str
    value: str = ""
    """Name of the value in the help; empty for a flag."""


OPTIONS = (
    TykkyOption(("--prefix",), "prefix", (*NEW, *WRAP), "folder to create", "DIR"),
    TykkyOption(
        ("--pre-install",), "before", (*NEW, *UPDATE, "wrap-install"), "script to run before installing", "FILE"
    ),
    TykkyOption(
        ("--post-install",), "after", (*NEW, *UPDATE, "wrap-install"), "script to run after installing", "FILE"
    ),
    TykkyOption(("--environ",), "environ", (*NEW, *UPDATE, *WRAP), "file of variables to set in the container", "FILE"),
    TykkyOption(
        ("-w", "--wrapper-paths"),
        "paths",
        (*NEW, *UPDATE, *WRAP),
        "folders and programs of the container to wrap",
        "PATH,PATH",
    ),
    TykkyOption(
        ("-r", "--requirement", "--requirements-file"), "requirements", (*CONDA, *UPDATE), "packages for pip", "FILE"
    ),
    TykkyOption(("--pyver",), "python", PIP, "version of Python", "VERSION"),
    TykkyOption(("--slim",), "slim", PIP, "use the base image python:VERSION-slim"),
    TykkyOption(("--system-site-packages",), "system_site_packages", PIP, "not supported"),
    TykkyOption(("--mamba",), "mamba", CONDA, "no effect"),
    TykkyOption(("--uv",), "uv", NEW, "no effect"),
    TykkyOption(("--nocache",), "nocache", (*NEW, *UPDATE), "no effect"),
    TykkyOption(("-y", "--yaml"), "yaml", WRAP, "configuration file of tykky", "FILE"),
    TykkyOption(("--mask",), "mask", ("wrap-install",), "mount it at its original path"),
)
"""Every option of tykky except `--help`."""


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of a command line; fields that the command does not have are empty."""

    program: str
    action: str
    """``new``, ``update`` or ``advanced``."""
    what: str
    """The file, image, folder or prefix."""
    prefix: str = ""
    yaml: str = ""
    """The user's configuration file."""
    requirements: str = ""
    environ: str = ""
    paths: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    python: str = ""
    slim: bool = False
    mask: bool = False
    notes: tuple[str, ...] = ()
    """Notes about options without effect."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the command of Argosy."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` instead of exiting."""
        program = self.prog.split()[0]
        raise UsageError(f"{self.prog}: {message}", hint=f"see '{program} --help', or use {ARGOSY[program]}")


def options_of(program: str, action: str) -> tuple[TykkyOption, ...]:
    """Return the options of a command and subcommand."""
    command = f"{program} {action}".strip()
    return tuple(option for option in OPTIONS if command in option.at)


def render_help(program: str) -> str:
    """Return the help of a command, which it also prints without arguments."""
    return _parser(program).format_help()


def parse_arguments(program: str, words: list[str]) -> Arguments:
    """Parse a command line; options may be abbreviated, as in tykky.

    Raises
    ------
    UsageError
        If tykky does not have an option, or Argosy does not support it.
    """
    given = vars(_parser(program).parse_args(words))
    if given.get("system_site_packages"):
        raise UsageError(
            "--system-site-packages is not supported: packages of the host are not in the image",
            hint="use a base image that contains them: argosy wrap FILE --base IMAGE --prefix DIR",
        )
    if given.get("uv") and program == "conda-containerize" and not given.get("mamba"):
        raise UsageError("--uv needs --mamba", hint="omit --uv: Argosy always installs pip packages with uv")
    if given.get("paths") == "":
        raise UsageError("-w: the path is empty", hint="check that the shell variable is set")
    names = Arguments.__struct_fields__
    taken = {name: value for name, value in given.items() if name in names and value is not None}
    taken["paths"] = tuple(part for part in (given.get("paths") or "").split(",") if part)
    notes = tuple(text for name, text in NOTHING_TO_DO.items() if given.get(name))
    return Arguments(program=program, notes=notes, **({"action": "new"} | taken))


def _parser(program: str) -> Parser:
    parser = Parser(prog=program, description=f"Argosy provides this command; its own form is: {ARGOSY[program]}")
    actions = ACTIONS[program]
    if "" in actions:
        _add_arguments(parser, program, "", actions[""])
        return parser
    below = parser.add_subparsers(dest="action", required=True, metavar="|".join(actions))
    for action, what in actions.items():
        _add_arguments(below.add_parser(action), program, action, what)
    return parser


def _add_arguments(parser: argparse.ArgumentParser, program: str, action: str, what: str) -> None:
    parser.add_argument("what", metavar=what)
    for option in options_of(program, action):
        if option.value:
            required = option.name == "paths" and program in WRAP
            parser.add_argument(
                *option.flags, dest=option.name, metavar=option.value, help=option.help, required=required
            )
        else:
            parser.add_argument(*option.flags, dest=option.name, help=option.help, action="store_true")


def render_files(folder: str) -> dict[str, str]:
    """Render the files that are installed next to tykky's commands: name -> text.

    Parameters
    ----------
    folder
        Absolute path of their folder.
    """
    return {
        ACTIVATE: _fill(ACTIVATE, {"completion": quote(f"{folder}/{COMPLETION}")}),
        COMPLETION: _fill(COMPLETION, _completion_values()),
        FISH: _fill(FISH, {"options": "\n".join(_fish_rows())}),
    }


def _fill(name: str, values: Mapping[str, str]) -> str:
    """Return a template with ``@key@`` replaced by the value of the key."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _completion_values() -> dict[str, str]:
    """Return the parts of the completion for bash and zsh that depend on the options."""
    cases = [
        f"    {program}:{action or '*'}) words={quote(_flags(program, action))} ;;"
        for program, actions in ACTIONS.items()
        for action in actions
    ]
    programs = [program for program, actions in ACTIONS.items() if "" not in actions]
    return {
        "cases": "\n".join(cases),
        "valued": "|".join(flag for option in OPTIONS if option.value for flag in option.flags),
        "programs": "|1:".join(programs),
        "actions": " ".join(ACTIONS[programs[0]]),
        "commands": " ".join(ACTIONS),
    }


def _flags(program: str, action: str) -> str:
    return " ".join([*(flag for option in options_of(program, action) for flag in option.flags), "--help"])


def _fish_rows() -> list[str]:
    """Return the lines that complete the options of tykky's commands in fish."""
    rows = []
    for program, actions in ACTIONS.items():
        if "" not in actions:
            rows.append(f"complete -c {program} -n __fish_use_subcommand -x -a {quote(' '.join(actions))}")
        for action in actions:
            where = f" -n {quote(f'__fish_seen_subcommand_from {action}')}" if action else ""
            rows += [f"complete -c {program}{where} {_fish_option(option)}" for option in options_of(program, action)]
    return rows


def _fish_option(option: TykkyOption) -> str:
    words = []
    for flag in option.flags:
        words += ["-l", flag[2:]] if flag.startswith("--") else ["-s", flag[1:]]
    return " ".join([*words, *(["-r"] if option.value else []), "-d", quote(option.help)])
