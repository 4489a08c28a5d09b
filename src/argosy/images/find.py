"""Find the image that an argument names; fetch, convert or copy it if necessary."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import naming_option, suggest_file
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shared_folders import is_shared, share_new
from argosy.core.shell import quote
from argosy.core.store import atomic_file, editing, link_or_copy, refuse_existing
from argosy.images.architecture import with_architecture
from argosy.images.catalog import (
    IMAGE_SUFFIXES,
    IMAGES,
    catalog_folders,
    find_dangling,
    find_in_catalog,
    find_version,
    list_catalog,
    new_file,
    other_files,
    parse_catalog_name,
    suggest_catalog_name,
    with_image_suffix,
)
from argosy.images.formats import OutputFormat, refuse_suffix
from argosy.images.identify import READY, Kind, identify_file
from argosy.images.open import OpenedImage, inspect_squashfs, open_image
from argosy.images.prefix import image_of_prefix
from argosy.sites.load import doubtful_profiles


def fetch_or_find_image(reference: str, session: Session) -> Path:
    """Return the file or folder of an image; fetch or convert it into the cache first if necessary.

    Parameters
    ----------
    reference
        A file or root file system, ``NAME`` or ``NAME:TAG`` in the catalog, or a reference, for example ``docker://…``.

    Raises
    ------
    UsageError
        If there is no such image. The message suggests the most similar name.
    ArgosyError
        As raised by `fetch_image` and `local_image`.
    """
    if not reference:
        raise UsageError("the image argument is empty", hint="check that the shell variable in it is set")
    path = parse_path(reference)
    if path.exists():
        return _local(path.absolute(), session)
    found = find_in_catalog(reference, session)
    if found is not None:
        return found
    if means_reference(reference, session):
        from argosy.images.registry.fetch import fetch_image  # noqa: PLC0415 - most images are files
        from argosy.images.registry.references import parse_reference  # noqa: PLC0415 - likewise

        return fetch_image(parse_reference(reference), session).path
    refuse_dangling(reference, session)
    searched = f"not a file, and not in the catalog folders {', '.join(map(str, catalog_folders(session)))}"
    raise UsageError(
        f"there is no image {reference!r}",
        evidence="\n".join([searched, *doubtful_profiles(session.host)]),
        hint=_missing_hint(reference, session),
    )


def open_reference(reference: str, session: Session) -> OpenedImage:
    """Open the image that an argument names, found as `fetch_or_find_image` does; see `open_ready`.

    Raises
    ------
    ArgosyError
        As raised by `fetch_or_find_image` and `open_image`.
    """
    path = fetch_or_find_image(reference, session)
    opened = open_ready(path, session)
    if not path.is_relative_to(session.paths.cache):
        return opened
    return replace(opened, image=replace(opened.image, reference=reference))


def open_ready(path: Path, session: Session) -> OpenedImage:
    """Open an image file or folder as `open_image` does; also tell squashfs files of Argosy, and the architecture."""
    opened = inspect_squashfs(open_image(path), session)
    return replace(opened, image=with_architecture(opened.image))


def open_version(reference: str, session: Session) -> OpenedImage:
    """Open the image of a job as `open_reference` does; of an alias in the catalog, open the version.

    A job that waits then keeps its image if the alias is moved, and a copy of the script says which version it used.
    """
    version = None if parse_path(reference).exists() else find_version(reference, session)
    if version is None:
        return open_reference(reference, session)
    inside = (version.relative_to(each) for each in catalog_folders(session) if version.is_relative_to(each))
    session.reporter.note(f"{reference} is {next(inside, version)}")
    return open_reference(str(version), session)


def means_reference(text: str, session: Session) -> bool:
    """Return whether a text means a reference, and not a name in the catalog such as ``dock:1``."""
    from argosy.images.registry.references import is_reference  # noqa: PLC0415 - most images are files

    if not is_reference(text):
        return False
    parsed = parse_catalog_name(text)
    if parsed is None:
        return True
    known = any(each.name.name == parsed.name for each in list_catalog(session))
    return not known and find_dangling(text, session) is None


def refuse_dangling(text: str, session: Session) -> None:
    """Refuse an alias in the catalog whose image was removed.

    Raises
    ------
    UsageError
        The message has the target of the alias.
    """
    link = find_dangling(text, session)
    if link is not None:
        own = link.is_relative_to(session.paths.images[0]) if session.paths.images else False
        hint = f"let it point to another image: argosy images tag IMAGE {text}" if own else "ask its owner"
        raise UsageError(
            f"{text} is an alias of {link.readlink()}, which is gone",
            evidence=str(link),
            hint=f"see 'argosy images ls', and {hint}",
        )


def find_local(text: str, session: Session) -> Path | None:
    """Return the file or folder of a path or of a name in the catalog; None if there is none."""
    path = parse_path(text)
    return path if path.exists() else find_in_catalog(text, session)


def suggest_image(text: str, session: Session, otherwise: str) -> str:
    """Return the hint for an image that does not exist: a similar name in the catalog, reference or file."""
    from argosy.images.registry.references import guess_reference  # noqa: PLC0415 - only for this hint

    meant, reference = _similar_file(parse_path(text)) or suggest_catalog_name(text, session), guess_reference(text)
    if not meant and reference and parse_catalog_name(text):
        # It may be the name of an image that was removed: a stranger's image must not replace it.
        return f"'argosy images ls' lists the catalog; for an image of Docker Hub, write {reference}"
    return f"did you mean {meant or reference}?" if meant or reference else otherwise


def _similar_file(path: Path) -> str:
    """Return the file that a name without suffix, or with a tag, means, else one with a similar name; empty if none."""
    bare = path.name.partition(":")[0]
    for suffix in ("", *IMAGE_SUFFIXES) if bare else ():
        file = path.with_name(f"{bare}{suffix}")
        if file.is_file():
            return quote(str(file))
    return suggest_file(path)


def _missing_hint(reference: str, session: Session) -> str:
    """Return the hint for a missing image: the build command if the project file describes the image."""
    from argosy.recipes.project_file import find_project  # noqa: PLC0415 - only for this hint

    project = find_project(Path(session.host.cwd))
    if project and project.output == Path(session.host.cwd, parse_path(reference)):
        return f"build it as described in {project.shown}: argosy build"
    registry = f"; in a registry: docker://{reference}" if re.fullmatch(r"[a-z0-9]+", reference) else ""
    return suggest_image(reference, session, f"check the path, or see 'argosy images ls'{registry}")


def _local(path: Path, session: Session) -> Path:
    if path.is_dir():
        image = image_of_prefix(path)
        if image is not None:
            return image
    if identify_file(path).kind in READY:
        return path
    from argosy.images.registry.fetch import local_image  # noqa: PLC0415 - most images are SIF files

    return local_image(path, session)


def pull_image(
    image: str, session: Session, *, name: str | None = None, output: Path | None = None, force: bool = False
) -> tuple[Path, int]:
    """Fetch or copy an image into the catalog or to a file, and return its path and size in bytes.

    Parameters
    ----------
    name
        Name in the catalog; None uses the name in the reference.
    output
        File to write instead of a catalog entry.

    Raises
    ------
    ArgosyError
        As raised by `fetch_or_find_image`; UsageError if the target exists.
    """
    import shutil  # noqa: PLC0415 - see process.find_program

    name = guess_name(image) if name is None else name
    wanted = output or new_file(name, session)
    replaced = () if output else (wanted, *other_files(wanted))
    for file in replaced or (wanted,):
        refuse_existing(file, force=force)
    source = fetch_or_find_image(image, session)
    if source.is_dir():
        hint = f"pack it first: argosy build requirements.txt --base {quote(str(source))} -o IMAGE"
        raise UsageError(f"cannot copy {source}: it is a folder", hint=hint)
    if output:
        squashfs = identify_file(source).kind is Kind.SQUASHFS
        refuse_suffix(output, OutputFormat.SQSH if squashfs else OutputFormat.SIF)
    path = wanted if output else with_image_suffix(wanted, source.suffix)
    open_image(source)
    option = "--output" if output else IMAGES
    with (
        naming_option(path.parent, option),
        editing(path, waiting=session.waiting),
        atomic_file(path, force=force) as beside,
    ):
        # A shared folder may be that of another group, and a hard link would have the group of the cache.
        if source.is_relative_to(session.paths.cache) and not is_shared(path.parent):
            link_or_copy(source.resolve(), beside)
        else:
            shutil.copyfile(source, beside)
            share_new(beside)
        size = beside.stat().st_size
    for file in replaced:
        if file != path:
            file.unlink(missing_ok=True)
    return path, size


def guess_name(image: str) -> str:
    """Return the catalog name for a reference: ``pytorch:2.9`` for ``docker://nvcr.io/nvidia/pytorch:2.9``."""
    last = image.partition("@")[0].rstrip("/").rpartition("/")[2]
    if "://" in image:
        name, _, tag = last.partition(":")
        return f"{name}:{tag or 'latest'}"
    return Path(last).stem
