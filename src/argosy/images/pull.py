"""Pull an image into the catalog or to a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import atomic_file, editing, link_or_copy, refuse_existing
from argosy.images.catalog import new_file, other_files, with_image_suffix
from argosy.images.find import fetch_or_find_image
from argosy.images.formats import OutputFormat, refuse_suffix
from argosy.images.identify import Kind, identify_file
from argosy.images.open import open_image


class PullRequest(msgspec.Struct, frozen=True):
    """The arguments of `argosy images pull`."""

    image: str
    """An image as `argosy run` accepts it."""
    name: str | None = None
    """Name in the catalog; None uses the name in the reference."""
    output: Path | None = None
    """File to write instead of a catalog entry."""
    force: bool = False


def pull_image(request: PullRequest, session: Session) -> tuple[Path, int]:
    """Fetch or copy an image into the catalog or to a file, and return its path and size in bytes.

    Raises
    ------
    ArgosyError
        As raised by `fetch_or_find_image`; UsageError if the target exists.
    """
    name = guess_name(request.image) if request.name is None else request.name
    wanted = request.output or new_file(name, session)
    replaced = () if request.output else (wanted, *other_files(wanted))
    for file in replaced or (wanted,):
        refuse_existing(file, force=request.force)
    source = fetch_or_find_image(request.image, session)
    if source.is_dir():
        hint = f"pack it first: argosy build requirements.txt --base {quote(str(source))} -o IMAGE"
        raise UsageError(f"cannot copy {source}: it is a folder", hint=hint)
    if request.output:
        squashfs = identify_file(source).kind is Kind.SQUASHFS
        refuse_suffix(request.output, OutputFormat.SQSH if squashfs else OutputFormat.SIF)
    path = wanted if request.output else with_image_suffix(wanted, source.suffix)
    open_image(source)
    with editing(path, waiting=session.waiting), atomic_file(path, force=request.force) as beside:
        if source.is_relative_to(session.paths.cache):
            link_or_copy(source.resolve(), beside)
        else:
            shutil.copyfile(source, beside)
        size = beside.stat().st_size
    for file in replaced:
        if file != path:
            file.unlink(missing_ok=True)
    return path, size


def guess_name(image: str) -> str:
    """Return the catalog name for a reference: ``pytorch:2.9`` for ``docker://nvcr.io/nvidia/pytorch:2.9``."""
    last = image.partition("@")[0].rstrip("/").rpartition("/")[2]
    if "://" in image:
        name, _, tag = last.partition(":")
        return f"{name}:{tag or 'latest'}"
    return Path(last).stem
