"""Stories that change the catalog: bring an image in, give it another name, take it out."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import atomic_file, refuse_existing
from argosy.images.catalog import find_held, list_held, nearest_held, new_file, parse_word
from argosy.images.find import find_image
from argosy.images.open import open_image

NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""Another disk, or a file system or file that takes no second name: the bytes are copied then."""


class PullRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy images pull`.

    Attributes
    ----------
    image
        As `argosy run` takes it.
    name
        In the catalog; None takes the name that the reference has.
    output
        A file instead.
    """

    image: str
    name: str | None = None
    output: Path | None = None
    force: bool = False


def pull_image(request: PullRequest, session: Session) -> Path:
    """Fetch an image, or take a file, into the catalog or to a file; give its path.

    Raises
    ------
    ArgosyError
        As `find_image` does; UsageError when something of that name is there already.
    """
    name = guess_name(request.image) if request.name is None else request.name
    wanted = request.output or new_file(name, session)
    refuse_existing(wanted, force=request.force)
    source = find_image(request.image, session)
    if source.is_dir():
        hint = f"pack it first: argosy build requirements.txt --base {quote(str(source))} -o IMAGE"
        raise UsageError(f"{source} is a folder", hint=hint)
    path = wanted if request.output else wanted.with_suffix(wanted.suffix if source.suffix == "" else source.suffix)
    open_image(source)
    with atomic_file(path, force=request.force) as beside:
        _copy(source.resolve(), beside, keep=source.is_relative_to(session.paths.cache))
    return path


def guess_name(image: str) -> str:
    """Give the name that a reference has by itself: ``pytorch:2.9`` of ``docker://nvcr.io/nvidia/pytorch:2.9``."""
    last = image.partition("@")[0].rstrip("/").rpartition("/")[2]
    if "://" in image:
        name, _, tag = last.partition(":")
        return f"{name}:{tag or 'latest'}"
    return Path(last).stem


def _copy(source: Path, target: Path, *, keep: bool) -> None:
    """Give a file another name where it lies in our cache, which nobody writes to; else copy it."""
    if keep:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
        else:
            return
    shutil.copyfile(source, target)


def tag_image(image: str, alias: str, session: Session) -> tuple[Path, Path]:
    """Give an image another name, a symbolic link in the user's own folder; give the link and where it leads.

    An alias moves when it is given again; an image itself never gives way.

    Raises
    ------
    UsageError
        When there is no such image, or an image has that name.
    """
    target = _image_file(image, session)
    link = new_file(alias, session)
    link = link.with_suffix(target.suffix) if target.suffix else link
    if link.exists() and not link.is_symlink():
        raise UsageError(
            f"{alias} is an image, not an alias",
            evidence=str(link),
            hint=f"choose another name, or: argosy images rm {alias}",
        )
    if link == target or link.absolute() == target.absolute():
        raise UsageError(f"{alias} would lead to itself", hint="choose another name")
    inside = target.is_relative_to(session.paths.images[0])
    words = os.path.relpath(target, link.parent) if inside else str(target)
    beside = link.with_name(f".{link.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    with translate_os_errors(link.parent):
        beside.symlink_to(words)
        beside.replace(link)
    return link, target


def _image_file(image: str, session: Session) -> Path:
    path = Path(image).expanduser()
    found = path.absolute() if path.is_file() else find_held(image, session)
    if found is None or found.is_dir():
        meant = nearest_held(image, session)
        raise UsageError(
            f"there is no image {image!r} in the catalog",
            hint=f"did you mean {meant}?" if meant else "see 'argosy images ls'; argosy images pull brings one in",
        )
    return found.resolve() if found.is_symlink() else found


class Removed(msgspec.Struct, frozen=True):
    """What `argosy images rm` removed: the file, and the aliases that led to it."""

    path: str
    bytes: int
    aliases: tuple[str, ...] = ()


def remove_image(name: str, session: Session) -> Removed:
    """Remove an image of the user's own folders, with the aliases that lead to it; of an alias only the link.

    Raises
    ------
    UsageError
        When there is none of that name, or it is not the user's own.
    """
    held = find_held(name, session) or _dangling(name, session)
    if held is None:
        meant = nearest_held(name, session)
        raise UsageError(
            f"there is no image {name!r} in the catalog",
            evidence=f"looked in {', '.join(map(str, session.paths.images))}",
            hint=f"did you mean {meant}?" if meant else "see 'argosy images ls'; a file elsewhere is removed by rm",
        )
    folder = next((each for each in session.paths.images if held.is_relative_to(each)), None)
    if folder is None:
        raise UsageError(
            f"{name} is not in your own folder of images",
            evidence=str(held),
            hint="images of a project or a site are removed where they lie",
        )
    if held.is_dir():
        raise UsageError(f"{held} is a folder", hint=f"if it is no longer needed: rm -r {held}")
    removed = Removed(str(held), 0)
    if not held.is_symlink():
        aliases = [each for each in list_held(folder) if each.alias_of == str(held.resolve())]
        removed = replace(removed, bytes=held.stat().st_size, aliases=tuple(str(each.word) for each in aliases))
        _unlink([each.path for each in aliases], folder)
    _unlink([held], folder)
    return removed


def _dangling(name: str, session: Session) -> Path | None:
    """Give the alias of that name that leads nowhere any more."""
    word = parse_word(name)
    links = [word.file(folder) for folder in session.paths.images] if word else []
    return next((link for link in links if link.is_symlink()), None)


def _unlink(paths: list[Path], folder: Path) -> None:
    for path in paths:
        with translate_os_errors(path.parent):
            path.unlink(missing_ok=True)
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()
