"""Compare two images: packages, settings, and the files of their layers; it changes neither."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.freeze import freeze
from argosy.core.process import Command, run_checked
from argosy.core.session import Session
from argosy.core.store import work_folder
from argosy.images.find import find_image, refined
from argosy.images.open import Opened, open_image
from argosy.images.squashfs.pack import describe_tree
from argosy.recipes.lock_diff import Change, compare_locks


class FileChange(msgspec.Struct, frozen=True):
    """One difference between two trees: ``+`` only in the second, ``-`` only in the first, ``~`` other."""

    sign: str
    path: str


class Comparison(msgspec.Struct, frozen=True):
    """What differs between two images.

    Attributes
    ----------
    changes
        Packages, variables, base, Python, content.
    files
        Of the layers; empty where these are the same.
    notes
        What was not compared, and why.
    """

    changes: tuple[Change, ...]
    files: tuple[FileChange, ...]
    notes: tuple[str, ...] = ()


def compare_images(one: str, other: str, session: Session) -> Comparison:
    """Compare two images of any kind.

    Raises
    ------
    ArgosyError
        When one is not there, or cannot be read.
    """
    changes = compare_locks(freeze(one, session), freeze(other, session))
    if not any(change.name in ("content", "base") for change in changes):
        return Comparison(changes, ())
    opened = [refined(open_image(find_image(name, session)), session) for name in (one, other)]
    if any(each.image.layer_part == 0 for each in opened):
        note = "files are compared where both images have a layer of their own; one of these has none"
        return Comparison(changes, (), (note,))
    with work_folder(session.work_parent()) as work:
        trees = [_layer(each, session, work / str(number)) for number, each in enumerate(opened)]
        return Comparison(changes, _compare_trees(*trees))


def _layer(opened: Opened, session: Session, tree: Path) -> dict[str, str]:
    image = opened.image
    options = ("-no-progress", "-quiet", "-no-xattrs", "-o", str(image.layer_offset), "-d", str(tree))
    run_checked(session.runner, Command(("unsquashfs", *options, image.path)), doing=f"unpacking {image.path}")
    return describe_tree(tree)


def _compare_trees(one: dict[str, str], other: dict[str, str]) -> tuple[FileChange, ...]:
    """Give what differs by path; of a folder that is only in one tree, its own line says enough."""
    found = []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) != other.get(path):
            sign = "~" if path in one and path in other else "-" if path in one else "+"
            found.append(FileChange(sign, path))
    gone = {(change.sign, change.path) for change in found if change.sign != "~"}
    return tuple(change for change in found if (change.sign, str(Path(change.path).parent)) not in gone)
