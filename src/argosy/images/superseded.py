"""Remove versions of images from the catalog that a newer version replaced, and that nothing refers to any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.session import Session
from argosy.images.cache import job_scripts
from argosy.images.catalog import CatalogImage, list_folders, unlink_images


class SupersededImage(msgspec.Struct, frozen=True):
    """An old version of an image that has a newer one."""

    name: str
    path: str
    bytes: int
    """Size of the file."""
    changed: float
    """Modification time, in seconds since 1970."""
    kept: str = ""
    """Why it is not removed. Empty if it can be removed."""


def list_superseded(since: float, session: Session) -> tuple[SupersededImage, ...]:
    """Return the versions in the user's own folders that are older than `since` and not the newest of their name.

    A version stays if an alias points to it, or if the script of a job that was submitted after `since` names it.
    """
    images = list_folders(session)
    scripts = [(path, text) for path, text, written in job_scripts(session) if written >= since]
    return tuple(
        SupersededImage(str(each.name), str(each.path), each.size, each.changed, _why_kept(each, images, scripts))
        for each in images
        if each.changed < since and _is_replaced(each, images) and _own_folder(each.path, session)
    )


def remove_superseded(since: float, session: Session, *, dry: bool = False) -> tuple[SupersededImage, ...]:
    """Remove the versions that `list_superseded` finds, except those that must stay; return all of them.

    Parameters
    ----------
    dry
        Whether to return them without removing any.
    """
    found = list_superseded(since, session)
    for path in (Path(each.path) for each in found if not each.kept and not dry):
        unlink_images([path], _own_folder(path, session) or path.parent)
    return found


def _own_folder(path: Path, session: Session) -> Path | None:
    """Return the folder of the user that contains an image; None if it belongs to a project or a site."""
    return next((folder for folder in session.paths.images if path.is_relative_to(folder)), None)


def _is_replaced(image: CatalogImage, images: list[CatalogImage]) -> bool:
    """Return whether the folder of an image has a newer version of the same name."""
    newest = max(
        (each.changed for each in images if each.path.parent == image.path.parent and not each.alias_of), default=0.0
    )
    return bool(image.name.tag) and not image.alias_of and image.changed < newest


def _why_kept(image: CatalogImage, images: list[CatalogImage], scripts: list[tuple[str, str]]) -> str:
    return next(_reasons(image, images, scripts), "")


def _reasons(image: CatalogImage, images: list[CatalogImage], scripts: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the reasons to keep an image."""
    target = str(image.path.resolve())
    if image.name.tag == "latest":
        yield f"{image.name.name} alone means it"
    yield from (f"alias {each.name}" for each in images if each.alias_of == target)
    yield from (f"named by {script}" for script, text in scripts if str(image.path) in text or target in text)
