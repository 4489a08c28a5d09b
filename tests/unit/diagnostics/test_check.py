"""An image is judged for a site by what its file and its contents say; what only the site can tell is called so."""

from __future__ import annotations

import msgspec
import pytest

from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.diagnostics.check import Contents, check_contents, parse_contents, summarize_findings
from argosy.sites.profile import Partition, Site
from argosy.sites.profile_parts import Validated
from argosy.sites.read import read_site

LUMI = read_site("lumi-g")
WITH_CPUS = msgspec.structs.replace(LUMI, partitions=(*LUMI.partitions, Partition(name="cpu", gpus=0)))
IMAGE = Image("my.sif", ImageKind.SIF, "sha256:1", "amd64", layer_offset=4096, layer_part=2, argosy=True)
ROCM = {"__version__": "2.6.0", "cuda": "", "hip": "6.2", "xpu": ""}
CUDA = ROCM | {"hip": ""}
CONTENTS = Contents(glibc="2.36", torch=ROCM, mpi="mpirun 5", plugin="/x/librccl-net.so", entry=True)


def validated(**facts: str) -> Site:
    named = {name.replace("_", "."): value for name, value in facts.items()}
    return msgspec.structs.replace(LUMI, validated=Validated(date="2026-11-21", facts=named))


def states(image: Image = IMAGE, contents: Contents | None = CONTENTS, site: Site = LUMI) -> dict[str, str]:
    return {each.what: each.state for each in check_contents(image, ("gzip", "zstd"), contents, site)}


@pytest.mark.parametrize(
    ("image", "contents", "site", "name", "state"),
    [
        (replace(IMAGE, arch="arm64"), CONTENTS, LUMI, "architecture", "fail"),
        (IMAGE, CONTENTS, read_site("mn5-acc"), "architecture", "ok"),
        (replace(IMAGE, arch="arm64"), CONTENTS, read_site("leonardo"), "architecture", "fail"),
        (IMAGE, replace(CONTENTS, torch=ROCM | {"hip": "", "cuda": "12.4"}), LUMI, "torch", "fail"),
        (IMAGE, replace(CONTENTS, torch={"__version__": "2.6.0+cpu"}), LUMI, "torch", "fail"),
        (IMAGE, replace(CONTENTS, torch={"__version__": "2.6.0+cpu"}), WITH_CPUS, "torch", "warn"),
        (IMAGE, replace(CONTENTS, torch={}), LUMI, "torch", "warn"),
        (IMAGE, replace(CONTENTS, torch={}), read_site("lumi-c"), "torch", "ok"),
        (replace(IMAGE, complete=True, cpu_jax="0.9.0"), CONTENTS, LUMI, "JAX", "warn"),
        (IMAGE, CONTENTS, LUMI, "torch", "ok"),
        (IMAGE, replace(CONTENTS, torch=CUDA | {"cuda": "12.8"}), read_site("mn5-acc"), "torch", "ok"),
        (IMAGE, replace(CONTENTS, torch=CUDA | {"cuda": "13.0"}), read_site("mn5-acc"), "torch", "warn"),
        (IMAGE, replace(CONTENTS, entry=False), LUMI, "entry", "fail"),
        (IMAGE, replace(CONTENTS, glibc="2.17"), LUMI, "glibc", "warn"),
        (IMAGE, replace(CONTENTS, glibc=""), LUMI, "glibc", "warn"),
        (IMAGE, None, LUMI, "contents", "unknown"),
        (IMAGE, CONTENTS, LUMI, "layer", "unknown"),
        (IMAGE, CONTENTS, validated(attach_overlay="yes"), "layer", "ok"),
        (IMAGE, CONTENTS, validated(attach_overlay="no", attach_bind="yes"), "layer", "ok"),
        (IMAGE, CONTENTS, validated(attach_overlay="no", attach_bind="no"), "layer", "fail"),
        (replace(IMAGE, layer_offset=-1), CONTENTS, LUMI, "layer", "ok"),
        (IMAGE, CONTENTS, read_site("nvidia-pyxis"), "runtime", "fail"),
        (IMAGE, replace(CONTENTS, plugin=""), read_site("frontier"), "network plugin", "warn"),
    ],
)
def test_each_fault_is_found_under_its_name(
    image: Image, contents: Contents | None, site: Site, name: str, state: str
) -> None:
    assert states(image, contents, site)[name] == state
    found = check_contents(image, ("gzip",), contents, site)
    assert all(each.hint for each in found if each.state == "fail")


def test_the_catalog_answers_with_the_worst_finding() -> None:
    def answer(*changes: object, contents: Contents | None = CONTENTS) -> tuple[str, str]:
        return summarize_findings(check_contents(replace(IMAGE, **dict(changes)), ("gzip",), contents, LUMI))  # type: ignore[arg-type]

    assert answer() == ("yes", "")
    assert answer(("arch", "arm64"), contents=None) == (
        "no",
        "architecture: the image is for arm64, nodes of lumi-g are amd64",
    )
    assert answer(contents=None)[0] == "unknown"
    works, reason = answer(contents=replace(CONTENTS, glibc="2.17"))
    assert (works, reason) == ("yes", "glibc: 2.17 is older than 2.28, which current wheels need")


def test_the_probes_output_is_parsed_and_an_incomplete_one_is_refused() -> None:
    rows = ("glibc=2.36", "entry=yes", 'torch={"__version__": "2.6.0"}', "mpilib=/l/libmpi.so")
    said = "noise\n" + "".join(f"argosy:{row}\n" for row in rows)
    contents = parse_contents(f"{said}argosy:end=yes\n")
    assert contents == Contents(glibc="2.36", torch={"__version__": "2.6.0"}, mpi="/l/libmpi.so", entry=True)
    assert parse_contents(said) is None
    assert parse_contents("argosy:torch=no json\nargosy:end=yes\n") == Contents()


def test_an_image_with_two_mpis_gets_a_warning_where_the_launcher_starts_mpi() -> None:
    site = replace(LUMI, launcher=replace(LUMI.launcher, mpi="pmix"))

    def mpi(text: str) -> tuple[str, str]:
        contents = parse_contents(f"{text}argosy:end=yes\n")
        (found,) = (each for each in check_contents(IMAGE, ("gzip",), contents, site) if each.what == "MPI")
        return found.state, found.evidence

    both = "argosy:mpi=mpirun (Open MPI) 4.1.4\nargosy:openmpi=/l/libmpi.so.40\nargosy:mpich=/l/libmpich.so.12\n"
    state, evidence = mpi(both)
    assert (state, "Open MPI and MPICH" in evidence) == ("warn", True)
    assert mpi("argosy:mpi=mpirun (Open MPI) 4.1.4\nargosy:openmpi=/l/libmpi.so.40\n")[0] == "ok"
    assert mpi("")[0] == "warn"


OPEN_4 = "argosy:mpi=mpirun (Open MPI) 4.1.4\nargosy:openmpi=/l/libmpi.so.40\n"
MPICH_4 = "argosy:mpi=HYDRA build details:\nargosy:mpich=/l/libmpich.so.12\n"


def test_an_old_glibc_is_shown_with_the_oldest_that_wheels_support() -> None:
    found = check_contents(IMAGE, ("gzip",), replace(CONTENTS, glibc="2.17"), LUMI)
    (glibc,) = (each for each in found if each.what == "glibc")
    assert glibc.evidence == "2.17 is older than 2.28, which current wheels need"


@pytest.mark.parametrize(
    ("rows", "site", "state", "evidence", "hint"),
    [
        (OPEN_4, "lumi-g", "warn", "jobs of lumi-g use PMI-2, and Open MPI of distributions uses PMIx", "with MPICH"),
        ("argosy:mpilib=/l/libmpi.so.40\nargosy:openmpi=/l/libmpi.so.40\n", "lumi-g", "warn", "PMIx", "with MPICH"),
        (OPEN_4, "dawn", "warn", "jobs of dawn use mpiexec of MPICH", "with MPICH"),
        (OPEN_4, "perlmutter", "ok", "mpirun (Open MPI) 4.1.4", ""),
        (MPICH_4, "lumi-g", "ok", "HYDRA build details:", ""),
        (MPICH_4, "perlmutter", "ok", "HYDRA build details:", ""),
        ("argosy:mpi=Intel(R) MPI Library for Linux* OS\n", "dawn", "ok", "Intel", ""),
        (OPEN_4 + MPICH_4, "lumi-g", "warn", "Open MPI and MPICH", "MPI4PY_MPIABI=mpich"),
        (OPEN_4 + MPICH_4, "perlmutter", "warn", "Open MPI and MPICH", "MPI4PY_MPIABI=openmpi or mpich"),
    ],
)
def test_the_mpi_of_an_image_is_compared_with_the_site(
    rows: str, site: str, state: str, evidence: str, hint: str
) -> None:
    contents = parse_contents(f"{rows}argosy:end=yes\n")
    (found,) = (each for each in check_contents(IMAGE, ("gzip",), contents, read_site(site)) if each.what == "MPI")
    assert found.state == state
    assert evidence in found.evidence
    assert hint in found.hint


@pytest.mark.parametrize("site", ["lumi-g", "perlmutter", "leonardo"])
def test_mpi4py_without_an_mpi_library_gets_a_line_at_every_site(site: str) -> None:
    def mpi(image: Image, rows: str) -> list[tuple[str, str]]:
        contents = parse_contents(f"{rows}argosy:end=yes\n")
        found = check_contents(image, ("gzip",), contents, read_site(site))
        return [(each.state, each.evidence) for each in found if each.what == "MPI"]

    listed = replace(IMAGE, packages=frozenset({"mpi4py"}))
    for image, rows in ((listed, ""), (IMAGE, "argosy:mpi4py=yes\n")):
        ((state, evidence),) = mpi(image, rows)
        assert state == "warn"
        assert "'from mpi4py import MPI' fails" in evidence
    assert [state for state, _ in mpi(listed, MPICH_4)] == ["ok"]
    assert len(mpi(IMAGE, "")) == (site != "leonardo")
