"""Read the text of a job script, and refuse what an import cannot translate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.core.shell import quote
from argosy.launch.import_script.model import WIDEST
from argosy.slurm.sbatch import HETEROGENEOUS_HINT
from argosy.slurm.sbatch_options import DASHES
from argosy.slurm.script_reader import JobScript
from argosy.slurm.script_words import plain_text

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


SEPARATOR = re.compile(r"#SBATCH\s+(hetjob|packjob)\b")
"""The line between two components (sbatch(1)); before Slurm 20.02, it was ``packjob``."""

STEP_OPTION = re.compile(r"--(het|pack)-group\b")
"""The option of srun that selects components; a lone ``:`` separates the programs of one step (srun(1))."""


def refuse_heterogeneous(path: str, text: str, script: JobScript) -> None:
    """Refuse a job script whose components have different resources.

    Raises
    ------
    UsageError
        If the script is a heterogeneous job or starts a heterogeneous step.
    """
    for number, line in _components(text, script):
        raise UsageError(
            f"cannot import {path}: it is a heterogeneous job, and Argosy gives all nodes of a job the same resources",
            evidence=f"line {number}: {line}",
            hint=HETEROGENEOUS_HINT,
        )


def _components(text: str, script: JobScript) -> Iterator[tuple[int, str]]:
    """Yield each line that separates or selects components, with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        if SEPARATOR.match(line):
            yield number, line.strip()
    for command in script.commands:
        words = [plain_text(word) or "" for word in command.words]
        if words[:1] == ["srun"] and any(word == ":" or STEP_OPTION.match(word) for word in words):
            yield command.line, command.text.split("\n", 1)[0].rstrip(" \\")
