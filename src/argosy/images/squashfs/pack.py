"""Turn trees into squashfs and back: the words for mksquashfs, the content digest of a tree; it chooses no content.

The bytes of a squashfs come from mksquashfs alone.  Options that make equal trees give equal bytes: one time for all
files, root as the owner, no extended attributes, fixed block size and level (`docs/explanation/images.md`).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from argosy.core.errors import CheckFailed
from argosy.core.layout import ROOT
from argosy.core.model import Host
from argosy.core.process import Argv, Command, run_checked, tool_error
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.squashfs.superblock import Superblock
from argosy.images.tree_digests import walk_tree

NOT_UNPACKED = (
    "the image may be damaged: copy, download or build it again; "
    "if it is not, name a folder on a file system with hard links by ARGOSY_CACHE"
)
UNSQUASHFS_SOME_NOT_WRITTEN = 2
"""unsquashfs(1): non-fatal errors, as device nodes that an ordinary user cannot make."""

FUSE_WHITEOUT = ".wh."
"""The mark of fuse-overlayfs where such a device cannot be made: an empty file with this before its name."""
MODE = stat.S_IFCHR | 0o644
LISTED = re.compile(r"c[-rwxsStT]{9} \S+ +0, *0 \d{4}-\d\d-\d\d \d\d:\d\d /(.+)")
"""A whiteout in what ``unsquashfs -lls -d ''`` prints."""

BLOCK_SIZE = 128 << 10
"""1 MiB blocks are smaller on disk and start slower: python 175 against 163 ms (`make bench`)."""

COMPRESSION = "zstd"
LEVEL = 1
"""Level 3 takes 1.4 times the CPU and saves 5 % of the bytes (PyTorch's Python files and libraries)."""

MEMORY_SHARE = 8
MEMORY_MOST = 768 << 20
"""mksquashfs takes a quarter of the machine's memory by default, whatever the cgroup allows."""


def pack_options(host: Host, *, time: int, all_root: bool = True, like: Superblock | None = None) -> Argv:
    """Give the options of mksquashfs and sqfstar for this machine.

    Parameters
    ----------
    time
        Seconds since 1970 that every file carries.
    all_root
        Whether every file belongs to root inside; false keeps the owners (a base built by root).
    like
        A squashfs whose compressor (gzip or zstd) and block size to take; by default the ones that serve best.
    """
    compressor, block_size = (like.compressor, like.block_size) if like else (COMPRESSION, BLOCK_SIZE)
    memory = max(64 << 20, min(MEMORY_MOST, host.memory // MEMORY_SHARE))
    owner = ("-all-root",) if all_root else ()
    return (
        *("-comp", compressor, "-Xcompression-level", str(LEVEL), "-b", str(block_size)),
        *("-mkfs-time", str(time), "-all-time", str(time), *owner, "-no-xattrs"),
        *("-mem", f"{memory >> 20}M", "-processors", str(host.cpus), "-no-progress", "-quiet"),
    )


def plan_pack(tree: Path, out: Path, options: Argv, host: Host) -> Command:
    """Give the command that packs `tree` into the new file `out`."""
    words = ("mksquashfs", str(tree), str(out), "-noappend", *options)
    return Command(words, env=_without_epoch(host))


def _without_epoch(host: Host) -> dict[str, str]:
    """SOURCE_DATE_EPOCH beside -all-time is a fatal error of mksquashfs 4.5 and 4.6."""
    return {name: value for name, value in host.environment.items() if name != "SOURCE_DATE_EPOCH"}


def packer_version(session: Session) -> str:
    """Give the version of the mksquashfs that is here; empty where it does not say one."""
    words = session.runner.run(Command(("mksquashfs", "-version"))).stdout.split()
    return words[2] if len(words) > 2 else ""  # noqa: PLR2004 - mksquashfs version 4.5.1 (…)


def run_pack(
    session: Session, tree: Path, out: Path, *, time: int, all_root: bool = True, like: Superblock | None = None
) -> None:
    """Pack a tree, `like` another squashfs where one is given.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        When mksquashfs is not there, fails, or the disk is full.
    """
    options = pack_options(session.host, time=time, all_root=all_root, like=like)
    run_checked(session.runner, plan_pack(tree, out, options, session.host), doing="packing the layer")


def pack_tar(session: Session, archive: Path, out: Path, *, compression: str, time: int) -> None:
    """Pack a tar file of a root file system, compressed or not, owners kept.

    By ``mksquashfs - … -tar``: sqfstar 4.5 misreads ``-Xcompression-level 1`` ("missing compression level").
    """
    options = pack_options(session.host, time=time, all_root=False)
    words: Argv = ("mksquashfs", "-", str(out), "-tar", "-noappend", *options)
    if compression != "none":
        # A pipe of two programs needs a shell; it gets every word as an argument and quotes none itself.
        words = ("sh", "-c", '"$0" -dc | "$@"', compression, *words)
    command = Command(words, env=_without_epoch(session.host), stdin_file=str(archive))
    run_checked(session.runner, command, doing=f"packing {archive.name}")


def normalise_tree(tree: Path, *, system: bool = False) -> None:
    """Give every file 0644 or 0755 and every folder 0755, whatever umask and cache made of them.

    Files left by installers that differ between runs, or mean nothing inside, are removed.  With `system` the tree
    holds files of the distribution too, whose modes have a meaning (sudo, /var/tmp): they are kept.
    """
    for path in walk_tree(f"{tree}{ROOT}" if system else str(tree)):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            continue
        mode = 0o755 if stat.S_ISDIR(status.st_mode) or status.st_mode & 0o111 else 0o644
        if stat.S_IMODE(status.st_mode) != mode:
            _set_mode(path, mode)
    tree.chmod(0o755)
    for left in (".lock", ".gitignore", "CACHEDIR.TAG"):
        for place in tree.glob(f"opt/argosy/env/{left}"):
            place.unlink()


def _set_mode(path: str, mode: int) -> None:
    """Set the mode of a file; of a copy where it is a link to another user's, in a cache that a group shares."""
    try:
        os.chmod(path, mode)  # noqa: PTH101 - 30,000 of them
    except PermissionError:
        with atomic_file(Path(path), force=True, flush=False) as beside:
            shutil.copyfile(path, beside)
            beside.chmod(mode)


def is_whiteout(path: Path) -> bool:
    """Tell whether a path is the mark of a removed file."""
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def write_whiteout(path: Path) -> None:
    """Mark a file as removed.

    Raises
    ------
    CheckFailed
        When this user may not on this kernel.
    """
    try:
        os.mknod(path, MODE, 0)
    except PermissionError as error:
        raise CheckFailed(
            "what steps removed cannot be marked as removed here",
            evidence=f"mknod {path.name} c 0 0: {error.strerror}; ordinary users may since Linux 5.8",
            hint="build on a machine with a newer kernel, or as root",
        ) from error


def parse_whiteouts(listing: str) -> tuple[str, ...]:
    """Give the paths of removed files out of what ``unsquashfs -lls -d ''`` prints."""
    return tuple(found[1] for line in listing.splitlines() if (found := LISTED.fullmatch(line)))


def restore_whiteouts(tree: Path, paths: tuple[str, ...]) -> None:
    """Put whiteouts into an unpacked tree that unsquashfs left out.

    On a kernel that forbids it fuse-overlayfs joins trees for ordinary users, and knows the other mark.
    """
    for name in paths:
        path = tree / name
        if os.path.lexists(path) or not path.parent.resolve().is_relative_to(tree.resolve()):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(path, MODE, 0)
        except PermissionError:
            path.with_name(f"{FUSE_WHITEOUT}{path.name}").touch()


def run_unsquashfs(
    session: Session, image: Path, offset: int, tree: Path, *options: str, doing: str, parts: tuple[str, ...] = ()
) -> None:
    """Unpack the squashfs that begins at `offset` bytes in `image`, with the marks of removed files.

    Parameters
    ----------
    parts
        Paths in it that are unpacked; none: all.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full.
    """
    words = ("unsquashfs", "-no-progress", "-quiet", *options, "-o", str(offset), "-d", str(tree), str(image), *parts)
    command = Command(words)
    reply = session.runner.run(command)
    if reply.code not in {0, UNSQUASHFS_SOME_NOT_WRITTEN} or not tree.is_dir():
        raise tool_error(command, reply, doing=doing, hint=NOT_UNPACKED)
    if reply.code or session.host.person.uid != 0:
        listing = Command(("unsquashfs", "-no-progress", "-lls", "-o", str(offset), "-d", "", str(image), *parts))
        restore_whiteouts(tree, parse_whiteouts(run_checked(session.runner, listing, doing=doing).stdout))
