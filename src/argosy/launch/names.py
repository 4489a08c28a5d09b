"""Name a job and its files after the program, and options after their values; pure."""

from __future__ import annotations

import os
import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import require_writable_folder, translate_os_errors
from argosy.jobs.launch_plan import LaunchPlan

LONGEST = 64
"""Most characters of a name that is made of something else."""


def name_of(command: tuple[str, ...]) -> str:
    """Name a job after its program: ``train`` for ``python examples/train.py``, ``python`` for ``python -c TEXT``."""
    words = [word for word in command if not word.startswith("-")]
    is_file = len(words) > 1 and words[0].startswith("python") and "-c" not in command[: command.index(words[1])]
    chosen = words[1] if is_file else (words or command)[0]
    name = chosen.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py")
    return "".join(c if c.isprintable() else "_" for c in name)[:LONGEST] or "job"


def file_name(name: str) -> str:
    """Make a file's name of a job's: Slurm's patterns and slashes in it would be read as such."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:LONGEST] or "job"


def option(name: str) -> str:
    """Give the option of a name: ``--gpu-type`` of ``gpu_type``."""
    return f"--{name.replace('_', '-')}"


def as_pattern(folder: str) -> str:
    """Write a folder's own name so that Slurm fills nothing in."""
    return folder.replace("%", "%%")


PATTERN = re.compile(r"%([\w%])")
"""What Slurm fills in: sbatch(1), filename pattern."""


def make_output_folders(plan: LaunchPlan, user: str) -> None:
    """Make the folders that a job writes its output to: Slurm ends it without a word where it cannot.

    Raises
    ------
    UsageError, CheckFailed
        When nothing can be written there.
    """
    for name, path in _outputs(plan).items():
        if os.path.isdir(path):  # noqa: PTH112 - Path's raises where it is closed
            hint = f"write --{name} {path.rstrip('/')}/%x-%j.out"
            raise UsageError(f"{path} is a folder, and no file", evidence=f"--{name} {path}", hint=hint)
    for folder in output_folders(plan, user):
        with translate_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)  # Slurm ends a job without a word where it is missing
        require_writable_folder(folder)


def _outputs(plan: LaunchPlan) -> dict[str, str]:
    """Give the files that a job writes to, with Slurm's patterns in them, by the option that names them."""
    options = dict(option[2:].partition("=")[::2] for option in plan.directives)
    return {name: options[name] for name in ("output", "error") if options.get(name)}


def output_folders(plan: LaunchPlan, user: str) -> tuple[Path, ...]:
    """Give the folders that the job writes its output to, which must be there when it starts.

    Raises
    ------
    UsageError
        When a name is not known before the job has a number.
    """
    out: list[Path] = []
    known = {"%": "%", "x": plan.name, "u": user}
    for name, path in _outputs(plan).items():
        if path == os.devnull:
            continue
        if "\\" in path:
            raise UsageError(
                "a backslash cannot stand in the path of an output: Slurm drops it, and fills in no %j then",
                evidence=f"--{name} {path}",
                hint=f"say another --{name}, or start from a folder whose name has none",
            )
        folder = str(Path(path).parent)
        if any(letter not in known for letter in PATTERN.findall(folder)):
            raise UsageError(
                "Slurm makes no folders, and this one has no name yet",
                evidence=f"--{name} {path}",
                hint="use %j in the name of the file only; a percent sign itself is written %%",
            )
        out.append(Path(PATTERN.sub(lambda match: known[match[1]], folder)))
    return tuple(out)


def refuse_missing_chdir(plan: LaunchPlan) -> None:
    """Refuse a folder to run in that is not there: Slurm would run the job in /tmp instead, with a line in its log."""
    folder = next((option.partition("=")[2] for option in plan.directives if option.startswith("--chdir=")), "")
    if folder and not Path(folder).is_dir():
        raise UsageError(f"there is no folder {folder} to run in", evidence=f"--chdir {folder}", hint="make it first")
