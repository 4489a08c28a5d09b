"""Find the image that an argument names; fetch or convert it if necessary."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import suggest_file
from argosy.core.parse import parse_path
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.catalog import IMAGE_SUFFIXES, catalog_folders, find_in_catalog, suggest_catalog_name
from argosy.images.identify import READY, identify_file
from argosy.images.prefix import image_of_prefix


def find_image(reference: str, session: Session) -> Path:
    """Return the file or folder of an image; fetch or convert it into the cache first if necessary.

    Parameters
    ----------
    reference
        A file or root file system, ``NAME`` or ``NAME:TAG`` in the catalog, or a reference, for example ``docker://…``.

    Raises
    ------
    UsageError
        If there is no such image. The message suggests the most similar name.
    ArgosyError
        As raised by `fetch_image` and `local_image`.
    """
    if not reference:
        raise UsageError("the image argument is empty", hint="check that the shell variable in it is set")
    path = parse_path(reference)
    if path.exists():
        return _local(path.absolute(), session)
    from argosy.images.registry.references import guess_reference, is_reference, parse_reference  # noqa: PLC0415 - most images are files

    if is_reference(reference):
        from argosy.images.registry.fetch import fetch_image  # noqa: PLC0415 - likewise

        return fetch_image(parse_reference(reference), session).path
    found = find_in_catalog(reference, session)
    if found is not None:
        return found
    meant = _similar_file(path) or suggest_catalog_name(reference, session) or guess_reference(reference)
    raise UsageError(
        f"there is no image {reference!r}",
        evidence=f"not a file, and not in the catalog folders {', '.join(map(str, catalog_folders(session)))}",
        hint=_missing_hint(path, meant, session),
    )


def _missing_hint(path: Path, meant: str, session: Session) -> str:
    """Return the hint for a missing image: the build command if the project file describes the image."""
    from argosy.recipes.project_file import find_project  # noqa: PLC0415 - only for this hint

    project = find_project(Path(session.host.cwd))
    if project and project.output == Path(session.host.cwd, path):
        return f"build it as described in {project.shown}: argosy build"
    if meant:
        return f"did you mean {meant}?"
    plain = re.fullmatch(r"[a-z0-9]+", str(path))
    return f"check the path, or see 'argosy images ls'{f'; in a registry: docker://{path}' if plain else ''}"


def _similar_file(path: Path) -> str:
    """Return the file that a name without suffix, or with a tag, means, else one with a similar name; empty if none."""
    bare = path.with_name(path.name.partition(":")[0]) if path.name else path
    for suffix in ("", *IMAGE_SUFFIXES):
        file = bare.with_name(f"{bare.name}{suffix}") if bare.name else bare
        if file.is_file():
            return quote(str(file))
    return suggest_file(path)


def _local(path: Path, session: Session) -> Path:
    if path.is_dir():
        image = image_of_prefix(path)
        if image is not None:
            return image
    if identify_file(path).kind in READY:
        return path
    from argosy.images.registry.fetch import local_image  # noqa: PLC0415 - most images are SIF files

    return local_image(path, session)
