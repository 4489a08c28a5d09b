"""Name a job and its files after the program, and options after their values; pure."""

from __future__ import annotations

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
