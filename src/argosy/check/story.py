"""Check an image for a site: open it, start it once where this machine can, judge what it holds."""

from __future__ import annotations

from pathlib import Path

from argosy.check.judging import BAD, OK, UNKNOWN, Finding, judge_image
from argosy.check.looking import Contents, look_into
from argosy.entering import enter
from argosy.errors import ArgosyError, ToolMissing, UsageError
from argosy.images.finding import find_image
from argosy.images.opening import Opened, open_image
from argosy.images.squashfs import read_superblock
from argosy.launch.grounds import find_site
from argosy.model import ContainerRequest, GpuWay, Image, ImageKind
from argosy.session import Session
from argosy.sites import Site


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
    opened = open_image(find_image(reference, session))
    image = opened.image
    judged = judge_image(image, _compressors(image), _contents(session, reference), profile)
    return (*judged, *_signature(opened, profile, session))


def _signature(opened: Opened, site: Site, session: Session) -> tuple[Finding, ...]:
    """Judge who signed an image, where the site asks for it."""
    if not site.images.signed_by:
        return ()
    from argosy.images.signing import find_signers  # noqa: PLC0415 - few sites ask for it

    path, programs = opened.image.path, session.host.programs
    try:
        signer = find_signers(opened.sif, path, site.images.signed_by, session.runner, programs)[0]
    except ToolMissing as error:
        return (Finding("signature", UNKNOWN, error.what, error.hint),)
    except ArgosyError as error:
        return (Finding("signature", BAD, f"{error.what}; {'; '.join(error.evidence.splitlines())}", error.hint),)
    return (Finding("signature", OK, f"{signer.name}, {signer.fingerprint}"),)


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
