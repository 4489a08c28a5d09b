"""Find and open images on other machines, and send images to them, by ssh.

A base that is already on the other machine is not sent again.

A SIF file consists of its base and the bytes before and after it. If another image on the remote machine has the same
base, only those bytes are sent, and sh assembles the file there. A flat image contains the files of its base as they
are, and the tables apart. The sha256 is compared at the end, and the file gets its name only when it is complete.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from argosy.core.errors import CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.process import Command, OnLine, Reply, Runner
from argosy.core.progress import Meter
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.shell import CALL, ShellExpr, Word, in_double_quotes, join, read_function, read_shell
from argosy.core.ssh import OverSsh, Remote, parse_base64, parse_remote, render_block, run_text, suggest_mkdir
from argosy.core.store import digest_of_file, work_folder
from argosy.core.tool_errors import tool_error
from argosy.images.catalog import parse_catalog_name
from argosy.images.find import fetch_or_find_image
from argosy.images.flat import base_source, find_base_spans, source_of
from argosy.images.open import LOCK_LIMIT, LOCK_NAME, OpenedImage, open_image
from argosy.images.sif.read import read_sif
from argosy.images.sif.write import FileSlice, write_pieces
from argosy.images.squashfs.superblock import SUPERBLOCK, Source, contents_of

SCRIPTS = Path(__file__).with_name("scripts")
REMOTE = read_function(SCRIPTS / "send.sh", "send")
FIND = SCRIPTS / "find_image.sh"

HEAD_BYTES = 32_768
"""Bytes at the start of a SIF file that contain its header and all descriptors."""

MOST_LOOKED_AT = 30
"""Maximum number of remote images to search for the base, the newest first."""

RECEIVED = re.compile(r"received (\d+)")
"""The line in which the remote machine reports the bytes that arrived."""

OTHER_BYTES = 9
"""Remote exit code for a file with an unexpected sha256."""

TAKEN = "taken"
"""Printed by the remote machine instead of a sha256 if the name is that of a folder or a device."""

SEND_AGAIN = "check the folder and the disk space on that machine, and try again"

SMALLEST_SAVED = 1 << 20
"""Bytes. A smaller base is sent."""


class RemoteImage(msgspec.Struct, frozen=True):
    """Folder and name of the image on the remote machine, and the sha256 of the file that exists there."""

    folder: str
    name: str
    sha256: str

    @property
    def path(self) -> str:
        """Return the full path."""
        return str(PurePosixPath(self.folder, self.name))


class Donor(msgspec.Struct, frozen=True):
    """A remote file that contains bytes of a base."""

    path: str
    held: FileSlice
    """The range of the local image with the same bytes."""
    offset: int
    """Offset of these bytes in the remote file."""


class SendReport(msgspec.Struct, frozen=True):
    """The result of `argosy images send`."""

    target: str
    bytes: int
    sent: int
    """Number of bytes sent."""
    base_from: str
    """The remote file from which the base was taken; empty if all bytes were sent."""
    sha256: str
    seconds: float


def send_image(reference: str, target: str, session: Session, *, base: str = "", force: bool = False) -> SendReport:
    """Send an image file to ``HOST:PATH``: a folder, or the file's new name.

    Parameters
    ----------
    base
        A remote image with the same base, relative to the target folder; empty searches that folder.

    Raises
    ------
    UsageError
        If there is no such image or folder, or another file has that name.
    Unreachable, CheckFailed
        If the machine cannot be reached, or its disk is full.
    """
    image = fetch_or_find_image(reference, session)
    if not image.is_file():
        raise UsageError(f"cannot send {image}: it is a folder", hint="pack it first: argosy build FOLDER -o IMAGE.sif")
    remote = parse_remote(target)
    runner, started = OverSsh(session.runner, Remote(remote.host)), time.monotonic()
    remote_image = _find_target(runner, remote, image.name)
    with session.step("read", image.name) as step:
        base_here, size = _base_of(image), image.stat().st_size
        digest = digest_of_file(image, session.meter("reading", size).add)
        step.result = f"{image.name}: {render_size(size)}"
    known = remote_image.sha256 == digest
    if remote_image.sha256 and not (known or force):
        raise UsageError(
            f"{remote_image.path} already exists on {remote.host}",
            evidence="its content differs",
            hint="add --force to replace it",
        )
    sent, base_from = 0, ""
    if not known:
        with session.step("send", f"{image.name} to {remote.host}") as step, work_folder(session.work_parent()) as work:
            meter = session.meter("arrived", size)
            donor = _find_donor(runner, base_here, remote_image, base, work) if base_here else None
            if donor:
                sent = _send_ends(runner, donor, remote_image, digest, work, meter)
                if not sent:
                    session.reporter.note(f"the base of {donor.path} differs; sending the whole file")
            base_from = donor.path if donor and sent else ""
            sent = sent or _send_all(runner, image, remote_image, digest, meter)
            saved = f", base copied from {base_from}" if base_from else ""
            step.result = f"{render_size(sent)} to {remote.host}:{remote_image.path}{saved}"
    seconds = time.monotonic() - started
    return SendReport(f"{remote.host}:{remote_image.path}", size, sent, base_from, digest, seconds)


def _run(runner: Runner, *arguments: str, source: Path | None = None, on_line: OnLine | None = None) -> Reply:
    """Call a function of `send.sh` on the remote machine."""
    argv = ("sh", "-c", f"{REMOTE}{CALL}", *arguments)
    return runner.run(Command(argv, stdin_file=str(source) if source else None), on_line)


def _base_of(image: Path) -> Source | None:
    """Return the base of a SIF file, if it is large enough to search for."""
    opened = open_image(image)
    base = base_source(opened.image) if opened.sif else None
    return base if base and base.length >= SMALLEST_SAVED else None


def _find_target(runner: Runner, remote: Remote, name: str) -> RemoteImage:
    """Find the target folder and name on the remote machine, and the sha256 of an existing file."""
    wanted = remote.folder or "."
    reply = _run(runner, "find_target", wanted, name)
    lines = reply.stdout.splitlines()
    if reply.code != 0 or len(lines) < 2:  # noqa: PLR2004 - folder and name
        folder = wanted if wanted.endswith("/") or not PurePosixPath(wanted).suffix else PurePosixPath(wanted).parent
        raise UsageError(
            f"the folder of {wanted} does not exist on {remote.host}",
            evidence=reply.stderr.strip(),
            hint=suggest_mkdir(remote.host, str(folder)),
        )
    found = RemoteImage(lines[0], lines[1], lines[2].split()[0] if lines[2:] else "")
    if found.sha256 == TAKEN:
        raise UsageError(
            f"cannot replace {found.path} on {remote.host}: it is a folder or a device",
            hint=f"choose another name: {remote.host}:{PurePosixPath(found.folder, 'NAME.sif')}",
        )
    return found


def _find_donor(runner: Runner, base_here: Source, remote_image: RemoteImage, base: str, work: Path) -> Donor | None:
    """Find a remote file with a base of the same size. The sha256 at the end shows whether it is the same base."""
    names = (base,) if base else ()
    reply = _run(runner, "list_images", remote_image.folder, str(MOST_LOOKED_AT), str(HEAD_BYTES), *names)
    rows = [line.split() for line in reply.stdout.splitlines()]
    if base and not rows:
        raise UsageError(f"there is no image {base} on the host", hint="pass its path on that host")
    for size, name, head in (row for row in rows if len(row) == 3):  # noqa: PLR2004 - as printed
        path = str(PurePosixPath(remote_image.folder, parse_base64(name).decode()))
        base_there = _remote_base(parse_base64(head), int(size), work / "head.sif")
        if base_there and base_there.length == base_here.length:
            return _plan_donor(path, base_here, base_there)
    if base:
        raise UsageError(
            f"{base} and {base_here.path} have different bases",
            evidence=f"the base of {base_here.path.name} has {base_here.length} bytes",
            hint="omit --base to send the whole file",
        )
    return None


def _plan_donor(path: str, local: Source, remote: Source) -> Donor:
    """Plan to take the whole base, or if one of the images is flat, the contents of its files."""
    if isinstance(local, FileSlice) and isinstance(remote, FileSlice):
        return Donor(path, local, remote.offset)
    contents = contents_of(local)
    return Donor(path, contents, remote.slice_at(SUPERBLOCK.size, contents.length).offset)


def _remote_base(head: bytes, size: int, skeleton: Path) -> Source | None:
    """Read the position of the base from the first bytes of a remote SIF file."""
    skeleton.write_bytes(head)
    os.truncate(skeleton, size)
    try:
        sif = read_sif(skeleton)
        return source_of(skeleton, find_base_spans(sif, sif.system)) if sif.system else None
    except ImageError:
        return None


def _send_ends(runner: Runner, donor: Donor, remote_image: RemoteImage, digest: str, work: Path, meter: Meter) -> int:
    """Send the bytes before and after the base; return their number, or 0 if the donor's base differs."""
    ends, held = work / "ends", donor.held
    after = held.offset + held.length
    rest = FileSlice(held.path, after, held.path.stat().st_size - after)
    write_pieces(ends, (FileSlice(held.path, 0, held.offset), rest))
    base = (str(held.offset), donor.path, str(donor.offset + 1), str(held.length))
    done = _put(runner, ends, remote_image, digest, meter, *base)
    return ends.stat().st_size if done else 0


def _send_all(runner: Runner, image: Path, remote_image: RemoteImage, digest: str, meter: Meter) -> int:
    """Send the whole file and return its size."""
    if not _put(runner, image, remote_image, digest, meter):
        raise CheckFailed(f"{remote_image.path} was damaged during the transfer", hint="send it again")
    return image.stat().st_size


def _put(runner: Runner, source: Path, remote_image: RemoteImage, digest: str, meter: Meter, *donor: str) -> bool:
    """Write a remote file under a temporary name, compare its sha256, and rename it; return whether it is correct.

    Raises
    ------
    ToolFailed, CheckFailed
        If the file cannot be written, or the disk is full.
    """
    temporary = f".{remote_image.name}.{os.urandom(4).hex()}.part"

    def report(line: str) -> None:
        if arrived := RECEIVED.fullmatch(line):
            meter.update(int(arrived[1]))

    arguments = (remote_image.folder, remote_image.name, temporary, digest, *donor)
    reply = _run(runner, "receive", *arguments, source=source, on_line=report)
    if reply.code not in {0, OTHER_BYTES}:
        others = "\n".join(line for line in reply.stderr.splitlines() if not RECEIVED.fullmatch(line))
        command, shown = Command(("ssh", remote_image.path)), replace(reply, stderr=others)
        raise tool_error(command, shown, doing=f"sending {remote_image.name}", hint=SEND_AGAIN)
    return reply.code == 0


UNSET = "/unset"
"""The text that replaces a variable without a value. It leads to no catalog."""

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

REMOTE_HEAD_BYTES = 65_536
"""Bytes at the start of an image that contain more than a SIF file's header and all descriptors."""


def find_remote_image(runner: Runner, reference: str, path: str, folders: Iterable[str]) -> tuple[str, int] | None:
    """Return the path and the size of an image file on another machine; None if it is missing.

    An alias in the catalog gives the version to which it points now.

    Parameters
    ----------
    reference
        The path or the name, as the user typed it.
    path
        The file that it means there if it is a path.
    folders
        Folders of the catalog there, after the user's own; they may contain variables of that machine.
    """
    name = parse_catalog_name(reference)
    parts = (name.name, name.tag) if name else ("", "")
    words: tuple[Word, ...] = ("find_image", path, *parts, *map(_expand_there, folders))
    size, _, found = (
        run_text(runner, f"{read_shell(SCRIPTS / 'find_image.sh')}\n{join(words)}\n").stdout.strip().partition(" ")
    )
    return (found, int(size)) if found else None


def _expand_there(folder: str) -> ShellExpr:
    """Return the path of a folder, in which the shell of the other machine replaces the variables."""
    text, *rest = VARIABLE.split(folder)
    pairs = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return ShellExpr(
        in_double_quotes(text)
        + "".join(f"${{{braced or plain}:-{UNSET}}}{in_double_quotes(after)}" for braced, plain, after in pairs)
    )


def open_remote(runner: Runner, name: str, path: str, size: int, work: Path) -> OpenedImage:
    """Open an image on another machine, through a local sparse file with its size, header and lock.

    Parameters
    ----------
    name
        Name for messages.
    work
        Folder for the sparse file.

    Raises
    ------
    ImageError, ToolFailed
        If the file is not an image, or cannot be read.
    """
    skeleton = work / PurePosixPath(path).name
    _fetch_skeleton(runner, path, size, skeleton)
    try:
        return open_image(skeleton)
    except ImageError as error:
        raise ImageError(f"{name} is not an image that can be run", evidence=error.evidence, hint=error.hint) from error


def _fetch_skeleton(runner: Runner, path: str, size: int, target: Path) -> None:
    """Write a sparse file with the size of a remote file, its first bytes, and the lock of a SIF file."""
    target.write_bytes(fetch_bytes(runner, path, 0, min(size, REMOTE_HEAD_BYTES)))
    os.truncate(target, size)
    try:
        lock = read_sif(target).part_named(LOCK_NAME)
    except ImageError:
        return
    if lock and lock.size <= LOCK_LIMIT:
        with target.open("r+b") as file:
            file.seek(lock.offset)
            file.write(fetch_bytes(runner, path, lock.offset, lock.size))


def fetch_bytes(runner: Runner, path: str, offset: int, count: int) -> bytes:
    """Read some bytes of a remote file.

    Raises
    ------
    ToolFailed
        If the bytes cannot be read.
    """
    if not count:
        return b""
    reply = run_text(runner, render_block(path, offset, count))
    data = parse_base64(reply.stdout)
    if len(data) != count:
        seen = reply.stderr.strip() or f"{len(data)} of {count} bytes"
        raise ToolFailed(
            f"cannot read {path} by ssh", evidence=seen, hint="check the path and the connection, and try again"
        )
    return data
