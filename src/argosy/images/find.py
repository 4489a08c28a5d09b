"""Find the image that a word names: a path, a name in the catalog, or a reference that must be fetched first."""

from __future__ import annotations

from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.layout import ENTER, LOCK
from argosy.core.model import ImageKind
from argosy.core.os_errors import suggest_file
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images.identify import Kind, identify_file
from argosy.images.open import Opened, listed_versions
from argosy.recipes.lock import lists_all_python, parse_lock, python_names

READY = frozenset({Kind.SIF, Kind.SQUASHFS, Kind.ROOT_DIRECTORY})
"""What can be entered as it is; anything else is packed into the cache first."""


def find_image(reference: str, session: Session) -> Path:
    """Give the file or folder of an image; what must be fetched or packed first is then in the cache.

    Parameters
    ----------
    reference
        A file or root file system; ``NAME`` or ``NAME:TAG`` of the catalog; ``docker://…`` and its like.

    Raises
    ------
    UsageError
        When there is nothing of that name: the nearest name in the catalog is shown.
    ArgosyError
        As `fetch_image` and `local_image` do.
    """
    if not reference:
        raise UsageError(
            "no image is named", evidence="the word for it is empty", hint="is a shell's variable not set?"
        )
    path = Path(reference).expanduser()
    if path.exists():
        return _local(path.absolute(), session)
    from argosy.images.registry.references import (  # noqa: PLC0415 - most starts name a file
        guess_reference,
        is_reference,
        parse_reference,
    )

    if is_reference(reference):
        from argosy.images.registry.fetch import fetch_image  # noqa: PLC0415 - likewise: they pay for nothing

        return fetch_image(parse_reference(reference), session).path
    from argosy.images.catalog import catalog_folders, find_held, nearest_held  # noqa: PLC0415 - likewise

    held = find_held(reference, session)
    if held is not None:
        return held
    meant = nearest_held(reference, session) or guess_reference(reference) or suggest_file(path)
    raise UsageError(
        f"there is no image {reference!r}",
        evidence=f"no such file, and none of that name in {', '.join(map(str, catalog_folders(session)))}",
        hint=_way_out(path, meant, session),
    )


def _way_out(path: Path, meant: str, session: Session) -> str:
    """Say how an image that is not there comes about: by a build, where it is the project's own."""
    from argosy.recipes.project_file import find_project  # noqa: PLC0415 - likewise

    project = find_project(Path(session.host.cwd))
    if project and project.output == Path(session.host.cwd, path):
        return f"make it, as {project.shown} says: argosy build"
    return f"did you mean {meant}?" if meant else "check the path, or see 'argosy images ls'"


def _local(path: Path, session: Session) -> Path:
    if path.is_dir():
        from argosy.images.prefix import image_of_prefix  # noqa: PLC0415 - most images are files

        image = image_of_prefix(path)
        if image is not None:
            return image
    if identify_file(path).kind in READY:
        return path
    from argosy.images.registry.fetch import local_image  # noqa: PLC0415 - likewise

    return local_image(path, session)


def refined(opened: Opened, session: Session) -> Opened:
    """Find out whether a bare squashfs was made by Argosy, by asking unsquashfs for the lock inside it.

    Any other image is given back as it is; so is a squashfs where unsquashfs is missing.
    """
    image = opened.image
    if image.kind is not ImageKind.SQUASHFS or image.argosy or "unsquashfs" not in session.host.programs:
        return opened
    enter, lock_path = ENTER.lstrip("/"), LOCK.lstrip("/")
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-l", image.path, enter, lock_path)))
    names = {line.removeprefix("squashfs-root/") for line in reply.stdout.splitlines()}
    if enter not in names:
        return opened
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-cat", image.path, lock_path)))
    lock = parse_lock(reply.stdout, f"{image.path}:{LOCK}") if lock_path in names and reply.code == 0 else None
    packages = python_names(lock) if lock else frozenset()
    torch, nccl = listed_versions(lock)
    content = lock.content if lock else ""
    whole = lock is not None and lists_all_python(lock)
    known = replace(image, argosy=True, digest=content, packages=packages, complete=whole, torch=torch, nccl=nccl)
    return replace(opened, image=known, lock=lock)


def refuse_layer(opened: Opened, session: Session) -> None:
    """Refuse to enter the squashfs of a layer alone: it has no shell, no libraries, nothing to start.

    Parameters
    ----------
    opened
        As `refined` gives it: only a bare squashfs that Argosy made is looked into.

    Raises
    ------
    UsageError
        Naming the base that it belongs to, and how the two are used together.
    """
    image = opened.image
    if image.kind is not ImageKind.SQUASHFS or not image.argosy:
        return
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-l", image.path, "bin", "bin/sh")))
    names = set(reply.stdout.splitlines())
    # /bin is a link to /usr/bin in most systems, and then all that is listed of it.
    has_shell = "squashfs-root/bin/sh" in names or ("squashfs-root/bin" in names and not _below(names))
    if reply.code != 0 or has_shell:
        return
    base = opened.lock.base.reference if opened.lock else ""
    word = base if "://" in base else "BASE"
    use = f"apptainer exec -B {image.path}:/opt/argosy:image-src=/opt/argosy {word} {ENTER} COMMAND"
    raise UsageError(
        f"{image.path} is a layer, not a whole image",
        evidence=f"it has no /bin/sh: it belongs over its base{f', {base}' if base else ''}",
        hint=f"run the image that it was exported from, or the two together: {use}",
    )


def _below(names: set[str]) -> bool:
    return any(name.startswith("squashfs-root/bin/") for name in names)
