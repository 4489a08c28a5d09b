from __future__ import annotations

import errno
import os
import struct
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.core.errors import CheckFailed, ImageError
from argosy.core.records import replace
from argosy.images.sif import format as form
from argosy.images.sif import write as sif_write
from argosy.images.sif.format import CYCLONEDX_JSON, SBOM_EXTRA, DataType, FsKind, PartKind, choose_system
from argosy.images.sif.read import read_part, read_sif, verify_sif
from argosy.images.sif.write import (
    FileSlice,
    NewPart,
    plan_copied_part,
    plan_json_part,
    plan_overlay_part,
    plan_sbom_part,
    plan_system_part,
    render_partition_extra,
    write_sif,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ID = uuid.UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
TIME = 1_700_000_000


def write(path: Path, parts: Sequence[NewPart], **changes: str) -> bytes:
    write_sif(path, parts, uuid=ID, time=TIME, arch=changes.get("arch", "amd64"))
    return path.read_bytes()


def partition(data: bytes, kind: int, *, group: int = 1, arch: str = "amd64", fs: int = FsKind.RAW) -> NewPart:
    return NewPart(DataType.PARTITION, data, group=group, extra=render_partition_extra(fs, kind, arch=arch))


PARTS = (
    NewPart(DataType.DEFINITION, b"Bootstrap: localimage\n"),
    partition(b"root" * 3000, PartKind.PRIMARY_SYSTEM, group=3),
    partition(b"layer" * 100, PartKind.OVERLAY, group=3),
    plan_json_part("argosy.lock", b'{"a": 1}'),
    plan_sbom_part("argosy.cdx.json", b"{}", group=0),
    NewPart(DataType.LABELS, b'{"title": "x"}', name="labels"),
    NewPart(DataType.SIGNATURE, b"", extra=b"\x01\0\0\0entity"),
)


@pytest.fixture(scope="session")
def squashfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squashfs")
    (folder / "tree" / "opt").mkdir(parents=True)
    (folder / "tree" / "opt" / "hello").write_text("hello\n" * 500)
    image = folder / "image.sqfs"
    words = [
        "mksquashfs",
        str(folder / "tree"),
        str(image),
        "-quiet",
        "-no-progress",
        "-comp",
        "zstd",
        "-all-time",
        "0",
    ]
    subprocess.run([*words, "-mkfs-time", "0"], check=True)
    return image


@pytest.fixture
def image(tmp_path: Path, squashfs: Path) -> Path:
    """A whole image: base with other things before it, one overlay partition, objects."""
    source = FileSlice(squashfs, 0, squashfs.stat().st_size)
    parts = (
        NewPart(DataType.DEFINITION, b"From: x\n"),
        plan_system_part(source, arch="amd64"),
        plan_overlay_part(source, group=1, arch="amd64", name="layer"),
        plan_json_part("argosy.lock", b"{}"),
    )
    path = tmp_path / "whole.sif"
    write(path, parts)
    return path


def test_a_written_sif_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.sif"
    launch, *_, identity, created, modified = form.HEADER.unpack_from(write(path, PARTS))[:7]
    assert launch.rstrip(b"\0") == b"#!/usr/bin/env run-singularity\n"
    assert (identity, created, modified) == (ID.bytes, TIME, TIME)
    sif = read_sif(path)
    header = sif.header
    assert header.arch == "amd64"
    assert (header.descriptors_total, header.descriptors_free) == (48, 48 - len(PARTS))
    assert [part.id for part in sif.parts] == [1, 2, 3, 4, 5, 6, 7]
    for new, part in zip(PARTS, sif.parts, strict=True):
        assert (part.datatype, part.name, part.group) == (new.datatype, new.name, new.group)
        assert part.extra == new.extra.rstrip(b"\0")
        assert read_part(path, part) == new.source
    assert sif.size == header.data_offset + header.data_length == path.stat().st_size


def test_partitions_begin_at_a_page_and_objects_follow_closely(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", PARTS)
    sif = read_sif(tmp_path / "a.sif")
    assert [part.offset % 4096 for part in sif.parts if part.partition] == [0, 0]
    assert sif.parts[3].offset == sif.parts[2].end
    assert sum(part.stored for part in sif.parts) == sif.header.data_length


def test_partitions_and_formats_have_names(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", PARTS)
    sif = read_sif(tmp_path / "a.sif")
    assert str(sif.parts[1]) == "part 2 (primary system raw amd64)"
    assert str(sif.parts[3]) == "part 4 (JSON object 'argosy.lock')"
    assert sif.parts[4].extra == SBOM_EXTRA.pack(CYCLONEDX_JSON).rstrip(b"\0")


@pytest.mark.parametrize(
    ("render", "number", "words"),
    [
        (form.render_data_type, 0x4FFF, "type 0x4fff"),
        (form.render_data_type, -1, "type -0x1"),
        (form.render_fs_kind, 99, "file system 99"),
        (form.render_part_kind, 0, "kind 0"),
    ],
)
def test_unknown_numbers_show_as_numbers(render: Callable[[int], str], number: int, words: str) -> None:
    assert render(number) == words


def test_every_number_has_a_name() -> None:
    assert set(form.DATA_TYPES) == set(DataType)
    assert form.render_fs_kind(FsKind.ENCRYPTED_SQUASHFS) == "encrypted squashfs"
    assert form.render_part_kind(PartKind.PRIMARY_SYSTEM) == "primary system"


@given(arch=st.sampled_from(sorted(form.ARCHES.values())))
def test_architecture_codes_convert_both_ways(arch: str) -> None:
    assert form.render_arch(form.parse_arch(arch)) == arch


def test_an_architecture_without_code_is_refused() -> None:
    with pytest.raises(ImageError, match="quantum"):
        form.parse_arch("quantum")


def test_the_same_parts_give_the_same_bytes(tmp_path: Path) -> None:
    assert write(tmp_path / "a.sif", PARTS) == write(tmp_path / "b.sif", PARTS)


def test_a_group_is_stored_under_the_mask(tmp_path: Path) -> None:
    data = write(tmp_path / "a.sif", PARTS)
    stored = [struct.unpack_from("<2I", data, 4096 + 585 * row + 9) for row in range(7)]
    assert stored[1] == (0xF0000003, 0)
    assert stored[4] == (0xF0000000, 0)
    assert stored[5] == (0xF0000001, 0)


def test_more_parts_than_the_usual_table_holds_enlarge_it(tmp_path: Path) -> None:
    parts = [plan_json_part(f"object {number}", bytes([number])) for number in range(60)]
    write(tmp_path / "a.sif", parts)
    sif = read_sif(tmp_path / "a.sif")
    assert sif.header.descriptors_total == 60
    assert [read_part(sif.path, part) for part in sif.parts] == [bytes([number]) for number in range(60)]


def test_an_image_without_parts_is_readable_but_has_no_system(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", [])
    sif = read_sif(tmp_path / "a.sif")
    assert sif.parts == ()
    with pytest.raises(ImageError, match="no root file system"):
        choose_system(sif)


def test_overlays_are_those_of_the_systems_group(tmp_path: Path) -> None:
    overlays = [partition(b"x", PartKind.OVERLAY, group=group) for group in (1, 2, 0)]
    write(tmp_path / "a.sif", [partition(b"r", PartKind.PRIMARY_SYSTEM, group=2), *overlays])
    assert [part.group for part in read_sif(tmp_path / "a.sif").overlays] == [2]


def test_a_system_in_no_group_takes_every_overlay(tmp_path: Path) -> None:
    overlays = [partition(b"x", PartKind.OVERLAY, group=group) for group in (1, 2, 0)]
    write(tmp_path / "a.sif", [partition(b"r", PartKind.PRIMARY_SYSTEM, group=0), *overlays])
    assert [part.group for part in read_sif(tmp_path / "a.sif").overlays] == [1, 2, 0]


def test_parts_are_copied_between_files_byte_for_byte(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", PARTS)
    old = read_sif(tmp_path / "a.sif")
    write(tmp_path / "b.sif", [plan_copied_part(old, part) for part in old.parts[:5]])
    new = read_sif(tmp_path / "b.sif")
    for before, after in zip(old.parts[:5], new.parts, strict=True):
        assert (after.name, after.group, after.extra) == (before.name, before.group, before.extra)
        assert read_part(new.path, after) == read_part(old.path, before)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, None])
def test_a_slice_is_copied_even_if_the_kernel_cannot_copy_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * 4096 + 17))
    parts = [NewPart(DataType.GENERIC, FileSlice(source, 5, 3 * 4096))]
    expected = write(tmp_path / "a.sif", parts)

    def refuse(*_: int) -> int:
        assert code is not None
        raise OSError(code, os.strerror(code))

    if code is None:  # a Python for an old glibc does not have the function
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(sif_write, "PLAIN_CHUNK", 1000)
    assert write(tmp_path / "b.sif", parts) == expected
    assert read_part(tmp_path / "b.sif", read_sif(tmp_path / "b.sif").parts[0]) == source.read_bytes()[5 : 5 + 3 * 4096]


@pytest.mark.parametrize(("offset", "length"), [(0, 101), (100, 1), (99, 2)])
def test_a_source_shorter_than_planned_leaves_no_file(tmp_path: Path, offset: int, length: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    with pytest.raises(ImageError, match="read: 100 bytes"):
        write(tmp_path / "a.sif", [NewPart(DataType.GENERIC, FileSlice(source, offset, length))])
    assert not (tmp_path / "a.sif").exists()


def test_a_source_that_is_not_there_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="No such file"):
        write(tmp_path / "a.sif", [NewPart(DataType.GENERIC, FileSlice(tmp_path / "gone", 0, 1))])
    assert not (tmp_path / "a.sif").exists()


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    def fail(_: int) -> None:
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((CheckFailed, KeyboardInterrupt)):
        write(tmp_path / "a.sif", PARTS)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(CheckFailed, match="no space left") as caught:
        write(tmp_path / ".a.sif.1.00000000.part", PARTS)
    assert f"while writing {tmp_path} (" in caught.value.evidence
    assert "--output" in caught.value.hint


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.sif").write_text("mine")
    with pytest.raises(CheckFailed, match="exists"):
        write(tmp_path / "a.sif", PARTS)
    assert (tmp_path / "a.sif").read_text() == "mine"


@pytest.mark.parametrize(
    "changes",
    [{"name": "n" * 129}, {"name": "a\0b"}, {"extra": b"x" * 385}, {"group": 1 << 28}],
)
def test_values_that_do_not_fit_a_descriptor_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        NewPart(DataType.GENERIC, b"", **changes)  # type: ignore[arg-type]


def patched(data: bytes, layout: str, offset: int, value: int | bytes) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, offset, value)
    return bytes(changed)


ROW = 4096
HOSTILE = [
    ("more descriptors than the file has room for", "<q", 88, 1000),
    ("2^60 descriptors", "<q", 88, 1 << 60),
    ("a negative count", "<q", 88, -1),
    ("more free descriptors than there are", "<q", 80, 49),
    ("negative free descriptors", "<q", 80, -1),
    ("more parts than the header counts", "<q", 80, 47),
    ("a table before the file", "<q", 96, -4096),
    ("a table in the header", "<q", 96, 64),
    ("a table behind the end", "<q", 96, 1 << 40),
    ("a table that ends behind the end", "<q", 104, 1 << 40),
    ("a table shorter than its descriptors", "<q", 104, 584),
    ("a negative table", "<q", 104, -1),
    ("data in the header", "<q", 112, 0),
    ("negative data", "<q", 120, -5),
    ("a part before the file", "<q", ROW + 17, -1),
    ("a part in the header", "<q", ROW + 17, 0),
    ("a part in the descriptors", "<q", ROW + 17, ROW),
    ("a part behind the end", "<q", ROW + 17, 1 << 62),
    ("a part that ends behind the end", "<q", ROW + 25, 1 << 62),
    ("a part whose end overflows", "<q", ROW + 25, (1 << 63) - 1),
    ("a negative part", "<q", ROW + 25, -1),
    ("a part with the id 0", "<I", ROW + 5, 0),
    ("two parts with one id", "<I", ROW + 5, 2),
    ("another version", "<3s", 42, b"02\0"),
    ("another magic", "<4s", 32, b"SIG_"),
]


@pytest.mark.parametrize(("layout", "offset", "value"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_an_impossible_number_is_an_error_with_both_sides(
    tmp_path: Path, layout: str, offset: int, value: int | bytes
) -> None:
    path = tmp_path / "hostile.sif"
    path.write_bytes(patched(write(tmp_path / "a.sif", PARTS), layout, offset, value))
    with pytest.raises(ImageError) as caught:
        read_sif(path)
    assert str(path) in caught.value.what
    assert "read: " in caught.value.evidence
    assert "expected: " in caught.value.evidence
    assert caught.value.hint


def test_more_free_descriptors_than_there_are_is_an_error_without_parts_too(tmp_path: Path) -> None:
    path = tmp_path / "hostile.sif"
    path.write_bytes(patched(write(tmp_path / "a.sif", []), "<q", 80, 49))
    with pytest.raises(ImageError, match="49 free descriptors"):
        read_sif(path)


def test_millions_of_descriptors_in_a_sparse_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sparse.sif"
    data = patched(write(path, []), "<q", 88, 10_000_000)
    data = patched(data, "<q", 104, 10_000_000 * 585)
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    with pytest.raises(ImageError, match="10000000 descriptors"):
        read_sif(path)


def test_a_file_cut_off_anywhere_is_an_error_or_lacks_only_unused_bytes(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.sif", PARTS)
    sif = read_sif(tmp_path / "a.sif")
    table_end = sif.header.descriptors_offset + sif.header.descriptors_length
    edges = {0, 1, 31, 32, 41, 42, 127, 128, 4095, 4096, table_end}
    edges |= {4096 + 585 * row for row in range(49)}
    edges |= {edge for part in sif.parts if part.size for edge in (part.offset, part.offset + 1, part.end)}
    cuts = sorted({cut + step for cut in edges for step in (-1, 0, 1) if 0 <= cut + step < len(whole)})
    path = tmp_path / "cut.sif"
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(ImageError):
            read_sif(path)


def test_a_gap_between_descriptors_and_data_is_followed(tmp_path: Path) -> None:
    """Some published images begin their data far behind the descriptors: nothing but the offsets tells where."""
    header = form.HEADER.pack(
        b"#!/usr/bin/env run-singularity\n",
        form.MAGIC,
        b"01\0",
        b"04\0",
        ID.bytes,
        -62135596800,
        7,
        1,
        2,
        200,
        1170,
        9000,
        3,
    )
    extra = form.PARTITION_EXTRA.pack(1, 2, b"04\0")
    row = form.DESCRIPTOR.pack(0x4004, True, 9, 0xF0000001, 0, 9000, 3, 3, 1, 1, 1000, 1000, b"root", extra)
    path = tmp_path / "gap.sif"
    path.write_bytes((header.ljust(200, b"\xff") + bytes(585) + row).ljust(9000, b"\xee") + b"abc")
    sif = read_sif(path)
    system = choose_system(sif)
    assert (system.id, system.name, read_part(path, system)) == (9, "root", b"abc")
    assert sif.header.arch == "arm64"


def test_a_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    data = write(tmp_path / "a.sif", [plan_json_part("x" * 12, b"{}")])
    path = tmp_path / "b.sif"
    path.write_bytes(patched(data, "<12s", ROW + 73, b"\x1b[31m\r\n\xff\xe2\x80\xae"))
    assert read_sif(path).parts[0].name == r"\x1b[31m\r\n\xff\u202e"


def test_an_object_larger_than_allowed_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", PARTS)
    with pytest.raises(ImageError, match="at most 100"):
        read_part(tmp_path / "a.sif", read_sif(tmp_path / "a.sif").parts[1], limit=100)


def test_a_part_of_another_file_is_not_read_beyond_the_end(tmp_path: Path) -> None:
    write(tmp_path / "a.sif", PARTS)
    (tmp_path / "small").write_bytes(b"small")
    with pytest.raises(ImageError, match="within 5 bytes"):
        read_part(tmp_path / "small", read_sif(tmp_path / "a.sif").parts[1])


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_something_other_than_a_file_is_refused_with_its_kind(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(ImageError, match="is not a SIF image"):
        read_sif(path)


def test_an_html_page_instead_of_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sif").write_text("<!DOCTYPE html><title>403</title>")
    with pytest.raises(ImageError, match="HTML page"):
        read_sif(tmp_path / "a.sif")


@given(data=st.binary(max_size=3000))
@settings(max_examples=4 * settings().max_examples)
def test_arbitrary_bytes_are_an_image_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.sif"
    path.write_bytes(data)
    with pytest.raises(ImageError):
        read_sif(path)


@given(data=st.data())
@settings(max_examples=4 * settings().max_examples)
def test_a_damaged_image_is_an_image_within_its_file_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "undamaged.sif"
    if not whole.exists():
        write(whole, PARTS)
    changed = bytearray(whole.read_bytes())
    paths = st.integers(0, 127) | st.integers(ROW, ROW + 585 * 8)
    for place, value in data.draw(st.lists(st.tuples(paths, st.binary(min_size=1, max_size=9)), max_size=6)):
        changed[place : place + len(value)] = value
    path = folder / "damaged.sif"
    path.write_bytes(changed)
    try:
        sif = verify_sif(path) if data.draw(st.booleans()) else read_sif(path)
    except ImageError as error:
        assert error.hint  # noqa: PT017 - either outcome is right
        return
    for part in sif.parts:
        assert part.size == len(read_part(path, part))
        assert str(part).isprintable()


objects = st.builds(
    NewPart,
    datatype=st.sampled_from([DataType.JSON, DataType.GENERIC, DataType.SBOM, 0x4FFF]),
    source=st.binary(max_size=50),
    name=st.text(st.characters(categories=("L", "N")), max_size=20),
    group=st.integers(0, (1 << 28) - 1),
    extra=st.binary(max_size=384).map(lambda extra: extra.rstrip(b"\0")),
)


@given(parts=st.lists(objects, max_size=52))
def test_any_parts_survive_the_round_trip(tmp_path_factory: pytest.TempPathFactory, parts: list[NewPart]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.sif"
    path.unlink(missing_ok=True)
    write(path, parts)
    sif = read_sif(path)
    back = [NewPart(p.datatype, read_part(path, p), p.name, p.group, extra=p.extra) for p in sif.parts]
    assert back == parts


def test_a_whole_image_is_verified(image: Path) -> None:
    sif = verify_sif(image)
    assert [part.id for part in sif.overlays] == [3]


def test_the_base_partition_is_copied_byte_for_byte(image: Path, squashfs: Path) -> None:
    assert read_part(image, choose_system(read_sif(image))) == squashfs.read_bytes()


def without_system(parts: list[NewPart]) -> list[NewPart]:
    return parts[:1]


def with_two_systems(parts: list[NewPart]) -> list[NewPart]:
    return [*parts, parts[1]]


def with_a_lost_overlay(parts: list[NewPart]) -> list[NewPart]:
    return [*parts[:2], replace(parts[2], group=2)]


def with_a_system_for_another_machine(parts: list[NewPart]) -> list[NewPart]:
    extra = render_partition_extra(FsKind.SQUASHFS, PartKind.PRIMARY_SYSTEM, arch="arm64")
    return [parts[0], replace(parts[1], extra=extra)]


def with_no_squashfs_in_the_layer(parts: list[NewPart]) -> list[NewPart]:
    return [*parts[:2], replace(parts[2], source=b"not a squashfs" * 100)]


def with_a_cut_off_system(parts: list[NewPart]) -> list[NewPart]:
    source = parts[1].source
    assert isinstance(source, FileSlice)
    return [parts[0], replace(parts[1], source=replace(source, length=100)), parts[2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_system, "no root file system"),
        (with_two_systems, "expected: one primary system partition"),
        (with_a_lost_overlay, "expected: 1, the group of part 2"),
        (with_a_system_for_another_machine, "in a file for amd64"),
        (with_no_squashfs_in_the_layer, "no complete squashfs"),
        (with_a_cut_off_system, "at most 100, the partition's size"),
    ],
)
def test_an_image_that_would_not_run_is_not_verified(
    tmp_path: Path, image: Path, change: Callable[[list[NewPart]], list[NewPart]], words: str
) -> None:
    whole = read_sif(image)
    path = tmp_path / "changed.sif"
    write(path, change([plan_copied_part(whole, part) for part in whole.parts]))
    read_sif(path)
    with pytest.raises(ImageError, match=words):
        verify_sif(path)


def test_overlapping_parts_are_not_verified(tmp_path: Path, image: Path) -> None:
    path = tmp_path / "overlap.sif"
    system = choose_system(read_sif(image))
    path.write_bytes(patched(image.read_bytes(), "<q", ROW + 2 * 585 + 17, system.offset))
    with pytest.raises(ImageError, match="expected: behind part"):
        verify_sif(path)
