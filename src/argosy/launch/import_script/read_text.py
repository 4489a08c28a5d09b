"""Read the text of a job script from its file."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.launch.import_script.model import WIDEST

SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da|k|mk|z)?sh\b")
"""First line of a job script. The syntax of csh and tcsh is another one."""


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
            f"{path} is not a job script of sh or bash",
            evidence="it is a binary file" if b"\0" in data else f"first line: {first[:WIDEST]!r}",
            hint="rewrite it for sh, which begins with #!/bin/sh: Argosy reads no scripts of csh, Python and others",
        )
    return data.decode(errors="replace")
