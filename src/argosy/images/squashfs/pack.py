"""Turn trees into squashfs and back: the words for mksquashfs, the content digest of a tree; it chooses no content.

The bytes of a squashfs come from mksquashfs alone.  Options that make equal trees give equal bytes: one time for all
files, root as the owner, no extended attributes, fixed block size and level (`docs/explanation/images.md`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from argosy.core.layout import ROOT
from argosy.core.model import Host
from argosy.core.process import Argv, Command, run_checked
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.squashfs.superblock import Superblock
from argosy.images.tree_digests import Note, Notes, moment, note_of, notes_beside, read_notes, write_notes

BLOCK_SIZE = 128 << 10
"""1 MiB blocks are smaller on disk and start slower: python 175 against 163 ms (`make bench`)."""

COMPRESSION = "zstd"
LEVEL = 1
"""Level 3 takes 1.4 times the CPU and saves 5 % of the bytes (PyTorch's Python files and libraries)."""

READ_BYTES = 256 << 10
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


Entries = Mapping[str, bytes]
"""Path inside -> mode, link target and digest of the bytes: what two equal entries of trees have in common."""


def digest_tree(tree: Path) -> str:
    """Give the content digest of a tree: path, mode, link target and bytes of everything in it.

    Owners and times do not count: they are the same for every layer.  Two trees have one digest exactly where the
    sorted lists of their entries are equal.  One thread: with two, waiting for the interpreter's lock costs more CPU
    than the hashing (2.5 against 1.4 s for 1.2 GB in 30,000 entries on 2 cores).

    Returns
    -------
    ``sha256:`` and 64 hexadecimal digits.
    """
    return digest_entries(_describe_all(tree, Notes(), 0)[0])


def digest_entries(entries: Entries) -> str:
    """Give the content digest of a tree of which these are the entries."""
    return f"sha256:{hashlib.sha256(b''.join(entries.values())).hexdigest()}"


def describe_noted(tree: Path) -> Entries:
    """Give the entries of a tree, sorted, and keep notes beside it; read no file that these know already."""
    known = read_notes(notes_beside(tree))
    entries, notes = _describe_all(tree, known, moment(tree))
    write_notes(notes_beside(tree), notes)
    return entries


def _describe_all(tree: Path, known: Notes, began: int) -> tuple[dict[str, bytes], Notes]:
    """Give the entries of a tree, and notes of the files that changed before `began`."""
    entries, files = dict[str, bytes](), dict[str, Note]()
    for path, name in _entries(tree):
        status = os.lstat(path)
        note = None
        is_file = stat.S_ISREG(status.st_mode)
        if is_file or stat.S_ISLNK(status.st_mode):
            note = known.known(name, status) or note_of(status, _hash_file(path) if is_file else "")
            if note.changed < began:
                files[name] = note
        entries[name] = _describe(path, name, status, note.digest if note else "")
    return entries, Notes(tree.stat().st_dev, files)


def describe_tree(tree: Path) -> dict[str, str]:
    """Give the digest of each entry of a tree, by its path inside: what `digest_tree` is the sum of."""
    entries = ((path, name, os.lstat(path)) for path, name in _entries(tree))
    return {name: hashlib.sha256(_describe(path, name, status)).hexdigest() for path, name, status in entries}


def _entries(tree: Path) -> list[tuple[str, str]]:
    """List (path on disk, path inside), sorted by the path inside; the tree's own root is the first."""
    root = str(tree)
    inside = len(root.rstrip("/")) + 1
    found = [(root, "."), *((path, path[inside:]) for path in _walk(root))]
    return sorted(found, key=lambda pair: pair[1])


def _walk(folder: str) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry.path
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _hash_file(path: str) -> str:
    """Hash a file by plain reads: most are small, and a buffered reader costs more than their bytes."""
    total = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY)
    try:
        while block := os.read(handle, READ_BYTES):
            total.update(block)
    finally:
        os.close(handle)
    return total.hexdigest()


def _describe(path: str, name: str, status: os.stat_result, content: str = "") -> bytes:
    """Describe an entry; `content` is a file's digest where that is known."""
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)  # noqa: PTH115 - 30,000 of them: no Path for each
    elif stat.S_ISREG(status.st_mode):
        content = content or _hash_file(path)
    elif not stat.S_ISDIR(status.st_mode):
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return f"{status.st_mode:o} {name}\0{content}\0".encode(errors="surrogateescape")


def digest_of_entry(entry: bytes) -> str:
    """Give the SHA-256 of a file by its entry, in hexadecimal digits; nothing for what is no file."""
    head, _, rest = entry.partition(b"\0")
    is_file = bool(head) and stat.S_ISREG(int(head.partition(b" ")[0], 8))
    return rest.rstrip(b"\0").decode() if is_file else ""


def normalise_tree(tree: Path, *, system: bool = False) -> None:
    """Give every file 0644 or 0755 and every folder 0755, whatever umask and cache made of them.

    Files left by installers that differ between runs, or mean nothing inside, are removed.  With `system` the tree
    holds files of the distribution too, whose modes have a meaning (sudo, /var/tmp): they are kept.
    """
    for path in _walk(f"{tree}{ROOT}" if system else str(tree)):
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
