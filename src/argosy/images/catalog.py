"""The catalog: image files in folders, their names and versions, told by the files alone; there is no database.

::

    FOLDER/NAME.sif            NAME
    FOLDER/NAME/TAG.sif        NAME:TAG; NAME alone means NAME:latest, else the newest version
    either as a symbolic link  an alias of the image that it leads to
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.suggest import suggest_word
from argosy.images.identify import Kind, identify_file, render_size

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SUFFIXES = (".sif", ".sqsh", ".squashfs")
LATEST = "latest"
PROJECT_FILE = "argosy.toml"
PROJECT_FOLDER = "images"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
DAY_SECONDS = 86400.0
HOUR_SECONDS = 3600.0


class Word(msgspec.Struct, frozen=True):
    """A name of the catalog, as people write it: ``NAME``, ``NAME:TAG`` or ``NAME/TAG``."""

    name: str
    tag: str = ""

    def __str__(self) -> str:
        """Render it with a colon."""
        return f"{self.name}:{self.tag}" if self.tag else self.name

    def file(self, folder: Path, suffix: str = SUFFIXES[0]) -> Path:
        """Give the file of that name in a folder of the catalog."""
        return folder / self.name / f"{self.tag}{suffix}" if self.tag else folder / f"{self.name}{suffix}"


class Held(msgspec.Struct, frozen=True):
    """An image of the catalog.

    Attributes
    ----------
    alias_of
        The file that a symbolic link leads to; empty for an image itself.
    size
        Bytes.
    changed
        When the file was written, in seconds since 1970.
    newest
        Whether it is the newest version of its name; false where there is one only.
    """

    word: Word
    path: Path
    size: int
    changed: float
    alias_of: str = ""
    newest: bool = False


class Entry(msgspec.Struct, frozen=True):
    """What `argosy images ls` tells of an image: names and dates of the file, the rest out of its own lock.

    Attributes
    ----------
    bytes
        Size of the file.
    digest, base, base_digest, python, sources
        Empty for an image that Argosy did not make.
    sources
        The files that it was built from.
    packages
        Their number; 0 where the image has no lock.
    fault
        Why the file cannot be read; empty for an image that can.
    found
        The packages that were looked for.
    """

    name: str
    path: str
    bytes: int
    changed: float
    alias_of: str
    newest: bool
    digest: str = ""
    base: str = ""
    base_digest: str = ""
    python: str = ""
    packages: int = 0
    sources: tuple[str, ...] = ()
    fault: str = ""
    found: tuple[str, ...] = ()


def parse_word(text: str) -> Word | None:
    """Read a name of the catalog; None for any other word, as a path or a reference."""
    name, separator, tag = text.partition(":")
    if not separator:
        name, separator, tag = text.partition("/")
    return Word(name, tag) if NAME.match(name) and (NAME.match(tag) or not separator) else None


def catalog_folders(session: Session) -> tuple[Path, ...]:
    """Give the folders that are searched, in order: the user's, the project's, the site's."""
    project = Path(session.host.cwd)
    folders = list(session.paths.images)
    if (project / PROJECT_FILE).is_file():
        folders.append(project / PROJECT_FOLDER)
    folders += [Path(folder) for folder in _site_folders(session)]
    return tuple(dict.fromkeys(folders))


def _site_folders(session: Session) -> Iterator[str]:
    """Give the folders of the site that this machine belongs to, where its profile tells them."""
    from string import Template  # noqa: PLC0415 - only where a name is looked for

    from argosy.sites.detect import sites_here  # noqa: PLC0415 - likewise: profiles take 0.1 s to read

    variables = session.host.environment
    for site in sites_here(session.host):
        for folder in site.images.folders:
            path = Template(folder).safe_substitute(variables)
            if path.startswith("/") and "$" not in path:
                yield path


def find_held(text: str, session: Session) -> Path | None:
    """Give the image file that a word names in the catalog; None where there is none."""
    word = parse_word(text)
    if word is None:
        return None
    for folders in (session.paths.images, catalog_folders(session)):
        for folder in folders:
            found = _in_folder(word, text, folder)
            if found is not None:
                return found
    return None


def _in_folder(word: Word, text: str, folder: Path) -> Path | None:
    for suffix in SUFFIXES:
        if word.file(folder, suffix).is_file():
            return word.file(folder, suffix)
    plain = folder / text
    if plain.is_file() or (plain.is_dir() and identify_file(plain).kind is Kind.ROOT_DIRECTORY):
        return plain
    if word.tag or not plain.is_dir():
        return None
    return _in_folder(replace(word, tag=LATEST), f"{word.name}/{LATEST}", folder) or _newest(plain)


def _newest(folder: Path) -> Path | None:
    files = [path for path in _image_files(folder) if not path.is_symlink()]
    return max(files, key=lambda path: path.stat().st_mtime, default=None)


def _image_files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [p for p in folder.iterdir() if p.suffix in SUFFIXES and p.name[0] != "." and p.is_file()]
    return []


def list_held(folder: Path) -> list[Held]:
    """Give every image in a folder of the catalog, sorted by name; aliases that lead nowhere are left out."""
    try:
        inner = [path for path in folder.iterdir() if path.is_dir() and NAME.match(path.name)]
    except OSError:
        return []
    found = [(Word(path.stem), path) for path in _image_files(folder)]
    found += [(Word(below.name, path.stem), path) for below in inner for path in _image_files(below)]
    held = [_held(word, path) for word, path in found]
    return sorted(_with_newest(held), key=lambda each: (each.word.name, -each.changed, each.word.tag))


def _held(word: Word, path: Path) -> Held:
    status = path.stat()
    return Held(word, path, status.st_size, status.st_mtime, str(path.resolve()) if path.is_symlink() else "")


def _with_newest(held: list[Held]) -> Iterator[Held]:
    for each in held:
        same = [other for other in held if other.word.name == each.word.name and not other.alias_of]
        latest = max((other.changed for other in same), default=0.0)
        yield replace(each, newest=len(same) > 1 and not each.alias_of and each.changed == latest)


def list_catalog(session: Session) -> list[Held]:
    """Give every image of the catalog; of one name the first folder's hides those of later ones."""
    held: dict[str, Held] = {}
    for folder in catalog_folders(session):
        for each in list_held(folder):
            held.setdefault(str(each.word), each)
    return list(held.values())


def describe_held(held: Held, wanted: tuple[Requirement, ...] = ()) -> Entry:
    """Describe an image by its own lock; one that cannot be read is listed with the reason.

    Parameters
    ----------
    wanted
        Packages that are looked for.
    """
    from argosy.images.open import open_image  # noqa: PLC0415 - a name is found without it

    entry = Entry(str(held.word), str(held.path), held.size, held.changed, held.alias_of, held.newest)
    try:
        lock = open_image(held.path).lock
    except ArgosyError as error:
        return replace(entry, fault=error.what)
    if lock is None:
        return entry
    if wanted:
        from argosy.images.search import find_wanted  # noqa: PLC0415 - only where packages are looked for

        entry = replace(entry, found=find_wanted(lock, wanted))
    return replace(
        entry,
        digest=lock.content,
        base=lock.base.reference,
        base_digest=lock.base.digest,
        python=lock.python,
        packages=len(lock.packages),
        sources=tuple(source.path for source in lock.sources),
    )


def render_entries(entries: list[Entry], now: float) -> str:
    """Render the catalog as a table for people."""
    rows = [("name", "size", "base", "python", "packages", "age", "")]
    rows += [
        (
            entry.name,
            render_size(entry.bytes),
            entry.base or "-",
            entry.python or "-",
            str(entry.packages or "-"),
            render_age(now - entry.changed),
            _remark(entry),
        )
        for entry in entries
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _remark(entry: Entry) -> str:
    if entry.fault or entry.found:
        return entry.fault or ", ".join(entry.found)
    return f"-> {_short(entry)}" if entry.alias_of else "newest" if entry.newest else ""


def _short(entry: Entry) -> str:
    """Say where an alias leads: by file name within its own folder, else by the whole path."""
    target, folder = Path(entry.alias_of), Path(entry.path).resolve().parent
    return target.name if target.parent == folder == Path(entry.path).parent.resolve() else entry.alias_of


def render_age(seconds: float) -> str:
    """Say how long ago something was, as in ``3 d``."""
    if seconds >= 2 * DAY_SECONDS:
        return f"{seconds / DAY_SECONDS:.0f} d"
    return f"{seconds / HOUR_SECONDS:.0f} h" if seconds >= HOUR_SECONDS else f"{max(0.0, seconds) / 60:.0f} min"


def nearest_held(text: str, session: Session) -> str:
    """Give the name in the catalog that is most like a word; empty where none is."""
    return suggest_word(text, [str(each.word) for each in list_catalog(session)])


def new_file(text: str, session: Session) -> Path:
    """Give the file that a new image of the user's own gets; its folder is made.

    Raises
    ------
    UsageError
        When the word is no name.
    CheckFailed
        When the folder cannot be made.
    """
    from argosy.core.os_errors import translate_os_errors  # noqa: PLC0415 - reading needs none of it

    word = parse_word(text)
    if word is None:
        raise UsageError(
            f"{text!r} is not a valid image name",
            evidence="a name is NAME or NAME:TAG, of letters, digits, '_', '.', '+' and '-'",
            hint="choose another name",
        )
    if text.endswith(SUFFIXES):
        known = text.rpartition(".")[0]
        raise UsageError(f"{text!r} is the name of a file, and a name here has no ending", hint=f"call it {known}")
    path = word.file(session.paths.images[0])
    with translate_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path
