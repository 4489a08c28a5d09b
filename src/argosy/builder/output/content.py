"""What an image is made of, whatever file it goes into; and its tree, unpacked for another form."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer, find_build_container_in_tree
from argosy.builder.bases.base import Base
from argosy.core.layout import DEFAULT_PATH, GPU_LIBRARIES, ROOT
from argosy.core.session import Session
from argosy.core.shell import NAME
from argosy.core.store import remove_tree
from argosy.images.rootfs_cache import run_unsquashfs
from argosy.images.sif.write import FileSlice
from argosy.images.whiteouts import is_whiteout
from argosy.recipes.lock import Lock


class Content(msgspec.Struct, frozen=True):
    """A base and what lies over it.

    Attributes
    ----------
    name
        What the image is called where a form asks for a name: ``digits``.
    base
        The squashfs of the root file system.
    layer
        The layer: its tree, or its squashfs; None where the base holds everything.
    arch
        Go's name of the architecture.
    time
        Seconds since 1970, for whatever is made of it.
    older
        Whether the base is an image of ours of one partition, whose own layer the new one takes the place of.
    """

    name: str
    base: FileSlice
    layer: FileSlice | Path | None
    lock: Lock | None
    arch: str
    time: int
    older: bool = False


def content_over(base: Base, layer: Path, lock: Lock, *, name: str) -> Content:
    """Give the content of an image that is being built: a base, and a layer's tree."""
    image = base.image
    below = FileSlice(Path(image.path), image.base_offset, image.base_size)
    older = base.lock is not None and image.layer_offset < 0
    return Content(name, below, layer, lock, image.arch, lock.time, older)


def unpack_slice(source: FileSlice, tree: Path, session: Session, *, doing: str) -> None:
    """Unpack the squashfs in a file.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        When unsquashfs is not there, fails, or the disk is full.
    """
    run_unsquashfs(session, source.path, source.offset, tree, doing=doing)


def unpack_base(content: Content, work: Path, session: Session) -> Path:
    """Unpack the base into the work folder."""
    tree = work / "base-tree"
    unpack_slice(content.base, tree, session, doing="unpacking the base")
    return tree


def unpack_layer(content: Content, work: Path, session: Session) -> Path | None:
    """Give the tree of the layer; None where there is none."""
    if isinstance(content.layer, FileSlice):
        tree = work / "layer-tree"
        unpack_slice(content.layer, tree, session, doing="unpacking the layer")
        return tree
    return content.layer


def unpack_whole(content: Content, work: Path, session: Session) -> Path:
    """Give one tree of base and layer; the layer's own tree is used up."""
    whole = unpack_base(content, work, session)
    layer = unpack_layer(content, work, session)
    if content.older:
        remove_tree(follow_inside(whole / ROOT.lstrip("/"), whole))
    if layer is not None:
        merge_trees(layer, whole, root=whole)
    return whole


def merge_trees(source: Path, target: Path, *, root: Path) -> None:
    """Move a tree's entries into another one; folders that stand there are merged, files replaced.

    A symbolic link to a folder on the way (``/opt -> /usr/opt``) is followed within `root`, as it would be inside.
    """
    for entry in source.iterdir():
        if is_whiteout(entry):
            removed = target / entry.name
            if removed.is_dir() and not removed.is_symlink():
                remove_tree(removed)
            else:
                removed.unlink(missing_ok=True)
            continue
        there = follow_inside(target / entry.name, root)
        if entry.is_dir() and not entry.is_symlink() and there.is_dir():
            merge_trees(entry, there, root=root)
        else:
            there.unlink(missing_ok=True)
            shutil.move(entry, there)


def follow_inside(path: Path, root: Path) -> Path:
    """Follow a symbolic link as a program inside `root` would."""
    for _ in range(40):  # the kernel's own limit of links on a path, path_resolution(7)
        if not path.is_symlink():
            return path
        link = path.readlink()
        path = root / str(link).lstrip("/") if link.is_absolute() else path.parent / link
    return path


OF_THE_START = frozenset({"HOME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "USER", "LOGNAME", "HOSTNAME", "PS1"})
OF_RUNTIMES = ("APPTAINER", "SINGULARITY", "ARGOSY_WORK", "PROOT")


def ask_environment(tree: Path, work: Path, session: Session) -> tuple[tuple[str, str], ...]:
    """Give the variables that the image's own scripts set, by running them inside its tree.

    Raises
    ------
    ToolMissing, ToolFailed
        When nothing here can run a program in the tree.
    """
    return ask_build_container(find_build_container_in_tree(session, tree, scratch=work / "ask"))


def ask_build_container(build_container: BuildContainer) -> tuple[tuple[str, str], ...]:
    """Give the variables that the scripts of a room's image set.

    Raises
    ------
    ToolFailed
        When one of them fails.
    """
    # LANG is empty, so that one which the image sets only where there is none is seen.
    reply = build_container.run_checked(
        "/bin/cat", "/proc/self/environ", variables=(("LANG", ""),), doing="asking the image for its environment"
    )
    return parse_environment(reply.stdout)


def parse_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``/proc/PID/environ``, and leave out what belongs to the start of a program and not to the image."""
    rows = (row.partition("=") for row in text.split("\0"))
    found = {name: value for name, _, value in rows if NAME.match(name) and value}
    kept = {
        name: value
        for name, value in found.items()
        if name not in OF_THE_START and not name.startswith(OF_RUNTIMES) and "\n" not in value
    }
    libraries = [part for part in kept.pop("LD_LIBRARY_PATH", "").split(":") if part and part != GPU_LIBRARIES]
    if libraries:
        kept["LD_LIBRARY_PATH"] = ":".join(libraries)
    return (("PATH", kept.pop("PATH", DEFAULT_PATH)), *sorted(kept.items()))
