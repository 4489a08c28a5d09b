"""Pack trees into squashfs files with mksquashfs, and unpack them with unsquashfs.

The options make equal trees result in equal bytes: one time for all files, root as the owner, no extended attributes,
fixed block size and level (`docs/explanation/images.md`).

Whiteouts mark files of the base that a layer removes: character devices 0:0, which the kernel's overlay and
fuse-overlayfs understand. Since Linux 5.8 ordinary users can create them, but unsquashfs omits all devices for
ordinary users. Without `restore_whiteouts`, removed files would silently reappear.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from argosy.core.errors import CheckFailed, ImageError, ToolMissing
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Host
from argosy.core.process import Argv, Command, Reply, find_program
from argosy.core.progress import drop_bars, read_bar
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import load_helper, quote
from argosy.core.store import atomic_file
from argosy.core.tool_errors import LAST_LINES, run_checked, tool_error
from argosy.images.rootfs import locate_in_root
from argosy.images.squashfs.superblock import LATEST_TIME, Superblock
from argosy.images.tree_digests import walk_tree

NOT_UNPACKED = (
    "if the image is damaged, copy, download or build it again; "
    "otherwise set ARGOSY_CACHE to a folder on a file system with hard links"
)
UNSQUASHFS_SOME_NOT_WRITTEN = 2
"""Exit code of unsquashfs(1) for non-fatal errors, for example devices that an ordinary user cannot create."""

INCOMPLETE = re.compile(r"failed to create (?:hard|sym)link|No space left|Disk quota exceeded|Input/output error")
"""Non-fatal errors after which a tree is useless: unsquashfs continues after links that do not fit on the disk."""

FUSE_WHITEOUT = ".wh."
"""Prefix of fuse-overlayfs's whiteouts where devices cannot be created: empty files with this prefix."""
MODE = stat.S_IFCHR | 0o644
LISTED = re.compile(r"c[-rwxsStT]{9} \S+ +0, *0 \d{4}-\d\d-\d\d \d\d:\d\d /(.+)")
"""A whiteout in the output of ``unsquashfs -lls -d ''``."""

BLOCK_SIZE = 128 << 10
"""Blocks of 1 MiB make smaller files but slower starts: python takes 175 instead of 163 ms (`make bench`)."""

COMPRESSION = "zstd"
LEVEL = 1
"""Level 3 takes 1.4 times the CPU time and saves 5 % of the bytes (PyTorch's Python files and libraries)."""

DISK_BLOCK = 512
"""Unit of ``st_blocks``, in bytes: stat(3type)."""

MEMORY_SHARE = 8
MEMORY_MOST = 768 << 20
"""By default, mksquashfs takes a quarter of the machine's memory, regardless of the cgroup's limit."""


def pack_options(
    host: Host, *, time: int, all_root: bool = True, like: Superblock | None = None, keep_times: bool = False
) -> Argv:
    """Return the options of mksquashfs for this machine.

    Parameters
    ----------
    time
        Time of all files, in seconds since 1970.
    all_root
        Whether root owns all files; false keeps the owners (a base built by root).
    like
        A squashfs with the compressor (gzip or zstd) and the block size to use, instead of the defaults.
    keep_times
        Whether files keep their own times. Python's byte code names the time of its source: with another one, it is
        compiled again at each start (a foreign base).
    """
    compressor, block_size = (like.compressor, like.block_size) if like else (COMPRESSION, BLOCK_SIZE)
    memory = max(64 << 20, min(MEMORY_MOST, host.memory // MEMORY_SHARE))
    owner = ("-all-root",) if all_root else ()
    times = () if keep_times else ("-all-time", str(time))
    return (
        *("-comp", compressor, "-Xcompression-level", str(LEVEL), "-b", str(block_size)),
        *("-mkfs-time", str(time), *times, *owner, "-no-xattrs"),
        *("-mem", f"{memory >> 20}M", "-processors", str(host.cpus), "-quiet"),
    )


def time_of_file(path: Path) -> int:
    """Return the time of a file or folder, or the nearest that squashfs can record."""
    return max(0, min(int(path.stat().st_mtime), LATEST_TIME))


CHECK_LIMITS = "check the free disk space (df -h, quota -s) and memory (free -h), then try again"
"""Next step if mksquashfs fails: nobody can run it by hand, because its tree is removed with the work folder."""


def plan_pack(tree: Path, out: Path, options: Argv, host: Host) -> Command:
    """Return the command that packs `tree` into the new file `out`."""
    argv = ("mksquashfs", str(tree), str(out), "-noappend", *options)
    return Command(argv, env=_without_epoch(host))


def _without_epoch(host: Host) -> dict[str, str]:
    """Remove SOURCE_DATE_EPOCH, which mksquashfs 4.5 and 4.6 reject together with -all-time."""
    return {name: value for name, value in host.environment.items() if name != "SOURCE_DATE_EPOCH"}


def packer_version(session: Session) -> str:
    """Return the version of the installed mksquashfs; empty if it prints none."""
    argv = session.runner.run(Command(("mksquashfs", "-version"))).stdout.split()
    return argv[2] if len(argv) > 2 else ""  # noqa: PLR2004 - mksquashfs version 4.5.1 (…)


def run_pack(
    session: Session,
    tree: Path,
    out: Path,
    *,
    time: int,
    all_root: bool = True,
    like: Superblock | None = None,
    keep_times: bool = False,
) -> None:
    """Pack a tree; see `pack_options`.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If mksquashfs is missing or fails, or the disk is full.
    """
    options = pack_options(session.host, time=time, all_root=all_root, like=like, keep_times=keep_times)
    command = plan_pack(tree, out, options, session.host)
    reply = _reply_with_bar(session, command)
    if reply.code != 0:
        raise tool_error(command, reply, doing="packing the layer", hint=CHECK_LIMITS)


def _reply_with_bar(session: Session, command: Command) -> Reply:
    """Run mksquashfs, and report its progress bar, which it writes to standard output."""
    meter = session.meter("packing", unit="blocks")
    reply = session.runner.run(replace(command, joined=True), lambda line: read_bar(meter, line))
    meter.end()
    return _without_bars(reply)


def _without_bars(reply: Reply) -> Reply:
    """Return a reply without its progress bars, as the evidence of an error."""
    return replace(reply, stderr=drop_bars(reply.stderr))


UNPACK = Path(__file__).parents[1] / "scripts" / "unpack.sh"
DAMAGED = 9
"""Exit code of `UNPACK` if the decompressor fails."""
DAMAGED_TAR = re.compile(r"tarfile appears to be truncated|tar header|Error occurred reading tar file", re.IGNORECASE)
"""Messages of mksquashfs 4.5 about a tar file that is cut or damaged; its exit code is then 1."""


def pack_tar(session: Session, archive: Path, out: Path, *, compression: str, time: int) -> None:
    """Pack a tar file of a root file system, compressed or not, with its owners.

    This uses ``mksquashfs - … -tar``, because sqfstar 4.5 misreads ``-Xcompression-level 1`` ("missing compression
    level").

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If mksquashfs or the decompressor is missing or fails, or the disk is full.
    ImageError
        If the tar file or the compressed data are damaged.
    """
    options = pack_options(session.host, time=time, all_root=False)
    argv: Argv = ("mksquashfs", "-", str(out), "-tar", "-noappend", *options)
    command = Command(argv, env=_without_epoch(session.host), stdin_file=str(archive))
    # The names of the compressions are those of the programs.
    if compression != "none" and find_program(compression, session.host.environment.get("PATH")) is None:
        raise ToolMissing(
            f"cannot unpack {archive.name}: {compression} is not installed on this machine",
            hint=f"install {compression}, or decompress the file on another machine",
        )
    helper, run = load_helper(UNPACK, "unpack"), command
    if compression != "none":
        run = replace(command, argv=("sh", "-c", helper, helper.name, compression, *argv))
    reply = _reply_with_bar(session, run)
    if reply.code == DAMAGED or (reply.code == 1 and DAMAGED_TAR.search(reply.stderr)):
        lines = reply.stderr.strip().splitlines()[-LAST_LINES:]
        reader = f"{compression} -dc" if reply.code == DAMAGED else "mksquashfs - -tar"
        raise ImageError(
            f"{archive.name} is damaged or incomplete",
            evidence="\n".join((f"{reader} < {quote(str(archive))} failed:", *lines)),
            hint="copy, download or create it again",
        )
    if reply.code != 0:
        raise tool_error(command, reply, doing=f"packing {archive.name}", hint=CHECK_LIMITS)


def normalise_tree(tree: Path, *, system: bool = False) -> int:
    """Set the mode of all files to 0644 or 0755 and of all folders to 0755, and remove left-over files of installers.

    Parameters
    ----------
    system
        Whether the tree also contains files of the distribution, whose modes have a meaning (sudo, /var/tmp) and are
        kept.

    Returns
    -------
    Bytes of the files and folders on disk.
    """
    size = 0
    for path in walk_tree(f"{tree}{ROOT}" if system else str(tree)):
        status = os.lstat(path)
        size += status.st_blocks * DISK_BLOCK
        if stat.S_ISLNK(status.st_mode):
            continue
        mode = 0o755 if stat.S_ISDIR(status.st_mode) or status.st_mode & 0o111 else 0o644
        if stat.S_IMODE(status.st_mode) != mode:
            _set_mode(path, mode)
    tree.chmod(0o755)
    for left in (".lock", ".gitignore", "CACHEDIR.TAG"):
        locate_in_root(tree, f"{ENV_PREFIX}/{left}").unlink(missing_ok=True)
    return size


def _set_mode(path: str, mode: int) -> None:
    """Set the mode of a file; replace a hard link to another user's file in a shared cache by a copy."""
    try:
        os.chmod(path, mode)  # noqa: PTH101 - 30,000 of them
    except PermissionError:
        import shutil  # noqa: PLC0415 - see process.find_program

        with atomic_file(Path(path), force=True, flush=False) as beside:
            shutil.copyfile(path, beside)
            beside.chmod(mode)


def is_whiteout(path: Path) -> bool:
    """Return whether a path is a whiteout."""
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def write_whiteout(path: Path) -> None:
    """Mark a file as removed.

    Raises
    ------
    CheckFailed
        If the kernel does not allow this user to create devices.
    """
    try:
        os.mknod(path, MODE, 0)
    except PermissionError as error:
        raise CheckFailed(
            "cannot record the files that steps removed: this kernel does not allow whiteouts",
            evidence=f"mknod {path.name} c 0 0: {error.strerror}; ordinary users need Linux 5.8",
            hint="build on a machine with a newer kernel, or as root",
        ) from error


def parse_whiteouts(listing: str) -> tuple[str, ...]:
    """Return the paths of removed files in the output of ``unsquashfs -lls -d ''``."""
    return tuple(found[1] for line in listing.splitlines() if (found := LISTED.fullmatch(line)))


def restore_whiteouts(tree: Path, paths: tuple[str, ...]) -> None:
    """Create the whiteouts that unsquashfs omitted from an unpacked tree.

    Kernels that forbid this also lack overlays for ordinary users, who then use fuse-overlayfs and its other mark.
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


UMASK = 0o022
"""unsquashfs 4.5 gives folders their modes, but new files those of the umask: other users could start no program."""


def run_unsquashfs(
    session: Session, image: Path, offset: int, tree: Path, *options: str, doing: str, parts: tuple[str, ...] = ()
) -> None:
    """Unpack the squashfs that begins at byte `offset` of `image`, with its whiteouts.

    Parameters
    ----------
    parts
        Paths to unpack, with their parent folders; by default all.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        If unsquashfs fails or is missing, or the disk is full.
    """
    chosen = _list_parts(tree, parts) if parts else ()
    argv = ("unsquashfs", "-quiet", *options, *chosen, "-o", str(offset), "-d", str(tree), str(image))
    command, meter = Command(argv, joined=True, umask=UMASK), session.meter("unpacking", unit="files and blocks")
    reply = _without_bars(session.runner.run(command, lambda line: read_bar(meter, line)))
    meter.end()
    if is_incomplete(reply) or not tree.is_dir():
        raise tool_error(command, reply, doing=doing, hint=NOT_UNPACKED)
    if reply.code or session.host.person.uid != 0:
        listing = Command(("unsquashfs", "-no-progress", *chosen, "-lls", "-o", str(offset), "-d", "", str(image)))
        restore_whiteouts(tree, parse_whiteouts(run_checked(session.runner, listing, doing=doing).stdout))


def is_incomplete(reply: Reply) -> bool:
    """Return whether unsquashfs did not write all files, other than devices that the user cannot create."""
    some = reply.code == UNSQUASHFS_SOME_NOT_WRITTEN
    return (bool(reply.code) and not some) or (some and bool(INCOMPLETE.search(reply.stdout + reply.stderr)))


def _list_parts(tree: Path, parts: tuple[str, ...]) -> Argv:
    """Write the paths to unpack into a file, because there may be thousands; return the options of unsquashfs."""
    names = tree.with_name(f"{tree.name}.names")
    names.write_text("".join(f"{part}\n" for part in parts), encoding="utf-8", errors="surrogateescape")
    return ("-no-wildcards", "-ef", str(names))
