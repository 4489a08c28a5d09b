"""The catalog: image files in folders. Their paths are their names and versions; there is no database.

::

    FOLDER/NAME.sif            NAME
    FOLDER/NAME/TAG.sif        NAME:TAG; NAME alone means NAME:latest, or the newest version without that tag
    either as a symbolic link  an alias of the link's target
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import time_of_change, translate_os_errors
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import editing, make_folder, write_link
from argosy.core.suggest import did_you_mean, suggest_word
from argosy.images.identify import READY, Kind, identify_file
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.trust import foreign_owner
from argosy.sites.load import sites_here
from argosy.sites.profile import Site

IMAGE_SUFFIXES = (".sif", ".sqsh", ".squashfs")
"""Suffixes of image files. An argument with one of them is a file path, even if the file does not exist."""

LATEST = "latest"
IMAGES = "ARGOSY_IMAGES"
"""The variable with the user's own folders."""
PROJECT_FOLDER = "images"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")


class CatalogName(msgspec.Struct, frozen=True):
    """A name in the catalog: ``NAME``, ``NAME:TAG`` or ``NAME/TAG``."""

    name: str
    tag: str = ""

    def __str__(self) -> str:
        """Render the name with a colon."""
        return f"{self.name}:{self.tag}" if self.tag else self.name

    def file(self, folder: Path, suffix: str = IMAGE_SUFFIXES[0]) -> Path:
        """Return the file of this name in a folder of the catalog."""
        return folder / self.name / f"{self.tag}{suffix}" if self.tag else folder / f"{self.name}{suffix}"


class CatalogImage(msgspec.Struct, frozen=True):
    """An image in the catalog."""

    name: CatalogName
    path: Path
    size: int
    """Size in bytes."""
    changed: float
    """Modification time, in seconds since 1970."""
    alias_of: str = ""
    """Target of a symbolic link; empty for an image."""
    newest: bool = False
    """Whether it is the newest of several versions."""


def parse_catalog_name(text: str) -> CatalogName | None:
    """Parse a name in the catalog; return None for any other text, for example a path or a reference."""
    name, separator, tag = text.partition(":")
    if not separator:
        name, separator, tag = text.partition("/")
    return CatalogName(name, tag) if NAME.match(name) and (NAME.match(tag) or not separator) else None


def catalog_folders(session: Session) -> tuple[Path, ...]:
    """Return the folders to search, in this order: the user's, the project's, the site's."""
    project = Path(session.host.cwd)
    folders = list(session.paths.images)
    if (project / PROJECT_FILE).is_file() and not foreign_owner(project / PROJECT_FILE, project / PROJECT_FOLDER):
        folders.append(project / PROJECT_FOLDER)
    for site in sites_here(session.host):
        folders += map(Path, _folders_of(site, session))
    return tuple(dict.fromkeys(folders))


def _folders_of(site: Site, session: Session) -> Iterator[str]:
    """Yield the image folders in the profile of a site, without those whose variables are not set."""
    for folder in site.images.folders:
        path = Template(folder).safe_substitute(session.host.environment)
        if path.startswith("/") and "$" not in path:
            yield path


def list_images_of(site: Site, session: Session) -> list[Path]:
    """List the images in the folders of a site, which may have any suffix or none."""
    found: list[Path] = []
    for folder in map(Path, _folders_of(site, session)):
        with suppress(OSError):
            found += sorted(path for path in folder.iterdir() if identify_file(path).kind in READY)
    return found


def with_images_of(site: Site | None, session: Session) -> Session:
    """Return the session that also finds the images of a site that the user named; many sites cannot be detected."""
    folders = tuple(map(Path, _folders_of(site, session))) if site else ()
    images = tuple(dict.fromkeys((*session.paths.images, *folders)))
    return replace(session, paths=replace(session.paths, images=images))


def find_in_catalog(text: str, session: Session) -> Path | None:
    """Return the file of the image with a name in the catalog; None if there is no such image."""
    parsed = parse_catalog_name(text)
    if parsed is None:
        return None
    for folders in (session.paths.images, catalog_folders(session)):
        for folder in folders:
            found = _in_folder(parsed, text, folder)
            if found is not None:
                return found
    return None


def _in_folder(parsed: CatalogName, text: str, folder: Path) -> Path | None:
    for suffix in IMAGE_SUFFIXES:
        if parsed.file(folder, suffix).is_file():
            return parsed.file(folder, suffix)
    plain = folder / text
    if plain.is_file() or (plain.is_dir() and identify_file(plain).kind is Kind.ROOT_DIRECTORY):
        return plain
    if parsed.tag or not plain.is_dir():
        return None
    return _in_folder(replace(parsed, tag=LATEST), f"{parsed.name}/{LATEST}", folder) or _newest(plain)


def find_version(text: str, session: Session) -> Path | None:
    """Return the file to which an alias points; None if the text is not an alias in the catalog.

    Only links in the folders of the catalog are followed: other links, for example from a home folder to a disk, are
    the user's own.
    """
    found = find_in_catalog(text, session)
    if found is None or not found.is_symlink():
        return None
    folders = [folder.resolve() for folder in catalog_folders(session)]
    while found.is_symlink() and any(found.parent.resolve().is_relative_to(folder) for folder in folders):
        target = found.readlink()
        above = found.parent.resolve() if ".." in target.parts else found.parent
        found = Path(os.path.normpath(above / target))
    return found


def _newest(folder: Path) -> Path | None:
    files = [path for path in _image_files(folder) if not path.is_symlink()]
    return max(files, key=time_of_change, default=None)


def _image_files(folder: Path) -> list[Path]:
    return [path for path in _named_files(folder) if path.is_file()]


def _named_files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in folder.iterdir() if path.suffix in IMAGE_SUFFIXES and path.name[0] != "."]
    return []


def _list_folder(folder: Path) -> list[CatalogImage]:
    """Return all images in a folder of the catalog, sorted by name. Dangling aliases are omitted."""
    found = _name_files(folder, _image_files)
    images = [described for parsed, path in found if (described := _describe_file(parsed, path))]
    return sorted(_with_newest(images), key=lambda each: (each.name.name, -each.changed, each.name.tag))


def _name_files(folder: Path, list_files: Callable[[Path], list[Path]]) -> list[tuple[CatalogName, Path]]:
    """Return the files in a folder of the catalog and in the folders below it, with their names."""
    try:
        inner = [path for path in folder.iterdir() if path.is_dir() and NAME.match(path.name)]
    except OSError:
        return []
    found = [(CatalogName(path.stem), path) for path in list_files(folder)]
    return [*found, *((CatalogName(below.name, path.stem), path) for below in inner for path in list_files(below))]


def list_unreadable(session: Session) -> list[str]:
    """Return a line for each folder of the catalog that exists but cannot be read: its images are not listed."""
    return [line for folder in catalog_folders(session) for line in _why_unreadable(folder, depth=1)]


def _why_unreadable(folder: Path, depth: int) -> Iterator[str]:
    try:
        inner = [path for path in folder.iterdir() if NAME.match(path.name) and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield f"cannot read {folder}: {error.strerror}"
        return
    for path in inner if depth else ():
        yield from _why_unreadable(path, depth - 1)


def list_dangling(session: Session) -> list[CatalogImage]:
    """Return the aliases in the catalog whose image was removed."""
    found = (each for folder in catalog_folders(session) for each in _name_files(folder, _named_files))
    return [
        CatalogImage(parsed, path, 0, path.lstat().st_mtime, str(path.readlink()))
        for parsed, path in found
        if path.is_symlink() and not path.exists() and find_in_catalog(str(parsed), session) is None
    ]


def _describe_file(parsed: CatalogName, path: Path) -> CatalogImage | None:
    """Describe an image; return None if another process has removed it meanwhile."""
    with suppress(FileNotFoundError):
        status = path.stat()
        alias_of = str(path.resolve()) if path.is_symlink() else ""
        return CatalogImage(parsed, path, status.st_size, status.st_mtime, alias_of)
    return None


def _with_newest(images: list[CatalogImage]) -> Iterator[CatalogImage]:
    for each in images:
        same = [other for other in images if other.name.name == each.name.name and not other.alias_of]
        latest = max((other.changed for other in same), default=0.0)
        yield replace(each, newest=len(same) > 1 and not each.alias_of and each.changed == latest)


def list_catalog(session: Session) -> list[CatalogImage]:
    """Return all images of the catalog. If two folders contain a name, the first folder counts."""
    images: dict[str, CatalogImage] = {}
    for each in list_folders(session):
        images.setdefault(str(each.name), each)
    return list(images.values())


def list_folders(session: Session) -> list[CatalogImage]:
    """Return the images in all folders of the catalog, also those whose name an earlier folder has."""
    return [each for folder in catalog_folders(session) for each in _list_folder(folder)]


def suggest_catalog_name(text: str, session: Session) -> str:
    """Return the most similar name in the catalog, with or without a tag; empty if no name is similar."""
    return suggest_word(text, [each for name in _catalog_names(session) for each in (name, name.partition(":")[0])])


def _catalog_names(session: Session) -> list[str]:
    return [str(each.name) for each in list_catalog(session)]


def new_file(text: str, session: Session) -> Path:
    """Return the file for a new image in the user's own folder, and create the folder.

    Raises
    ------
    UsageError
        If the text is not a valid name.
    CheckFailed
        If the folder cannot be created.
    """
    parsed = parse_catalog_name(text)
    if parsed is None:
        raise UsageError(
            f"{text!r} is not a valid image name",
            evidence="a name is NAME or NAME:TAG; both consist of letters, digits, '_', '.', '+' and '-'",
            hint="choose another name",
        )
    if text.endswith(IMAGE_SUFFIXES):
        known = text.rpartition(".")[0]
        raise UsageError(f"invalid image name {text!r}: catalog names have no file suffix", hint=f"use {known}")
    path = parsed.file(session.paths.images[0])
    with translate_os_errors(path.parent, IMAGES):
        make_folder(path.parent)
    return path


def tag_image(image: str, alias: str, session: Session) -> tuple[Path, Path]:
    """Add an alias, a symbolic link in the user's own folder; return the link and its target.

    An existing alias is replaced; an existing image is not.

    Raises
    ------
    UsageError
        If there is no such image, or the alias is the name of an image.
    """
    target = _image_file(image, session)
    link = with_image_suffix(new_file(alias, session), target.suffix)
    image_there = next((each for each in (link, *other_files(link)) if each.exists() and not each.is_symlink()), None)
    if image_there:
        raise UsageError(
            f"cannot create the alias {alias}: an image has this name",
            evidence=str(image_there),
            hint=f"choose another name, or remove the image: argosy images rm {alias}",
        )
    if link == target or link.absolute() == target.absolute():
        raise UsageError(f"the alias {alias} would point to itself", hint="choose another name")
    inside = target.is_relative_to(session.paths.images[0])
    words = os.path.relpath(target, link.parent) if inside else str(target)
    with editing(link, waiting=session.waiting):
        write_link(link, words)
        for other in other_files(link):
            other.unlink(missing_ok=True)
    return link, target


def with_image_suffix(path: Path, suffix: str) -> Path:
    """Return the file of a name in the catalog, with a suffix by which the catalog finds it."""
    return path.with_suffix(suffix) if suffix in IMAGE_SUFFIXES else path


def other_files(path: Path) -> list[Path]:
    """Return the existing files that the catalog may find for the name of another one: those with other suffixes."""
    others = (path.with_suffix(suffix) for suffix in IMAGE_SUFFIXES if suffix != path.suffix)
    return [each for each in others if os.path.lexists(each)]


def _image_file(image: str, session: Session) -> Path:
    path = parse_path(image)
    found = path.absolute() if path.is_file() else find_in_catalog(image, session)
    if found is None or found.is_dir():
        otherwise = "'argosy images ls' lists images; 'argosy images pull' adds one"
        raise UsageError(
            f"there is no image {image!r} in the catalog", hint=did_you_mean(image, _catalog_names(session), otherwise)
        )
    return found.resolve() if found.is_symlink() else found


class Removed(msgspec.Struct, frozen=True):
    """Result of `argosy images rm`: the file, and the removed aliases that pointed to it."""

    path: str
    bytes: int
    aliases: tuple[str, ...] = ()


def remove_images(names: Sequence[str], session: Session) -> tuple[Removed, ...]:
    """Remove images from the user's own folders, with all aliases that point to them; of an alias, only the link.

    Raises
    ------
    UsageError
        If one of the images does not exist, or is in another folder; no image is removed then.
    """
    found = dict.fromkeys(_find_removable(name, session) for name in names)
    links_first = sorted(found, key=lambda each: not each[0].is_symlink())  # an image takes its aliases with it
    return tuple(_remove_file(path, folder) for path, folder in links_first)


def _find_removable(name: str, session: Session) -> tuple[Path, Path]:
    """Return the file of an image, and the folder of images that contains it."""
    path = find_in_catalog(name, session) or find_dangling(name, session)
    if path and name.endswith(IMAGE_SUFFIXES) and Path(session.host.cwd, name).is_file():
        known = name.rpartition(".")[0]
        raise UsageError(
            f"{name} is a file in this folder, and {known} an image of the catalog",
            evidence=str(path),
            hint=f"for the image of the catalog: argosy images rm {known}; for the file: rm {quote(name)}",
        )
    if path is None:
        otherwise = "'argosy images ls' lists images; remove other files with rm"
        raise UsageError(
            f"there is no image {name!r} in the catalog",
            evidence=f"searched {', '.join(map(str, session.paths.images))}",
            hint=did_you_mean(name, _catalog_names(session), otherwise),
        )
    folder = next((each for each in session.paths.images if path.is_relative_to(each)), None)
    if folder is None:
        raise UsageError(
            f"cannot remove {name}: it is not in your own folder of images",
            evidence=str(path),
            hint=f"if it is yours, remove the file: rm {quote(str(path))}",
        )
    if path.is_dir():
        raise UsageError(f"cannot remove {name}: {path} is a folder", hint=f"remove it with: rm -r {path}")
    return path, folder


def _remove_file(path: Path, folder: Path) -> Removed:
    removed = Removed(str(path), 0)
    if not path.is_symlink():
        aliases = [each for each in _list_folder(folder) if each.alias_of == str(path.resolve())]
        with suppress(FileNotFoundError):  # another process removes it, too
            removed = replace(removed, bytes=path.stat().st_size)
        removed = replace(removed, aliases=tuple(str(each.name) for each in aliases))
        unlink_images([each.path for each in aliases], folder)
    unlink_images([path], folder)
    return removed


def find_dangling(name: str, session: Session) -> Path | None:
    """Return the alias of this name if its target does not exist."""
    parsed = parse_catalog_name(name)
    folders = catalog_folders(session) if parsed else ()
    links = (parsed.file(folder, suffix) for folder in folders for suffix in IMAGE_SUFFIXES if parsed)
    return next((link for link in links if link.is_symlink() and not link.exists()), None)


def unlink_images(paths: list[Path], folder: Path) -> None:
    """Remove files of a folder of the catalog, and their own folders if they become empty."""
    for path in paths:
        with translate_os_errors(path.parent, IMAGES):
            path.unlink(missing_ok=True)
        if path.parent != folder:
            with suppress(OSError):  # not empty, or another process has removed it
                path.parent.rmdir()
