"""The form of a SIF image: one partition, or one for the base and one for the layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argosy.builder.output.assemble import choose_partitions, keep_apart
from argosy.builder.records import BuildRequest
from argosy.builder.request import make_build_request, request_of_project
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.images.formats import OutputFormat
from argosy.images.squashfs.superblock import Superblock
from argosy.recipes.project_file import read_project

BASE = Image("base.sif", ImageKind.SIF, "", "amd64")
DELTA = replace(BASE, layer_offset=4096)
ZSTD = Superblock("zstd", 131072, 0, 1000, 1)


@pytest.mark.parametrize(
    ("base", "compressor", "built", "asked", "shown"),
    [
        (BASE, "zstd", False, None, "one partition (flat): the base has zstd blocks, as the new packages"),
        (BASE, "gzip", False, None, "(delta): the base has gzip blocks of 128 KiB, and packing with gzip takes"),
        (BASE, "xz", False, None, "(delta): the base has xz blocks of 128 KiB, so that one partition needs packing"),
        (BASE, "gzip", False, True, "one partition (flat): as requested"),
        (BASE, "zstd", False, False, "base and layer as two partitions (delta): as requested"),
        (DELTA, "zstd", True, None, "(delta): the base image has its layer in a partition of its own"),
        (DELTA, "zstd", False, None, "one partition (flat)"),
        (BASE, "zstd", True, None, "one partition (flat)"),
    ],
)
def test_the_form_depends_on_the_base(
    base: Image, compressor: str, *, built: bool, asked: bool | None, shown: str
) -> None:
    packing = replace(ZSTD, compressor=compressor)
    assert shown in str(choose_partitions(asked=asked, base=base, packing=packing, built=built))


def test_files_that_steps_removed_from_the_base_are_not_packed_with_it() -> None:
    chosen = choose_partitions(asked=None, base=BASE, packing=ZSTD, built=False)
    kept = keep_apart(chosen, asked=None, removes_files=True)
    assert str(kept) == "base and layer as two partitions (delta): steps removed files of the base"
    assert keep_apart(chosen, asked=None, removes_files=False) == chosen
    assert keep_apart(chosen, asked=True, removes_files=True) == chosen


@pytest.mark.parametrize(
    ("given", "form", "flatten"),
    [
        ({}, OutputFormat.SIF, None),
        ({"format": "sif"}, OutputFormat.SIF, None),
        ({"format": "flat"}, OutputFormat.SIF, True),
        ({"format": "delta"}, OutputFormat.SIF, False),
        ({"format": "oci"}, OutputFormat.OCI, None),
    ],
)
def test_flat_and_delta_are_formats(given: dict[str, Any], form: OutputFormat, *, flatten: bool | None) -> None:
    request = make_build_request(("r.txt",), Path("x.sif"), given, {})
    assert (request.form, request.flatten) == (form, flatten)
    assert make_build_request(("r.txt",), Path("x.sqsh"), {}, {}).form is OutputFormat.SQSH


def test_the_format_of_a_project_file_is_overridden_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text('[image]\nformat = "delta"\n')
    project = read_project(tmp_path / "argosy.toml", "argosy.toml")
    plain = BuildRequest((), "", Path("x.sif"))
    assert request_of_project(project, plain).flatten is False
    assert request_of_project(project, replace(plain, flatten=True)).flatten is True
    assert request_of_project(project, replace(plain, form=OutputFormat.OCI)).form is OutputFormat.OCI
