"""Find the image that a word names: a path, a name in the catalog, or a reference that must be fetched first."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import suggest_file
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import atomic_file, refuse_existing
from argosy.images.catalog import catalog_folders, find_in_catalog, new_file, suggest_catalog_name
from argosy.images.identify import Kind, identify_file
from argosy.images.open import open_image
from argosy.images.prefix import image_of_prefix
from argosy.images.registry.references import Reference, guess_reference, is_reference, parse_reference
from argosy.recipes.project_file import find_project

NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""Another disk, or a file system or file that takes no second name: the bytes are copied then."""

READY = frozenset({Kind.SIF, Kind.SQUASHFS, Kind.ROOT_DIRECTORY})
"""What can be entered as it is; anything else is packed into the cache first."""


def find_image(reference: str, session: Session) -> Path:
    """Give the file or folder of an image; what must be fetched or packed first is then in the cache.

    Parameters
    ----------
    reference
        A file or root file system; ``NAME`` or ``NAME:TAG`` of the catalog; ``docker://…`` and its like.

    Raises
    ------
    UsageError
        When there is nothing of that name: the nearest name in the catalog is shown.
    ArgosyError
        As `fetch_image` and `local_image` do.
    """
    if not reference:
        raise UsageError(
            "no image is named", evidence="the word for it is empty", hint="is a shell's variable not set?"
        )
    path = Path(reference).expanduser()
    if path.exists():
        return _local(path.absolute(), session)
    if is_reference(reference):
        return _into_cache(parse_reference(reference), session)
    held = find_in_catalog(reference, session)
    if held is not None:
        return held
    meant = suggest_catalog_name(reference, session) or guess_reference(reference) or suggest_file(path)
    raise UsageError(
        f"there is no image {reference!r}",
        evidence=f"no such file, and none of that name in {', '.join(map(str, catalog_folders(session)))}",
        hint=_missing_hint(path, meant, session),
    )


def _missing_hint(path: Path, meant: str, session: Session) -> str:
    """Say how an image that is not there comes about: by a build, where it is the project's own."""
    project = find_project(Path(session.host.cwd))
    if project and project.output == Path(session.host.cwd, path):
        return f"make it, as {project.shown} says: argosy build"
    return f"did you mean {meant}?" if meant else "check the path, or see 'argosy images ls'"


def _local(path: Path, session: Session) -> Path:
    if path.is_dir():
        image = image_of_prefix(path)
        if image is not None:
            return image
    if identify_file(path).kind in READY:
        return path
    return _into_cache(path, session)


def _into_cache(image: Path | Reference, session: Session) -> Path:
    """Return the file in the cache for an image that must be fetched, or converted from an archive."""
    # This import takes 20 ms of the 100 ms of `argosy run`; most runs name an image that is ready.
    from argosy.images.registry.fetch import fetch_image, local_image  # noqa: PLC0415

    return local_image(image, session) if isinstance(image, Path) else fetch_image(image, session).path


class PullRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy images pull`.

    Attributes
    ----------
    image
        As `argosy run` takes it.
    name
        In the catalog; None takes the name that the reference has.
    output
        A file instead.
    """

    image: str
    name: str | None = None
    output: Path | None = None
    force: bool = False


def pull_image(request: PullRequest, session: Session) -> Path:
    """Fetch an image, or take a file, into the catalog or to a file; give its path.

    Raises
    ------
    ArgosyError
        As `find_image` does; UsageError when something of that name is there already.
    """
    name = guess_name(request.image) if request.name is None else request.name
    wanted = request.output or new_file(name, session)
    refuse_existing(wanted, force=request.force)
    source = find_image(request.image, session)
    if source.is_dir():
        hint = f"pack it first: argosy build requirements.txt --base {quote(str(source))} -o IMAGE"
        raise UsageError(f"{source} is a folder", hint=hint)
    path = wanted if request.output else wanted.with_suffix(wanted.suffix if source.suffix == "" else source.suffix)
    open_image(source)
    with atomic_file(path, force=request.force) as beside:
        _copy(source.resolve(), beside, keep=source.is_relative_to(session.paths.cache))
    return path


def guess_name(image: str) -> str:
    """Give the name that a reference has by itself: ``pytorch:2.9`` of ``docker://nvcr.io/nvidia/pytorch:2.9``."""
    last = image.partition("@")[0].rstrip("/").rpartition("/")[2]
    if "://" in image:
        name, _, tag = last.partition(":")
        return f"{name}:{tag or 'latest'}"
    return Path(last).stem


def _copy(source: Path, target: Path, *, keep: bool) -> None:
    """Give a file another name where it lies in our cache, which nobody writes to; else copy it."""
    if keep:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
        else:
            return
    shutil.copyfile(source, target)
