"""From a user's words to what is wrapped: files to build from, or an image; it reads what is needed to tell."""

from __future__ import annotations

from pathlib import Path

from argosy.errors import UsageError
from argosy.images.identify import Kind, identify_file
from argosy.refusals import explained
from argosy.wrap.plan import parse_environ
from argosy.wrap.records import Recipe, SourceKind

FILES = frozenset({Kind.TEXT, Kind.EMPTY})


def plan_recipe(
    sources: tuple[str, ...], base: str, *, copy: bool, flatten: bool, cuda: str, asked_base: bool
) -> Recipe:
    """Tell what the sources are.

    Raises
    ------
    UsageError
        When files and an image are mixed, or an option does not belong to what is wrapped.
    """
    kinds = {identify_file(Path(source).expanduser()).kind in FILES for source in sources}
    if kinds == {True}:
        files = tuple(str(Path(source).expanduser().absolute()) for source in sources)
        return Recipe(SourceKind.FILES, files, base=base, flatten=flatten, cuda=cuda)
    if len(sources) > 1:
        raise UsageError(
            "one image can be wrapped, or environment files",
            evidence=", ".join(f"{each}: {identify_file(Path(each)).description}" for each in sources),
            hint="to add packages to an image: argosy wrap FILE --base IMAGE",
        )
    if asked_base:
        raise UsageError("--base belongs to environment files", hint=f"leave it away: {sources[0]} is wrapped as it is")
    path = Path(sources[0]).expanduser()
    return Recipe(SourceKind.IMAGE, (str(path.absolute()) if path.exists() else sources[0],), copy=copy)


def read_environ(path: Path) -> tuple[tuple[str, str], ...]:
    """Read a file of variables.

    Raises
    ------
    UsageError
        When there is none, or a line has no fixed value.
    """
    with explained(path.parent):
        return parse_environ(path.read_text(), str(path))
