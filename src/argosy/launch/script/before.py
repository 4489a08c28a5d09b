"""What runs once in the image before the ranks start, as downloads do; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import Word, render_command

SHELL = ("/bin/sh", "-e", "-c")


def before_command(lines: tuple[str, ...]) -> tuple[Word, ...]:
    """Give the command that runs lines of shell one after the other, and ends at the first that fails."""
    return (*SHELL, "\n".join(lines), "argosy-before")


def render_before(words: tuple[Word, ...], *, srun: str) -> Iterator[str]:
    """Run the command on the first node, and go no further where it fails."""
    yield "# Once per start of the job, on its first node and in the image, before the ranks start."
    yield f"{srun} \\"
    yield render_command(words, indent="    ") + " & step=$!"
    yield 'while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done'
    yield 'step=\'\'; [ "$code" -eq 0 ] || stop "what runs before the ranks failed (code $code)" "$code"'
    yield ""


def render_before_here(words: tuple[Word, ...]) -> Iterator[str]:
    """Run the command on this machine."""
    yield "# Once, in the image, before the ranks start."
    yield render_command(words) + " || {"
    yield '    code=$?; stop "what runs before the ranks failed (code $code)" "$code"'
    yield "}"
