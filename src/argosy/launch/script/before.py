"""What runs once in the image before the ranks start, as downloads do; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import Word
from argosy.launch.script.helpers import render_call

SHELL = ("/bin/sh", "-e", "-c")


def before_command(lines: tuple[str, ...]) -> tuple[Word, ...]:
    """Give the command that runs lines of shell one after the other, and ends at the first that fails."""
    return (*SHELL, "\n".join(lines), "argosy-before")


def render_before(words: tuple[Word, ...], *, srun: str) -> Iterator[str]:
    """Run the command on the first node, and stop if it fails."""
    yield "# Once per start of the job, on its first node and in the image, before the ranks start."
    yield f"{srun} \\\n" + render_call(words)


def render_before_here(words: tuple[Word, ...]) -> Iterator[str]:
    """Run the command on this machine."""
    yield "# Once, in the image, before the ranks start."
    yield f"run_before \\\n{render_call(words)}"
