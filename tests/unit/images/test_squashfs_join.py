"""Joining squashfs, judged by unsquashfs: the tree that comes out is the one that an overlay mount would show."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from argosy.core.errors import ImageError
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.join import can_join, has_same_packing, has_whiteouts, join_squashfs
from argosy.images.squashfs.superblock import Superblock, read_superblock
from argosy.images.squashfs.tables import (
    BLOCK,
    ENTRY,
    EXTENDED,
    GROUP,
    HEAD,
    LARGE_FOLDER,
    InodeKind,
    Tables,
    device_nodes,
    open_tables,
    unused_share,
)
from argosy.images.squashfs.write import INDEX, NewEntry, render_listing

Tree = dict[str, str | None]
"""Path -> a file's content; ``/`` before it: a link's target; None: a folder; ``WHITEOUT``: a mark of removal."""

WHITEOUT = "\0"


def pack(tree: Path, out: Path, *options: str) -> Path:
    words = ["mksquashfs", str(tree), str(out), "-noappend", "-quiet", "-no-progress", "-all-root", *options]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return out


def written(pieces: tuple[Piece, ...], out: Path) -> Path:
    """Write the pieces, without the holes of a file that has some."""
    with out.open("wb") as file:
        for piece in pieces:
            if isinstance(piece, bytes):
                file.write(piece)
                continue
            with piece.path.open("rb") as source:
                at, begin = piece.offset, file.tell()
                while at < piece.offset + piece.length:
                    data = _data_from(source.fileno(), at, piece.offset + piece.length)
                    if data is None:
                        break
                    file.seek(begin + data[0] - piece.offset)
                    file.write(os.pread(source.fileno(), data[1] - data[0], data[0]))
                    at = data[1]
                file.seek(begin + piece.length)
    return out


def _data_from(descriptor: int, at: int, end: int) -> tuple[int, int] | None:
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError:
        return None
    return (start, min(end, os.lseek(descriptor, start, os.SEEK_HOLE))) if start < end else None


def tree_in(image: Path, folder: Path) -> Tree:
    """Give what unsquashfs finds in an image."""
    words = ["unsquashfs", "-no-progress", "-quiet", "-d", str(folder), str(image)]
    subprocess.run(words, check=True)
    return tree_of(folder)


def tree_of(folder: Path) -> Tree:
    found: Tree = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[name] = f"/{path.readlink()}"
        elif stat.S_ISCHR(status.st_mode):
            found[name] = WHITEOUT
        else:
            found[name] = path.read_text() if path.is_file() else None
    return found


def make(folder: Path, tree: Tree) -> Path:
    folder.mkdir()
    for parent in {os.path.dirname(name) for name in tree}:  # noqa: PTH120 - as quick as thousands of files need it
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = folder / name
        if content is None:
            path.mkdir(exist_ok=True)
        elif content == WHITEOUT:
            os.mknod(path, stat.S_IFCHR | 0o644, 0)
        elif content.startswith("/"):
            path.symlink_to(content[1:])
        else:
            path.write_text(content)
    return folder


def joined(folder: Path, base: Tree, layer: Tree, *options: str) -> Path:
    """Give the image of both."""
    return joined_all(folder, base, [layer], *options)


def layer_names(layers: Sequence[Tree | Path]) -> list[str]:
    """Give the names of their files."""
    return ["l.sqfs", *(f"l{number}.sqfs" for number in range(2, len(layers) + 1))][: len(layers)]


def joined_all(folder: Path, base: Tree, layers: Sequence[Tree], *options: str) -> Path:
    """Give the image of a base and layers."""
    names = layer_names(layers)
    made = [make((folder / name).with_suffix(""), layer) for name, layer in zip(names, layers, strict=True)]
    return joined_folders(folder, make(folder / "b", base), made, *options)


def joined_folders(folder: Path, base: Path, layers: Sequence[Path], *options: str) -> Path:
    """Give the image of trees that are made."""
    below = pack(base, folder / "b.sqfs", *options)
    above = [
        whole_of(pack(layer, folder / name, "-no-xattrs", *options))
        for name, layer in zip(layer_names(layers), layers, strict=True)
    ]
    return written(join_squashfs(whole_of(below), above, time=77), folder / "j.sqfs")


ZSTD = ("-comp", "zstd")
SEVERAL = "".join(f"{number}\n" for number in range(60_000))
"""More than two blocks of data, and a rest that goes into a fragment."""


@pytest.mark.parametrize("options", [ZSTD, ("-comp", "gzip"), (*ZSTD, "-b", "4096"), (*ZSTD, "-no-fragments"),
                                     (*ZSTD, "-noI"), (*ZSTD, "-no-exports", "-noF", "-noD")])  # fmt: skip
def test_base_and_layer_become_one_tree(tmp_path: Path, options: tuple[str, ...]) -> None:
    base: Tree = {"etc/old": "old", "etc/gone": "gone", "etc/kept": SEVERAL, "usr/lib/one": "1", "empty": None,
                  "gone/with/all": "x", "link": "/etc/kept"}  # fmt: skip
    layer: Tree = {"etc/old": "new", "etc/gone": WHITEOUT, "gone": WHITEOUT, "opt/argosy/big": SEVERAL + "end",
                   "opt/argosy/link": "/../../etc/old", "opt/argosy/none": "", "usr/lib/two": "2"}  # fmt: skip
    image = joined(tmp_path, base, layer, *options)
    found = tree_in(image, tmp_path / "out")
    expected = base | layer | dict.fromkeys(("etc", "usr", "usr/lib", "opt", "opt/argosy"))
    for name in ("etc/gone", "gone", "gone/with", "gone/with/all"):
        expected.pop(name, None)
    assert found == expected
    assert read_superblock(image).mkfs_time == 77
    assert image.stat().st_size % 4096 == 0


def test_flags_of_the_base_are_not_claimed_for_the_joined_image(tmp_path: Path) -> None:
    below = pack(make(tmp_path / "b", {"a": "a"}), tmp_path / "b.sqfs", *ZSTD, "-no-fragments")
    above = pack(make(tmp_path / "l", {"b": "b"}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    image = written(join_squashfs(whole_of(below), (whole_of(above),), time=0), tmp_path / "j")
    no_fragments, for_nfs = 0x10, 0x80
    with open_tables(whole_of(below)) as tables:
        assert tables.numbers.flags & (no_fragments | for_nfs) == no_fragments | for_nfs
    with open_tables(whole_of(image)) as tables:
        assert tables.numbers.flags & (no_fragments | for_nfs) == 0  # sqfs2tar reads no fragments where it is said


def test_a_folder_over_a_link_lands_where_the_link_leads(tmp_path: Path) -> None:
    base: Tree = {"usr/lib/one": "1", "lib": "/usr/lib", "abs": "//usr/lib", "round": "/round", "up": "/usr/../lib",
                  "file": "/usr/lib/one", "nowhere": "/missing"}  # fmt: skip
    layer: Tree = {"lib/two": "2", "abs/three": "3", "up/four": "4", "round/five": "5", "file/six": "6",
                   "nowhere/seven": "7", "usr/lib/eight": "8"}  # fmt: skip
    found = tree_in(joined(tmp_path, base, layer, *ZSTD), tmp_path / "out")
    inside = {name.rpartition("/")[2] for name in found if name.startswith("usr/lib/")}
    assert inside == {"one", "two", "three", "four", "eight"}
    assert [found[name] for name in ("lib", "abs", "up")] == ["/usr/lib", "//usr/lib", "/usr/../lib"]
    assert [found[name] for name in ("round/five", "file/six", "nowhere/seven")] == ["5", "6", "7"]


def test_a_file_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    found = tree_in(joined(tmp_path, {"a": "old", "b": "/a"}, {"b": "new"}, *ZSTD), tmp_path / "out")
    assert found == {"a": "old", "b": "new"}


def test_modes_of_folders_are_the_layers_and_hard_links_stay_one_file(tmp_path: Path) -> None:
    base, layer = make(tmp_path / "b", {"opt/x": "x"}), make(tmp_path / "l", {"opt/one": "content"})
    (layer / "opt").chmod(0o1777)
    (layer / "two").hardlink_to(layer / "opt/one")
    os.mkfifo(layer / "pipe")
    below, above = pack(base, tmp_path / "b.sqfs", *ZSTD), pack(layer, tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    image = written(join_squashfs(whole_of(below), (whole_of(above),), time=0), tmp_path / "j")
    tree_in(image, tmp_path / "out")
    out = tmp_path / "out"
    assert stat.S_IMODE((out / "opt").stat().st_mode) == 0o1777
    assert (out / "two").samefile(out / "opt/one")
    assert stat.S_ISFIFO((out / "pipe").lstat().st_mode)
    assert (out / "opt/x").read_text() == "x"


def test_many_files_fill_many_blocks_of_each_table(tmp_path: Path) -> None:
    base: Tree = {f"b/{number:05}-{'n' * 40}": str(number % 7) for number in range(1000)}
    layer: Tree = {f"b/{number:05}-{'l' * 40}": str(number) for number in range(1000)}
    layer["b/00007-" + "n" * 40] = "new"
    found = tree_in(joined(tmp_path, base, layer, *ZSTD), tmp_path / "out")
    assert found == base | layer | {"b": None}


def test_a_group_of_a_listing_has_256_entries_at_most(tmp_path: Path) -> None:
    # Short links: more than that have their inodes in one block.
    layer: Tree = {f"d/{number:03}": "/x" for number in range(300)}
    found = tree_in(joined(tmp_path, {"d/a": "x"}, layer), tmp_path / "out")
    assert found == {"d": None, "d/a": "x", **layer}


def test_entries_whose_numbers_are_far_apart_are_in_groups_of_their_own() -> None:
    def groups(number: int) -> int:
        listing, _ = render_listing([NewEntry(b"a", InodeKind.FILE, 1, 0), NewEntry(b"b", InodeKind.FILE, number, 32)])
        return (len(listing) - 2 * (ENTRY.size + 1)) // GROUP.size

    assert [groups(number) for number in (2, 1 << 15, (1 << 15) + 1)] == [1, 1, 2]


class Indexed(NamedTuple):
    """An entry of a folder's index: byte of the listing, block of the listings, the name there."""

    at: int
    block: int
    name: bytes


def index_of(tables: Tables, place: int) -> list[Indexed]:
    """Read the index of the folder whose inode is at a place."""
    kind, *_ = HEAD.unpack(tables.inode(place, HEAD.size))
    if kind != InodeKind.FOLDER + EXTENDED:
        return []
    end = HEAD.size + LARGE_FOLDER.size
    count = LARGE_FOLDER.unpack(tables.inode(place, end)[HEAD.size :])[4]
    found = []
    for _ in range(count):
        at, block, size = INDEX.unpack(tables.inode(place, end + INDEX.size)[end:])
        end += INDEX.size + size + 1
        found.append(Indexed(at, block, tables.inode(place, end)[-size - 1 :]))
    return found


def names_from(tables: Tables, place: int, entry: Indexed) -> Iterator[bytes]:
    """Read a folder's names from an entry of its index, as the kernel does: from its block, a group's header first."""
    folder = tables.folder(place)
    left = folder.size - 3 - entry.at
    offset = (folder.offset + entry.at) % BLOCK
    data = tables.stream(tables.numbers.listing_table, entry.block, offset, left)
    at = 0
    while at < left:
        count, _, _ = GROUP.unpack_from(data, at)
        at += GROUP.size
        for _ in range(count + 1):
            *_, size = ENTRY.unpack_from(data, at)
            at += ENTRY.size + size + 1
            yield data[at - size - 1 : at]


def check_index(image: Path) -> dict[str, int]:
    """Check the index of each folder; give the number of entries of those that have some."""
    counts = {}
    with open_tables(whole_of(image)) as tables:
        waiting = [("", tables.numbers.root)]
        while waiting:
            path, place = waiting.pop()
            entries = list(tables.listing(tables.folder(place)))
            names = [entry.name for entry in entries]
            waiting += [
                (f"{path}/{entry.name.decode()}", entry.place) for entry in entries if entry.kind == InodeKind.FOLDER
            ]
            index = index_of(tables, place)
            if index:
                counts[path] = len(index)
            for entry in index:
                assert list(names_from(tables, place, entry)) == names[names.index(entry.name) :]
            starts = [0, *(entry.at for entry in index), tables.folder(place).size - 3]
            assert all(0 <= after - before <= BLOCK + GROUP.size for before, after in itertools.pairwise(starts))
    return counts


def many(folder: str, letter: str, count: int) -> Tree:
    return {f"{folder}/{letter}{number:05}-{'n' * (number % 120)}": str(number) for number in range(count)}


LARGE_BASE: Tree = many("base", "b", 700) | many("both", "b", 700) | {"base-few/b": "b", "both-few/b": "b"}
LARGE_LAYER: Tree = many("layer", "l", 3000) | many("both", "l", 700) | {"layer-few/l": "l", "both-few/l": "l"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give the folders of a base and a layer with 5,100 files."""
    folder = tmp_path_factory.mktemp("large")
    return make(folder / "b", LARGE_BASE), make(folder / "l", LARGE_LAYER)


@pytest.mark.parametrize("options", [ZSTD, (*ZSTD, "-noI"), (*ZSTD, "-b", "4096")])
def test_large_folders_have_an_index_after_joining(
    tmp_path: Path, large: tuple[Path, Path], options: tuple[str, ...]
) -> None:
    image = joined_folders(tmp_path, large[0], large[1:], *options)
    of_base, of_layer = check_index(tmp_path / "b.sqfs"), check_index(tmp_path / "l.sqfs")
    counts = check_index(image)
    assert set(counts) == {"/base", "/both", "/layer"}
    assert counts["/base"] == of_base["/base"]
    assert counts["/layer"] == of_layer["/layer"]
    assert counts["/both"] in range(of_base["/both"] + of_layer["/both"], of_base["/both"] + of_layer["/both"] + 2)


def test_the_index_is_the_one_that_mksquashfs_writes(tmp_path: Path) -> None:
    # Names of one file: all have one inode, so the groups do not depend on where the inodes are.
    layer = make(tmp_path / "l", {"d/a": "a"})
    for name in many("d", "n", 2000):
        (layer / name).hardlink_to(layer / "d/a")
    options = (*ZSTD, "-no-xattrs")
    above = pack(layer, tmp_path / "l.sqfs", *options)
    below = pack(make(tmp_path / "b", {"b": "b"}), tmp_path / "b.sqfs", *options)
    image = written(join_squashfs(whole_of(below), (whole_of(above),), time=0), tmp_path / "j")

    def index_in(path: Path) -> list[tuple[int, bytes]]:
        with open_tables(whole_of(path)) as tables:
            paths = {entry.name: entry.place for _, entry in tables.walk()}
            return [(entry.at, entry.name) for entry in index_of(tables, paths[b"d"])]

    assert len(index_in(above)) > 10
    assert index_in(image) == index_in(above)


LENGTHS = st.lists(st.integers(0, 240), min_size=1, max_size=60)


@settings(max_examples=15)
@given(LENGTHS, LENGTHS, st.integers(0, 200), st.integers(0, 400))
def test_any_large_folder_has_an_index(
    tmp_path_factory: pytest.TempPathFactory, short: list[int], long: list[int], below: int, above: int
) -> None:
    folder = tmp_path_factory.mktemp("any-large")
    base: Tree = {f"d/{number:04}b{'n' * short[number % len(short)]}": "/x" for number in range(below)}
    layer: Tree = {f"d/{number:04}l{'n' * long[number % len(long)]}": "/x" for number in range(above)}
    image = joined(folder, base | {"o": "/x" * short[0]}, layer, *ZSTD)
    size = sum(len(name.removeprefix("d/").encode()) + ENTRY.size for name in base | layer)
    assert check_index(image).get("/d", 0) >= size // (BLOCK + GROUP.size)
    assert tree_in(image, folder / "out").keys() - {"d", "o"} == base.keys() | layer.keys()


@contextlib.contextmanager
def kernel_mount(image: Path, folder: Path) -> Iterator[Path]:
    """Mount an image by the kernel's own driver."""
    folder.mkdir()
    words = ["mount", "-t", "squashfs", "-o", "loop,ro", str(image), str(folder)]
    subprocess.run(words, check=True)
    try:
        yield folder
    finally:
        words = ["umount", str(folder)]
        subprocess.run(words, check=True)


@pytest.fixture
def with_kernel(tmp_path: Path) -> None:
    """Skip a test unless the kernel mounts an image that mksquashfs wrote."""
    image = pack(make(tmp_path / "probe", {"a": "a"}), tmp_path / "probe.sqfs", *ZSTD)
    try:
        with kernel_mount(image, tmp_path / "probed"):
            pass
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the kernel mounts no squashfs here: this needs root, loop devices and its squashfs driver")


def listed(image: Path) -> list[tuple[str, str, str]]:
    """Give the lines of unsquashfs -lls as mode, name and size; a folder's size depends on where its inodes are."""
    words = ["unsquashfs", "-lls", "-d", "", str(image)]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split(maxsplit=5) for line in found]
    return [(row[0], " ".join(row[5:]), "" if row[0].startswith("d") else row[2]) for row in rows]


@pytest.mark.usefixtures("with_kernel")
def test_the_kernel_finds_each_name_of_large_folders(tmp_path: Path, large: tuple[Path, Path]) -> None:
    image = joined_folders(tmp_path, large[0], large[1:], *ZSTD)
    expected = LARGE_BASE | LARGE_LAYER
    with kernel_mount(image, tmp_path / "mounted") as mounted:
        for name in reversed(expected):
            assert (mounted / name).read_text() == expected[name]
        for name in itertools.islice(expected, 0, None, 500):  # reads the rest of the folder each time
            assert not (mounted / f"{name}+").exists()
        assert tree_of(mounted) == expected | dict.fromkeys(name.partition("/")[0] for name in expected)
        again = pack(mounted, tmp_path / "again", *ZSTD)
    assert listed(image) == listed(again)


def fill(folder: Path, name: str, owner: int) -> Path:
    """Make a tree with each kind of inode, in a folder of its own and in one that all such trees have."""
    inside = make(folder, {f"{name}/file": SEVERAL, f"{name}/link": "/file", f"{name}/none": "", "all": None}) / name
    (folder / f"all/{name}-hard").hardlink_to(inside / "file")
    os.truncate(inside / "none", 1_000_000)
    with (inside / "sparse").open("wb") as file:
        file.seek(3_000_000)
        file.write(os.urandom(100))
    os.mkfifo(inside / "pipe")
    os.mknod(inside / "device", stat.S_IFBLK | 0o640, os.makedev(300, 1000))
    (inside / "pipe-hard").hardlink_to(inside / "pipe")
    os.chown(inside / "sparse", owner, owner + 1)
    (inside / "sparse").chmod(0o6711)
    os.utime(inside / "sparse", (1, owner))
    return folder


def facts_of(folder: Path) -> dict[str, object]:
    """Give what stat says of each path; of a folder without its time and size, which depend on how it was made."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        facts: list[int] = [status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_rdev]
        if not path.is_dir():
            facts += status.st_blocks, status.st_size, int(status.st_mtime)
        if stat.S_ISREG(status.st_mode):
            facts.append(hash(path.read_bytes()))
        found[str(path.relative_to(folder))] = facts
    assert len({path.lstat().st_ino for path in folder.rglob("*")}) == len(found) - 6  # two hard links in each tree
    return found


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("options", [ZSTD, (*ZSTD, "-b", "4096"), ("-no-fragments",), (*ZSTD, "-always-use-fragments")])
def test_the_kernel_shows_the_same_as_for_one_mksquashfs_of_all_trees(tmp_path: Path, options: tuple[str, ...]) -> None:
    base, *layers = (fill(tmp_path / name, name, owner) for name, owner in (("b", 1000), ("l", 2000), ("m", 1000)))
    below, *above = (whole_of(pack_as_it_is(tree, tree.with_suffix(".sqfs"), *options)) for tree in (base, *layers))
    image = written(join_squashfs(below, above, time=0), tmp_path / "j")
    for layer in layers:
        words = ["cp", "-a", f"{layer}/.", str(base)]
        subprocess.run(words, check=True)
    with kernel_mount(pack_as_it_is(base, tmp_path / "both", *options), tmp_path / "packed") as packed:
        expected = facts_of(packed)
    with kernel_mount(image, tmp_path / "mounted") as mounted:
        assert facts_of(mounted) == expected
    with open_tables(whole_of(image)) as tables:
        root = tables.folder(tables.numbers.root)
        assert root.parent == tables.numbers.inodes + 1


def pack_as_it_is(tree: Path, out: Path, *options: str) -> Path:
    """Pack a tree.

    mksquashfs 4.5.1 with -always-use-fragments packed the end of a sparse file as zeros once in 400 tries: again then.
    """
    words = ["mksquashfs", str(tree), str(out), "-noappend", "-quiet", "-no-progress", "-no-xattrs", *options]
    for _ in range(5):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        sparse = [path for path in tree.rglob("sparse") if path.is_file()]
        if all(packed_bytes(out, path.relative_to(tree)) == path.read_bytes() for path in sparse):
            break
    return out


def packed_bytes(image: Path, path: Path) -> bytes:
    words = ["unsquashfs", "-cat", str(image), str(path)]
    return subprocess.run(words, check=True, capture_output=True).stdout


def test_an_empty_table_may_have_no_position(tmp_path: Path) -> None:
    options = (*ZSTD, "-no-fragments", "-no-xattrs")
    images = []
    for name in ("b", "l"):
        image = pack(make(tmp_path / name, {name: name}), tmp_path / f"{name}.sqfs", *options)
        data = bytearray(image.read_bytes())
        struct.pack_into("<Q", data, 80, 2**64 - 1)  # the fragments' list, as squashfs-tools-ng writes it
        image.write_bytes(data)
        images.append(whole_of(image))
    assert unused_share(images[0]) == 0
    image = written(join_squashfs(images[0], images[1:], time=0), tmp_path / "j")
    assert tree_in(image, tmp_path / "out") == {"b": "b", "l": "l"}


def test_a_joined_image_is_a_base_for_the_next_layer(tmp_path: Path) -> None:
    first = joined(tmp_path, {"a": SEVERAL, "d/b": "b"}, {"d/c": SEVERAL + "c"}, *ZSTD)
    more = pack(make(tmp_path / "more", {"d/e": "e", "a": WHITEOUT}), tmp_path / "more.sqfs", *ZSTD, "-no-xattrs")
    image = written(join_squashfs(whole_of(first), (whole_of(more),), time=1), tmp_path / "again")
    assert tree_in(image, tmp_path / "out") == {"d": None, "d/b": "b", "d/c": SEVERAL + "c", "d/e": "e"}


def test_extended_attributes_of_the_base_are_kept(tmp_path: Path) -> None:
    base = make(tmp_path / "b", {"d/a": "a", "d/b": "b"})
    for name in ("d", "d/a"):
        try:
            os.setxattr(base / name, "user.argosy", name.encode())
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            pytest.skip("the file system of the temporary folder has no extended attributes")
    below = pack(base, tmp_path / "b.sqfs", *ZSTD)
    above = pack(make(tmp_path / "l", {"d/c": "c"}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    assert read_superblock(below).has_xattrs
    image = written(join_squashfs(whole_of(below), (whole_of(above),), time=0), tmp_path / "j")
    tree_in(image, tmp_path / "out")
    assert {name: os.listxattr(tmp_path / "out" / name) for name in ("d", "d/a", "d/b", "d/c")} == {
        "d": ["user.argosy"],
        "d/a": ["user.argosy"],
        "d/b": [],
        "d/c": [],
    }


def spread(image: Path, out: Path, by: int) -> FileSlice:
    """Give an image without fragments whose tables lie `by` bytes further: it is large, and mostly a hole."""
    data = bytearray(image.read_bytes())
    numbers = list(struct.unpack_from("<8Q", data, 32))
    tables = numbers[4]  # where the inodes begin
    lists = numbers[2]
    (first,) = struct.unpack_from("<Q", data, lists)
    struct.pack_into("<Q", data, lists, first + by)
    spread_out = [numbers[0], numbers[1] + by, *(n if n == 2**64 - 1 else n + by for n in numbers[2:])]
    struct.pack_into("<8Q", data, 32, *spread_out)
    with out.open("wb") as file:
        file.write(data[:tables])
        file.seek(tables + by)
        file.write(data[tables:])
    return whole_of(out)


def test_files_behind_four_gigabytes_of_base_are_found(tmp_path: Path) -> None:
    options = (*ZSTD, "-no-fragments", "-no-exports", "-no-xattrs")
    small = pack(make(tmp_path / "b", {"a": "a"}), tmp_path / "b.sqfs", *options)
    large = spread(small, tmp_path / "large", 5 << 30)
    assert tree_in(large.path, tmp_path / "alone") == {"a": "a"}
    above = pack(make(tmp_path / "l", {"d/c": SEVERAL}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    image = written(join_squashfs(large, (whole_of(above),), time=0), tmp_path / "j")
    assert image.stat().st_size > 5 << 30
    assert tree_in(image, tmp_path / "out") == {"a": "a", "d": None, "d/c": SEVERAL}


NAMES = st.sampled_from(["a", "b", "c", "a-b", "é"])
CONTENTS = st.one_of(st.none(), st.text("xyz", max_size=9), st.just("/a"), st.just("/../b"), st.just("//c"))


@st.composite
def trees(draw: st.DrawFn, *, layer: bool) -> Tree:
    """Draw a tree in which no file has something below it."""
    tree: Tree = {}
    for _ in range(draw(st.integers(0, 8))):
        parts = draw(st.lists(NAMES, min_size=1, max_size=3))
        above = ["/".join(parts[:length]) for length in range(1, len(parts))]
        if any(tree.get(name, None) is not None for name in above) or "/".join(parts) in tree:
            continue
        tree |= dict.fromkeys(above)
        tree["/".join(parts)] = draw(st.one_of(CONTENTS, st.just(WHITEOUT)) if layer else CONTENTS)
    return tree


def overlaid(base: Tree, layer: Tree) -> Tree | None:
    """Say in a few lines what must come out; None where a folder lies over a link, which others judge."""
    out = dict(base)
    for name, content in sorted(layer.items()):
        there = base.get(name, WHITEOUT)
        if content is None and (there or "").startswith("/"):
            return None
        if content is not None or there is not None:
            for inside in [each for each in out if each == name or each.startswith(f"{name}/")]:
                del out[inside]
        if content != WHITEOUT:
            out[name] = content
    return out


@settings(max_examples=30)
@given(trees(layer=False), trees(layer=True))
def test_any_two_trees_join_to_their_overlay(tmp_path_factory: pytest.TempPathFactory, base: Tree, layer: Tree) -> None:
    expected = overlaid(base, layer)
    assume(expected is not None)
    folder = tmp_path_factory.mktemp("any")
    assert tree_in(joined(folder, base, layer, *ZSTD), folder / "out") == expected


@settings(max_examples=20)
@given(trees(layer=False), st.lists(trees(layer=True), max_size=4))
def test_any_number_of_layers_joins_to_their_overlay(
    tmp_path_factory: pytest.TempPathFactory, base: Tree, layers: list[Tree]
) -> None:
    expected: Tree | None = base
    for layer in layers:
        expected = overlaid(expected, layer) if expected is not None else None
    assume(expected is not None)
    folder = tmp_path_factory.mktemp("layers")
    assert tree_in(joined_all(folder, base, layers, *ZSTD), folder / "out") == expected


FILES = trees(layer=False).map(lambda tree: {name: text for name, text in tree.items() if "/" not in (text or "")})


@settings(max_examples=20)
@given(FILES, st.lists(FILES, min_size=1, max_size=4))
def test_parts_that_are_joined_first_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, base: Tree, layers: list[Tree]
) -> None:
    # A file in place of a folder hides the base's folder, which the joint of the layers alone does not know.
    kinds = {(name, tree[name] is None) for tree in (base, *layers) for name in tree}
    assume(len(kinds) == len({name for name, _ in kinds}))
    folder = tmp_path_factory.mktemp("first")
    at_once = joined_all(folder, base, layers, *ZSTD)
    below, lowest, *others = (whole_of(folder / name) for name in ("b.sqfs", *layer_names(layers)))
    first = whole_of(written(join_squashfs(lowest, others, time=77), folder / "first"))
    assert written(join_squashfs(below, (first,), time=77), folder / "then").read_bytes() == at_once.read_bytes()


def test_many_parts_of_one_folder_are_joined_in_one_pass(tmp_path: Path) -> None:
    base: Tree = {"site/base.py": "base", "usr/a": SEVERAL}
    layers: list[Tree] = [
        {f"site/p{number}/__init__.py": f"{SEVERAL}{number}", "site/shared.py": str(number), f"site/s{number}": "s"}
        for number in range(12)
    ]
    expected = base | {name: content for layer in layers for name, content in layer.items()}
    folders = dict.fromkeys(("site", "usr", *(f"site/p{number}" for number in range(12))))
    image = joined_all(tmp_path, base, layers, *ZSTD)
    assert tree_in(image, tmp_path / "out") == expected | folders
    assert expected["site/shared.py"] == "11"  # that of the last part
    assert check_index(image) == {}


def test_a_link_of_an_earlier_layer_leads_to_the_folder_of_a_later_one(tmp_path: Path) -> None:
    image = joined_all(tmp_path, {"a": "a"}, [{"lib/x": "x", "lib64": "/lib"}, {"lib64/y": "y"}], *ZSTD)
    assert tree_in(image, tmp_path / "out") == {"a": "a", "lib": None, "lib/x": "x", "lib/y": "y", "lib64": "/lib"}


@pytest.mark.parametrize(("restamp", "expected"), [(False, 5), (True, 77)])
def test_files_of_layers_keep_their_time_or_get_that_of_the_image(
    tmp_path: Path, *, restamp: bool, expected: int
) -> None:
    below = pack(make(tmp_path / "b", {"d/a": "a"}), tmp_path / "b.sqfs", *ZSTD, "-all-time", "3")
    above = pack(make(tmp_path / "l", {"d/b": "b", "e": None}), tmp_path / "l.sqfs", *ZSTD, "-all-time", "5")
    image = written(join_squashfs(whole_of(below), (whole_of(above),), time=77, restamp=restamp), tmp_path / "j")
    tree_in(image, tmp_path / "out")
    times = {name: int((tmp_path / "out" / name).stat().st_mtime) for name in ("d", "d/a", "d/b", "e")}
    assert times == {"d": expected, "d/a": 3, "d/b": expected, "e": expected}
    assert read_superblock(image).mkfs_time == 77


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    folder = tmp_path_factory.mktemp("pair")
    base: Tree = {f"d/{number}": str(number) for number in range(50)}
    base["l"] = "/d"
    below = pack(make(folder / "b", base), folder / "b.sqfs", *ZSTD)
    return below.read_bytes(), pack(make(folder / "l", {"l/x": "x", "d/3": "y"}), folder / "l.sqfs", *ZSTD)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4), st.sampled_from(["base", "layer"])
)
def test_a_damaged_file_is_either_refused_or_joined(
    pair: tuple[bytes, Path], tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], part: str
) -> None:
    data = bytearray(pair[0])
    for at, value in changes:
        data[at % len(data)] = value
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "base").write_bytes(data)
    damaged, intact = whole_of(folder / "base"), whole_of(pair[1])
    with contextlib.suppress(ImageError):  # whatever else is raised fails the test
        assert (
            join_squashfs(damaged, (intact,), time=0) if part == "base" else join_squashfs(intact, (damaged,), time=0)
        )


def test_a_folder_that_contains_itself_is_refused(tmp_path: Path) -> None:
    base = pack(make(tmp_path / "b", {"a": "a"}), tmp_path / "b.sqfs", *ZSTD)
    options = (*ZSTD, "-noI", "-no-xattrs")
    layer = pack(make(tmp_path / "l", {"d/e": None}), tmp_path / "l.sqfs", *options)
    with open_tables(whole_of(layer)) as tables:
        root = tables.folder(tables.numbers.root)
        (inside,) = tables.listing(root)
        start = tables.numbers.inode_table + 2
    data = bytearray(layer.read_bytes())
    # The listing of "d" is that of the root, which holds "d".
    kind, *_ = HEAD.unpack_from(data, start + (inside.place & 0xFFFF))
    assert kind == InodeKind.FOLDER
    struct.pack_into("<I", data, start + (inside.place & 0xFFFF) + HEAD.size, root.block)
    struct.pack_into("<HH", data, start + (inside.place & 0xFFFF) + HEAD.size + 8, root.size, root.offset)
    layer.write_bytes(data)
    with pytest.raises(ImageError, match="complete squashfs"):
        join_squashfs(whole_of(base), (whole_of(layer),), time=0)


@pytest.mark.parametrize(("content", "kind"), [("a", InodeKind.LINK), ("/a", InodeKind.FILE), ("/a", InodeKind.FIFO)])
def test_an_inode_of_another_kind_than_its_entry_is_refused(tmp_path: Path, content: str, kind: InodeKind) -> None:
    base = pack(make(tmp_path / "b", {"a": "a"}), tmp_path / "b.sqfs", *ZSTD)
    layer = pack(make(tmp_path / "l", {"x": content}), tmp_path / "l.sqfs", *ZSTD, "-noI", "-no-xattrs")
    with open_tables(whole_of(layer)) as tables:
        ((_, inside),) = tables.walk()
        at = tables.numbers.inode_table + 2 + (inside.place & 0xFFFF)
    data = bytearray(layer.read_bytes())
    struct.pack_into("<H", data, at, kind)
    layer.write_bytes(data)
    with pytest.raises(ImageError, match="complete squashfs"):
        join_squashfs(whole_of(base), (whole_of(layer),), time=0)


@pytest.mark.parametrize(
    ("base", "layer", "alike"),
    [
        (("zstd", 4096), ("zstd", 4096), True),
        (("zstd", 4096), ("zstd", 8192), False),
        (("gzip", 4096), ("zstd", 4096), False),
    ],
)
def test_one_compressor_and_block_size_are_needed(
    base: tuple[str, int], layer: tuple[str, int], *, alike: bool
) -> None:
    below, above = (Superblock(name, size, 0, 1000, 1) for name, size in (base, layer))
    assert has_same_packing(below, above) is alike
    assert can_join(below)
    assert not can_join(Superblock("xz", 4096, 0, 1000, 1))
    assert not has_same_packing(below, Superblock(*base, 0, 1000, 1, has_xattrs=True))


def test_paths_that_are_left_out_are_gone_unless_the_layer_brings_them(tmp_path: Path) -> None:
    base: Tree = {"a/one": "1", "a/two": "2", "b/three": "3", "c": "/a"}
    below = pack(make(tmp_path / "b", base), tmp_path / "b.sqfs", *ZSTD)
    above = pack(make(tmp_path / "l", {"c/four": "4", "a/two": "new"}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    without = ("a/one", "a/two", "b", "c", "nowhere/at/all")
    pieces = join_squashfs(whole_of(below), (whole_of(above),), time=0, without=without)
    found = tree_in(written(pieces, tmp_path / "j"), tmp_path / "out")
    assert found == {"a": None, "a/two": "new", "c": None, "c/four": "4"}


@pytest.mark.parametrize("options", [(), ("-no-fragments",)])
def test_replaced_and_excluded_data_counts_as_dead(tmp_path: Path, options: tuple[str, ...]) -> None:
    base: Tree = {name: os.urandom(200_000).hex() for name in ("a", "b", "c", "d")}
    base["same"] = base["a"]
    below = pack(make(tmp_path / "b", base), tmp_path / "b.sqfs", *ZSTD, *options)
    assert abs(unused_share(whole_of(below))) < 0.01
    above = pack(make(tmp_path / "l", {"b": "new"}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs", *options)
    pieces = join_squashfs(whole_of(below), (whole_of(above),), time=0, without=("c",))
    share = unused_share(whole_of(written(pieces, tmp_path / "j")))
    assert 0.3 < share < 0.55  # two of four, less the ends of files that lie in a fragment with others


@pytest.mark.parametrize(("layer", "takes"), [({"d/a": "a"}, False), ({"d/a": "a", "d/e/b": WHITEOUT}, True)])
def test_a_layer_that_removes_something_is_known(tmp_path: Path, layer: Tree, *, takes: bool) -> None:
    assert has_whiteouts(whole_of(pack(make(tmp_path / "l", layer), tmp_path / "l.sqfs", *ZSTD))) is takes


def test_device_nodes_are_found_by_their_paths_and_can_be_left_out(tmp_path: Path) -> None:
    nodes = ("-p", "dev/null c 666 0 0 1 3", "-p", "dev/deep/disk b 666 0 0 1 3")
    tree = make(tmp_path / "b", {"dev/file": "kept", "dev/deep/other": "kept", "link": "/dev/null"})
    below = pack(tree, tmp_path / "b.sqfs", *ZSTD, *nodes)
    assert device_nodes(whole_of(below)) == ("dev/deep/disk", "dev/null")
    above = pack(make(tmp_path / "l", {}), tmp_path / "l.sqfs", *ZSTD, "-no-xattrs")
    pieces = join_squashfs(whole_of(below), (whole_of(above),), time=0, without=device_nodes(whole_of(below)))
    joined = written(pieces, tmp_path / "j")
    assert device_nodes(whole_of(joined)) == ()
    assert set(tree_in(joined, tmp_path / "out")) == {"dev", "dev/file", "dev/deep", "dev/deep/other", "link"}
