"""Write OCI images and Docker archives; the same content gives the same bytes.

::

    base tree   ──tar──> layer 1 ─┐
    layer tree  ──tar──> layer 2 ─┼─> configuration ──> manifest ──> oci-layout, one tar of it, or Docker's archive
    environment ──────────────────┘

Images with the same base share its layer in a registry.  Names in the second layer follow the base's symbolic links
(``/opt -> /usr/opt``), because a folder would replace the link.  OCI image specification 1.0; Docker's archive as
``docker save`` of Docker 1.10 and later writes it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from argosy.builder.output.assemble import follow_inside
from argosy.core.store import digest_of_file
from argosy.images.registry.convert import SIF_LAYER

GZIP_LEVEL = 1
"""Compression dominates the time: level 6 takes three times as long and saves a tenth of the size."""

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
SIF_CONFIG = "application/vnd.sylabs.sif.config.v1+json"
LAYOUT = {"imageLayoutVersion": "1.0.0"}
WHITEOUT = ".wh."
"""Prefix of the name of a whiteout, which marks a file of a lower layer as removed (OCI specification, layer.md)."""

REF_NAME = "org.opencontainers.image.ref.name"
TITLE = "org.opencontainers.image.title"


class Blob(msgspec.Struct, frozen=True):
    """A file of a layout, whose name is its digest."""

    digest: str
    size: int
    path: Path

    @property
    def hex(self) -> str:
        """The digest's digits."""
        return self.digest.removeprefix("sha256:")


class Layer(msgspec.Struct, frozen=True):
    """A layer: its blob, and the digest of its uncompressed tar file."""

    blob: Blob
    diff_id: str
    compressed: bool
    made_by: str


class ImageConfig(msgspec.Struct, frozen=True):
    """The values of an image configuration."""

    arch: str
    """Go's name of the architecture."""
    time: int
    """Seconds since 1970."""
    variables: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    command: tuple[str, ...]


class _Counter:
    """Pass bytes on to a stream, and compute their number and digest."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._total = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Write bytes to the stream."""
        self._total.update(data)
        self.size += len(data)
        return int(self._stream.write(data))

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    @property
    def digest(self) -> str:
        """The digest of all bytes written, with ``sha256:``."""
        return f"sha256:{self._total.hexdigest()}"


class Layering(msgspec.Struct, frozen=True):
    """Options for writing a tree as a layer."""

    made_by: str
    """Text for the image's history."""
    time: int | None = None
    """Time of every entry in seconds since 1970; None keeps each file's own time."""
    keep_owners: bool = False
    """Whether to keep the owners on disk; otherwise everything belongs to root."""
    compress: bool = False
    """Whether to compress the tar file with gzip."""
    under: Path | None = None
    """The tree of the base, whose links the names follow."""


def write_layer(tree: Path, folder: Path, how: Layering) -> Layer:
    """Write a tree as a layer into `folder`, with its digest as the name."""
    part = folder / "layer.part"
    with part.open("wb") as file:
        outer = _Counter(file)
        with _squeezed(outer, compress=how.compress) as stream:
            inner = _Counter(stream)
            _write_tar(inner, tree, how)
    path = part.rename(folder / outer.digest.removeprefix("sha256:"))
    return Layer(Blob(outer.digest, outer.size, path), inner.digest, how.compress, how.made_by)


@contextmanager
def _squeezed(outer: Any, *, compress: bool) -> Iterator[Any]:
    """Provide a stream that compresses, or the stream itself."""
    if not compress:
        yield outer
        return
    with gzip.GzipFile("", "wb", GZIP_LEVEL, outer, mtime=0) as stream:
        yield stream


def _write_tar(stream: Any, tree: Path, how: Layering) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for path, name in _entries(tree, how.under):
            info: tarfile.TarInfo | None = archive.gettarinfo(path, name)  # repeated inodes become hard links
            if info is None:  # a socket, in spite of typeshed
                continue
            info.mtime = int(info.mtime) if how.time is None else how.time
            info.uname = info.gname = ""
            if not how.keep_owners:
                info.uid = info.gid = 0
            if info.ischr() and not (info.devmajor or info.devminor):
                _mark_removed(info)
                archive.addfile(info)
            elif info.isreg():
                with open(path, "rb") as file:  # noqa: PTH123 - 100,000 of them: no Path for each
                    archive.addfile(info, file)
            else:
                archive.addfile(info)


def _mark_removed(info: tarfile.TarInfo) -> None:
    """Convert an overlay whiteout (device 0:0) into an OCI whiteout."""
    folder, slash, name = info.name.rpartition("/")
    info.name, info.type, info.mode = f"{folder}{slash}{WHITEOUT}{name}", tarfile.REGTYPE, 0o644


def _entries(tree: Path, under: Path | None) -> list[tuple[str, str]]:
    """List pairs of the path on disk and the name in the layer, sorted by name, so that parents come first."""
    return sorted(_walk(str(tree), "", under), key=lambda pair: pair[1])


def _walk(folder: str, inside: str, under: Path | None) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if under is not None and is_folder:
                name = str(follow_inside(under / name, under).relative_to(under))
            if not (under is not None and is_folder and (under / name).is_dir()):
                yield entry.path, name
            if is_folder:
                below = under if under is not None and (under / name).is_dir() else None
                yield from _walk(entry.path, f"{name}/", below)


def _render_config(facts: ImageConfig, layers: list[Layer]) -> bytes:
    created = datetime.fromtimestamp(facts.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config: dict[str, Any] = {
        "architecture": facts.arch,
        "os": "linux",
        "created": created,
        "config": {
            "Env": [f"{name}={value}" for name, value in facts.variables],
            "Cmd": list(facts.command),
            "Labels": dict(facts.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": created, "created_by": layer.made_by} for layer in layers],
    }
    return _json(config)


def _render_manifest(config: Blob, layers: list[Layer]) -> bytes:
    rows = [_row(LAYER + ("+gzip" if each.compressed else ""), each.blob) for each in layers]
    return _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": _row(CONFIG, config), "layers": rows})


def write_layout(folder: Path, facts: ImageConfig, layers: list[Layer]) -> str:
    """Complete an OCI layout with existing layers in ``blobs/sha256``, and return the manifest's digest."""
    blobs = folder / "blobs/sha256"
    config = _write_blob(blobs, _render_config(facts, layers))
    manifest = _write_blob(blobs, _render_manifest(config, layers))
    _write_index(folder, _row(MANIFEST, manifest))
    return manifest.digest


def write_sif_layout(folder: Path, sif: Path) -> str:
    """Write an OCI layout with a SIF file, hard-linked if possible, and return the manifest's digest."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    digest = digest_of_file(sif)
    try:
        os.link(sif, blobs / digest)
    except OSError:
        (blobs / digest).symlink_to(sif)
    layer = _row(SIF_LAYER, Blob(f"sha256:{digest}", sif.stat().st_size, sif)) | {"annotations": {TITLE: sif.name}}
    config = _row(SIF_CONFIG, _write_blob(blobs, b"{}"))
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    blob = _write_blob(blobs, _json(manifest))
    _write_index(folder, _row(MANIFEST, blob))
    return blob.digest


def _write_index(folder: Path, row: dict[str, Any]) -> None:
    """Write ``index.json`` and ``oci-layout`` for one image."""
    index = {"schemaVersion": 2, "manifests": [{**row, "annotations": {REF_NAME: "latest"}}]}
    (folder / "index.json").write_bytes(_json(index))
    (folder / "oci-layout").write_bytes(_json(LAYOUT))


def _write_blob(blobs: Path, data: bytes) -> Blob:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    path = blobs / digest.removeprefix("sha256:")
    path.write_bytes(data)
    return Blob(digest, len(data), path)


def write_docker_archive(path: Path, work: Path, facts: ImageConfig, layers: list[Layer], *, tag: str) -> None:
    """Write an archive for ``docker load``: uncompressed layers, the configuration, and Docker's manifest."""
    config = _write_blob(work, _render_config(facts, layers))
    names = {layer.blob.hex: f"{layer.blob.hex}.tar" for layer in layers}
    manifest = [{"Config": f"{config.hex}.json", "RepoTags": [tag], "Layers": list(names.values())}]
    rows = [(f"{config.hex}.json", config.path), *((names[x.blob.hex], x.blob.path) for x in layers)]
    rows.append(("manifest.json", _write_blob(work, _json(manifest)).path))
    _write_plain_tar(path, rows, time=facts.time)


def write_layout_archive(path: Path, folder: Path, *, time: int) -> None:
    """Write an OCI layout as one tar file."""
    # Apptainer's reader creates missing folders as root's, which fails for ordinary users; so folders are entries, too.
    files = sorted(folder.rglob("*"))
    _write_plain_tar(path, [(str(each.relative_to(folder)), each) for each in files], time=time)


def _write_plain_tar(path: Path, rows: list[tuple[str, Path]], *, time: int) -> None:
    """Write files and folders into a tar file in this order, owned by root, with one time."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, source in rows:
            info = tarfile.TarInfo(name)
            if source.is_dir():
                info.type, info.mtime, info.mode = tarfile.DIRTYPE, time, 0o755
                archive.addfile(info)
                continue
            info.size, info.mtime, info.mode = source.stat().st_size, time, 0o644
            with source.open("rb") as file:
                archive.addfile(info, file)


def _row(media: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media, "digest": blob.digest, "size": blob.size}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
