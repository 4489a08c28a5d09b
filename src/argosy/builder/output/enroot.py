"""Write an image for enroot and pyxis: one squashfs, with two files in /etc that control the start of a container."""

from __future__ import annotations

from pathlib import Path

from argosy.builder.backends.container import BuildContainer, find_build_container_in_tree, find_mounting_container
from argosy.builder.output.assemble import plan_whole
from argosy.builder.output.content import Content, ask_build_container, unpack_slice
from argosy.core.session import Session
from argosy.images.sif.write import Piece, whole_of, write_pieces
from argosy.images.squashfs.join import can_join, join_squashfs
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.squashfs.tables import device_nodes

RC = Path(__file__).with_name("rc.sh").read_text(encoding="utf-8")
HAS_ETC = "[ -d /etc ] && [ ! -L /etc ]"


def write_sqsh(path: Path, content: Content, session: Session, work: Path) -> int:
    """Write base and layer as one squashfs with enroot's files and without device nodes, and return its size in bytes.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If no build backend can run a program of the image, or the disk is full.
    """
    packed = _packed(content, session, work)
    build_container = find_mounting_container(session, packed, scratch=work / "ask") or _unpacked(packed, session, work)
    tree, layer = work / "enroot", work / "enroot.sqfs"
    tree.mkdir()
    if build_container.run("/bin/sh", "-c", HAS_ETC).code == 0:
        write_enroot_files(tree, ask_build_container(build_container))
    run_pack(session, tree, layer, time=content.time, like=read_superblock(packed))
    write_pieces(path, _joined(packed, layer, time=content.time))
    path.chmod(0o644)
    return path.stat().st_size


def _joined(packed: Path, layer: Path, *, time: int) -> tuple[Piece, ...]:
    """Add enroot's files to the image, and leave out its device nodes.

    enroot mounts the machine's ``/dev``, and ``enroot create`` and pyxis unpack the image as the user: unsquashfs 4.5
    and later then fails at a device node.
    """
    whole = whole_of(packed)
    return join_squashfs(whole, whole_of(layer), time=time, without=device_nodes(whole))


def _packed(content: Content, session: Session, work: Path) -> Path:
    """Return a squashfs of base and layer that can be joined with another one."""
    packed = work / "whole.sqfs"
    write_pieces(packed, plan_whole(content, session, work))
    if can_join(read_superblock(packed)):
        return packed
    tree, again = work / "unpacked", work / "again.sqfs"
    unpack_slice(whole_of(packed), tree, session, doing="unpacking the base")
    run_pack(session, tree, again, time=content.time, all_root=not session.host.can_mount)
    return again


def _unpacked(packed: Path, session: Session, work: Path) -> BuildContainer:
    tree = work / "tree"
    unpack_slice(whole_of(packed), tree, session, doing="unpacking the image")
    return find_build_container_in_tree(session, tree, scratch=work / "ask-tree")


def write_enroot_files(tree: Path, variables: tuple[tuple[str, str], ...]) -> None:
    """Write the files that enroot reads: ``/etc/environment`` and ``/etc/rc`` (enroot's doc/image-format.md).

    Values with ``${`` are left out, because enroot would insert a variable of the host.
    """
    etc = tree / "etc"
    etc.mkdir(parents=True)
    lines = [f"{name}={value}\n" for name, value in variables if "${" not in value]
    for name, text, mode in (("environment", "".join(lines), 0o644), ("rc", RC, 0o755)):
        (etc / name).write_text(text, encoding="utf-8")
        (etc / name).chmod(mode)
    for folder in (tree, etc):
        folder.chmod(0o755)
