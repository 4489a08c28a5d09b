"""Check an image for a site: open it, start it once where this machine can, judge what it holds."""

from __future__ import annotations

from pathlib import Path

from argosy.check.judging import Finding, judge_image
from argosy.check.looking import Contents, look_into
from argosy.entering import enter
from argosy.errors import ArgosyError, UsageError
from argosy.images.finding import find_image
from argosy.images.opening import open_image
from argosy.images.squashfs import read_superblock
from argosy.launch.story import find_site
from argosy.model import ContainerRequest, GpuWay, Image, ImageKind
from argosy.session import Session


def check_image(session: Session, reference: str, site: str) -> tuple[Finding, ...]:
    """Check an image; nothing is submitted, and no GPU is needed.

    Raises
    ------
    ArgosyError
        When there is no such image or site.
    """
    profile = find_site(site, session.host)
    if "://" in reference:
        raise UsageError(f"{reference} is not here", hint="fetch it first: argosy images pull, or argosy build over it")
    image = open_image(find_image(reference, session)).image
    return judge_image(image, _compressors(image), _contents(session, reference), profile)


def _compressors(image: Image) -> tuple[str, ...]:
    if image.kind is ImageKind.TREE:
        return ()
    offsets = [offset for offset in (image.base_offset, image.layer_offset) if offset >= 0]
    return tuple(read_superblock(Path(image.path), offset).compressor for offset in offsets)


def _contents(session: Session, reference: str) -> Contents | None:
    """Start the image here; None, with the reason told, where this machine cannot."""
    try:
        plan = enter(ContainerRequest(gpu=GpuWay.NONE, workdir="/"), reference, session)
        return look_into(plan, session)
    except ArgosyError as error:
        session.reporter.note(f"the image was not started here: {error.what}")
        return None
