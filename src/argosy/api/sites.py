"""Work with site profiles: list, check, discover and validate them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from argosy.api.session import use_session
from argosy.core.findings import FileFinding
from argosy.core.session import Session
from argosy.diagnostics.discover.discover import DiscoverRequest
from argosy.diagnostics.discover.discover import discover_site as discover
from argosy.diagnostics.discover.node_facts import Draft
from argosy.diagnostics.validate import validate
from argosy.diagnostics.validate.merge import Merged
from argosy.sites import detect, node_picture, show
from argosy.sites.lint.profile_rules import lint_named_profile
from argosy.sites.lint.script_rules import lint_script as check_script
from argosy.sites.profile import Site
from argosy.sites.read import profile_folders, read_site, read_sites
from argosy.slurm.text import JobOptions, slurm_time


def list_sites(*, session: Session | None = None) -> list[Site]:
    """List the site profiles that can be read, as ``argosy sites ls`` does."""
    return list(read_sites(_folders(session)))


def show_site(name: str, *, session: Session | None = None) -> tuple[show.Row, ...]:
    """Return every value of a profile with its reason and source, as ``argosy sites show`` does."""
    return show.explain_site(name, _folders(session))


def discover_site(
    name: str, *, output: str | Path = "", on_node: bool = False, partition: str = "", account: str = "",
    qos: str = "", session: Session | None = None,
) -> Draft:  # fmt: skip
    """Write the profile of the Slurm cluster of this machine, as ``argosy sites new`` does.

    Parameters
    ----------
    output
        The file; empty: ``argosy-sites/NAME.toml``.
    on_node
        Whether a short job asks a compute node, too.
    """
    file = Path(output or f"argosy-sites/{name}.toml")
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return discover(use_session(session), DiscoverRequest(name, file, today, on_node, partition, account, qos))


def draw_site(name: str, *, session: Session | None = None) -> str:
    """Return a picture (SVG) of a node of the site, as ``argosy sites picture`` does.

    Raises
    ------
    SiteError
        If the profile does not describe enough of the node.
    """
    return node_picture.draw_site_node(read_site(name, _folders(session)))


def lint_profile(name: str, *, session: Session | None = None) -> tuple[FileFinding, ...]:
    """Return the faults of a site profile, as ``argosy sites lint`` does."""
    return lint_named_profile(name, _folders(session))


def lint_script(file: str | Path, *, site: str = "", session: Session | None = None) -> tuple[FileFinding, ...]:
    """Return the faults of a job script, as ``argosy sites lint FILE`` does.

    Parameters
    ----------
    site
        Profile to compare the script with.
    """
    profile = read_site(site, _folders(session)) if site else None
    return check_script(str(file), Path(file).read_bytes().decode(errors="replace"), profile)


def diff_sites(first: str, second: str, *, session: Session | None = None) -> tuple[tuple[str, str, str], ...]:
    """Compare two profiles, as ``argosy sites diff`` does: key, first value, second value."""
    folders = _folders(session)
    return show.diff_sites(read_site(first, folders), read_site(second, folders))


def detect_site(*, session: Session | None = None) -> tuple[detect.Match, ...]:
    """Return the profiles that fit this machine, as ``argosy sites detect`` does."""
    here = use_session(session)
    sites = tuple(read_sites(_folders(here)))
    return detect.detect_sites(sites, detect.machine_here(here.host, sites))


def site_schema() -> dict[str, Any]:
    """Return the JSON schema of site profiles, as ``argosy sites schema`` does."""
    return show.profile_schema()


def merge_site(
    result: str | Path, *, into: str = "", accept: bool = False, session: Session | None = None
) -> tuple[Path, Merged]:
    """Merge the result of `validate_site` into a profile, as ``argosy sites merge`` does.

    Parameters
    ----------
    into
        The profile; empty: your own profile of that site.
    accept
        Whether found values replace the values that they contradict.
    """
    return validate.merge_into_profile(use_session(session), str(result), into=into, accept=accept)


def validate_site(
    site: str = "", *, image: str = "", gpus_per_node: int = -1, account: str = "", partition: str = "",
    qos: str = "", time: str = "", session: Session | None = None,
) -> validate.Validation:  # fmt: skip
    """Run a small job that checks a site profile, as ``argosy sites validate`` does.

    Parameters
    ----------
    site
        Name or file of the profile; empty: the profile that fits this machine.
    image
        Image that is entered, too.
    gpus_per_node
        -1: all GPUs of a node.
    """
    here = use_session(session)
    options = JobOptions(account=account, partition=partition, qos=qos, time=slurm_time(time))
    name = validate.site_here(here, site)
    return validate.validate_site(here, name, image=image, options=options, gpus=gpus_per_node)


def _folders(session: Session | None) -> tuple[Path, ...]:
    return profile_folders(use_session(session).host)
