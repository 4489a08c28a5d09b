"""Put an image into a registry: as an image of layers for every tool, or as the SIF file itself.

read the image -> an OCI layout of it -> skopeo copies the layout -> the digest that it has there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.output.export import content_of, make_layers
from argosy.builder.output.oci import write_layout, write_sif_layout
from argosy.core.errors import ToolMissing, UsageError
from argosy.core.model import ImageKind
from argosy.core.session import Session, Step
from argosy.core.shell import quote
from argosy.core.store import work_folder
from argosy.images.find import find_image, refined, refuse_layer
from argosy.images.open import Opened, open_image
from argosy.images.registry.fetch import skopeo_options
from argosy.images.registry.references import SLASHED, Reference, Transport, parse_reference
from argosy.images.registry.skopeo import Fault, explain_failure, judge_fault, last_word, plan_manifest, plan_push


class PushReport(msgspec.Struct, frozen=True):
    """What was pushed.

    Attributes
    ----------
    reference
        With the digest that it has in the registry, by which it is fetched again unchanged.
    bytes
        Size of the image file here; what travels is what the registry has not yet.
    """

    image: str
    reference: str
    digest: str
    bytes: int
    seconds: float


def push_image(image: str, target: str, session: Session) -> PushReport:
    """Push an image to ``docker://HOST/NAME:TAG`` or ``oras://HOST/NAME:TAG``.

    Credentials are skopeo's own: those of ``skopeo login``, ``podman login`` or ``docker login``.

    Raises
    ------
    UsageError
        When the target is no place in a registry, or the image has not the form that it wants.
    ToolMissing, ToolFailed, CheckFailed
        When skopeo is not here; the registry cannot be reached, or lets nobody write; the disk is full.
    """
    reference = _target(target)
    if "skopeo" not in session.host.programs:
        raise ToolMissing(
            f"nothing here can push to {reference.registry}", evidence="skopeo: not found", hint="install skopeo"
        )
    opened = refined(open_image(find_image(image, session)), session)
    refuse_layer(opened, session)
    path = Path(opened.image.path)
    if reference.transport is Transport.ORAS and opened.image.kind is not ImageKind.SIF:
        raise UsageError(
            f"{path} is no SIF file",
            evidence=f"{reference.transport}:// takes the file as it is",
            hint=f"push it as an image: argosy images push {quote(image)} {target.replace('oras://', 'docker://', 1)}",
        )
    _refuse_unreachable(reference, session)
    with session.step("push", str(reference)) as step, work_folder(session.work_parent()) as work:
        _write(opened, reference, work, session, step)
        digest = _copy(work, reference, session, step)
        step.result = f"{reference} {digest}"
    pinned = str(reference.pinned_to(digest))
    return PushReport(str(path), pinned, digest, path.stat().st_size, step.seconds)


def _refuse_unreachable(reference: Reference, session: Session) -> None:
    """Ask the registry something before minutes of packing; that it has no such image, or tells nobody, is no fault."""
    command = plan_manifest(reference, skopeo_options(session))
    reply = session.runner.run(command)
    if reply.code != 0 and judge_fault(last_word(reply)) in {Fault.TLS, Fault.NETWORK}:
        raise explain_failure(reference, command, reply, pushing=True)


def _target(text: str) -> Reference:
    reference = parse_reference(text)
    if reference.transport not in SLASHED:
        raise UsageError(
            f"{reference} is no place in a registry",
            hint="give docker://HOST/NAME:TAG or oras://HOST/NAME:TAG; files are written by 'argosy images export'",
        )
    if reference.digest:
        raise UsageError(
            f"{reference} is pinned to a content", hint="push to a tag; the registry tells the digest then"
        )
    return reference


def _write(opened: Opened, reference: Reference, work: Path, session: Session, step: Step) -> None:
    """Write the layout: of the SIF file alone, or of base and layer as layers, which skopeo compresses."""
    layout = work / "layout"
    if reference.transport is Transport.ORAS:
        step.say("digest")
        write_sif_layout(layout, Path(opened.image.path).resolve())
        return
    step.say("layers")
    layers, facts = make_layers(content_of(opened, session), layout / "blobs/sha256", session, work, compress=False)
    write_layout(layout, facts, layers, name="latest")


def _copy(work: Path, reference: Reference, session: Session, step: Step) -> str:
    digest = work / "digest"
    command = plan_push(f"{work / 'layout'}:latest", reference, skopeo_options(session), digest_file=str(digest))
    reply = session.runner.run(command, step.say)
    if reply.code != 0:
        raise explain_failure(reference, command, reply, pushing=True)
    return digest.read_text(encoding="utf-8").strip()
