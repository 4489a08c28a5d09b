"""Join a base and a layer into one squashfs with the content of an overlay mount, by rewriting only their tables.

The content of files stays compressed, and the kernel copies it. Only these tables are new: the layer's inodes, the
folders that exist in both and their parents, and the lists of owners and fragments::

    superblock | base's files | layer's files | base's inodes, new ones | base's listings, new ones | lists

Building one partition thus takes as long as building two that need an overlay. The base's inodes keep their
positions. New inodes first fill the base's last metadata block, because programs expect all blocks but the last to be
full.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from argosy.images.sif.write import FileSlice, Piece
from argosy.images.squashfs.superblock import NO_TABLE, SUPERBLOCK, Superblock
from argosy.images.squashfs.tables import (
    BLOCK,
    ENTRY,
    EXTENDED,
    FILE,
    FIRST,
    FRAGMENT,
    GROUP,
    HEAD,
    LARGE_FILE,
    LARGE_FOLDER,
    LENGTH,
    NOTHING,
    PLACE,
    PLAIN,
    READABLE,
    Entry,
    FolderInode,
    Kind,
    Tables,
    block_sizes,
    open_tables,
    place_of,
)

SIZE = struct.Struct("<2I")
"""A symbolic link after the head: links, size of the target. A device: links, its number."""
OWNER = struct.Struct("<I")
XATTRS = struct.Struct("<Q2I")
"""Record at the xattr table: start of names and values, their count, unused; the positions of a list follow."""
XATTR = 16
INDEX = struct.Struct("<3I")
"""An entry of a folder's index: byte of the listing, block of the listings, length of the name less one; then the name.

The kernel looks up a name, or continues a listing, from the last entry before it. Without an index it reads the listing
from its first byte each time.
"""
KEPT_FLAGS = 0x40 | 0x200 | 0x400
"""Flags to keep from the base: no duplicates, no xattrs, compressor options. The others describe tables."""
ENTRIES = 256
"""Maximum number of entries in a group."""
REACH = 1 << 15
"""Maximum difference between the inode numbers in a group and the number in its header."""
LINKS_ON_A_PATH = 40
"""Maximum number of symbolic links to follow for one path: path_resolution(7)."""
PAD = 4096
"""In bytes: loop devices and the files of mksquashfs have whole pages."""


def can_join(base: Superblock) -> bool:
    """Return whether a layer can be joined with a base, if it is packed in the same way."""
    return base.compressor in READABLE


def has_same_packing(base: Superblock, layer: Superblock) -> bool:
    """Return whether a layer can be joined with its base without packing it again."""
    return (base.compressor, base.block_size) == (layer.compressor, layer.block_size) and not layer.has_xattrs


class _Item(NamedTuple):
    """An entry of a folder: an inode of the base, a new inode, or a rewritten folder."""

    kind: int
    number: int
    place: int
    folder: _Folder | None = None
    new: bool = False


class _Folder:
    """A folder to rewrite."""

    def __init__(self, number: int, parent: _Folder | None, inode: FolderInode | None, items: Iterable[Entry]) -> None:
        self.number = number
        self.parent = parent or self
        self.parent_number = inode.parent if inode else self.parent.number
        self.place = 0
        """Reference to its inode after writing."""
        self.head = inode.head if inode else (0o755, 0, 0, 0)
        self.xattrs = inode.xattrs if inode else NOTHING
        self.items = {entry.name: _Item(entry.kind, entry.number, entry.place) for entry in items}


class _Stream:
    """A sequence of metadata blocks that continues the base's."""

    def __init__(self, tables: Tables, start: int, end: int) -> None:
        last = tables.last_block(start, end)
        self.kept = FileSlice(tables.source.path, tables.source.offset + start, last - start)
        self._data = bytearray(tables.block(last)[0] if last < end else b"")

    def add(self, data: bytes) -> tuple[int, int]:
        """Add bytes; return the block's position in the table, and the offset in the block."""
        blocks, offset = divmod(len(self._data), BLOCK)
        self._data += data
        return self.kept.length + blocks * (LENGTH.size + BLOCK), offset

    def rendered(self) -> bytes:
        """Return the blocks after the kept ones."""
        return b"".join(_render_blocks(bytes(self._data)))


def join_squashfs(base: FileSlice, layer: FileSlice, *, time: int, without: Iterable[str] = ()) -> tuple[Piece, ...]:
    """Plan a squashfs with the content of a layer over its base; return the pieces to write, in order.

    Character devices 0:0 in the layer remove files of the base. If the base has a symbolic link in place of a folder
    of the layer, the folder's content goes to the link's target, where a program would find it.

    Parameters
    ----------
    base, layer
        Two squashfs for which `can_join` and `has_same_packing` are true.
    time
        Time of the file system, in seconds since 1970.
    without
        Paths of the base to omit, unless the layer contains them.

    Raises
    ------
    ImageError
        If one of them is damaged.
    """
    with open_tables(base) as below, open_tables(layer) as above:
        joint = _Joint(below, above)
        for path in without:
            joint.remove(path)
        return joint.written(time)


def has_whiteouts(layer: FileSlice) -> bool:
    """Return whether a layer contains whiteouts.

    Raises
    ------
    ImageError
        If it is damaged.
    """
    with open_tables(layer) as tables:
        devices = (entry.place for entry in tables.walk() if entry.kind == Kind.CHARACTER_DEVICE)
        return any(_is_whiteout(tables, place) for place in devices)


class _Joint:
    """The state of a join."""

    def __init__(self, below: Tables, above: Tables) -> None:
        self.below, self.above = below, above
        numbers = below.numbers
        self.inodes = _Stream(below, numbers.inode_table, numbers.listing_table)
        self.listings = _Stream(below, numbers.listing_table, below.listings_end())
        self.owners = [owner for (owner,) in OWNER.iter_unpack(_owners(below))]
        self.owner_of = [self._number_owner(owner) for (owner,) in OWNER.iter_unpack(_owners(above))]
        self.moved = numbers.inode_table - FIRST
        """Distance by which the blocks of the layer's files move, in bytes."""
        self.written_before: dict[int, int] = {}
        """Old reference to an inode of the layer -> the new one. Inodes with hard links occur several times."""
        root = below.folder(numbers.root)
        self.root = _Folder(root.number, None, root, below.listing(root))
        self.root.parent_number = numbers.inodes + above.numbers.inodes + 1  # not a valid inode, as in mksquashfs
        self.folders = [self.root]
        """Folders to rewrite, each before the folders in it."""

    def written(self, time: int) -> tuple[Piece, ...]:
        self._merge()
        root = self._write_folders()
        below, above = self.below.source, self.above.source
        files = [
            FileSlice(below.path, below.offset + FIRST, self.moved),
            FileSlice(above.path, above.offset + FIRST, self.above.numbers.inode_table - FIRST),
        ]
        inode_table = FIRST + sum(each.length for each in files)
        inodes, listings = self.inodes.rendered(), self.listings.rendered()
        listing_table = inode_table + self.inodes.kept.length + len(inodes)
        at = listing_table + self.listings.kept.length + len(listings)
        fragments = self._fragments()
        lists = bytearray()
        fragment_table = _add_list(lists, fragments, at)
        owner_table = _add_list(lists, b"".join(map(OWNER.pack, self.owners)), at)
        xattr_table = self._add_xattrs(lists, at)
        used = at + len(lists)
        lists += bytes(-used % PAD)
        numbers = self.below.numbers._replace(
            inodes=self.below.numbers.inodes + self.above.numbers.inodes,
            time=time,
            fragments=len(fragments) // FRAGMENT.size,
            flags=self.below.numbers.flags & KEPT_FLAGS,
            owners=len(self.owners),
            root=root,
            used=used,
            owner_table=owner_table,
            xattr_table=xattr_table,
            inode_table=inode_table,
            listing_table=listing_table,
            fragment_table=fragment_table,
            export_table=NO_TABLE,
        )
        tables = (self.inodes.kept, inodes, self.listings.kept, listings, bytes(lists))
        return SUPERBLOCK.pack(*numbers), *files, *tables

    def remove(self, path: str) -> None:
        """Remove a path of the base, if it exists."""
        *above, name = os.fsencode(path).split(b"/")
        folder = self._follow(self.root, *above)
        if folder is not None:
            folder.items.pop(name, None)

    def _number_owner(self, owner: int) -> int:
        if owner not in self.owners:
            self.owners.append(owner)
        return self.owners.index(owner)

    def _merge(self) -> None:
        """Merge the layer's folders into the base's."""
        waiting = [(self.above.numbers.root, self.root)]
        left = self.above.numbers.inodes
        while waiting:
            place, folder = waiting.pop()
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: a folder contains itself")
            inode = self.above.folder(place)
            mode, user, group, time = inode.head
            folder.head = mode, self.owner_of[user], self.owner_of[group], time
            for name, kind, number, inside in self.above.listing(inode):
                if kind == Kind.FOLDER:
                    waiting.append((inside, self._folder_in(folder, name, number)))
                elif kind == Kind.CHARACTER_DEVICE and _is_whiteout(self.above, inside):
                    folder.items.pop(name, None)
                else:
                    number_here = self.below.numbers.inodes + number
                    folder.items[name] = _Item(kind, number_here, self._copy_inode(inside), new=True)

    def _folder_in(self, folder: _Folder, name: bytes, number: int) -> _Folder:
        """Return the subfolder with a name: the base's, the target of the base's link, or a new folder."""
        there = self._follow(folder, name)
        if there is None:
            there = self._add(_Folder(self.below.numbers.inodes + number, folder, None, ()), folder, name)
        return there

    def _follow(self, folder: _Folder, *path: bytes) -> _Folder | None:
        """Resolve a path to a folder as a program in the container would; return None if there is no folder."""
        left, links_left = [*reversed(path)], LINKS_ON_A_PATH
        while left:
            part = left.pop()
            item = folder.items.get(part)
            if part in {b"", b"."}:
                continue
            if part == b"..":
                folder = folder.parent
            elif item is None:
                return None
            elif item.kind == Kind.FOLDER:
                folder = item.folder or self._open(item, folder, part)
            elif item.kind == Kind.LINK and not item.new and links_left > 1:
                links_left -= 1
                link = self._target(item.place)
                folder = self.root if link.startswith(b"/") else folder
                left += reversed(link.split(b"/"))
            else:
                return None
        return folder

    def _target(self, place: int) -> bytes:
        _, size = SIZE.unpack_from(self.below.inode(place, HEAD.size + SIZE.size), HEAD.size)
        return self.below.inode(place, HEAD.size + SIZE.size + size)[-size:]

    def _open(self, item: _Item, parent: _Folder, name: bytes) -> _Folder:
        inode = self.below.folder(item.place)
        return self._add(_Folder(inode.number, parent, inode, self.below.listing(inode)), parent, name)

    def _add(self, folder: _Folder, parent: _Folder, name: bytes) -> _Folder:
        parent.items[name] = _Item(Kind.FOLDER, folder.number, 0, folder)
        self.folders.append(folder)
        return folder

    def _copy_inode(self, place: int) -> int:
        """Write an inode of the layer, except a folder's; return the reference to the new inode."""
        if place not in self.written_before:
            kind, mode, user, group, time, number = HEAD.unpack(self.above.inode(place, HEAD.size))
            kind, body = self._move_body(kind, place)
            owners = self.owner_of[user], self.owner_of[group]
            head = HEAD.pack(kind, mode, *owners, time, self.below.numbers.inodes + number)
            self.written_before[place] = place_of(*self.inodes.add(head + body))
        return self.written_before[place]

    def _move_body(self, kind: int, place: int) -> tuple[int, bytes]:
        """Return an inode's kind and its fields after the head, with positions in the joined file."""
        if kind == Kind.FILE:
            raw = self.above.inode(place, HEAD.size + FILE.size)
            block, fragment, offset, size = FILE.unpack_from(raw, HEAD.size)
            sizes = block_sizes(self.above, place, len(raw), size, fragment)
            block, fragment = self._move(block, fragment)
            if block <= NOTHING:
                return kind, FILE.pack(block, fragment, offset, size) + sizes
            return kind + EXTENDED, LARGE_FILE.pack(block, size, 0, 1, fragment, offset, NOTHING) + sizes
        if kind == Kind.FILE + EXTENDED:
            raw = self.above.inode(place, HEAD.size + LARGE_FILE.size)
            block, size, holes, links, fragment, offset, xattrs = LARGE_FILE.unpack_from(raw, HEAD.size)
            sizes = block_sizes(self.above, place, len(raw), size, fragment)
            block, fragment = self._move(block, fragment)
            return kind, LARGE_FILE.pack(block, size, holes, links, fragment, offset, xattrs) + sizes
        return kind, self.above.inode(place, HEAD.size + self._plain_size(kind, place))[HEAD.size :]

    def _move(self, block: int, fragment: int) -> tuple[int, int]:
        here = self.below.numbers.fragments + fragment if fragment != NOTHING else NOTHING
        return block + self.moved, here

    def _plain_size(self, kind: int, place: int) -> int:
        """Return the size after the head of a link, a device, a pipe or a socket, in bytes."""
        plain = kind if kind <= EXTENDED else kind - EXTENDED
        size = OWNER.size if plain in {Kind.FIFO, Kind.SOCKET} else SIZE.size
        if plain == Kind.LINK:
            size += SIZE.unpack_from(self.above.inode(place, HEAD.size + SIZE.size), HEAD.size)[1]
        return size + (4 if kind != plain else 0)

    def _write_folders(self) -> int:
        """Write listings and inodes of the changed folders, subfolders first; return the root's reference."""
        for folder in reversed(self.folders):
            items = sorted(folder.items.items())
            listing, index = _render_listing(items)
            block, offset = self.listings.add(listing)
            links = 2 + sum(item.kind == Kind.FOLDER for _, item in items)
            head = HEAD.pack(Kind.FOLDER + EXTENDED, *folder.head, folder.number)
            numbers = (links, len(listing) + 3, block, folder.parent_number, len(index), offset, folder.xattrs)
            body = LARGE_FOLDER.pack(*numbers) + _render_index(index, block, offset)
            folder.place = place_of(*self.inodes.add(head + body))
        return self.root.place

    def _fragments(self) -> bytes:
        """Return the list of fragments: the base's, and the layer's at their new positions."""
        below, above = (
            each.records(each.numbers.fragment_table, each.numbers.fragments, FRAGMENT.size)
            for each in (self.below, self.above)
        )
        moved = ((start + self.moved, *rest) for start, *rest in FRAGMENT.iter_unpack(above))
        return below + b"".join(FRAGMENT.pack(*each) for each in moved)

    def _add_xattrs(self, lists: bytearray, at: int) -> int:
        """Add the base's extended attributes; return their table's position.

        The tables contain positions in the file.
        """
        numbers = self.below.numbers
        if numbers.xattr_table == NO_TABLE:
            return NO_TABLE
        begin, count, _ = XATTRS.unpack(self.below.read(numbers.xattr_table, XATTRS.size))
        paths = self.below.paths(numbers.xattr_table + XATTRS.size, count, XATTR)
        moved = at + len(lists) - begin
        lists += self.below.read(begin, numbers.xattr_table - begin)
        lists += XATTRS.pack(begin + moved, count, 0) + b"".join(PLACE.pack(place + moved) for place in paths)
        return len(lists) + at - XATTRS.size - PLACE.size * len(paths)


def _is_whiteout(tables: Tables, device: int) -> bool:
    raw = tables.inode(device, HEAD.size + SIZE.size)
    return SIZE.unpack_from(raw, HEAD.size)[1:] == (0,)


def _owners(tables: Tables) -> bytes:
    return tables.records(tables.numbers.owner_table, tables.numbers.owners, OWNER.size)


def _render_listing(items: list[tuple[bytes, _Item]]) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Render a folder's listing: groups of entries whose inodes are in one block and have similar numbers.

    Returns
    -------
    listing
        The groups, in order.
    index
        About one group per 8 KiB: its position in the listing, and its first name.
    """
    groups, index = list[list[tuple[bytes, int, int, _Item]]](), list[tuple[int, bytes]]()
    size = indexed = 0
    for name, item in items:
        place = item.folder.place if item.folder else item.place
        block, offset = place >> 16, place & 0xFFFF
        is_far = size + ENTRY.size + len(name) - indexed > BLOCK
        if is_far or not (groups and _fits(groups[-1], block, item.number)):
            if is_far:
                indexed = size
                index.append((size, name))
            groups.append([])
            size += GROUP.size
        groups[-1].append((name, block, offset, item))
        size += ENTRY.size + len(name)
    return b"".join(part for group in groups for part in _render_group(group)), index


def _fits(group: list[tuple[bytes, int, int, _Item]], block: int, number: int) -> bool:
    """Return whether an inode with this number in this block fits into a group."""
    _, blocks, _, first = group[0]
    return blocks == block and len(group) < ENTRIES and -REACH <= number - first.number < REACH


def _render_index(index: list[tuple[int, bytes]], block: int, offset: int) -> bytes:
    """Render the index of a folder. Its listing begins at a position in a sequence of uncompressed blocks."""
    entries = bytearray()
    for at, name in index:
        blocks = (offset + at) // BLOCK
        entries += INDEX.pack(at, block + blocks * (LENGTH.size + BLOCK), len(name) - 1) + name
    return bytes(entries)


def _render_group(group: list[tuple[bytes, int, int, _Item]]) -> Iterator[bytes]:
    _, block, _, first = group[0]
    yield GROUP.pack(len(group) - 1, block, first.number)
    for name, _, offset, item in group:
        yield ENTRY.pack(offset, item.number - first.number, item.kind, len(name) - 1)
        yield name


def _render_blocks(data: bytes) -> Iterator[bytes]:
    """Cut bytes into uncompressed metadata blocks."""
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        yield LENGTH.pack(len(block) | PLAIN) + block


def _add_list(lists: bytearray, records: bytes, at: int) -> int:
    """Add a list of records and the positions of its blocks; return the byte where the positions begin."""
    paths = list[int]()
    for block in _render_blocks(records):
        paths.append(at + len(lists))
        lists += block
    here = at + len(lists)
    lists += b"".join(map(PLACE.pack, paths))
    return here
