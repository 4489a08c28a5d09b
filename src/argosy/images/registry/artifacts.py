"""Fetch SIF files from registries, as ``oras://`` means them: an OCI artifact whose one blob is the file.

The media types are those of Apptainer and SingularityCE (internal/pkg/client/oras in github.com/apptainer/apptainer),
so ``apptainer pull oras://…`` reads what is pushed here, and what ``apptainer push`` wrote is fetched here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec

from argosy.core.errors import ImageError
from argosy.core.session import Session
from argosy.core.store import fill_once, work_folder
from argosy.images.identify import render_size
from argosy.images.registry.references import Reference, Transport
from argosy.images.registry.skopeo import SkopeoOptions, explain_failure, plan_files
from argosy.images.sif.read import verify_sif

IMAGE_NAME = "image.sif"
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
OLD_LAYERS = frozenset({"appliciation/vnd.sylabs.sif.layer.tar", "application/vnd.sylabs.sif.layer.tar"})
"""What versions of Singularity before 3.6 wrote, the first misspelt by them."""

HEX_DIGITS = 64


class SifLayer(msgspec.Struct, frozen=True):
    """The blob of an artifact that is a SIF file: ``sha256:…`` and its size in bytes."""

    digest: str
    size: int


def parse_sif_layer(manifest: str, reference: Reference) -> SifLayer | None:
    """Read the SIF file out of a manifest; None for the manifest of an image made of layers.

    Raises
    ------
    ImageError
        When ``oras://`` was asked for, and there is no SIF file.
    """
    layers = json.loads(manifest).get("layers") or ()
    for layer in layers:
        digest = str(layer.get("digest", ""))
        if layer.get("mediaType") in {SIF_LAYER, *OLD_LAYERS} and _is_digest(digest):
            return SifLayer(digest, int(layer.get("size", 0)))
    if reference.transport is not Transport.ORAS:
        return None
    kinds = sorted({str(layer.get("mediaType", "?")) for layer in layers})
    raise ImageError(
        f"{reference} is no SIF file",
        evidence=f"it holds {', '.join(kinds) or 'images for several machines'}",
        hint=f"if it is an image of Docker's kind, write {str(reference).replace('oras://', 'docker://', 1)}",
    )


def _is_digest(text: str) -> bool:
    digits = text.removeprefix("sha256:")
    return text.startswith("sha256:") and len(digits) == HEX_DIGITS and set(digits) <= set("0123456789abcdef")


def fetch_sif(reference: Reference, chosen: Reference, layer: SifLayer, way: SkopeoOptions, session: Session) -> Path:
    """Give the SIF file of an artifact in the cache, by the digest of its bytes; fetch it where it is not there.

    Raises
    ------
    ArgosyError
        As `explain_failure` says; ImageError when the blob is no whole SIF file.
    """
    name = layer.digest.removeprefix("sha256:")
    place = session.paths.cache / "fetched" / f"sif-{name}"
    with fill_once(place, what=f"fetching {reference}", waiting=session.waiting) as folder:
        if folder is not None:
            what = f"{reference} {render_size(layer.size)}"
            with session.step("fetch", what) as step, work_folder(session.work_parent()) as work:
                command = plan_files(chosen, way, str(work / "files"))
                reply = session.runner.run(command, step.say)
                if reply.code != 0:
                    raise explain_failure(reference, command, reply)
                shutil.move(work / "files" / name, folder / IMAGE_NAME)
                verify_sif(folder / IMAGE_NAME)
                step.result = what
    return place / IMAGE_NAME
