"""Plan a build from its context: every decision that can be made before the base is open; pure."""

from __future__ import annotations

import msgspec

from argosy.builder.backends.plan import list_backends
from argosy.builder.inputs import BuildInputs
from argosy.builder.python.sources import add_git_access
from argosy.builder.python.torch_index import Target, aim_torch, choose_target, refuse_conda_cuda, refuse_locked_torch
from argosy.builder.records import BuildRequest
from argosy.builder.resolve import BuildContext
from argosy.core.layout import PrefixLayout
from argosy.core.model import Choice
from argosy.recipes.uv_options import UvSettings, plan_uv_settings
from argosy.sites.profile import Site


class BuildPlan(msgspec.Struct, frozen=True):
    """A build: the dry run prints it, and the real build carries it out."""

    request: BuildRequest
    """The completed request."""
    inputs: BuildInputs
    """The packages and steps in the user's files or the lock."""
    site: Site | None
    """The site that the image is for, or None."""
    target: Target
    """The machines that packages are chosen for."""
    settings: UvSettings
    """Options and environment of uv."""
    backends: tuple[Choice, ...]
    """The build backends to try, best first."""
    needs: tuple[str, ...]
    """Debian packages that the recipe needs in its base."""
    prefix_layout: PrefixLayout
    """The layout that other tools expect: that of the lock, else that of the request."""


def plan_build(context: BuildContext) -> BuildPlan:
    """Decide what a build does."""
    request, inputs = context.request, context.inputs
    lock, of_request = inputs.lock, request.prefix_layout
    target = choose_target(request.torch_backend, request.cuda, context.site, inputs.base)
    if context.site:
        refuse_conda_cuda(context.site, inputs.recipe)
        if inputs.base.startswith("debian:"):  # others may contain a torch
            refuse_locked_torch(context.site, target, inputs.recipe)
    settings = aim_torch(plan_uv_settings(context.pip, inputs.recipe), inputs.recipe, target.backend)
    return BuildPlan(
        request=request,
        inputs=inputs,
        site=context.site,
        target=target,
        settings=add_git_access(settings, inputs.recipe, context.git),
        backends=list_backends(context.session.host, request.backend),
        needs=context.needs,
        prefix_layout=PrefixLayout(lock.known_as, lock.labels) if lock else of_request,
    )
