"""For which GPUs the torch of an image was built, and what a launch does about it before the queue."""

from __future__ import annotations

import pytest

from argosy.core.errors import CheckFailed
from argosy.core.model import ContainerRequest, Image, ImageKind, Variable
from argosy.core.records import replace
from argosy.core.session import QuietReporter
from argosy.images.libraries import (
    cpu_jax_of_lock,
    describe_old_driver,
    describe_wrong_build,
    parse_torch,
    torch_of_version,
)
from argosy.launch.image_checks import check_torch_build
from argosy.launch.model import LaunchRequest, Purpose
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.runtimes.container_plan import ContainerPlan, plan_container
from argosy.sites.profile import Node, Site
from tests.unit.images.test_mpi_library import LOCK
from tests.unit.machines import make_host, make_session

AMD = Site(name="here", node=Node(gpus=8, gpu_vendor="amd"))
REQUEST = LaunchRequest("/x.sif", ("python", "train.py"))
HOST = make_host("apptainer")


JAX = Image("/x.sif", ImageKind.SIF, "", "amd64", packages=frozenset({"jax", "jaxlib"}), complete=True, cpu_jax="0.9.0")


def container_of(image: Image) -> ContainerPlan:
    return plan_container(ContainerRequest(runtime="apptainer"), image, HOST)


def check(version: str, vendor: str = "amd", request: LaunchRequest = REQUEST) -> None:
    image = Image("/x.sif", ImageKind.SIF, "", "amd64", torch=version)
    check_torch_build(request, container_of(image), AMD, vendor, make_session(host=HOST), Purpose.START)


@pytest.mark.parametrize(
    ("version", "vendor", "told"),
    [
        ("2.6.0+cpu", "amd", "the CPU only"),
        ("2.6.0+cu124", "amd", "cuda"),
        ("2.6.0+rocm6.2.4", "nvidia", "hip"),
        ("2.6.0+rocm6.2.4", "amd", ""),
        ("2.6.0+cu124", "nvidia", ""),
        ("2.8.0+xpu", "intel", ""),
        ("2.9.0", "amd", ""),
        ("2.9.0a0+145a3a7bda.nv25.10", "amd", ""),
        ("", "amd", ""),
    ],
)
def test_the_version_of_torch_gives_its_gpus_or_nothing(version: str, vendor: str, told: str) -> None:
    said = describe_wrong_build(torch_of_version(version), vendor)
    assert said == (f"torch {version} was built for {told}" if told else "")


def test_an_image_with_a_torch_of_another_back_end_is_refused_with_a_next_step() -> None:
    with pytest.raises(CheckFailed, match="cannot use the GPUs of here") as error:
        check("2.6.0+cpu")
    assert "built for the CPU only" in error.value.evidence
    assert "--no-check" in error.value.hint
    check("2.6.0+rocm6.2.4")
    check("2.6.0+cpu", vendor="")
    check("2.6.0+cpu", request=replace(REQUEST, no_check=True))
    own = ContainerRequest(variables=(Variable("PYTHONPATH", "/my/torch"),))
    check("2.6.0+cpu", request=replace(REQUEST, container=own))


def test_a_dry_run_shows_a_row_for_what_a_launch_would_refuse() -> None:
    container = container_of(Image("/x.sif", ImageKind.SIF, "", "amd64", torch="2.6.0+cpu"))
    shown = check_torch_build(REQUEST, container, AMD, "amd", make_session(host=HOST), Purpose.SHOW)
    (row,) = (choice for choice in shown.choices if choice.key == "torch")
    assert (row.value, "built for the CPU only" in row.why) == ("2.6.0+cpu", True)


def test_a_dry_run_recognises_the_torch_of_pypi_by_its_nvidia_packages() -> None:
    def rows(*packages: str) -> list[str]:
        image = Image("/x.sif", ImageKind.SIF, "", "amd64", packages=frozenset(("torch", *packages)), torch="2.15.0")
        container = container_of(image)
        shown = check_torch_build(REQUEST, container, AMD, "amd", make_session(host=HOST), Purpose.SHOW)
        return [choice.why for choice in shown.choices if choice.key == "torch"]

    assert rows() == []
    (why,) = rows("nvidia-nccl-cu13")
    assert "torch 2.15.0 was built for cuda" in why


@pytest.mark.parametrize(
    ("packages", "version"),
    [
        ((("jax", "0.9.1"), ("jaxlib", "0.9.0")), "0.9.0"),
        ((("jaxlib", "0.9.0"), ("jax-cuda12-plugin", "0.9.0"), ("jax-cuda12-pjrt", "0.9.0")), ""),
        ((("jaxlib", "0.9.0"), ("jax-rocm7-plugin", "0.9.0")), ""),
        ((("jaxlib", "0.4.25+cuda12.cudnn89"),), ""),
        ((("jaxlib", "0.4.31", "cuda120py311h1"),), ""),
        ((("jaxlib", "0.4.31", "cpu_py311h1"),), "0.4.31"),
        ((("torch", "2.9.0"),), ""),
    ],
)
def test_a_lock_shows_whether_its_jax_finds_no_gpu(packages: tuple[tuple[str, ...], ...], version: str) -> None:
    rows = tuple(
        LockedPackage(name, own, kind=PackageKind.CONDA if build else PackageKind.PYPI, build="".join(build))
        for name, own, *build in packages
    )
    assert cpu_jax_of_lock(replace(LOCK, packages=rows)) == version


@pytest.mark.parametrize("purpose", [Purpose.START, Purpose.SHOW])
def test_jax_for_the_cpu_on_nodes_with_gpus_is_noted(purpose: Purpose) -> None:
    def rows(vendor: str, image: Image = JAX) -> list[str]:
        shown = check_torch_build(REQUEST, container_of(image), AMD, vendor, make_session(host=HOST), purpose)
        return [choice.why for choice in shown.choices if choice.key == "jax"]

    (why,) = rows("nvidia")
    assert "jaxlib 0.9.0 has no plugin for GPUs, and here has NVIDIA GPUs" in why
    assert "jax[cuda12]" in why
    assert "ROCm" in rows("amd")[0]
    assert rows("") == []
    assert rows("nvidia", replace(JAX, cpu_jax="")) == []
    assert rows("nvidia", replace(JAX, complete=False)) == []


def test_an_image_elsewhere_passes_with_a_note() -> None:
    notes: list[str] = []

    class Noting(QuietReporter):
        def note(self, text: str) -> None:
            notes.append(text)

    session = replace(make_session(host=HOST), reporter=Noting())
    image = Image("/not/here.sif", ImageKind.SIF, "", "amd64")
    check_torch_build(REQUEST, container_of(image), AMD, "amd", session, Purpose.START)
    assert notes == ["torch in /not/here.sif was not checked: the image is not a file on this machine"]
    listed = replace(image, packages=frozenset({"numpy"}), complete=True)
    check_torch_build(REQUEST, container_of(listed), AMD, "amd", session, Purpose.START)
    assert notes[1:] == []


def test_output_before_the_answer_is_skipped() -> None:
    assert parse_torch('warning\n{"__version__": "2.6.0", "cuda": "12.4"}\n')["cuda"] == "12.4"
    assert parse_torch("Traceback\n") == {}


def test_a_driver_of_an_older_major_version_is_named() -> None:
    def said(cuda: str, newest: str) -> str:
        return describe_old_driver({"__version__": "2.10.0", "cuda": cuda}, newest)

    for cuda in ("13.0", "cu130"):
        assert said(cuda, "12.2") == "torch 2.10.0 needs a driver for CUDA 13, and the driver supports CUDA 12.2"
    for cuda, newest in (("12.8", "12.2"), ("13.0", "13.0"), ("13.0", ""), ("", "12.2")):
        assert not said(cuda, newest)
