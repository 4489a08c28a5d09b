"""Write OCI images and Docker archives, the same bytes for the same content; it unpacks nothing and asks nobody.

::

    base tree   ──tar──> layer 1 ─┐
    layer tree  ──tar──> layer 2 ─┼─> configuration ──> manifest ──> oci-layout, one tar of it, or Docker's archive
    environment ──────────────────┘

Two layers, so images over one base share it in a registry.  Names in the second follow the base's symbolic links
(``/opt -> /usr/opt``): a folder would replace the link.  OCI image specification 1.0; Docker's archive as
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

from argosy.builder.output.content import follow_inside
from argosy.core.store import digest_of_file
from argosy.images.registry.artifacts import SIF_LAYER

GZIP_LEVEL = 1
"""The time goes into this: level 6 takes three times as long and saves a tenth."""

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
    """A file of a layout: named by its digest."""

    digest: str
    size: int
    path: Path

    @property
    def hex(self) -> str:
        """The digest's digits."""
        return self.digest.removeprefix("sha256:")


class Layer(msgspec.Struct, frozen=True):
    """A layer: its blob, and the digest of its tar before compression."""

    blob: Blob
    diff_id: str
    compressed: bool
    made_by: str


class Facts(msgspec.Struct, frozen=True):
    """What the configuration says.

    Attributes
    ----------
    arch
        Go's name of the architecture.
    time
        Seconds since 1970.
    """

    arch: str
    time: int
    variables: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    command: tuple[str, ...]


class _Counter:
    """Passes bytes on, and knows their number and digest."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._total = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Pass bytes on."""
        self._total.update(data)
        self.size += len(data)
        return int(self._stream.write(data))

    def flush(self) -> None:
        """Pass it on."""
        self._stream.flush()

    @property
    def digest(self) -> str:
        """``sha256:…`` of what went through."""
        return f"sha256:{self._total.hexdigest()}"


class Layering(msgspec.Struct, frozen=True):
    """How a tree becomes a layer.

    Attributes
    ----------
    made_by
        For the image's history.
    time
        Seconds since 1970 that every entry gets; None keeps each file's own.
    keep_owners
        Whether owners are those on disk; else everything belongs to root.
    compress
        Whether the tar is compressed by gzip.
    under
        The tree below this layer, whose links its names follow.
    """

    made_by: str
    time: int | None = None
    keep_owners: bool = False
    compress: bool = False
    under: Path | None = None


def write_layer(tree: Path, folder: Path, how: Layering) -> Layer:
    """Write a tree as a layer into `folder`, under the name of its digest."""
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
    """Give a stream to write to, and no more."""
    if not compress:
        yield outer
        return
    with gzip.GzipFile("", "wb", GZIP_LEVEL, outer, mtime=0) as stream:
        yield stream


def _write_tar(stream: Any, tree: Path, how: Layering) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for path, name in _entries(tree, how.under):
            info: tarfile.TarInfo | None = archive.gettarinfo(path, name)  # a second name of one file is a hard link
            if info is None:  # a socket, whatever typeshed says
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
    """Say as OCI's layers do what a device 0:0 says to overlays: the file of that name is gone."""
    folder, slash, name = info.name.rpartition("/")
    info.name, info.type, info.mode = f"{folder}{slash}{WHITEOUT}{name}", tarfile.REGTYPE, 0o644


def _entries(tree: Path, under: Path | None) -> list[tuple[str, str]]:
    """List (path on disk, name inside), parents first, sorted by name."""
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


def render_config(facts: Facts, layers: list[Layer]) -> bytes:
    """Render the configuration."""
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
    """Render the manifest."""
    rows = [_row(LAYER + ("+gzip" if each.compressed else ""), each.blob) for each in layers]
    return _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": _row(CONFIG, config), "layers": rows})


def write_layout(folder: Path, facts: Facts, layers: list[Layer], *, name: str) -> str:
    """Complete an OCI layout whose layers lie in ``blobs/sha256`` already; give the manifest's digest."""
    blobs = folder / "blobs/sha256"
    config = _write_blob(blobs, render_config(facts, layers))
    manifest = _write_blob(blobs, _render_manifest(config, layers))
    write_index(folder, _row(MANIFEST, manifest), name=name)
    return manifest.digest


def write_sif_layout(folder: Path, sif: Path) -> str:
    """Write an OCI layout of one artifact, a SIF file, which gets a second name where it can; give its digest."""
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
    write_index(folder, _row(MANIFEST, blob), name="latest")
    return blob.digest


def write_index(folder: Path, row: dict[str, Any], *, name: str) -> None:
    """Write the two files that make a folder an OCI layout of one image."""
    index = {"schemaVersion": 2, "manifests": [{**row, "annotations": {REF_NAME: name}}]}
    (folder / "index.json").write_bytes(_json(index))
    (folder / "oci-layout").write_bytes(_json(LAYOUT))


def _write_blob(blobs: Path, data: bytes) -> Blob:
    """Write a small blob."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    path = blobs / digest.removeprefix("sha256:")
    path.write_bytes(data)
    return Blob(digest, len(data), path)


def write_docker_archive(path: Path, work: Path, facts: Facts, layers: list[Layer], *, tag: str) -> None:
    """Write what ``docker load`` reads: the layers, not compressed, the configuration, and a manifest of Docker's."""
    config = _write_blob(work, render_config(facts, layers))
    names = {layer.blob.hex: f"{layer.blob.hex}.tar" for layer in layers}
    manifest = [{"Config": f"{config.hex}.json", "RepoTags": [tag], "Layers": list(names.values())}]
    rows = [(f"{config.hex}.json", config.path), *((names[x.blob.hex], x.blob.path) for x in layers)]
    rows.append(("manifest.json", _write_blob(work, _json(manifest)).path))
    _write_plain_tar(path, rows, time=facts.time)


def write_layout_archive(path: Path, folder: Path, *, time: int) -> None:
    """Write an OCI layout as one tar file."""
    # The folders are entries too: for one that is missing Apptainer's reader makes one of root's, which no user may.
    files = sorted(folder.rglob("*"))
    _write_plain_tar(path, [(str(each.relative_to(folder)), each) for each in files], time=time)


def _write_plain_tar(path: Path, rows: list[tuple[str, Path]], *, time: int) -> None:
    """Write files and folders into a tar file, in this order, as root's, with one time."""
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
