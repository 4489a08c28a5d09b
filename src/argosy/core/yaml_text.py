"""Parse YAML from users; uses libyaml if PyYAML was built with it, which is 20 times faster on long files."""

from __future__ import annotations

import re
from typing import Any

from argosy.core.errors import UsageError

MOST_LEVELS = 1_000
"""libyaml recurses for each level; at about 30,000 levels it overflows the stack and the process crashes."""

_BRACKETS = re.compile(r"[\[{]|[\]}]")
_DASHES = re.compile(rf"(?m)^ *(?:[-?] +){{{MOST_LEVELS}}}")


def load_yaml(text: str, file: str) -> Any:
    """Parse YAML into plain values.

    Raises
    ------
    UsageError
        If it is not valid YAML.
    """
    import yaml  # noqa: PLC0415 - it takes 10 ms, and a launch reads no YAML

    refuse_deep(text, file)
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(
            f"{file} is not valid YAML", evidence=" ".join(str(error).split())[:200], hint="correct the line"
        ) from error


def refuse_deep(text: str, file: str) -> None:
    """Raise `UsageError` for YAML that is nested too deeply for libyaml."""
    level = 0
    for bracket in _BRACKETS.finditer(text):
        level += 1 if bracket[0] in "[{" else -1
        if level > MOST_LEVELS:
            break
    if level > MOST_LEVELS or _DASHES.search(text):
        raise UsageError(
            f"{file} is nested too deeply",
            evidence=f"more than {MOST_LEVELS} levels",
            hint="check the indentation and the brackets",
        )


def scalar_text(value: Any) -> str:
    """Return the text of a scalar; empty for a list or a mapping, whose text may be huge because of aliases."""
    return "" if isinstance(value, list | dict) else str(value)
