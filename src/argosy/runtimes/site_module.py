"""Find the environment module that provides the container runtime of the site of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from argosy.core.errors import ToolMissing
from argosy.core.model import Host
from argosy.recipes.user_config import configured_site
from argosy.sites.detect import sites_here
from argosy.sites.load import load_site
from argosy.sites.profile import Site


def find_runtime_module(host: Host) -> str:
    """Return the command that loads the runtime of the configured site, or of a detected one; empty if none is needed.

    Raises
    ------
    SiteError, UsageError
        If the configured site has no valid profile, or a configuration file is not valid.
    """
    name = configured_site("", host.environment)
    sites = (load_site(name, host),) if name else sites_here(host)
    return next((command for site in sites if (command := load_command(site))), "")


def load_command(site: Site) -> str:
    """Return the command that loads the module of a site's runtime; empty if the runtime needs no module."""
    name = site.runtime.name
    return next((f"module load {module}" for module in site.modules.load if name and name in module.lower()), "")


@contextmanager
def suggesting_module(host: Host) -> Iterator[None]:
    """Add the site's module to the error that no runtime is installed."""
    try:
        yield
    except ToolMissing as error:
        command = find_runtime_module(host)
        if command:
            error.hint = f"run '{command}' first; elsewhere, {error.hint}"
        raise
