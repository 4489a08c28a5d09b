"""Push an image to a registry: as an OCI image for every tool, or as a SIF file.

The image is written as an OCI layout, which skopeo copies to the registry.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from argosy.builder.output.export import content_of, make_layers
from argosy.builder.output.oci import write_layout, write_sif_layout
from argosy.core.errors import ToolMissing, UsageError
from argosy.core.model import ImageKind
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session, Step
from argosy.core.shell import quote
from argosy.core.store import work_folder
from argosy.images.find import open_reference
from argosy.images.open import OpenedImage, refuse_layer
from argosy.images.registry.references import SLASHED, Reference, Transport, parse_reference
from argosy.images.registry.skopeo import (
    RegistryFault,
    classify_fault,
    explain_failure,
    last_message,
    plan_manifest,
    plan_push,
    skopeo_options,
)


class PushReport(msgspec.Struct, frozen=True):
    """Report a push."""

    image: str
    reference: str
    """The reference with the digest in the registry, for a pull of exactly this image."""
    digest: str
    bytes: int
    """Size of the local image file; only blobs that the registry does not have are transferred."""
    seconds: float


def push_image(image: str, target: str, session: Session) -> PushReport:
    """Push an image to ``docker://HOST/NAME:TAG`` or ``oras://HOST/NAME:TAG``.

    The credentials are those of ``skopeo login``, ``podman login`` or ``docker login``.

    Raises
    ------
    UsageError
        If the target is not in a registry, or the image has the wrong format.
    ToolMissing, ToolFailed, CheckFailed
        If skopeo is missing, the registry is unreachable or refuses the push, or the disk is full.
    """
    reference = _target(target)
    if "skopeo" not in session.host.programs:
        raise ToolMissing(
            f"cannot push to {reference.registry}: skopeo is not installed",
            evidence="skopeo: not found",
            hint="install skopeo",
        )
    opened = open_reference(image, session)
    refuse_layer(opened, session)
    path = Path(opened.image.path)
    if reference.transport is Transport.ORAS and opened.image.kind is not ImageKind.SIF:
        raise UsageError(
            f"{path} is not a SIF file",
            evidence=f"{reference.transport}:// transfers a SIF file unchanged",
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
    """Check that the registry is reachable before packing; a missing or hidden image is not an error."""
    command = plan_manifest(reference, skopeo_options(session))
    reply = session.runner.run(command)
    if reply.code != 0 and classify_fault(last_message(reply)) in {
        RegistryFault.SILENT,
        RegistryFault.TLS,
        RegistryFault.NETWORK,
    }:
        raise explain_failure(reference, command, reply, pushing=True)


def _target(text: str) -> Reference:
    reference = parse_reference(text)
    if reference.transport not in SLASHED:
        raise UsageError(
            f"{reference} is not in a registry",
            hint="use docker://HOST/NAME:TAG or oras://HOST/NAME:TAG; to write files, use argosy images export",
        )
    if reference.digest:
        raise UsageError(
            f"cannot push to a digest: {reference}", hint="push to a tag; the registry then reports the digest"
        )
    return reference


def _write(opened: OpenedImage, reference: Reference, work: Path, session: Session, step: Step) -> None:
    """Write the OCI layout: the SIF file, or base and layer as layers, which skopeo compresses."""
    layout = work / "layout"
    if reference.transport is Transport.ORAS:
        step.say("reading the file")
        write_sif_layout(layout, Path(opened.image.path).resolve())
        return
    step.say("packing the layers")
    layers, facts = make_layers(content_of(opened, session), layout / "blobs/sha256", session, work, compress=False)
    write_layout(layout, facts, layers)


COPYING = re.compile(r"Copying (?:blob|config) sha256:([0-9a-f]{12,64})")
"""The line that skopeo prints before it transfers a blob."""


def _copy(work: Path, reference: Reference, session: Session, step: Step) -> str:
    digest = work / "digest"
    command = plan_push(f"{work / 'layout'}:latest", reference, skopeo_options(session), digest_file=str(digest))
    sizes, count = {file.name: file.stat().st_size for file in (work / "layout/blobs/sha256").iterdir()}, 0
    step.say(f"uploading {len(sizes)} blobs")

    def report(line: str) -> None:
        nonlocal count
        if found := COPYING.search(line):
            count += 1
            step.say(f"uploading blob {count} of {len(sizes)}: {render_size(sizes.get(found[1], 0))}")

    reply = session.runner.run(replace(command, joined=True), report)
    if reply.code != 0:
        raise explain_failure(reference, command, reply, pushing=True)
    return digest.read_text(encoding="utf-8").strip()
