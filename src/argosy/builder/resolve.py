"""Ask everything that a build depends on: the user's files, the site's profile and this machine's settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.bases.for_site import find_target_site, resolve_target_session
from argosy.builder.inputs import BuildInputs, read_inputs
from argosy.builder.needs import plan_needs
from argosy.builder.python.git_access import GitAccess, find_git_access
from argosy.builder.report import BuildRequest
from argosy.builder.request import complete_request
from argosy.core.session import Session
from argosy.recipes.pip_settings import PipConfig, read_pip_config
from argosy.sites.profile import Site


class BuildContext(msgspec.Struct, frozen=True):
    """Hold the facts that a build is planned from.

    Attributes
    ----------
    request
        The request, completed by the definition file among the sources.
    session
        The session for the machines that the image is for; their programs may run under an emulator here.
    inputs
        What the user's files or the lock ask for.
    needs
        Debian packages that the recipe needs in its base.
    site
        The site that the image is for, or None.
    pip
        The settings of pip's configuration files and variables.
    git
        The user's ssh agent, ssh configuration and known hosts.
    """

    request: BuildRequest
    session: Session
    inputs: BuildInputs
    needs: tuple[str, ...]
    site: Site | None
    pip: PipConfig
    git: GitAccess


def resolve_build(request: BuildRequest, session: Session) -> BuildContext:
    """Read the user's files and ask this machine for everything that a build is planned from.

    Raises
    ------
    ArgosyError
        If a file is missing or invalid, or if the site or its architecture is not available here.
    """
    request = complete_request(request, session.host)
    session = resolve_target_session(request, session)
    inputs = read_inputs(request, session)
    return BuildContext(
        request=request,
        session=session,
        inputs=inputs,
        needs=plan_needs(inputs.recipe),
        site=find_target_site(request, session.host),
        pip=read_pip_config(session.host.environment, Path(session.host.person.home)),
        git=find_git_access(session.host),
    )
