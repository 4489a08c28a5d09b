"""Open or create the base of an image; a base that is already packed is used unchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.builder.bases.debian import debian_file, make_debian
from argosy.builder.bases.definitions import Format, definition_format
from argosy.builder.bases.engines import STORE, EngineOptions, run_definition, run_dockerfile, run_export
from argosy.core.errors import ImageError, UsageError
from argosy.core.layout import APPTAINER_ENV, ENTER, ENV_PREFIX, LOCK, PROFILE_SCRIPT, ROOT
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.core.store import remove_path
from argosy.host.architectures import go_arch, machine_named
from argosy.images.find import find_local, means_reference, refuse_dangling, suggest_image
from argosy.images.flat import base_source, layer_source
from argosy.images.identify import Kind, identify_file
from argosy.images.oci import LABELS
from argosy.images.open import (
    LOCK_NAME,
    OpenedImage,
    layer_key,
    list_paths,
    open_image,
    read_lock_inside,
    refuse_other_arch,
)
from argosy.images.part_digest import cached_digest, describe_spans, part_digest
from argosy.images.registry.convert import pack_root_tar, refuse_other_tar
from argosy.images.registry.fetch import fetch_image
from argosy.images.registry.references import Reference, file_reference, parse_reference
from argosy.images.rootfs import find_link
from argosy.images.rootfs_cache import return_layer, take_layer
from argosy.images.squashfs.pack import run_pack, run_unsquashfs, time_of_file
from argosy.images.squashfs.superblock import Source, Superblock, superblock_of
from argosy.images.unpack import unpack_source
from argosy.recipes.lock import Lock


def digest_ahead(image: Image, session: Session) -> Callable[[], str]:
    """Start to compute the digest of the base's bytes; it is cached by the file's identity.

    Returns
    -------
    A function that waits for the digest (``sha256:`` and 64 hexadecimal digits); it raises the `OSError` of reading, if
    there was one.
    """
    if image.kind is ImageKind.TREE:
        raise ImageError(
            f"cannot build over {image.path}: it is a folder",
            hint="this is a bug in Argosy: a folder must be packed before it is a base",
        )
    spans = image.base_spans or ((image.base_offset, image.base_size),)
    part, cache = describe_spans(image.path, spans), session.paths.cache
    known = cached_digest(part, cache)
    if known:
        return lambda: known
    future = Future[str]()

    def work() -> None:
        try:
            future.set_result(part_digest(part, cache))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    # A daemon thread: a build that fails early does not wait for it.
    threading.Thread(target=work, daemon=True).start()
    return future.result


NO_OPTIONS = EngineOptions()
PACKED_FIRST = frozenset({Kind.ROOT_DIRECTORY, Kind.TAR})
LAYER_PATHS = tuple(path.lstrip("/") for path in (ROOT, APPTAINER_ENV, PROFILE_SCRIPT))
"""Paths of Argosy's layer in a flat image that does not describe its base."""
ENVIRONMENT_PATHS = tuple(f"{ENV_PREFIX}/{name}" for name in ("bin", "lib", "conda-meta"))
"""Folders of the environment, which the build writes to."""
ENVIRONMENT_FILES = frozenset(f"{ENV_PREFIX}/{name}".lstrip("/") for name in ("pyvenv.cfg", "conda-meta/history"))
"""Files that an environment of Argosy has: a venv, or that of conda."""
LINKED = frozenset(f"{opt}{ENTER.removeprefix('/opt')}" for opt in ("usr/opt", "var/opt"))
"""Paths of ``enter`` in a root file system whose ``/opt`` is a link."""


class Base(msgspec.Struct, frozen=True):
    """A base that is ready to use."""

    reference: str
    """As the user gave it."""
    opened: OpenedImage
    """The image file: its base is copied byte for byte; the new layer contains its layer, if it has one."""
    digesting: Callable[[], str]
    """Waits for `digest`, which is computed while the build continues."""
    added: tuple[str, ...] = ()
    """Debian packages that were added for the environment."""
    how: str = ""
    """The program that created it, and why; empty for an existing base."""

    @property
    def image(self) -> Image:
        """The image itself."""
        return self.opened.image

    @property
    def lock(self) -> Lock | None:
        """The lock of an Argosy image, or None."""
        return self.opened.lock

    @property
    def is_converted(self) -> bool:
        """Whether it is an Argosy image that came back from another format, such as an OCI archive.

        Its lock is then a file of its only squashfs, and other tools may have changed other files there.
        """
        return self.lock is not None and not (self.opened.sif and self.opened.sif.part_named(LOCK_NAME))

    @property
    def digest(self) -> str:
        """``sha256:…`` of the bytes of the base's squashfs."""
        return self.digesting()

    @property
    def source(self) -> Source:
        """The bytes of its squashfs."""
        return base_source(self.image)

    @property
    def packing(self) -> Superblock:
        """The superblock of its squashfs."""
        return superblock_of(self.source)

    @property
    def time(self) -> int:
        """Creation time of its squashfs, in seconds since 1970."""
        return self.packing.mkfs_time


def open_base(
    reference: str,
    session: Session,
    work: Path,
    *,
    needs: tuple[str, ...] = (),
    options: EngineOptions = NO_OPTIONS,
    step: Step | None = None,
) -> Base:
    """Open the base that `reference` names; create, download or build it first if necessary.

    Parameters
    ----------
    reference
        One of: a SIF or squashfs file, or its name in the catalog; a root file system as a folder or tar file;
        ``debian:SUITE[+package…]``; an image for Docker (``docker://…``, an archive or an OCI layout); a definition
        file, a Dockerfile, or a folder with one, which an engine builds.
    needs
        Debian packages to add to a Debian base.

    Raises
    ------
    UsageError, ImageError
        If the base does not exist, or cannot be a base.
    """
    if reference.startswith("debian:"):
        return _make_debian_base(reference, session, needs)
    if is_made_by_engine(reference, options):
        return _open_engine_base(reference, session, work, options, step)
    if means_reference(reference, session):
        return _fetch_base(parse_reference(reference), session)
    path = base_file(reference, session)
    kind = identify_file(path).kind
    wanted = file_reference(kind, path.absolute())
    if wanted is not None:
        return _fetch_base(wanted, session)
    if kind in PACKED_FIRST:
        return _pack_base(reference, path, session, work)
    return _make_base(reference, open_image(path.absolute()), session)


def must_be_made(reference: str, session: Session, *, needs: tuple[str, ...], options: EngineOptions) -> bool:
    """Return whether a base may have to be created or downloaded first."""
    if reference.startswith("debian:"):
        return not debian_file(reference, session, needs).is_file()
    return is_made_by_engine(reference, options) or means_reference(reference, session)


def is_copied(path: Path, session: Session) -> bool:
    """Return whether a base's file is used unchanged; otherwise it is packed first."""
    kind = identify_file(path)
    if kind.kind is Kind.TAR:
        refuse_other_tar(path, kind)
    if kind.kind in PACKED_FIRST or file_reference(kind.kind, path.absolute()) is not None:
        return False
    _refuse_other_target(open_image(path.absolute()).image, session)
    return True


def is_made_by_engine(reference: str, options: EngineOptions) -> bool:
    """Return whether an engine provides the base: from a definition file or Dockerfile, or from its own store."""
    return reference.startswith(STORE) or definition_format(Path(reference), options.dockerfile) is not None


def base_file(reference: str, session: Session) -> Path:
    """Return the file or folder of a base, which is a path or a name in the catalog.

    Raises
    ------
    UsageError
        If it does not exist; the hint suggests a similar name.
    """
    found = find_local(reference, session)
    if found is not None:
        return found
    refuse_dangling(reference, session)
    raise UsageError(
        f"there is no base {reference!r}",
        evidence="a base is a SIF or squashfs file, a name in the catalog, a root file system as a folder or tar file, "
        "an image archive, debian:SUITE or docker://NAME",
        hint=suggest_image(reference, session, "check the path, or use for example --base debian:bookworm"),
    )


def _open_engine_base(reference: str, session: Session, work: Path, options: EngineOptions, step: Step | None) -> Base:
    path = Path(reference)
    if definition_format(path) is Format.DEFINITION:
        made = run_definition(path, options, session, work, step)
        base = open_base(str(made.file), session, work)
        return replace(base, reference=path.name, how=made.how)
    if reference.startswith(STORE):
        made = run_export(reference.removeprefix(STORE), session, work)
    else:
        made = run_dockerfile(path, options, session, work, step)
    wanted = file_reference(identify_file(made.file).kind, made.file)
    if wanted is None:
        raise ImageError(
            f"the engine did not build an image archive from {reference}",
            evidence=str(identify_file(made.file)),
            hint="build it by hand to see the engine's output, or choose another engine with --build-backend",
        )
    return replace(_fetch_base(wanted, session), reference=path.name or reference, how=made.how)


def _fetch_base(reference: Reference, session: Session) -> Base:
    fetched = fetch_image(reference, session)
    return _make_base(fetched.reference, open_image(fetched.path), session)


def _pack_base(reference: str, path: Path, session: Session, work: Path) -> Base:
    """Pack a root file system: a tar file once, into the cache, and a folder for each build, because it may change."""
    kind = identify_file(path)
    if kind.kind is Kind.TAR:
        packed = pack_root_tar(path, kind, session)
    else:
        packed, time = work / "base.sqfs", time_of_file(path)
        run_pack(session, path, packed, time=time, all_root=not session.host.can_mount, keep_times=True)
    return _make_base(reference, open_image(packed), session)


def _make_base(reference: str, opened: OpenedImage, session: Session, added: tuple[str, ...] = ()) -> Base:
    """Return an image as a base. A squashfs does not record its architecture: it gets that of the target machine."""
    if not opened.image.arch:
        arch = go_arch(session.host.target)
        opened = replace(opened, image=replace(opened.image, arch=arch))
    _refuse_other_target(opened.image, session)
    return Base(reference, read_lock_inside(opened, session), digest_ahead(opened.image, session), added)


def _refuse_other_target(image: Image, session: Session) -> None:
    hint = f"to build for that architecture: --arch {machine_named(image.arch)}; or use a base for this machine"
    refuse_other_arch(image, session.host.target, hint)


def _make_debian_base(reference: str, session: Session, needs: tuple[str, ...]) -> Base:
    file, added = make_debian(reference, session, needs)
    try:
        opened = open_image(file)
    except ImageError as damaged:
        session.reporter.note(f"the base in the cache is damaged and is created again: {damaged.what}")
        remove_path(file.parent)
        opened = open_image(make_debian(reference, session, needs)[0])
    return _make_base(reference, opened, session, added)


def unpack_base_layer(base: Base, session: Session, tree: Path, *, from_cache: bool) -> None:
    """Unpack the layer of a base that Argosy built; the new layer contains it, because an image has only one layer.

    Parameters
    ----------
    from_cache
        Whether to take the tree that an earlier build left in the cache; its files are hard links to the cache.
    """
    image = base.image
    if not base.lock:
        _refuse_unknown_environment(base, session)
        tree.mkdir()
        return
    if from_cache and take_layer(session, layer_key(base.lock), tree):
        refuse_links(tree, base.reference)
        return
    layer, doing = layer_source(image), "taking over the base's layer"
    if layer is None:
        whole = Path(image.path), image.base_offset
        run_unsquashfs(session, *whole, tree, "-no-xattrs", doing=doing, parts=LAYER_PATHS)
    else:
        unpack_source(session, layer, tree, "-no-xattrs", doing=doing)
    refuse_links(tree, base.reference)


def _refuse_unknown_environment(base: Base, session: Session) -> None:
    """Refuse a base with an environment of Argosy whose packages are unknown: new ones would be mixed with them."""
    found = list_paths(base.image, session, *ENVIRONMENT_FILES, *LINKED)
    if LINKED & found:
        raise ImageError(
            f"cannot build over {base.reference}: /opt in it is a link, behind which a layer of Argosy is",
            evidence=f"it has /{min(LINKED & found)}",
            hint="build over the SIF file that it was exported from, which has the layer apart",
        )
    if ENVIRONMENT_FILES & found:
        raise ImageError(
            f"cannot build over {base.reference}: it has an environment of Argosy without the list of its packages",
            evidence=f"it has {ENV_PREFIX}, but not {LOCK}",
            hint=f"copy all of {ROOT} into the base, not only a part of it; or build over another base",
        )


def refuse_links(tree: Path, reference: str) -> None:
    """Refuse a layer with links instead of Argosy's folders: the build would write through them on this machine."""
    for path in (*LAYER_PATHS, LABELS, *ENVIRONMENT_PATHS):
        if link := find_link(tree, path):
            raise ImageError(
                f"cannot build over {reference}: /{link} in its layer is a link to {(tree / link).readlink()}",
                evidence="the layer of an image that Argosy built has a folder or a file there",
                hint="get the image again from its author, or use another base",
            )


@contextmanager
def restoring_cached_layer(base: Base, session: Session, tree: Path) -> Iterator[None]:
    """Return the tree of a cached layer to the cache if the build fails and has not changed it."""
    try:
        yield
    except BaseException:
        if base.lock:
            return_layer(session, layer_key(base.lock), tree)
        raise
