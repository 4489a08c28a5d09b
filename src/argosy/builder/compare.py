"""Compare two images: packages, settings, and the files of their layers."""

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
    """Record a difference between two trees: ``+`` only in the second, ``-`` only in the first, ``~`` changed."""

    sign: str
    path: str


class Comparison(msgspec.Struct, frozen=True):
    """Report the differences between two images.

    Attributes
    ----------
    changes
        Differences of packages, variables, base, Python and content.
    files
        Differences of the layers' files.
    notes
        Parts that were not compared, and why.
    """

    changes: tuple[Change, ...]
    files: tuple[FileChange, ...]
    notes: tuple[str, ...] = ()


def compare_images(one: str, other: str, session: Session) -> Comparison:
    """Compare two images of any kind.

    Raises
    ------
    ArgosyError
        If an image does not exist or cannot be read.
    """
    changes = compare_locks(freeze(one, session), freeze(other, session))
    if not any(change.name in ("content", "base") for change in changes):
        return Comparison(changes, ())
    opened = [refined(open_image(find_image(name, session)), session) for name in (one, other)]
    if any(each.image.layer_part == 0 for each in opened):
        note = "files were not compared: one of the images has no separate layer"
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
    """Return the differences by path; a folder that only one tree has is listed without its content."""
    found = []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) != other.get(path):
            sign = "~" if path in one and path in other else "-" if path in one else "+"
            found.append(FileChange(sign, path))
    gone = {(change.sign, change.path) for change in found if change.sign != "~"}
    return tuple(change for change in found if (change.sign, str(Path(change.path).parent)) not in gone)
