"""Store packed wheels: squashfs parts with the files of one wheel and their byte code, at their final paths.

An entry of the cache is a folder with the part and a record: the part's digest, and the entries of its files, from
which the content digest of an image is computed. Its name contains a digest of everything that the bytes depend on: the
hashes of the wheel, which uv checks, the content of the base, whose Python compiles the modules, the prefix, and the
versions and options of the tools. A damaged entry does not match its digests, and is made again.

Packed conda packages have the same form; `argosy.builder.packed.conda` names their entries.

The base counts with the digest of its bytes. Its Python's own version is not enough: another image may claim the same
version, and would then provide byte code for builds over this base.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.builder.python.pins import Pin, SourcedRequirement, read_demand
from argosy.core.layout import ENV_PREFIX
from argosy.core.records import replace
from argosy.core.session import QuietReporter, Session
from argosy.core.shared_folders import read_regular_file, share_new
from argosy.core.store import atomic_file, digest_of_file, make_folder
from argosy.images.part_digest import describe_part, part_digest, remember_digest
from argosy.images.sif.write import FileSlice, whole_of
from argosy.images.squashfs.pack import BLOCK_SIZE, COMPRESSION, LEVEL, run_pack
from argosy.images.tree_digests import Entries, describe_entries, name_of_entry
from argosy.recipes.lock import SourceKind

PACKED = "packed"
"""Folder of the cache."""
METHOD = 4
"""Version of the method. Another method may give other bytes, so that older entries are not used."""

PART = "part.sqfs"
RECORD = "part.msgpack"
DIGEST_BYTES = 32


TORCH = "torch"


class PackageRecord(msgspec.Struct, frozen=True):
    """The part of a wheel or a conda package, as the cache stores it."""

    name: str
    version: str
    digest: str
    """SHA-256 of the part, with ``sha256:``."""
    entries: tuple[bytes, ...]
    """The entries of its files and folders, as `argosy.images.tree_digests` renders them."""
    size: int
    """Size of the unpacked files, in bytes."""
    requires: tuple[str, ...]
    """The requirements of the package."""
    altered: str = ""
    """How files differ from the wheel's own list; empty if they do not."""
    meta: bytes = b""
    """The record of a conda package, as JSON; empty for a wheel."""


class PackedPackage(msgspec.Struct, frozen=True):
    """A packed wheel or conda package, where its part is, and the entries of its files by their paths."""

    record: PackageRecord
    part: Path
    entries: Entries

    @property
    def source(self) -> FileSlice:
        """The squashfs of the part."""
        return whole_of(self.part)


class PackedParts(msgspec.Struct, frozen=True):
    """The packages of a layer that are packed one by one."""

    found: tuple[PackedPackage, ...]
    """The packed packages that the cache had."""
    missing: tuple[Pin, ...]
    """The wheels that are still to be packed; none of conda."""
    others: tuple[Pin, ...]
    """The other packages of pip, which are installed into the layer's tree."""
    made: tuple[PackedPackage, ...] = ()
    """The packages that this build packed."""
    trees: tuple[Path, ...] = ()
    """Folders of this build that nothing needs any more."""

    @property
    def packed(self) -> tuple[PackedPackage, ...]:
        """All packed packages, sorted by name."""
        return tuple(sorted((*self.found, *self.made), key=lambda part: part.record.name))

    @property
    def has_torch(self) -> bool:
        """Whether torch is a packed package, which was checked for the site when it was packed."""
        return any(part.record.name == TORCH for part in self.packed)

    def demands(self) -> Iterator[SourcedRequirement]:
        """Return the requirements of the packed packages."""
        for part in self.packed:
            for text in part.record.requires:
                yield from read_demand(f"{part.record.name} {part.record.version}", text)

    def paths(self) -> Iterator[str]:
        """Return the paths of all files and folders of the packed packages."""
        for part in self.packed:
            yield from part.entries


class WheelCache(msgspec.Struct, frozen=True):
    """Find and store packed wheels."""

    cache: Path
    """Folder of the whole cache."""
    base: str
    """Digest of the base's squashfs."""
    tools: tuple[str, ...]
    """Versions of uv and of mksquashfs."""
    options: tuple[str, ...]
    """Options and variables that change how uv chooses or builds a package, or which checks it passes."""
    site: str = ""
    """The site whose GPUs torch was checked for; the other wheels do not depend on it."""

    def entry(self, pin: Pin) -> Path:
        """Return the folder for the packed wheel of a pin."""
        package = pin.package
        checked = self.site if package.name == TORCH else ""
        wheel = (package.name, package.version, sorted(package.sha256), checked)
        facts = (self.base, self.tools, self.options, *wheel)
        return self.cache / PACKED / entry_name(package.name, package.version, facts)

    def find(self, pin: Pin) -> PackedPackage | None:
        """Return the packed wheel of a pin; None if it is missing or damaged."""
        return find_part(self.entry(pin), self.cache)

    def store(self, pin: Pin, wheel: PackedPackage) -> PackedPackage:
        """Move a new part into the cache, and return the wheel with its place there; see `store_part`."""
        return store_part(self.entry(pin), wheel, self.cache)


def entry_name(name: str, version: str, facts: Sequence[object]) -> str:
    """Return the name of an entry: that of the package, and a digest of everything that its bytes depend on."""
    digest = hashlib.sha256(json.dumps((METHOD, ENV_PREFIX, COMPRESSION, LEVEL, BLOCK_SIZE, *facts)).encode())
    readable = re.sub(r"[^A-Za-z0-9.+-]", "_", f"{name}-{version}")  # a lock may contain any text
    return f"{readable}-{digest.hexdigest()[:32]}"


def find_part(entry: Path, cache: Path) -> PackedPackage | None:
    """Return the packed package of an entry; None if it is missing or damaged."""
    with suppress(OSError, msgspec.DecodeError):
        stored, part = read_regular_file(entry / RECORD), entry / PART
        digest, text = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        if hashlib.sha256(text).digest() != digest:
            return None
        record = msgspec.msgpack.decode(text, type=PackageRecord)
        if part_digest(describe_part(part, 0, part.stat().st_size), cache) == record.digest:
            with suppress(OSError):  # another user's entry
                os.utime(entry)
            return PackedPackage(record, part, {name_of_entry(entry): entry for entry in record.entries})
    return None


def quiet_share(session: Session) -> Session:
    """Return a session for one of the threads that pack parts: with its share of the memory, and without reports."""
    share = replace(session.host, memory=session.host.memory // session.host.cpus)
    return replace(session, host=share, reporter=QuietReporter())


def pack_part(
    session: Session,
    tree: Path,
    part: Path,
    *,
    name: str,
    version: str,
    size: int,
    requires: tuple[str, ...] = (),
    meta: bytes = b"",
) -> PackedPackage:
    """Pack the tree of one package, whose files get the time of the image when they are joined."""
    entries = describe_entries(tree)
    run_pack(session, tree, part, time=0)
    digest = f"sha256:{digest_of_file(part)}"
    record = PackageRecord(name, version, digest, tuple(entries.values()), size, requires, meta=meta)
    return PackedPackage(record, part, entries)


def store_part(entry: Path, packed: PackedPackage, cache: Path) -> PackedPackage:
    """Move a new part into the cache, and return the package with its place there.

    A valid part that another build has stored meanwhile stays and is returned: that build reads it, and packages that
    are built from source may give other bytes each time.

    Raises
    ------
    CheckFailed
        If the cache cannot be written, or the disk is full.
    """
    if there := find_part(entry, cache):
        return there
    make_folder(entry)
    if not os.access(entry, os.W_OK):
        return packed  # a damaged entry of another user
    text = msgspec.msgpack.encode(packed.record)
    # Another build may read this entry now: each file is replaced by a rename.
    with atomic_file(entry / PART, force=True, flush=False) as part:
        shutil.move(packed.part, part)
        share_new(part)
    with atomic_file(entry / RECORD, force=True, flush=False) as record:
        record.write_bytes(hashlib.sha256(text).digest() + text)
        share_new(record)
    stored = entry / PART
    remember_digest(describe_part(stored, 0, stored.stat().st_size), packed.record.digest, cache)
    return replace(packed, part=stored)


def can_be_stored(pin: Pin) -> bool:
    """Return whether hashes identify the content of a package: not if it comes from a folder or a repository."""
    return pin.package.source is SourceKind.INDEX and bool(pin.package.sha256)
