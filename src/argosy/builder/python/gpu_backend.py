"""Check after the installation that the torch in an image was built for the GPUs of its site.

A wheel for another GPU vendor installs without any warning, starts, and computes on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.python.torch_index import index_of
from argosy.core.errors import CheckFailed
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.images.torch_build import ASK_TORCH, BACKENDS
from argosy.recipes.recipe import Recipe
from argosy.sites.profile import Site

NAMES = ("torch", "pytorch", "pytorch-gpu", "pytorch-cpu")


def check_torch(site: Site, build_container: BuildContainer, layer: Path, recipe: Recipe) -> None:
    """Check the torch that programs in the image import; an image without torch passes.

    Raises
    ------
    CheckFailed
        If it cannot use the site's GPUs; the evidence names the line to change.
    """
    if site.node.gpu_vendor not in BACKENDS:
        return
    inside = build_container.with_mounts(Bind(str(layer / ROOT.lstrip("/")), ROOT))
    reply = inside.run(f"{ENV_PREFIX}/bin/python", "-I", "-c", ASK_TORCH)
    try:
        torch = json.loads(reply.stdout)
    except ValueError:
        return
    judge_torch(torch, site, recipe)


def judge_torch(torch: Mapping[str, str], site: Site, recipe: Recipe) -> None:
    """Compare the build of torch with the vendor of the site's GPUs.

    Raises
    ------
    CheckFailed
        As for `check_torch`.
    """
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
