"""Read the text files that a prefix is made from, and fill in their values."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("templates")


@cache
def read_template(name: str) -> str:
    """Return the text of a template."""
    return (FOLDER / name).read_text(encoding="utf-8")


def fill_template(name: str, /, **values: str) -> str:
    """Return a template with each ``@key@`` replaced by its value, which the caller has quoted for the language."""
    return re.sub(r"@([a-z]+)@", lambda match: values[match[1]], read_template(name))
