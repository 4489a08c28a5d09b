"""The torch in an image must be one for the GPUs of its site."""

from __future__ import annotations

import pytest

from argosy.builder.python.gpu_backend import judge_torch
from argosy.core.errors import CheckFailed
from argosy.recipes.recipe import CondaSpec, PipKind, PipLine, Recipe, Where
from argosy.sites.profile import Node, Site

AMD = Site(name="here", node=Node(gpus=8, gpu_vendor="amd"))
NVIDIA = Site(name="here", node=Node(gpus=4, gpu_vendor="nvidia"))
CPU = {"__version__": "2.6.0+cpu", "cuda": "", "hip": "", "xpu": ""}
ROCM = {"__version__": "2.6.0+rocm6.2.4", "cuda": "", "hip": "6.2", "xpu": ""}
LINE = PipLine("torch", "torch", PipKind.INDEX, Where("requirements.txt", 3), spec="torch")


@pytest.mark.parametrize(("torch", "site"), [(ROCM, AMD), ({}, AMD), ({}, NVIDIA)])
def test_a_torch_of_the_sites_gpus_and_none_at_all_are_right(torch: dict[str, str], site: Site) -> None:
    judge_torch(torch, site, Recipe(pip=(LINE,)))


@pytest.mark.parametrize(
    ("torch", "site", "has", "index"),
    [(CPU, AMD, "only the CPU", "whl/rocm"), (ROCM, NVIDIA, "hip", "whl/cu")],
)
def test_a_torch_of_another_back_end_is_told_with_the_line_to_change(
    torch: dict[str, str], site: Site, has: str, index: str
) -> None:
    with pytest.raises(CheckFailed, match="cannot use the GPUs of here") as error:
        judge_torch(torch, site, Recipe(pip=(LINE,)))
    assert has in error.value.evidence
    assert "requirements.txt:3" in error.value.evidence
    assert index in error.value.hint


def test_condas_torch_wants_the_cuda_of_the_driver() -> None:
    spec = CondaSpec("pytorch", "", "", "", Where("environment.yml", 5))
    with pytest.raises(CheckFailed) as error:
        judge_torch(CPU, NVIDIA, Recipe(conda=(spec,)))
    assert "environment.yml:5" in error.value.evidence
    assert "--cuda 12.8" in error.value.hint
