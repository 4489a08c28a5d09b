"""torch comes from the index for the GPUs of the site, unless the user chose an index, and is checked afterwards."""

from __future__ import annotations

import pytest

from argosy.builder.bundle import pip_variables
from argosy.builder.python.torch_index import (
    Target,
    adding_torch_hints,
    aim_torch,
    choose_backend,
    choose_cuda,
    choose_target,
    explain_target,
    notes_on_other_builds,
    refuse_conda_cuda,
    refuse_locked_torch,
    refuse_torch_build,
    torch_index_of,
)
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.records import replace
from argosy.recipes.conda_request import CondaTarget, plan_virtual_packages
from argosy.recipes.lock import LockedPackage
from argosy.recipes.recipe import CondaSpec, PipKind, PipLine, Recipe, Where
from argosy.recipes.uv_options import UvSettings
from argosy.sites.profile import Node, Site
from argosy.sites.profile_parts import SiteBase
from argosy.sites.software import Images

TORCH = LockedPackage("torch", "2.9.0+rocm6.4")
PLAIN = Recipe(pip=(PipLine("torch", "torch", PipKind.INDEX, Where("r.txt", 1), spec="torch"),))
AMD = Site(name="here", node=Node(gpus=8, gpu_vendor="amd"))


@pytest.mark.parametrize(
    ("node", "index"),
    [
        (Node(gpus=8, gpu_vendor="amd"), "rocm6.4"),
        (Node(gpus=8, gpu_vendor="amd", rocm="6.3.4"), "rocm6.3"),
        (Node(gpus=8, gpu_vendor="amd", rocm="6.2.4"), "rocm6.2.4"),
        (Node(gpus=8, gpu_vendor="amd", rocm="10.0"), "rocm7.2"),
        (Node(gpus=4, gpu_vendor="nvidia"), "cu128"),
        (Node(gpus=4, gpu_vendor="nvidia", cuda="12.5"), "cu128"),
        (Node(gpus=4, gpu_vendor="nvidia", cuda="12.9"), "cu129"),
        (Node(gpus=4, gpu_vendor="nvidia", cuda="11.8"), "cu118"),
        (Node(gpus=4, gpu_vendor="nvidia", cuda="13.1"), "cu130"),
        (Node(gpus=4, gpu_vendor="nvidia", cuda="13"), "cu130"),
        (Node(gpus=4, gpu_vendor="intel"), "xpu"),
        (Node(cores=128), "cpu"),
    ],
)
def test_the_index_is_the_newest_that_the_driver_of_the_nodes_runs(node: Node, index: str) -> None:
    choice = choose_backend("", Site(name="here", node=node))
    assert choice
    assert (choice.value, choice.source) == (index, "site")
    assert "here" in choice.why


def test_no_back_end_is_chosen_without_a_site_or_with_none() -> None:
    assert choose_backend("", None) is None
    assert choose_backend("", Site(name="here")) is None
    assert choose_backend("none", AMD) is None


def test_a_requested_back_end_must_be_an_index_and_wins() -> None:
    choice = choose_backend("cu118", AMD)
    assert choice
    assert (choice.value, choice.source) == ("cu118", "option")
    with pytest.raises(UsageError, match="no index 'cu12'") as error:
        choose_backend("cu12", AMD)
    assert "cu128" in error.value.hint


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        (UvSettings(("--default-index", "https://mirror.example/simple")), PLAIN),
        (UvSettings(("--find-links", "/wheels")), PLAIN),
        (UvSettings(), replace(PLAIN, pip=(replace(PLAIN.pip[0], spec="torch==2.6.0+cu124"),))),
        (UvSettings(), replace(PLAIN, exact=True)),
    ],
    ids=["an index", "a folder", "a build", "a lock"],
)
def test_an_explicit_index_wins(settings: UvSettings, recipe: Recipe) -> None:
    assert aim_torch(settings, recipe, choose_backend("", AMD)) == settings


def test_a_requested_index_wins_over_pips_configuration() -> None:
    mirror = UvSettings(("--default-index", "https://mirror.example/simple"))
    assert torch_index_of(aim_torch(mirror, PLAIN, choose_backend("cu128", None))).endswith("/whl/cu128")


def test_the_index_of_torch_is_explained_with_its_reason_and_alternative() -> None:
    target = choose_target("", "", AMD)
    settings = aim_torch(UvSettings(), PLAIN, target.backend)
    assert dict(pip_variables(settings)) == {"PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/rocm6.4"}
    (line,) = explain_target(target, settings, (TORCH,))
    assert "whl/rocm6.4: here has GPUs of amd" in line
    assert "--torch-backend NAME or none" in line
    assert list(explain_target(target, settings, ())) == []


def hint_of(about: str, target: Target, recipe: Recipe, settings: UvSettings) -> str:
    with pytest.raises(CheckFailed) as error, adding_torch_hints(target, recipe, settings):
        raise CheckFailed("no versions go together", evidence=about, hint="change one")
    return error.value.hint


def test_a_failure_about_torch_names_the_index() -> None:
    target = choose_target("", "", AMD)
    settings = aim_torch(UvSettings(), PLAIN, target.backend)
    hint = hint_of("there is no version of torch==2.3.0", target, PLAIN, settings)
    assert "torch was searched in https://download.pytorch.org/whl/rocm6.4" in hint
    assert "change one" in hint
    assert hint_of("there is no version of numpy==99", target, PLAIN, settings) == "change one"


BUILT = replace(PLAIN, pip=(replace(PLAIN.pip[0], spec="torch==2.6.0+rocm6.2.4"),))


@pytest.mark.parametrize("site", [AMD, None], ids=["for a site", "for no site"])
def test_a_missing_build_of_torch_is_reported_with_the_index_that_has_it(site: Site | None) -> None:
    target = choose_target("", "", site)
    settings = aim_torch(UvSettings(), BUILT, target.backend)
    hint = hint_of("there is no version of torch==2.6.0+rocm6.2.4", target, BUILT, settings)
    assert "searched in" not in hint
    assert "add --torch-backend rocm6.2.4, or" in hint
    assert "--extra-index-url https://download.pytorch.org/whl/rocm6.2.4" in hint


def test_an_index_that_uv_does_not_know_is_advised_as_an_address_only() -> None:
    recipe = replace(PLAIN, pip=(replace(PLAIN.pip[0], spec="torch==1.13.1+cu117"),))
    hint = hint_of("there is no version of torch==1.13.1+cu117", choose_target("", "", None), recipe, UvSettings())
    assert "--extra-index-url https://download.pytorch.org/whl/cu117" in hint
    assert "--torch-backend" not in hint


def test_no_index_is_advised_that_was_asked_already() -> None:
    about, own = "there is no version of torch==2.6.0+rocm6.2.4", "https://download.pytorch.org/whl/rocm6.2.4"
    named = UvSettings(("--index", own))
    assert hint_of(about, choose_target("", "", AMD), BUILT, named) == "change one"
    target = choose_target("rocm6.2.4", "", AMD)
    aimed = aim_torch(UvSettings(), BUILT, target.backend)
    assert own in hint_of(about, target, BUILT, aimed)
    assert "extra-index-url" not in hint_of(about, target, BUILT, aimed)


def test_conda_gets_the_sites_cuda_and_instruction_set() -> None:
    node = Node(gpus=4, gpu_vendor="nvidia", cuda="12.4", archspec="zen3")
    target = choose_target("", "", Site(name="here", node=node))
    virtual = plan_virtual_packages(CondaTarget("x86_64", "2.36", target.cuda.value, target.archspec))
    assert {("__cuda", "12.4", "0"), ("__archspec", "1", "zen3"), ("__glibc", "2.36", "0")} <= set(virtual)
    assert choose_cuda("11.8", Site(name="here", node=node)).value == "11.8"
    assert choose_cuda("", AMD).value == ""
    assert choose_cuda("", Site(name="here", node=Node(gpus=1, gpu_vendor="nvidia"))).value == "12.8"


def test_a_profile_with_an_invalid_version_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a version"):
        Node(cuda="twelve")


@pytest.mark.parametrize(
    ("word", "near"), [("Zen 3", "zen3"), ("zen9", "zen"), ("sapphire-rapids", "sapphirerapids"), ("EPYC", "zen3")]
)
def test_a_processor_that_archspec_does_not_know_is_refused_with_the_nearest_name(word: str, near: str) -> None:
    with pytest.raises(ValueError, match="archspec does not know the CPU") as error:
        Node(archspec=word)
    assert near in str(error.value)


def test_a_processor_of_another_architecture_than_the_nodes_is_refused() -> None:
    assert Node(archspec="neoverse_v2", arch="aarch64").archspec == "neoverse_v2"
    with pytest.raises(ValueError, match="'neoverse_v2' is a CPU of aarch64, but arch = 'x86_64'"):
        Node(archspec="neoverse_v2", arch="x86_64")


@pytest.mark.parametrize(
    ("driver", "base", "index"),
    [
        ("7.0", "old.sif", "rocm6.2.4"),
        ("7.0", "other.sif", "rocm7.0"),
        ("", "old.sif", "rocm6.2.4"),
        ("6.1", "old.sif", "rocm6.1"),
    ],
    ids=["the base's", "a base that is not known", "no driver is known", "the driver is older than the base"],
)
def test_torch_has_the_rocm_of_a_base_that_the_site_knows(driver: str, base: str, index: str) -> None:
    images = Images(bases=(SiteBase(name="old.sif", vendor="amd", rocm="6.2.4"),))
    site = Site(name="here", node=Node(gpus=8, gpu_vendor="amd", rocm=driver), images=images)
    choice = choose_backend("", site, base)
    assert choice
    assert choice.value == index


@pytest.mark.parametrize("word", ["abc", "12.x", "v12", "12."])
def test_an_invalid_cuda_version_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="invalid CUDA version"):
        choose_cuda(word, None)


NVIDIA = Site(name="here", node=Node(gpus=4, gpu_vendor="nvidia"))
CPU = {"__version__": "2.6.0+cpu", "cuda": "", "hip": "", "xpu": ""}
ROCM = {"__version__": "2.6.0+rocm6.2.4", "cuda": "", "hip": "6.2", "xpu": ""}
LINE = PipLine("torch", "torch", PipKind.INDEX, Where("requirements.txt", 3), spec="torch")


@pytest.mark.parametrize(("torch", "site"), [(ROCM, AMD), ({}, AMD), ({}, NVIDIA)])
def test_a_torch_for_the_sites_gpus_or_no_torch_passes(torch: dict[str, str], site: Site) -> None:
    refuse_torch_build(torch, site, Recipe(pip=(LINE,)))


@pytest.mark.parametrize(
    ("torch", "site", "has", "index"),
    [(CPU, AMD, "only the CPU", "whl/rocm"), (ROCM, NVIDIA, "hip", "whl/cu")],
)
def test_a_torch_of_another_back_end_is_refused_with_the_line_to_change(
    torch: dict[str, str], site: Site, has: str, index: str
) -> None:
    with pytest.raises(CheckFailed, match="cannot use the GPUs of here") as error:
        refuse_torch_build(torch, site, Recipe(pip=(LINE,)))
    assert has in error.value.evidence
    assert "requirements.txt:3" in error.value.evidence
    assert index in error.value.hint


def test_condas_torch_wants_the_cuda_of_the_driver() -> None:
    spec = CondaSpec("pytorch", "", "", "", Where("environment.yml", 5))
    with pytest.raises(CheckFailed) as error:
        refuse_torch_build(CPU, NVIDIA, Recipe(conda=(spec,)))
    assert "environment.yml:5" in error.value.evidence
    assert "--cuda 12.8" in error.value.hint


@pytest.mark.parametrize(
    ("torch", "vision", "count"),
    [
        ("2.13.0+cpu", "0.28.0", 1),
        ("2.13.0+cpu", "0.28.0+cpu", 0),
        ("2.13.0+cu130", "0.28.0", 0),
        ("2.13.0+cu130", "0.28.0+cu128", 1),
        ("2.9.0+rocm6.4", "0.24.0", 1),
        ("2.9.0a0+145a3a7bda.nv25.10", "0.24.0", 0),
    ],
)
def test_a_package_of_pytorch_in_another_build_than_the_bases_torch_is_noted(
    torch: str, vision: str, count: int
) -> None:
    new = (LockedPackage("torchvision", vision), LockedPackage("numpy", "2.0.0"))
    notes = notes_on_other_builds({"torch": torch}, new)
    assert [f"torchvision {vision}" in note for note in notes] == [True] * count
    assert all(f"https://download.pytorch.org/whl/{torch.partition('+')[2]}" in note for note in notes)


def locked(*pins: str, requested: str = "torch", hashed: bool = True) -> Recipe:
    def line(text: str, file: str, hashes: tuple[str, ...] = ()) -> PipLine:
        return PipLine(text, text.split("==", maxsplit=1)[0], PipKind.INDEX, Where(file, 1), spec=text, hashes=hashes)

    lines = tuple(line(pin, "uv.lock", ("sha256:0",) if hashed else ()) for pin in pins)
    return Recipe(pip=(line(requested, "pyproject.toml"),), constraints=lines)


@pytest.mark.parametrize(
    "recipe",
    [
        locked("torch==2.8.0", "nvidia-cudnn-cu12==9.10.2.21"),
        locked("torch==2.8.0+cu128"),
        locked("torch==2.8.0+cu128", hashed=False),
        locked("torch==2.8.0", "nvidia-nccl-cu12==2.27.3", requested="lightning"),
    ],
)
def test_a_locked_torch_for_cuda_is_refused_at_a_site_with_other_gpus_before_the_download(recipe: Recipe) -> None:
    with pytest.raises(CheckFailed, match="locked torch is for NVIDIA") as caught:
        refuse_locked_torch(AMD, choose_target("", "", AMD), recipe)
    assert "uv.lock:1: torch==2.8.0" in caught.value.evidence
    refuse_locked_torch(AMD, choose_target("rocm6.4", "", AMD), recipe)
    nvidia = Site(name="there", node=Node(gpus=4, gpu_vendor="nvidia"))
    refuse_locked_torch(nvidia, choose_target("", "", nvidia), recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        locked("torch==2.8.0"),
        locked("torch==2.8.0+rocm6.4"),
        locked("torch==2.8.0", "torch==2.8.0+rocm6.4", "nvidia-cudnn-cu12==9.10.2.21"),
        locked("torch==2.8.0", "nvidia-cudnn-cu12==9.10.2.21", requested="numpy"),
        locked("torch==2.8.0", "nvidia-cudnn-cu12==9.10.2.21", hashed=False),
    ],
)
def test_a_locked_torch_that_may_fit_other_gpus_is_not_refused(recipe: Recipe) -> None:
    refuse_locked_torch(AMD, choose_target("", "", AMD), recipe)


def test_a_conda_pytorch_for_cuda_is_refused_at_a_site_with_other_gpus() -> None:
    recipe = Recipe(conda=(CondaSpec("pytorch-cuda", "=11.7", "", "", Where("environment.yml", 5)),))
    with pytest.raises(CheckFailed, match="selects a PyTorch for NVIDIA's GPUs") as caught:
        refuse_conda_cuda(AMD, recipe)
    assert caught.value.evidence == "environment.yml:5: pytorch-cuda=11.7"
    refuse_conda_cuda(Site(name="there", node=Node(gpus=4, gpu_vendor="nvidia")), recipe)
    refuse_conda_cuda(Site(name="cpus", node=Node(cores=4)), recipe)
