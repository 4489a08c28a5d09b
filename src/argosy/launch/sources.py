"""Tell where the words of a request come from, where they are not options of this command; pure."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.launch.naming import option
from argosy.model import Choice
from argosy.records import replace

SAID_AS: Mapping[str, str] = {
    "gpus": "GPUs per node",
    "gpus_per_node": "GPUs per node",
    "cpus_per_rank": "cores per rank",
    "nodes": "nodes",
    "launcher": "launcher",
    "runtime": "runtime",
    "gpu": "gpu",
    "mode": "mode",
    "partition": "partition",
    "image": "image",
    "command": "command",
    "site": "site",
    "signed_by": "signed by",
}
"""Key of a job in the project file -> how plans call the choice that it makes; others are options of that name."""


def with_sources(choices: tuple[Choice, ...], given: Mapping[str, tuple[str, str]]) -> tuple[Choice, ...]:
    """Name the file and line of each value that came from the project file; values that no row tells get one.

    Parameters
    ----------
    given
        Key, or ``env.NAME`` -> value and ``argosy.toml:12``.
    """
    names = {_name(key, choices): (value, source) for key, (value, source) in given.items()}
    told = tuple(
        replace(choice, source=names[choice.what][1])
        if choice.what in names and choice.source in {"option", "default"}
        else choice
        for choice in choices
    )
    missing = set(names) - {choice.what for choice in choices}
    rows = (Choice(what, value, "asked for", source) for what, (value, source) in names.items() if what in missing)
    return (*told, *rows)


def _name(key: str, choices: tuple[Choice, ...]) -> str:
    if key.startswith("env."):
        return key.removeprefix("env.")
    if key == "ranks":
        return "ranks" if any(choice.what == "ranks" for choice in choices) else "ranks per node"
    said = option(key)  # also of what has a name of its own, where it is told as not used
    return said if any(choice.what == said for choice in choices) else SAID_AS.get(key, said)
