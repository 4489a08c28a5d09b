"""Convert images into files of the cache: layers into SIF, SIF artifacts of a registry, tar files into squashfs.

A SIF file in a registry (``oras://``) is an OCI artifact with one blob. The media types are those of Apptainer and
SingularityCE (internal/pkg/client/oras in github.com/apptainer/apptainer), so that ``apptainer pull`` and ``apptainer
push`` work with the same artifacts.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path, PurePosixPath

from argosy.core.cache import fill_once, pin_entry
from argosy.core.children import IDLE
from argosy.core.errors import ImageError
from argosy.core.parse import DIGEST, parse_json
from argosy.core.process import Command, OnLine, Reply
from argosy.core.progress import watch_growth
from argosy.core.render import render_size
from argosy.core.session import Session, Step
from argosy.core.store import remove_path, work_folder
from argosy.core.tool_errors import tool_error
from argosy.images.identify import FileKind, read_tar_names
from argosy.images.oci import (
    OciConfig,
    OciLayer,
    make_readable,
    parse_oci_manifest,
    prepare_rootfs,
    refuse_other_layers,
    render_inspection,
    settle_times,
)
from argosy.images.part_digest import describe_part
from argosy.images.registry.references import Reference, Transport
from argosy.images.registry.skopeo import (
    SkopeoOptions,
    explain_failure,
    last_message,
    plan_copy,
    plan_decompression,
    skopeo_options,
)
from argosy.images.sif.format import INSPECT_NAME
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import plan_json_part, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.pack import pack_tar, run_pack, time_of_file

TAR_NAME = "image.sqsh"
FORMAT = 2
"""Version of the conversion. A new one gets new names in the cache."""
ZSTD = ".tar+zstd"
ROOT_FOLDERS = frozenset({("bin",), ("sbin",), ("etc",), ("usr",), ("lib",)})

IMAGE_NAME = "image.sif"
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
OLD_LAYERS = frozenset({"appliciation/vnd.sylabs.sif.layer.tar", "application/vnd.sylabs.sif.layer.tar"})
"""Media types of Singularity before 3.6; it misspelt the first one."""

CUT = re.compile(rf"unexpected EOF|connection reset|invalid status code from registry 5\d\d|{IDLE} for", re.IGNORECASE)
"""Messages of skopeo about a layer that did not arrive completely."""

PAUSES = (1.0, 5.0)
"""Seconds before each repetition of a copy."""


def parse_sif_layer(manifest: str, reference: Reference) -> OciLayer | None:
    """Return the SIF blob in a manifest; None for the manifest of a container image.

    Raises
    ------
    ImageError
        If the reference is ``oras://`` and the manifest has no SIF blob.
    """
    layers = parse_oci_manifest(manifest, str(reference)).layers or ()
    for layer in layers:
        if layer.media_type in {SIF_LAYER, *OLD_LAYERS} and DIGEST.match(layer.digest):
            return layer
    if reference.transport is not Transport.ORAS:
        return None
    kinds = sorted({layer.media_type or "?" for layer in layers})
    raise ImageError(
        f"{reference} is not a SIF file",
        evidence=f"it contains {', '.join(kinds) or 'images for several architectures'}",
        hint=f"if it is a container image, use {str(reference).replace('oras://', 'docker://', 1)}",
    )


def fetch_sif(
    reference: Reference, chosen: Reference, layer: OciLayer, settings: SkopeoOptions, session: Session
) -> Path:
    """Return the SIF file of an artifact in the cache, by the digest of its bytes; fetch it at the first use.

    Raises
    ------
    ArgosyError
        As returned by `explain_failure`; ImageError if the blob is not a complete SIF file.
    """
    name = layer.digest.removeprefix("sha256:")
    entry = session.paths.cache / "fetched" / f"sif-{name}"
    with fill_once(entry, what=f"fetching {reference}", waiting=session.waiting, shared=True) as folder:
        if folder is not None:
            with (
                session.step("fetch", f"{reference} {render_size(layer.size)}") as step,
                work_folder(session.work_parent()) as work,
            ):
                command = plan_copy(chosen, settings, f"dir:{work}/files")
                with watch_growth(session.meter("downloading", layer.size), work / "files"):
                    run_skopeo(command, reference, session, step.say)
                shutil.move(work / "files" / name, folder / IMAGE_NAME)
                verify_sif(folder / IMAGE_NAME)
    return entry / IMAGE_NAME


def convert_layers(
    reference: Reference,
    chosen: Reference,
    config: OciConfig,
    work: Path,
    out: Path,
    session: Session,
    step: Step,
    size: int,
) -> None:
    """Fetch the layers of an image, unpack them over each other, and pack the tree into a SIF file.

    Parameters
    ----------
    size
        Bytes of the layers; 0 if they are not known.
    """
    step.say("downloading the layers")
    with watch_growth(session.meter("downloading the layers", size), work / "layout"):
        copy_layers(plan_copy(chosen, skopeo_options(session), f"oci:{work}/layout:image"), reference, session)
    refuse_other_layers(config, _manifest_in(work / "layout"), str(reference))
    step.say("unpacking the layers")
    tree = work / "tree"
    with watch_growth(session.meter("unpacking the layers"), tree):
        _unpack(reference, work / "layout", tree, session)
    remove_path(work / "layout")
    prepare_rootfs(tree, config)
    step.say("packing")
    packed = work / "image.sqfs"
    settle_times(tree, config.created)
    run_pack(session, tree, packed, time=config.created, all_root=not session.host.can_mount, keep_times=True)
    remove_path(tree)
    _write(packed, config, out)


def _manifest_in(layout: Path) -> str:
    """Read the manifest of a layout with one image."""
    index = parse_json((layout / "index.json").read_text(encoding="utf-8"))
    digest = str(index["manifests"][0]["digest"])
    return (layout / "blobs" / digest.replace(":", "/")).read_text(encoding="utf-8")


def _unpack(reference: Reference, layout: Path, tree: Path, session: Session) -> None:
    """Unpack the layers over each other. umoci applies whiteouts, opaque folders and hard links."""
    rootless = () if session.host.can_mount else ("--rootless",)
    argv = ("umoci", "raw", "unpack", *rootless, "--image")
    command = Command((*argv, f"{layout}:image", str(tree)))
    reply = session.runner.run(command)
    if reply.code != 0 and ZSTD in reply.stderr:
        remove_path(tree)
        plain = _decompressed(reference, layout, session)
        command = Command((*argv, f"{plain}:image", str(tree)))
        reply = session.runner.run(command)
    if reply.code != 0:
        raise tool_error(command, reply, doing=f"unpacking {reference}", hint="check the free disk space and try again")
    if rootless:
        make_readable(tree)


def _decompressed(reference: Reference, layout: Path, session: Session) -> Path:
    """Return a layout with uncompressed layers.

    umoci 0.4 cannot read zstd, and skopeo decompresses it only while copying to a folder.
    """
    settings, folder, plain = skopeo_options(session), layout / "plain", layout / "again"
    for command in plan_decompression(settings, f"{layout}:image", folder=str(folder), layout=f"{plain}:image"):
        run_skopeo(command, reference, session)
    return plain


def _write(packed: Path, config: OciConfig, out: Path) -> None:
    system = plan_system_part(whole_of(packed), arch=config.arch)
    inspection = plan_json_part(INSPECT_NAME, render_inspection(config).encode())
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{config.digest} {packed.stat().st_size} {FORMAT}")
    write_sif(out, [system, inspection], uuid=identity, time=config.created, arch=config.arch)
    verify_sif(out)


def copy_layers(command: Command, reference: Reference, session: Session) -> None:
    """Copy the layers of an image; continue after a connection was cut in the middle of a layer.

    skopeo 1.9 (Debian 12) repeats requests that fail at their beginning only. A repeated copy skips complete layers.
    """
    for pause in PAUSES if not reference.in_file else ():
        reply = session.runner.run(command)
        if reply.code == 0:
            return
        if not CUT.search(last_message(reply)):
            raise explain_failure(reference, command, reply)
        session.reporter.note(f"{reference.registry} interrupted the transfer; the copy continues")
        time.sleep(pause)
    run_skopeo(command, reference, session)


def run_skopeo(command: Command, reference: Reference, session: Session, on_line: OnLine | None = None) -> Reply:
    """Run skopeo, and explain a failure by the image reference."""
    reply = session.runner.run(command, on_line)
    if reply.code != 0:
        raise explain_failure(reference, command, reply)
    return reply


def pack_root_tar(path: Path, kind: FileKind, session: Session) -> Path:
    """Return the squashfs of a root file system's tar file in the cache; pack it at the first use."""
    refuse_other_tar(path, kind)
    key = hashlib.sha256(f"{file_state(path)} {FORMAT}".encode()).hexdigest()[:32]
    entry = session.paths.cache / "fetched" / f"tar-{key}"
    pin_entry(session.paths.cache, f"fetched/tar-{key}", waiting=session.waiting)
    with fill_once(entry, what=f"packing {path.name}", waiting=session.waiting, shared=True) as folder:
        if folder is not None:
            with session.step("pack", f"{path.name} into the cache, once") as step:
                out = folder / TAR_NAME
                step.say("packing")
                pack_tar(session, path, out, compression=kind.compression, time=time_of_file(path))
    return entry / TAR_NAME


def refuse_other_tar(path: Path, kind: FileKind) -> None:
    """Refuse a tar file without a root file system, for example an archive of sources.

    A tar file whose member names cannot be read is accepted.

    Raises
    ------
    ImageError
        If none of its first files belongs to a root file system.
    """
    names = list(read_tar_names(path, kind.compression))
    if names and not any(PurePosixPath(name.lstrip("/")).parts[:1] in ROOT_FOLDERS for name in names):
        raise ImageError(
            f"{path} does not contain a root file system",
            evidence=f"it begins with {', '.join(names[:3])}; expected bin, etc, usr at its top level",
            hint="pass a tar file of the root folder's content, made with 'tar -C ROOT -cf FILE .'",
        )


def file_state(path: Path) -> str:
    """Return an identity of the state of a file; empty for a missing file, which its reader reports."""
    with suppress(OSError):
        return describe_part(path, 0, 0).identity
    return ""
