"""Join a base and any number of layers into one squashfs with the content of an overlay mount.

Only the tables are rewritten. The contents of files stay compressed, and the kernel copies them. New are the layers'
inodes, the folders that exist in several of them with their parents, and the lists of owners and fragments::

    superblock | files of the base, of each layer | base's inodes, new ones | base's listings, new ones | lists

Joining parts thus takes as long as copying them. The base's inodes keep their positions. The layers are read in
sequence; each of them covers the result of those before it, as in a mount with the same order of layers.

`argosy.images.squashfs.tables` reads the structures, `relocate` moves inodes, and `write` renders new tables.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from argosy.images.sif.write import FileSlice, Piece
from argosy.images.squashfs.superblock import NO_TABLE, SUPERBLOCK, Source, Superblock
from argosy.images.squashfs.tables import (
    EXTENDED,
    FIRST,
    FRAGMENT,
    HEAD,
    LARGE_FOLDER,
    NOTHING,
    PLACE,
    READABLE,
    DirectoryEntry,
    FolderInode,
    InodeKind,
    Tables,
    open_tables,
    place_of,
)
from argosy.images.squashfs.write import (
    OWNER,
    MetadataStream,
    Move,
    NewEntry,
    add_list,
    data_of,
    fragments_of,
    is_whiteout,
    link_target,
    owners_of,
    relocate_inode,
    render_index,
    render_listing,
)

XATTRS = struct.Struct("<Q2I")
"""Record at the xattr table: start of names and values, their count, unused; the positions of a list follow."""
XATTR = 16
KEPT_FLAGS = 0x40 | 0x200 | 0x400
"""Flags to keep from the base: no duplicates, no xattrs, compressor options. The others describe tables."""
LINKS_ON_A_PATH = 40
"""Maximum number of symbolic links to follow for one path: path_resolution(7)."""
PAD = 4096
"""In bytes: loop devices and the files of mksquashfs have whole pages."""


def can_join(base: Superblock) -> bool:
    """Return whether layers can be joined with a base, if they are packed in the same way."""
    return base.compressor in READABLE


def has_same_packing(base: Superblock, layer: Superblock) -> bool:
    """Return whether a layer can be joined with its base without packing it again."""
    return (base.compressor, base.block_size) == (layer.compressor, layer.block_size) and not layer.has_xattrs


def has_whiteouts(layer: FileSlice) -> bool:
    """Return whether a layer contains whiteouts.

    Raises
    ------
    ImageError
        If it is damaged.
    """
    with open_tables(layer) as tables:
        devices = (entry.place for _, entry in tables.walk() if entry.kind == InodeKind.CHARACTER_DEVICE)
        return any(is_whiteout(tables, place) for place in devices)


def join_squashfs(
    base: Source, layers: Sequence[FileSlice], *, time: int, without: Iterable[str] = (), restamp: bool = False
) -> tuple[Piece, ...]:
    """Plan a squashfs with the content of layers over their base; return the pieces to write, in order.

    Character devices 0:0 in a layer remove files below it. If there is a symbolic link in place of a folder of a
    layer, the folder's content goes to the link's target, where a program would find it.

    Parameters
    ----------
    base, layers
        File systems for which `can_join` and `has_same_packing` are true, the lowest layer first.
    time
        Time of the file system, in seconds since 1970.
    without
        Paths of the base to omit, unless a layer contains them.
    restamp
        Whether all files of the layers get this time, too.

    Raises
    ------
    ImageError
        If one of them is damaged.
    """
    with open_tables(base) as below:
        joint = _Joint(below, time, restamp=restamp)
        for path in without:
            joint.remove(path)
        for layer in layers:
            with open_tables(layer) as above:
                joint.add(above)
        return joint.written()


class _Inode:
    """A new inode; its hard links share it. It has no place until it is written."""

    __slots__ = ("data", "place", "target")

    def __init__(self, data: bytes, target: bytes) -> None:
        self.data = data
        self.target = target
        """Target of a symbolic link."""
        self.place: int | None = None


class _Item(NamedTuple):
    """An entry of a folder: an inode of the base at a place, a new inode, or a rewritten folder."""

    kind: int
    number: int
    place: int = 0
    inode: _Inode | None = None
    folder: _Folder | None = None


class _Folder:
    """A folder to rewrite."""

    def __init__(
        self, number: int, parent: _Folder | None, inode: FolderInode | None, items: Iterable[DirectoryEntry]
    ) -> None:
        self.number = number
        self.parent = parent or self
        self.parent_number = inode.parent if inode else self.parent.number
        self.place = 0
        """Reference to its inode after writing."""
        self.head = inode.head if inode else (0o755, 0, 0, 0)
        self.xattrs = inode.xattrs if inode else NOTHING
        self.items = {entry.name: _Item(entry.kind, entry.number, entry.place) for entry in items}

    def folders(self) -> list[_Folder]:
        """Return the rewritten subfolders."""
        return [item.folder for _, item in sorted(self.items.items()) if item.folder]


class _Joint:
    """The state of a join: the folders to rewrite, the new inodes, and the amounts of everything joined so far."""

    def __init__(self, base: Tables, time: int, *, restamp: bool) -> None:
        numbers = base.numbers
        self.base, self.time, self.restamp = base, time, restamp
        self.inodes = MetadataStream(base, numbers.inode_table, numbers.listing_table)
        self.listings = MetadataStream(base, numbers.listing_table, base.listings_end())
        self.data = [data_of(base)]
        self.owners = list(owners_of(base))
        self.fragments = bytearray(fragments_of(base, 0))
        self.count = numbers.inodes
        """Number of inodes; the folders that layers share have several."""
        root = base.folder(numbers.root)
        self.root = _Folder(root.number, None, root, base.listing(root))

    def remove(self, path: str) -> None:
        """Remove a path of the base, if it exists."""
        *above, name = os.fsencode(path).split(b"/")
        folder = self._follow(self.root, *above)
        if folder is not None:
            folder.items.pop(name, None)

    def add(self, layer: Tables) -> None:
        """Add the content of a layer."""
        by = Move(
            data=sum(each.length for each in self.data),
            numbers=self.count,
            fragments=len(self.fragments) // FRAGMENT.size,
            owners=tuple(map(self._number_owner, owners_of(layer))),
            time=self.time if self.restamp else None,
        )
        self._merge(layer, by)
        self.data.append(data_of(layer))
        self.fragments += fragments_of(layer, by.data)
        self.count += layer.numbers.inodes

    def written(self) -> tuple[Piece, ...]:
        """Return the pieces of the joined file system."""
        root = self._write_folders()
        inode_table = FIRST + sum(each.length for each in self.data)
        inodes, listings = self.inodes.rendered(), self.listings.rendered()
        listing_table = inode_table + self.inodes.kept.length + len(inodes)
        at = listing_table + self.listings.kept.length + len(listings)
        lists = bytearray()
        fragment_table = add_list(lists, bytes(self.fragments), at)
        owner_table = add_list(lists, b"".join(map(OWNER.pack, self.owners)), at)
        xattr_table = self._add_xattrs(lists, at)
        used = at + len(lists)
        lists += bytes(-used % PAD)
        numbers = self.base.numbers._replace(
            inodes=self.count,
            time=self.time,
            fragments=len(self.fragments) // FRAGMENT.size,
            flags=self.base.numbers.flags & KEPT_FLAGS,
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
        return SUPERBLOCK.pack(*numbers), *self.data, *tables

    def _number_owner(self, owner: int) -> int:
        if owner not in self.owners:
            self.owners.append(owner)
        return self.owners.index(owner)

    def _merge(self, layer: Tables, by: Move) -> None:
        """Merge a layer's folders into those below it."""
        inodes = dict[int, _Inode]()
        """Old reference -> the new inode. Inodes with hard links occur several times."""
        waiting = [(layer.numbers.root, self.root)]
        left = layer.numbers.inodes
        while waiting:
            place, folder = waiting.pop()
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: a folder contains itself")
            inode = layer.folder(place)
            mode, user, group, time = inode.head
            folder.head = mode, by.owners[user], by.owners[group], by.time_of(time)
            for name, kind, number, inside in layer.listing(inode):
                if kind == InodeKind.FOLDER:
                    waiting.append((inside, self._folder_in(folder, name, by.numbers + number)))
                elif kind == InodeKind.CHARACTER_DEVICE and is_whiteout(layer, inside):
                    folder.items.pop(name, None)
                else:
                    new = inodes.get(inside)
                    if new is None:
                        target = link_target(layer, inside) if kind == InodeKind.LINK else b""
                        new = inodes[inside] = _Inode(relocate_inode(layer, inside, kind, by), target)
                    folder.items[name] = _Item(kind, by.numbers + number, 0, new)

    def _folder_in(self, folder: _Folder, name: bytes, number: int) -> _Folder:
        """Return the subfolder with a name: an existing one, the target of a link, or a new folder."""
        found = self._follow(folder, name)
        if found is None:
            found = self._rewrite(_Folder(number, folder, None, ()), folder, name)
        return found

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
            elif item.kind == InodeKind.FOLDER:
                folder = item.folder or self._open(item, folder, part)
            elif item.kind == InodeKind.LINK and links_left > 1:
                links_left -= 1
                target = item.inode.target if item.inode else link_target(self.base, item.place)
                folder = self.root if target.startswith(b"/") else folder
                left += reversed(target.split(b"/"))
            else:
                return None
        return folder

    def _open(self, item: _Item, parent: _Folder, name: bytes) -> _Folder:
        inode = self.base.folder(item.place)
        return self._rewrite(_Folder(inode.number, parent, inode, self.base.listing(inode)), parent, name)

    def _rewrite(self, folder: _Folder, parent: _Folder, name: bytes) -> _Folder:
        parent.items[name] = _Item(InodeKind.FOLDER, folder.number, folder=folder)
        return folder

    def _write_folders(self) -> int:
        """Write the changed folders with their new inodes, subfolders first; return the root's reference.

        The order depends only on the joined tree. Joining parts, and then the result with a base, thus gives the same
        bytes as joining all at once.
        """
        self.root.parent_number = self.count + 1  # not a valid inode, as in mksquashfs
        order, waiting = list[_Folder](), [self.root]
        while waiting:
            order.append(waiting.pop())
            waiting += order[-1].folders()
        for folder in reversed(order):
            entries = [NewEntry(name, i.kind, i.number, self._place(i)) for name, i in sorted(folder.items.items())]
            listing, index = render_listing(entries)
            block, offset = self.listings.add(listing)
            links = 2 + sum(item.kind == InodeKind.FOLDER for item in folder.items.values())
            head = HEAD.pack(InodeKind.FOLDER + EXTENDED, *folder.head, folder.number)
            numbers = (links, len(listing) + 3, block, folder.parent_number, len(index), offset, folder.xattrs)
            body = LARGE_FOLDER.pack(*numbers) + render_index(index, block, offset)
            folder.place = place_of(*self.inodes.add(head + body))
        return self.root.place

    def _place(self, item: _Item) -> int:
        """Return the reference to the inode of an entry; write a new inode first."""
        if item.folder:
            return item.folder.place
        if item.inode is None:
            return item.place
        if item.inode.place is None:
            item.inode.place = place_of(*self.inodes.add(item.inode.data))
        return item.inode.place

    def _add_xattrs(self, lists: bytearray, at: int) -> int:
        """Add the base's extended attributes; return their table's position.

        The tables contain positions in the file.
        """
        numbers = self.base.numbers
        if numbers.xattr_table == NO_TABLE:
            return NO_TABLE
        begin, count, _ = XATTRS.unpack(self.base.read(numbers.xattr_table, XATTRS.size))
        paths = self.base.paths(numbers.xattr_table + XATTRS.size, count, XATTR)
        moved = at + len(lists) - begin
        lists += self.base.read(begin, numbers.xattr_table - begin)
        lists += XATTRS.pack(begin + moved, count, 0) + b"".join(PLACE.pack(place + moved) for place in paths)
        return len(lists) + at - XATTRS.size - PLACE.size * len(paths)
