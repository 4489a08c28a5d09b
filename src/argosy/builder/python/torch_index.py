"""Choose the PyTorch index for the GPUs of the site that an image is for, and check the installed torch.

The default index has a single build of torch.  On a site with AMD or Intel GPUs it computes on the CPU, and it brings
gigabytes of NVIDIA libraries.  A wheel for another GPU vendor installs without any warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind, Choice, ChoiceKey
from argosy.core.records import replace
from argosy.images.libraries import ASK_TORCH, BACKENDS, parse_torch
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import UvSettings
from argosy.sites.profile import Node, Site

INDEX = "https://download.pytorch.org/whl/"
OPTION = "--torch-backend"
NONE = "none"
"""The value of --torch-backend that uses the usual indexes."""

FAMILY = frozenset({"torch", "torchvision", "torchaudio"})
BUILD = re.compile(r"\+(cu\d+|rocm\d[\d.]*|xpu|cpu)\b")
"""The local version of a PyTorch build, which is also the last part of the address of its index."""
NAMES_AN_INDEX = frozenset({"--default-index", "--index", "--find-links", "--no-index"})

OF_VENDOR: Mapping[str, str] = {"nvidia": "cu128", "amd": "rocm6.4", "intel": "xpu"}
"""GPU vendor -> index, if a profile does not contain the version that the nodes' driver supports."""

CUDA = (118, 121, 124, 126, 128, 129, 130, 132)
ALL_OF_12 = 128
"""The build for every driver of CUDA 12 (docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility).  The
indexes for older versions of CUDA 12 do not have a new torch, or not one for new GPUs."""

ROCM = ("5.7", "6.0", "6.1", "6.2", "6.2.4", "6.3", "6.4", "7.0", "7.1", "7.2")
"""ROCm versions for which PyTorch has an index (uv 0.13, --torch-backend)."""

DRIVER_CUDA = "12.8"
"""CUDA version for conda packages at a site with NVIDIA GPUs whose profile does not contain one; see `OF_VENDOR`."""


class Target(msgspec.Struct, frozen=True):
    """The machines that packages are chosen for."""

    backend: Choice | None
    """Last part of the address of PyTorch's index (``cu128``); None for the usual indexes."""
    cuda: Choice
    """CUDA version for conda; empty if there is no NVIDIA GPU."""
    archspec: str = ""
    """Instruction set; empty for the baseline of the architecture."""


def choose_target(torch_backend: str, cuda: str, site: Site | None, base: str = "") -> Target:
    """Choose the target by the options, otherwise by the site's facts about its nodes and the base."""
    return Target(
        choose_backend(torch_backend, site, base), choose_cuda(cuda, site), site.node.archspec if site else ""
    )


def choose_backend(asked: str, site: Site | None, base: str = "") -> Choice | None:
    """Choose PyTorch's index (``cu128``), or None for the usual indexes."""
    if asked == NONE:
        return None
    if asked:
        known = _known_backends()
        if asked not in known:
            raise UsageError(
                f"PyTorch has no index {asked!r}", hint=f"use one of {', '.join(sorted(known))}, or {NONE}"
            )
        return Choice(ChoiceKey.TORCH_BACKEND, asked, "requested", "option")
    if site is None:
        return None
    node = site.node
    if node.gpu_vendor:
        within = next((each.rocm for each in site.images.bases if each.name == base), "")
        return Choice(ChoiceKey.TORCH_BACKEND, *(_of_base(within, node) or _of_node(node, site.name)), "site")
    if node.cores and not node.gpus:
        return Choice(ChoiceKey.TORCH_BACKEND, "cpu", f"{site.name} has no GPUs", "site")
    return None


def _known_backends() -> frozenset[str]:
    return frozenset({*(f"cu{number}" for number in CUDA), *(f"rocm{number}" for number in ROCM), "xpu", "cpu"})


def index_of(site: Site) -> str:
    """Return the address of PyTorch's index for the GPUs of a site."""
    return INDEX + _of_node(site.node, site.name)[0]


def _of_base(rocm: str, node: Node) -> tuple[str, str] | None:
    """Choose the index for the base's own ROCm if the driver supports it: RCCL and its network plugin share one HIP."""
    if node.gpu_vendor != "amd" or not rocm or (node.rocm and _parts(node.rocm) < _parts(rocm)):
        return None
    return _newest_rocm(rocm), f"the base has ROCm {rocm}, and libraries that load each other need the same version"


def _newest_rocm(most: str) -> str:
    fits = [number for number in ROCM if _parts(number) <= _parts(most)]
    return f"rocm{fits[-1] if fits else ROCM[0]}"


def _of_node(node: Node, name: str) -> tuple[str, str]:
    if node.gpu_vendor == "nvidia" and node.cuda:
        driver = _tenths(node.cuda)
        why = f"the driver of {name} supports CUDA {node.cuda}"
        if ALL_OF_12 > driver >= 120:  # noqa: PLR2004 - CUDA 12.0
            return f"cu{ALL_OF_12}", f"{why}, and therefore every build for CUDA 12"
        return f"cu{max((number for number in CUDA if number <= driver), default=min(CUDA))}", why
    if node.gpu_vendor == "amd" and node.rocm:
        return _newest_rocm(node.rocm), f"the driver of {name} supports ROCm {node.rocm}"
    why = f"{name} has GPUs of {node.gpu_vendor}"
    unknown = (
        "" if node.gpu_vendor == "intel" else "; the profile does not contain the version that their driver supports"
    )
    return OF_VENDOR[node.gpu_vendor], why + unknown


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _tenths(version: str) -> int:
    major, minor, *_ = (*_parts(version), 0)
    return 10 * major + minor


def choose_cuda(asked: str, site: Site | None) -> Choice:
    """Choose the CUDA version for conda packages; it is empty if there is no NVIDIA GPU."""
    if asked:
        if not re.fullmatch(r"\d+(\.\d+)*", asked):
            raise UsageError(f"invalid CUDA version {asked!r}", hint="nvidia-smi on a node prints it, for example 12.8")
        return Choice(ChoiceKey.CUDA, asked, "requested", "option")
    if site and site.node.gpu_vendor == "nvidia":
        known = f"the driver of {site.name} supports it"
        other = f"{site.name} has NVIDIA GPUs; the profile does not contain the version that their driver supports"
        return Choice(ChoiceKey.CUDA, site.node.cuda or DRIVER_CUDA, known if site.node.cuda else other, "site")
    return Choice(ChoiceKey.CUDA, "", "no NVIDIA GPU is assumed", "default")


def aim_torch(settings: UvSettings, recipe: Recipe, backend: Choice | None) -> UvSettings:
    """Add the index for torch to uv's settings, unless the user, a lock or pip's configuration specifies an index."""
    if backend is None or recipe.exact:
        return settings
    if backend.source != "option" and (_has_index(settings) or _requests_build(recipe)):
        return settings
    return replace(settings, arguments=(*settings.arguments, OPTION, backend.value))


def _has_index(settings: UvSettings) -> bool:
    return not NAMES_AN_INDEX.isdisjoint((*settings.arguments, *settings.own))


def _requests_build(recipe: Recipe) -> bool:
    """Return whether a line requests a specific build of torch: ``torch==2.6.0+cu124``, or the address of a wheel."""
    return any(line.name in FAMILY and ("+" in line.spec or "@" in line.spec) for line in recipe.pip)


def torch_index_of(settings: UvSettings) -> str:
    """Return the address of the index that `aim_torch` added, or an empty text."""
    arguments = settings.arguments
    return f"{INDEX}{arguments[arguments.index(OPTION) + 1]}" if OPTION in arguments else ""


@contextmanager
def adding_torch_hints(target: Target, recipe: Recipe, settings: UvSettings) -> Iterator[None]:
    """Add to an error about torch the index that was searched, and the index that has the requested build."""
    try:
        yield
    except ArgosyError as error:
        asked = torch_index_of(settings)
        if (asked and asked in error.evidence) or re.search(r"\btorch", error.evidence):
            hints = (_explain_asked(asked, target.backend), _advise_on_build(recipe, settings), error.hint)
            error.hint = "; ".join(filter(None, hints))
        raise


def _explain_asked(asked: str, backend: Choice | None) -> str:
    why = f"torch was searched in {asked}: {backend.why}" if asked and backend else ""
    return f"{why}; use {OPTION} NAME or {NONE} to change it" if why else ""


def _advise_on_build(recipe: Recipe, settings: UvSettings) -> str:
    """Name the index of a build such as ``torch==2.6.0+rocm6.2.4``, which PyPI does not have; empty if uv has it."""
    for line in recipe.pip:
        found = BUILD.search(line.spec) if line.name in FAMILY else None
        if found is None or any(url.rstrip("/").endswith(f"/{found[1]}") for url in _addresses(settings)):
            continue
        index = f"add '--extra-index-url {INDEX}{found[1]}' to the requirements file"
        fix = f"add {OPTION} {found[1]}, or {index}" if found[1] in _known_backends() else index
        return f"{line.where}: builds with +{found[1]} are in PyTorch's own index, not in PyPI: {fix}"
    return ""


def _addresses(settings: UvSettings) -> tuple[str, ...]:
    return (*settings.arguments, *settings.own, torch_index_of(settings))


def explain_target(target: Target, settings: UvSettings, packages: Iterable[LockedPackage]) -> Iterator[str]:
    """Describe the GPUs that the installed packages were chosen for, and why."""
    there = {(package.name, package.kind) for package in packages}
    index = _explain_index(target, settings)
    if index and ("torch", PackageKind.PYPI) in there:
        yield f"torch comes from {index}"
    if any(kind is PackageKind.CONDA for _, kind in there):
        yield from (f"conda packages are chosen for {machines}" for machines in explain_machines(target))


def _explain_index(target: Target, settings: UvSettings) -> str:
    """Describe the index that torch comes from, and why; empty for the usual indexes."""
    address, backend = torch_index_of(settings), target.backend
    if not backend or not address:
        return ""
    return f"{address}: {backend.why} [{backend.source}]; use {OPTION} NAME or {NONE} to change it"


def describe_expected_index(target: Target, settings: UvSettings, recipe: Recipe) -> str:
    """Describe the index that torch would come from; an index of the user takes precedence over the site's."""
    backend = target.backend
    fixed = recipe.exact or _requests_build(recipe)
    named = not fixed and _has_index(settings)
    if not backend or not named or torch_index_of(settings):
        return _explain_index(target, settings)
    how = f"use {OPTION} {backend.value} for PyTorch's"
    return f"the index in the requirements or in pip's configuration; {how}: {backend.why}"


def explain_machines(target: Target) -> Iterator[str]:
    """Describe the facts of a site's profile that conda uses."""
    if target.cuda.value and target.cuda.source == "site":
        yield f"CUDA {target.cuda.value}: {target.cuda.why}; use --cuda to change it"
    if target.archspec:
        yield f"processors of type {target.archspec}, according to the site's profile"


def notes_on_other_builds(base: Mapping[str, str], new: Iterable[LockedPackage]) -> tuple[str, ...]:
    """Describe new packages of PyTorch that were built for another platform than the base's torch.

    PyPI's wheels have no mark. They are for CUDA, so they do not load with a torch for the CPU or for ROCm.
    """
    of_base = BUILD.search(base.get("torch", ""))
    if of_base is None:
        return ()
    builds = ((package, BUILD.search(package.version)) for package in new if package.name in FAMILY - {"torch"})
    differ = [p for p, build in builds if (build[1] != of_base[1] if build else not of_base[1].startswith("cu"))]
    return tuple(
        f"{package.name} {package.version} may not load with the base's torch {base['torch']}: it is another build; "
        f"for {of_base[1]}, add --extra-index-url {INDEX}{of_base[1]} to the requirements"
        for package in differ
    )


WANT_TORCH = FAMILY | {"lightning", "pytorch-lightning", "accelerate", "timm"}
"""Packages that always need torch."""

OF_NVIDIA = re.compile(r"nvidia-[\w-]+-cu\d+|nvidia-cuda-runtime")
"""Packages that only a torch for CUDA needs."""


def refuse_locked_torch(site: Site, target: Target, recipe: Recipe) -> None:
    """Refuse a locked torch for CUDA at a site with other GPUs, before gigabytes are downloaded.

    Only a base without torch counts, which the caller knows. A lock may contain packages that are not installed, so
    torch counts only if a requested package needs it.
    """
    vendor = site.node.gpu_vendor
    asked = target.backend is not None and target.backend.source == "option"
    if vendor not in BACKENDS or vendor == "nvidia" or asked or recipe.wants_conda:
        return
    lines = (*recipe.pip, *recipe.constraints, *recipe.overrides)
    locked = [
        line for line in lines if line.name == "torch" and (recipe.exact or line.hashes or BUILD.search(line.spec))
    ]
    of_nvidia = next((line for line in lines if OF_NVIDIA.fullmatch(line.name)), None)
    if not locked or WANT_TORCH.isdisjoint(line.name for line in recipe.pip):
        return
    if any(found[1][:2] != "cu" if (found := BUILD.search(line.spec)) else of_nvidia is None for line in locked):
        return
    needs = f"\n{of_nvidia.where}: {of_nvidia.text}" if of_nvidia else ""
    raise CheckFailed(
        f"the locked torch is for NVIDIA's GPUs, and {site.name} has GPUs of {vendor}",
        evidence=f"{locked[0].where}: {locked[0].text}{needs}",
        hint=f"lock torch again from {index_of(site)}, or use a base with torch and leave torch out of the lock",
    )


def refuse_conda_cuda(site: Site, recipe: Recipe) -> None:
    """Refuse the conda package that selects a CUDA version of PyTorch at a site with other GPUs."""
    for spec in recipe.conda:
        if spec.name == "pytorch-cuda" and site.node.gpu_vendor in BACKENDS.keys() - {"nvidia"}:
            raise CheckFailed(
                f"{spec.name} selects a PyTorch for NVIDIA's GPUs, and {site.name} has GPUs of {site.node.gpu_vendor}",
                evidence=f"{spec.where}: {spec.name}{spec.version}",
                hint=f"under pip:, request torch with --extra-index-url {index_of(site)}, or use a base with torch",
            )


NAMES = ("torch", "pytorch", "pytorch-gpu", "pytorch-cpu")


def refuse_torch_in_image(site: Site, build_container: BuildContainer, layer: Path, recipe: Recipe) -> None:
    """Refuse the torch that programs in the image import if it cannot use the GPUs; an image without torch passes."""
    if site.node.gpu_vendor not in BACKENDS:
        return
    inside = build_container.with_mounts(Bind(str(layer / ROOT.lstrip("/")), ROOT))
    reply = inside.run(f"{ENV_PREFIX}/bin/python", "-I", "-c", ASK_TORCH)
    refuse_torch_build(parse_torch(reply.stdout), site, recipe)


def refuse_torch_build(torch: Mapping[str, str], site: Site, recipe: Recipe) -> None:
    """Refuse a build of torch for GPUs of another vendor than the site's."""
    vendor = site.node.gpu_vendor
    backend = BACKENDS[vendor]
    if not torch.get("__version__") or torch.get(backend):
        return
    of_pip = [line.where for line in recipe.pip if line.name in NAMES]
    of_conda = [spec.where for spec in recipe.conda if spec.name in NAMES]
    asked = next(iter((*of_pip, *of_conda)), None)
    others = [name for name in BACKENDS.values() if torch.get(name)]
    evidence = (
        f"{site.name} has GPUs of {vendor}: {backend}",
        f"this torch supports {', '.join(others) or 'only the CPU'}",
        f"{asked}: torch is requested here" if asked else "torch was installed as a dependency",
    )
    raise CheckFailed(
        f"torch {torch['__version__']} cannot use the GPUs of {site.name}",
        evidence="\n".join(evidence),
        hint=_hint(site, f"in {asked.file}" if asked else "in the requirements", conda=bool(of_conda)),
    )


def _hint(site: Site, where: str, *, conda: bool) -> str:
    if conda and site.node.gpu_vendor == "nvidia":
        return "set the CUDA version of the nodes' driver, for example --cuda 12.8, so that conda chooses a GPU build"
    index = index_of(site)
    return f"{where}, add --extra-index-url {index} (for the site's driver), or use a base with torch"
