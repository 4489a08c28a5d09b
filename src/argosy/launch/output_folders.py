"""The folders of a job's output files, which exist before Slurm starts the job."""

from __future__ import annotations

import os
import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import refuse_unwritable_folder, translate_os_errors
from argosy.jobs.launch_plan import LaunchPlan

PATTERN = re.compile(r"%([\w%])")
"""A pattern that Slurm replaces (sbatch(1), filename pattern)."""


def make_output_folders(plan: LaunchPlan, user: str) -> None:
    """Create the folders of the job's output files: Slurm ends a job without a message if it cannot write them.

    Raises
    ------
    UsageError, CheckFailed
        When nothing can be written there.
    """
    for name, path in _outputs(plan).items():
        if os.path.isdir(path):  # noqa: PTH112 - Path's raises where it is closed
            hint = f"write --{name} {path.rstrip('/')}/%x-%j.out"
            raise UsageError(f"{path} is a folder, not a file", evidence=f"--{name} {path}", hint=hint)
    for folder in output_folders(plan, user):
        with translate_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        refuse_unwritable_folder(folder)


def _outputs(plan: LaunchPlan) -> dict[str, str]:
    """Return the files that a job writes to, with Slurm's patterns in them, by the option that names them."""
    options = dict(option[2:].partition("=")[::2] for option in plan.directives)
    return {name: options[name] for name in ("output", "error") if options.get(name)}


def output_folders(plan: LaunchPlan, user: str) -> tuple[Path, ...]:
    """Return the folders of the job's output files, which must exist when the job starts.

    Raises
    ------
    UsageError
        When the folder's name depends on the job's number.
    """
    out: list[Path] = []
    known = {"%": "%", "x": plan.name, "u": user}
    for name, path in _outputs(plan).items():
        if path == os.devnull:
            continue
        if "\\" in path:
            raise UsageError(
                "the path of an output cannot contain a backslash: Slurm removes it, and then does not replace %j",
                evidence=f"--{name} {path}",
                hint=f"use another --{name}, or start from a folder without a backslash in its path",
            )
        folder = str(Path(path).parent)
        if any(letter not in known for letter in PATTERN.findall(folder)):
            raise UsageError(
                "the folder of the output depends on the job's number, and Slurm creates no folders",
                evidence=f"--{name} {path}",
                hint="use %j in the name of the file only; write %% for a percent sign",
            )
        out.append(Path(PATTERN.sub(lambda match: known[match[1]], folder)))
    return tuple(out)
