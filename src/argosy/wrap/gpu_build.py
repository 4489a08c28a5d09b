"""Whether the torch of what is wrapped was built for the GPUs of the site it is for; a build checks its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

from argosy.build.for_site import site_named
from argosy.containers import ContainerPlan
from argosy.entering import outer_environment
from argosy.errors import CheckFailed
from argosy.images.torch_build import ASK_TORCH, BACKENDS
from argosy.process import Command
from argosy.session import Session
from argosy.shell import plain_words
from argosy.sites import Site
from argosy.wrap.records import Inside, Recipe, SourceKind


def check_gpu_build(recipe: Recipe, plan: ContainerPlan, inside: Inside, session: Session) -> None:
    """Check that the torch of an image or installation was built for the GPUs of the site, where one is named.

    Raises
    ------
    CheckFailed
        When torch cannot use the site's GPUs.
    SiteError
        When there is no such site.
    """
    if not recipe.site or recipe.kind is SourceKind.FILES:
        return
    site = site_named(recipe.site, session.host)
    python = next((each for each in inside.programs if PurePosixPath(each).name in {"python", "python3"}), "")
    if not python or site.node.gpu_vendor not in BACKENDS:
        return
    words = plain_words(plan.words((python, "-I", "-c", ASK_TORCH)))
    reply = session.runner.run(Command(words, env=outer_environment(plan, session.host.environment)))
    try:
        torch = json.loads(reply.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return
    judge_gpu_build(torch, site, str(recipe))


def judge_gpu_build(torch: Mapping[str, str], site: Site, what: str) -> None:
    """Judge what torch says of itself against the vendor of a site's GPUs; no torch at all is right.

    Raises
    ------
    CheckFailed
        When it was built for others, or for none.
    """
    backend = BACKENDS[site.node.gpu_vendor]
    if not torch.get("__version__") or torch.get(backend):
        return
    others = ", ".join(name for name in BACKENDS.values() if torch.get(name)) or "none but the CPU"
    raise CheckFailed(
        f"torch {torch['__version__']} of {what} cannot use the GPUs of {site.name}",
        evidence=f"{site.name} has GPUs of {site.node.gpu_vendor}: {backend}\nthis torch has {others}",
        hint=f"wrap one with a torch for {backend}, or leave --site {site.name} away",
    )
