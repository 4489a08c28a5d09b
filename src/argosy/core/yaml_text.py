"""Read YAML that others wrote: by libyaml where PyYAML was built with it, 20 times faster on long files."""

from __future__ import annotations

import re
from typing import Any

from argosy.core.errors import UsageError

MOST_LEVELS = 1_000
"""libyaml calls itself for each level: at some 30,000 of them the stack is used up, and the process is gone."""

_BRACKETS = re.compile(r"[\[{]|[\]}]")
_DASHES = re.compile(rf"(?m)^ *(?:[-?] +){{{MOST_LEVELS}}}")


def load_yaml(text: str, file: str) -> Any:
    """Parse YAML into plain values.

    Raises
    ------
    UsageError
        When it is none.
    """
    import yaml  # noqa: PLC0415 - 18 modules, which many commands need not

    refuse_deep(text, file)
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{file} is not YAML", evidence=" ".join(str(error).split())[:200]) from error


def refuse_deep(text: str, file: str) -> None:
    """Refuse what is nested so deeply that no person wrote it."""
    level = 0
    for bracket in _BRACKETS.finditer(text):
        level += 1 if bracket[0] in "[{" else -1
        if level > MOST_LEVELS:
            break
    if level > MOST_LEVELS or _DASHES.search(text):
        raise UsageError(f"{file} is not YAML that is meant", evidence=f"more than {MOST_LEVELS} lists in one another")


def scalar_text(value: Any) -> str:
    """Give the text of a single value; nothing for a list or a mapping, which may name itself a billion times."""
    return "" if isinstance(value, list | dict) else str(value)
