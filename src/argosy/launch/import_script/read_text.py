"""Read the text of a job script from its file."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.core.shell import quote
from argosy.launch.import_script.model import WIDEST
from argosy.slurm.sbatch_options import DASHES

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
    if first.startswith("\ufeff"):
        hint = f"remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {quote(str(path))}"
        raise UsageError(f"{path} begins with a byte order mark, so sbatch rejects it", hint=hint)
    if b"\0" in data or not SHELL.match(first):
        raise UsageError(
            f"{path} is not a job script of sh or bash",
            evidence="it is a binary file" if b"\0" in data else f"first line: {first[:WIDEST]!r}",
            hint="rewrite it for sh, which begins with #!/bin/sh: Argosy reads no scripts of csh, Python and others",
        )
    text = data.decode(errors="replace")
    _refuse_typographic_dash(path, text)
    return text


def _refuse_typographic_dash(path: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(rf"#SBATCH\s+-?[{DASHES}]+\S*", line):
            raise UsageError(
                f"sbatch rejects line {number} of {path}: the option begins with a typographic dash",
                evidence=f"{path}:{number}: {match[0]}",
                hint="write -- as two hyphens",
            )
