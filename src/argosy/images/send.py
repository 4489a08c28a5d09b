"""Send an image to another machine by ssh; a base that lies there already is not sent again.

A SIF file is its base's bytes with something before and something after them.  Where another image there has the same
base, only that something travels, and the file is put together there by sh; its sha256 is compared at the end, and it
appears under its name whole or not at all.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from argosy.core.errors import CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.process import Command, Reply, Runner, tool_error
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.ssh import OverSsh, Remote, parse_remote, run_text
from argosy.core.store import digest_of_file, work_folder
from argosy.images.find import find_image
from argosy.images.identify import render_size
from argosy.images.open import LOCK_LIMIT, LOCK_NAME, OpenedImage, open_image
from argosy.images.sif.format import SifPart
from argosy.images.sif.read import read_sif

HEAD_BYTES = 32_768
"""Of a SIF file: its header and every descriptor."""

MOST_LOOKED_AT = 30
"""Images there whose heads are read for the base, the newest first."""

BLOCK_BYTES = 1 << 22
OTHER_BYTES = 9
"""Exit code there for a file whose sha256 is another one."""

SMALLEST_SAVED = 1 << 20
"""Bytes; a smaller base travels along."""


class Target(msgspec.Struct, frozen=True):
    """Where an image goes: folder and name there, and what stands there already."""

    folder: str
    name: str
    sha256: str

    @property
    def path(self) -> str:
        """Give the whole path."""
        return str(PurePosixPath(self.folder, self.name))


class Donor(msgspec.Struct, frozen=True):
    """A file there that holds a base's bytes, from an offset on."""

    path: str
    offset: int


class SendReport(msgspec.Struct, frozen=True):
    """What was sent.

    Attributes
    ----------
    sent
        Bytes that travelled; the rest was there.
    base_from
        The file there that the base was taken from; empty where all was sent.
    """

    target: str
    bytes: int
    sent: int
    base_from: str
    sha256: str
    seconds: float


def send_image(reference: str, target: str, session: Session, *, base: str = "", force: bool = False) -> SendReport:
    """Send an image file to ``HOST:PATH``, a folder or the file's name there.

    Parameters
    ----------
    base
        An image there that has the same base, named from the folder that this one goes to; empty looks among those
        in it.

    Raises
    ------
    UsageError
        When there is no such image or folder, or the name is taken.
    CheckFailed, ToolFailed
        When the machine is not reached, or its disk is full.
    """
    image = find_image(reference, session)
    if not image.is_file():
        raise UsageError(f"{image} is no file", hint="pack it first: argosy build FOLDER -o IMAGE.sif")
    remote = parse_remote(target)
    runner, started = OverSsh(session.runner, Remote(remote.host)), time.monotonic()
    there = _find_target(runner, remote, image.name)
    with session.step("read", image.name) as step:
        part, digest, size = _base_of(image), digest_of_file(image), image.stat().st_size
        step.result = f"{image.name}: {render_size(size)}"
    known = there.sha256 == digest
    if there.sha256 and not (known or force):
        raise UsageError(
            f"{there.path} is already at {remote.host}", evidence="it is another file", hint="add --force to replace it"
        )
    sent, base_from = 0, ""
    if not known:
        with session.step("send", f"{image.name} to {remote.host}") as step, work_folder(session.work_parent()) as work:
            donor = _find_donor(runner, image, part, there, base, work) if part else None
            if part and donor:
                sent = _send_ends(runner, image, part, donor, there, digest, work)
                if not sent:
                    session.reporter.note(f"the base of {donor.path} is another one: all is sent")
            base_from = donor.path if donor and sent else ""
            sent = sent or _send_all(runner, image, there, digest)
            saved = f", the base taken from {base_from}" if base_from else ""
            step.result = f"{render_size(sent)} to {remote.host}:{there.path}{saved}"
    seconds = time.monotonic() - started
    return SendReport(f"{remote.host}:{there.path}", size, sent, base_from, digest, seconds)


def _base_of(image: Path) -> SifPart | None:
    """Give the part of a SIF file that may be there already."""
    sif = open_image(image).sif
    part = sif.system if sif else None
    return part if part and part.size >= SMALLEST_SAVED else None


def _find_target(runner: Runner, remote: Remote, name: str) -> Target:
    """Ask where an image goes, and what is there."""
    wanted = remote.folder or "."
    must_be = "true" if wanted.endswith("/") else "false"
    program = f"""\
if [ -d {quote(wanted)} ]; then folder={quote(wanted)} name={quote(name)}
elif {must_be}; then echo "no such folder" >&2; exit 1
else folder=$(dirname -- {quote(wanted)}) name=$(basename -- {quote(wanted)}); fi
cd -- "$folder" || exit 1
printf '%s\\n' "$(pwd)" "$name"
[ ! -e "$name" ] || {{ [ -f "$name" ] && sha256sum < "$name" || echo taken; }}
"""
    reply = run_text(runner, program)
    lines = reply.stdout.splitlines()
    if reply.code != 0 or len(lines) < 2:  # noqa: PLR2004 - folder and name
        folder = wanted if wanted.endswith("/") or not PurePosixPath(wanted).suffix else PurePosixPath(wanted).parent
        raise UsageError(
            f"there is no folder for {wanted} at {remote.host}",
            evidence=reply.stderr.strip(),
            hint=f"make it: ssh {remote.host} mkdir -p {quote(str(folder))}",
        )
    return Target(lines[0], lines[1], lines[2].split()[0] if lines[2:] else "")


def _find_donor(runner: Runner, image: Path, part: SifPart, there: Target, base: str, work: Path) -> Donor | None:
    """Find a file there with a base of the same size at the same kind of place; its bytes are proved at the end."""
    named = quote(base) if base else "*.sif"
    program = f"""\
cd -- {quote(there.folder)} || exit 1
ls -t -- {named} 2> /dev/null | head -n {MOST_LOOKED_AT} | while IFS= read -r name; do
    [ ! -f "$name" ] || printf '%s %s %s\\n' "$(wc -c < "$name")" "$(printf %s "$name" | base64 | tr -d '\\n')" \\
        "$(head -c {HEAD_BYTES} -- "$name" | base64 | tr -d '\\n')"
done
"""
    rows = [line.split() for line in run_text(runner, program).stdout.splitlines()]
    if base and not rows:
        raise UsageError(f"there is no image {base} there", hint="give the path that it has there")
    for size, name, head in (row for row in rows if len(row) == 3):  # noqa: PLR2004 - as printed
        path = str(PurePosixPath(there.folder, base64.b64decode(name).decode()))
        system = _system_of(base64.b64decode(head), int(size), work / "head.sif")
        if system and system.size == part.size:
            return Donor(path, system.offset)
    if base:
        raise UsageError(
            f"{base} has another base than {image}",
            evidence=f"the base of {image.name} has {part.size} bytes",
            hint="leave --base out: all is sent then",
        )
    return None


def _system_of(head: bytes, size: int, skeleton: Path) -> SifPart | None:
    """Read from the first bytes of a SIF file on the other machine where its root file system lies."""
    skeleton.write_bytes(head)
    os.truncate(skeleton, size)
    try:
        return read_sif(skeleton).system
    except ImageError:
        return None


def _send_ends(runner: Runner, image: Path, part: SifPart, donor: Donor, there: Target, digest: str, work: Path) -> int:
    """Send what is before and after the base; give its bytes, or 0 where the donor's base is another one."""
    ends = work / "ends"
    _write_ends(image, part, ends)
    base = f"tail -c +{donor.offset + 1} -- {quote(donor.path)} | head -c {part.size}"
    done = _put(runner, ends, f"{{ head -c {part.offset} && {base} && cat; }}", there, digest)
    return ends.stat().st_size if done else 0


def _send_all(runner: Runner, image: Path, there: Target, digest: str) -> int:
    """Send the whole file; give its bytes."""
    if not _put(runner, image, "cat", there, digest):
        raise CheckFailed(f"what arrived as {there.path} is not what was sent", hint="send it again")
    return image.stat().st_size


def _put(runner: Runner, source: Path, makes: str, there: Target, digest: str) -> bool:
    """Write a file there beside its place, compare its sha256, and give it its name; tell whether it is the same.

    Raises
    ------
    ToolFailed, CheckFailed
        When it cannot be written, or the disk is full.
    """
    lines = (
        f"cd -- {quote(there.folder)} || exit 1",
        f"beside={quote(f'.{there.name}.{os.urandom(4).hex()}.part')}",
        "trap 'rm -f -- \"$beside\"' EXIT HUP INT TERM",
        f'{makes} > "$beside" || exit 1',
        f'[ "$(sha256sum < "$beside" | cut -c 1-64)" = {digest} ] || exit {OTHER_BYTES}',
        f'mv -f -- "$beside" {quote(there.name)}',
    )
    command = Command(("sh", "-c", "; ".join(lines)), stdin_file=str(source))
    reply = runner.run(command)
    if reply.code not in {0, OTHER_BYTES}:
        raise tool_error(Command(("ssh", there.path)), reply, doing=f"sending {there.name}")
    return reply.code == 0


def _write_ends(image: Path, part: SifPart, target: Path) -> None:
    """Write what stands before and after a part of a file."""
    with image.open("rb") as source, target.open("wb") as file:
        for begin, end in ((0, part.offset), (part.end, image.stat().st_size)):
            for block in _blocks(source.fileno(), begin, end):
                file.write(block)


def _blocks(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        block = os.pread(descriptor, min(BLOCK_BYTES, end - begin), begin)
        if not block:
            return
        begin += len(block)
        yield block


REMOTE_HEAD_BYTES = 65_536
"""Of an image: more than the header and every descriptor of a SIF file."""

NOTHING = Reply(0, "", "")


def open_remote(runner: Runner, name: str, path: str, size: int, work: Path) -> OpenedImage:
    """Open an image on another machine, by a sparse file here that has its size, its head and its lock alone.

    Parameters
    ----------
    name
        What it is called in messages.
    work
        Folder for the sparse file.

    Raises
    ------
    ImageError, ToolFailed
        When it is no image, or cannot be read.
    """
    skeleton = work / PurePosixPath(path).name
    _fetch_skeleton(runner, path, size, skeleton)
    try:
        return open_image(skeleton)
    except ImageError as error:
        raise ImageError(f"{name} is not an image that can be run", evidence=error.evidence) from error


def _fetch_skeleton(runner: Runner, path: str, size: int, target: Path) -> None:
    """Write a sparse file as long as one there, with its first bytes and the lock of a SIF file."""
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
    """Read some bytes of a file there.

    Raises
    ------
    ToolFailed
        When they cannot be read.
    """
    reply = run_text(runner, f"tail -c +{offset + 1} -- {quote(path)} | head -c {count} | base64") if count else NOTHING
    data = base64.b64decode(reply.stdout)
    if len(data) != count:
        seen = reply.stderr.strip() or f"{len(data)} of {count} bytes"
        raise ToolFailed(f"reading {path} by ssh failed", evidence=seen)
    return data
