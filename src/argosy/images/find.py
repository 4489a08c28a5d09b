"""Find the image that an argument names, fetch it if necessary, and pull it into the catalog."""

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
from argosy.images.identify import READY, identify_file
from argosy.images.open import open_image
from argosy.images.prefix import image_of_prefix
from argosy.images.registry.fetch import fetch_image, local_image
from argosy.images.registry.references import guess_reference, is_reference, parse_reference
from argosy.recipes.project_file import find_project

NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""Errors of link(2) across disks, or on file systems and files without hard links. The file is copied then."""


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
    path = Path(reference).expanduser()
    if path.exists():
        return _local(path.absolute(), session)
    if is_reference(reference):
        return fetch_image(parse_reference(reference), session).path
    found = find_in_catalog(reference, session)
    if found is not None:
        return found
    meant = suggest_catalog_name(reference, session) or guess_reference(reference) or suggest_file(path)
    raise UsageError(
        f"there is no image {reference!r}",
        evidence=f"not a file, and not in the catalog folders {', '.join(map(str, catalog_folders(session)))}",
        hint=_missing_hint(path, meant, session),
    )


def _missing_hint(path: Path, meant: str, session: Session) -> str:
    """Return the hint for a missing image: the build command if the project file describes the image."""
    project = find_project(Path(session.host.cwd))
    if project and project.output == Path(session.host.cwd, path):
        return f"build it as described in {project.shown}: argosy build"
    if meant:
        return f"did you mean {meant}?"
    jobs = "" if project or path.suffix else "; jobs have names only in a folder with argosy.toml: argosy init"
    return f"check the path, or see 'argosy images ls'{jobs}"


def _local(path: Path, session: Session) -> Path:
    if path.is_dir():
        image = image_of_prefix(path)
        if image is not None:
            return image
    if identify_file(path).kind in READY:
        return path
    return local_image(path, session)


class PullRequest(msgspec.Struct, frozen=True):
    """The arguments of `argosy images pull`.

    Attributes
    ----------
    image
        An image as `argosy run` accepts it.
    name
        Name in the catalog; None uses the name in the reference.
    output
        File to write instead of a catalog entry.
    """

    image: str
    name: str | None = None
    output: Path | None = None
    force: bool = False


def pull_image(request: PullRequest, session: Session) -> Path:
    """Fetch or copy an image into the catalog or to a file, and return its path.

    Raises
    ------
    ArgosyError
        As raised by `find_image`; UsageError if the target exists.
    """
    name = guess_name(request.image) if request.name is None else request.name
    wanted = request.output or new_file(name, session)
    refuse_existing(wanted, force=request.force)
    source = find_image(request.image, session)
    if source.is_dir():
        hint = f"pack it first: argosy build requirements.txt --base {quote(str(source))} -o IMAGE"
        raise UsageError(f"cannot copy {source}: it is a folder", hint=hint)
    path = wanted if request.output else wanted.with_suffix(wanted.suffix if source.suffix == "" else source.suffix)
    open_image(source)
    with atomic_file(path, force=request.force) as beside:
        _copy(source.resolve(), beside, keep=source.is_relative_to(session.paths.cache))
    return path


def guess_name(image: str) -> str:
    """Return the catalog name for a reference: ``pytorch:2.9`` for ``docker://nvcr.io/nvidia/pytorch:2.9``."""
    last = image.partition("@")[0].rstrip("/").rpartition("/")[2]
    if "://" in image:
        name, _, tag = last.partition(":")
        return f"{name}:{tag or 'latest'}"
    return Path(last).stem


def _copy(source: Path, target: Path, *, keep: bool) -> None:
    """Hard-link a file of the cache, which nobody writes to; copy any other file."""
    if keep:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
        else:
            return
    shutil.copyfile(source, target)
