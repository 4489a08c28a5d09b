"""Read the text of a job script from its file."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.launch.import_script.model import WIDEST

SHELL = re.compile(r"#!\s*\S*(/env\s+(-\S+\s+)*)?(\S*/)?(ba|da|k|z)?sh\b")
"""First line of a job script."""


def read_script_text(path: Path) -> str:
    """Read the text of a job script.

    Raises
    ------
    UsageError
        When the file cannot be read, or is not a shell script.
    """
    with reading(path):
        data = path.read_bytes()
    first = data.split(b"\n", 1)[0].decode(errors="replace")
    if b"\0" in data or not SHELL.match(first):
        raise UsageError(
            f"{path} is not a job script of a shell",
            evidence="it is a binary file" if b"\0" in data else f"first line: {first[:WIDEST]!r}",
            hint="a job script begins with #!/bin/bash or #!/bin/sh",
        )
    return data.decode(errors="replace")
