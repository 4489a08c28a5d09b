"""Find an image on another machine by its path, or by its name in the catalog of that machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from argosy.core.process import Runner
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join, read_shell
from argosy.core.ssh import run_text
from argosy.images.catalog import parse_catalog_name

FIND = Path(__file__).with_name("scripts") / "find_image.sh"

UNSET = "/unset"
"""The text that replaces a variable without a value. It leads to no catalog."""

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def find_remote_image(runner: Runner, reference: str, path: str, folders: Iterable[str]) -> tuple[str, int] | None:
    """Return the path and the size of an image file on another machine; None if it is missing.

    An alias in the catalog gives the version to which it points now.

    Parameters
    ----------
    reference
        The path or the name, as the user typed it.
    path
        The file that it means there if it is a path.
    folders
        Folders of the catalog there, after the user's own; they may contain variables of that machine.
    """
    name = parse_catalog_name(reference)
    parts = (name.name, name.tag) if name else ("", "")
    words: tuple[Word, ...] = ("find_image", path, *parts, *map(_expand_there, folders))
    size, _, found = run_text(runner, f"{read_shell(FIND)}\n{join(words)}\n").stdout.strip().partition(" ")
    return (found, int(size)) if found else None


def _expand_there(folder: str) -> ShellExpr:
    """Return the path of a folder, in which the shell of the other machine replaces the variables."""
    text, *rest = VARIABLE.split(folder)
    pairs = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return ShellExpr(
        in_double_quotes(text)
        + "".join(f"${{{braced or plain}:-{UNSET}}}{in_double_quotes(after)}" for braced, plain, after in pairs)
    )
