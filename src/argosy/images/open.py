"""Open an image file or folder and describe it as an `Image`. Nothing is changed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ImageError, UsageError
from argosy.core.layout import ENTER, LOCK
from argosy.core.model import Image, ImageKind
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.host.architectures import go_arch
from argosy.images.flat import find_base_spans
from argosy.images.identify import Kind, identify_file
from argosy.images.libraries import cpu_jax_of_lock, mpi_of_lock
from argosy.images.rootfs import resolve_in_root
from argosy.images.sif.format import FsKind, Sif, choose_system
from argosy.images.sif.read import read_part, read_sif
from argosy.images.squashfs.superblock import read_superblock
from argosy.recipes.lock import Lock, lists_all_python, lists_python_of_base, parse_lock, python_names

LOCK_NAME = "argosy.lock"
SBOM_NAME = "argosy.cdx.json"
LOCK_LIMIT = 64 << 20

JOB_SCRIPT = "to translate a job script: argosy import FILE"
NOT_IMAGES: Mapping[str, str] = {
    ".py": "to run a Python program: argosy run IMAGE -- python FILE, or argosy launch IMAGE -- python FILE",
    **dict.fromkeys((".sh", ".sbatch", ".slurm", ".job"), JOB_SCRIPT),
}
"""Suffix of a file that is not an image -> hint."""


class OpenedImage(msgspec.Struct, frozen=True):
    """An image with its lock and, for a SIF file, its structure."""

    image: Image
    lock: Lock | None = None
    sif: Sif | None = None


def open_image(path: Path) -> OpenedImage:
    """Read the kind and the facts of an image: SIF, squashfs or unpacked root file system, made by Argosy or not.

    Raises
    ------
    ImageError, UsageError
        If the path does not exist, or is not an image.
    """
    if not path.exists():
        raise UsageError(f"there is no image {path}", hint="check the path, or see 'argosy images ls'")
    found = identify_file(path)
    if found.kind == Kind.SIF:
        return _open_sif(path)
    if found.kind == Kind.SQUASHFS:
        block = read_superblock(path)
        image = Image(str(path), ImageKind.SQUASHFS, "", "", base_size=block.bytes_used)
        return OpenedImage(image)
    if found.kind == Kind.ROOT_DIRECTORY:
        return _open_tree(path)
    if found.kind == Kind.UNREADABLE:
        raise ImageError(f"cannot open {path}: it is {found.description}", hint=_advise_on_reading(path))
    raise ImageError(
        f"{path} is not an image that can be run",
        evidence=f"it is {found.description}",
        hint=NOT_IMAGES.get(path.suffix, "pass a SIF file, a squashfs file or an unpacked root file system"),
    )


def _advise_on_reading(path: Path) -> str:
    """Return the hint for an image without read permission."""
    with contextlib.suppress(OSError):
        status = path.stat()
        if status.st_uid == os.geteuid():
            bits = "rx" if stat.S_ISDIR(status.st_mode) else "r"
            return f"you own it: chmod u+{bits} {quote(str(path))}"
    return "ask its owner for read permission"


def _open_sif(path: Path) -> OpenedImage:
    sif = read_sif(path)
    system = choose_system(sif)
    partition = system.partition
    if partition is None or partition.fs != FsKind.SQUASHFS:
        raise ImageError(
            f"the root file system in {path} is not a squashfs",
            evidence=str(system),
            hint="encrypted and ext3 images are not supported; rebuild it with 'apptainer build'",
        )
    part = sif.part_named(LOCK_NAME)
    lock = parse_lock(read_part(path, part, limit=LOCK_LIMIT).decode(errors="replace"), str(path)) if part else None
    layer = sif.overlays[0] if lock is not None and sif.overlays else None
    image = Image(
        path=str(path),
        kind=ImageKind.SIF,
        digest="",
        arch=partition.arch,
        base_offset=system.offset,
        base_size=system.size,
        layer_offset=layer.offset if layer else -1,
        layer_size=layer.size if layer else 0,
        layer_part=layer.id if layer else 0,
        base_spans=find_base_spans(sif, system),
        argosy=lock is not None,
        # Only a SIF file keeps the layer apart from its base.
        system=bool(lock and lock.system),
    )
    return OpenedImage(_with_lock(image, lock), lock, sif)


def _open_tree(path: Path) -> OpenedImage:
    lock_file = resolve_in_root(path, LOCK)
    lock = (
        parse_lock(lock_file.read_text(errors="replace", encoding="utf-8"), str(lock_file))
        if lock_file.is_file()
        else None
    )
    image = Image(str(path), ImageKind.TREE, digest="", arch="", argosy=resolve_in_root(path, ENTER).is_file())
    return OpenedImage(_with_lock(image, lock), lock)


def _with_lock(image: Image, lock: Lock | None) -> Image:
    """Return an image with the digest of its content and the packages that its lock lists."""
    if lock is None:
        return image
    torch, nccl = listed_versions(lock)
    return replace(
        image,
        digest=lock.content,
        packages=python_names(lock),
        complete=lists_all_python(lock),
        only_steps_unlisted=lists_python_of_base(lock),
        torch=torch,
        nccl=nccl,
        mpi=mpi_of_lock(lock),
        sources=frozenset((each.path, each.sha256) for each in lock.sources),
        cpu_jax=cpu_jax_of_lock(lock),
    )


def listed_versions(lock: Lock) -> tuple[str, str]:
    """Return the versions of torch and NCCL in a lock. The name of NCCL's package depends on the CUDA version."""
    found = {package.name: package.version for package in lock.packages}
    nccl = next((version for name, version in found.items() if re.fullmatch(r"nccl|nvidia-nccl-cu\d+", name)), "")
    return found.get("torch", ""), nccl


def refuse_other_arch(image: Image, machine: str, hint: str = "") -> None:
    """Refuse an image for an architecture other than the requested one (``uname -m``).

    Raises
    ------
    ImageError
        If both architectures are known and differ.
    """
    wanted = go_arch(machine)
    if image.arch and image.arch != wanted:
        raise wrong_arch(image.path, image.arch, wanted, hint)


def wrong_arch(name: str, has: str, wanted: str, hint: str = "") -> ImageError:
    """Return the error for an image of the wrong architecture. Both architectures are Go's names."""
    return ImageError(
        f"{name} is for another architecture",
        evidence=f"image: {has}; wanted: {wanted}",
        hint=hint or f"use an image for {wanted}, or a machine with {has}",
    )


def layer_key(lock: Lock) -> str:
    """Return the name of a layer in the cache.

    It depends on the content only, so that copies and rebuilds of an image share it. It joins half of each digest
    (128 bits), because hashing them again would load OpenSSL at each start.
    """
    half = 32
    return lock.base.digest.removeprefix("sha256:")[:half] + lock.content.removeprefix("sha256:")[:half]


def inspect_squashfs(opened: OpenedImage, session: Session) -> OpenedImage:
    """Find out whether a squashfs file was made by Argosy: read its lock with unsquashfs.

    Other images are returned unchanged, and so is a squashfs if unsquashfs is missing.
    """
    return read_lock_inside(opened, session) if opened.image.kind is ImageKind.SQUASHFS else opened


def read_lock_inside(opened: OpenedImage, session: Session) -> OpenedImage:
    """Find out whether the root file system in an image file was made by Argosy: read the lock in it with unsquashfs.

    Images whose lock is known are returned unchanged, and so are all if unsquashfs is missing.
    """
    image = opened.image
    if image.argosy or "unsquashfs" not in session.host.programs:
        return opened
    enter, lock_path = ENTER.lstrip("/"), LOCK.lstrip("/")
    names = list_paths(image, session, enter, lock_path)
    if enter not in names:
        return opened
    reply = session.runner.run(Command((*_unsquashfs(image), "-cat", image.path, lock_path)))
    lock = parse_lock(reply.stdout, f"{image.path}:{LOCK}") if lock_path in names and reply.code == 0 else None
    return replace(opened, image=_with_lock(replace(image, argosy=True), lock), lock=lock)


def list_paths(image: Image, session: Session, *paths: str) -> frozenset[str]:
    """Return those of some paths, without the leading slash, that the root file system in an image file has.

    It has a folder with all that is below it, and for a link on the way to a path the link itself.
    """
    reply = session.runner.run(Command((*_unsquashfs(image), "-l", image.path, *paths)))
    return frozenset(line.removeprefix("squashfs-root/") for line in reply.stdout.splitlines())


def _unsquashfs(image: Image) -> tuple[str, ...]:
    where = ("-o", str(image.base_offset)) if image.base_offset else ()
    return ("unsquashfs", "-no-progress", *where)


def refuse_layer(opened: OpenedImage, session: Session) -> None:
    """Refuse a squashfs that holds only a layer: it has no shell and no libraries, so nothing in it can start.

    Parameters
    ----------
    opened
        As `inspect_squashfs` returns it. Only a squashfs made by Argosy is checked.

    Raises
    ------
    UsageError
        The message names the base of the layer and the command that uses both.
    """
    image = opened.image
    if image.kind is not ImageKind.SQUASHFS or not image.argosy:
        return
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-l", image.path, "bin", "bin/sh")))
    names = set(reply.stdout.splitlines())
    # In most systems, /bin is a link to /usr/bin, and unsquashfs lists only the link.
    has_shell = "squashfs-root/bin/sh" in names or ("squashfs-root/bin" in names and not _below(names))
    if reply.code != 0 or has_shell:
        return
    base = opened.lock.base.reference if opened.lock else ""
    word = base if "://" in base else "BASE"
    use = f"apptainer exec -B {image.path}:/opt/argosy:image-src=/opt/argosy {word} {ENTER} COMMAND"
    raise UsageError(
        f"{image.path} is a layer, not a complete image",
        evidence=f"it has no /bin/sh; it must be mounted over its base{f', {base}' if base else ''}",
        hint=f"run the image that it was exported from, or mount it over the base: {use}",
    )


def _below(names: set[str]) -> bool:
    return any(name.startswith("squashfs-root/bin/") for name in names)
