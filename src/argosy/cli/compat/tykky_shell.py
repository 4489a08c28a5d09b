"""Render the shell code of tykky: the function `tykky`, and the completion of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from argosy.cli.compat.tykky_arguments import ACTIONS, OPTIONS, Option, options_of
from argosy.core.shell import quote

TEMPLATES = Path(__file__).parents[1] / "templates"
ACTIVATE, COMPLETION, FISH = "tykky.sh", "tykky-completion.bash", "tykky.fish"


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


def _fish_option(option: Option) -> str:
    words = []
    for flag in option.flags:
        words += ["-l", flag[2:]] if flag.startswith("--") else ["-s", flag[1:]]
    return " ".join([*words, *(["-r"] if option.value else []), "-d", quote(option.help)])
