"""Check after the installation that the torch in an image was built for the GPUs of the site it is for.

The wheel of another back end installs without a word, starts, and computes on the CPU.
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
    """Check the torch that programs in the image would import; none at all is right.

    Raises
    ------
    CheckFailed
        When it has no back end for the site's GPUs: which line to change.
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
    """Judge what torch says of itself against the vendor of a site's GPUs.

    Raises
    ------
    CheckFailed
        As `check_torch`.
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
        f"this torch has {', '.join(others) or 'none but the CPU'}",
        f"{asked}: torch is asked for here" if asked else "torch came in as a dependency",
    )
    raise CheckFailed(
        f"torch {torch['__version__']} cannot use the GPUs of {site.name}",
        evidence="\n".join(evidence),
        hint=_hint(site, f"in {asked.file}" if asked else "in the requirements", conda=bool(of_conda)),
    )


def _hint(site: Site, where: str, *, conda: bool) -> str:
    if conda and site.node.gpu_vendor == "nvidia":
        return "say what the nodes' driver supports, as in --cuda 12.8: conda then chooses a GPU build"
    index = index_of(site)
    return f"{where}, write --extra-index-url {index} (what the site's driver supports), or take a base that has torch"
