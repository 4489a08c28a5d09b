"""Choose how programs start in an image: directly, by its start script, or in its conda environment."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path

from argosy.core.model import Choice, ChoiceKey, ContainerRequest, Image, ImageKind
from argosy.core.records import replace
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import FILES
from argosy.sites.profile import Site
from argosy.sites.profile_parts import ENTER


def plan_entry(plan: ContainerPlan, request: ContainerRequest, reference: str, sites: Iterable[Site]) -> ContainerPlan:
    """Return the plan with the way in which programs start in its image: the requested one, else the site's.

    Images that Argosy built set their own environment, so the profile of a site is not asked about them.

    Parameters
    ----------
    reference
        The image, as the user gave it.
    sites
        The sites whose profiles may contain the image.
    """
    image = plan.entry.image
    if image.kind is ImageKind.HOST or (image.argosy and not request.enter):
        return plan
    for mode, source, why in _modes(request, image, reference, sites):
        if mode == "exec":
            return plan
        if mode == "run" and image.kind not in FILES:
            text = f"{plan.runtime.name} starts programs without the image's start script"
            row = Choice(ChoiceKey.ENTER, "exec", text, source)
            return replace(plan, choices=(*plan.choices, row))
        entry = replace(plan.entry, image=replace(image, enter=mode))
        return replace(plan, entry=entry, choices=(*plan.choices, Choice(ChoiceKey.ENTER, mode, why, source)))
    return plan


def _modes(
    request: ContainerRequest, image: Image, reference: str, sites: Iterable[Site]
) -> Iterator[tuple[str, str, str]]:
    """Yield mode, source and reason, the first choice first."""
    if request.enter:
        yield request.enter, "option", "requested"
    for site in sites:
        if mode := _mode_at(site, {reference, image.path}):
            yield mode, f"site {site.name}", f"an image of the site, {ENTER[mode]}"


def _mode_at(site: Site, names: set[str]) -> str:
    """Return how the profile of a site enters an image with one of these names; empty if it does not know the image."""
    files = names | {str(Path(name).resolve()) for name in names if name.startswith("/")}
    for base in site.images.bases:
        if base.name in names or (base.name.startswith("/") and str(Path(base.name).resolve()) in files):
            return base.enter
    matching = (mode for pattern, mode in site.images.enter.items() if fnmatch.filter(files, pattern))
    return next(matching, "")
