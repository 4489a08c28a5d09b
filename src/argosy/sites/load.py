"""Load the site profile of a command, or those of the sites that this machine belongs to.

A machine is recognised by host name, ClusterName, variables and files. Errors about the values of a profile name the
site and the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, SiteError
from argosy.core.model import Host
from argosy.core.render import count
from argosy.sites.binding import plan_masks
from argosy.sites.profile import Identity, Site
from argosy.sites.read import (
    DATA,
    describe_source,
    profile_folders,
    read_site,
    read_sites,
    replaced_profiles,
    with_replaced,
)

SLURM_CONFIGURATIONS = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))


class LoadedSite(msgspec.Struct, frozen=True):
    """A site profile and the file that it was read from."""

    site: Site
    path: str
    note: str
    """Why another profile than the shipped one was read; empty for a shipped profile or one given by its path."""


def load_profile(name: str, host: Host) -> LoadedSite:
    """Read a site's profile by its name or path: from the project, the user, the system, or the shipped ones.

    Raises
    ------
    SiteError
        When there is no such profile, it is not valid, or its map of cores contradicts its node.
    """
    folders = profile_folders(host)
    path, note = describe_source(name, folders)
    try:
        site = read_site(str(path), folders)
    except SiteError as error:
        raise with_replaced(error, name, folders) from error
    with locate_profile_errors(name, host):
        plan_masks(site.node)
    return LoadedSite(site, str(path), note)


def load_site(name: str, host: Host) -> Site:
    """Read a site's profile; as `load_profile`, without its file."""
    return load_profile(name, host).site


@contextmanager
def locate_profile_errors(name: str, host: Host) -> Iterator[None]:
    """Name site and key in an error about a value of a profile (`ArgosyError.key`).

    For a profile of the user the evidence also gives file and line. For a shipped one they are a note of the exception,
    which the command line prints with --verbose: users do not edit files of the installation.
    """
    try:
        yield
    except ArgosyError as error:
        if error.key:
            from argosy.sites.show import explain_site  # noqa: PLC0415 - only for an error

            rows = explain_site(name, profile_folders(host))
            origin = next((row.origin for row in rows if row.key == error.key), "")
            if origin.startswith(f"{DATA}/"):
                error.add_note(f"{origin}: {error.key}")
                place = f"site {name}: {error.key}"
            else:
                place = f"{origin}: {error.key}" if origin else ""
            error.evidence = "\n".join(filter(None, (error.evidence, place)))
            error.key = ""
        raise


class Machine(msgspec.Struct, frozen=True):
    """The facts that identify a machine."""

    cluster: str
    """Slurm's ClusterName; empty if it is unknown."""
    host: str
    variables: Mapping[str, str]
    files: frozenset[str] = frozenset()
    """Those paths of profiles that exist."""


class Match(msgspec.Struct, frozen=True):
    """A site that a machine matches, with the reasons."""

    site: str
    reasons: tuple[str, ...]


def detect_sites(sites: Iterable[Site], machine: Machine) -> tuple[Match, ...]:
    """Return the sites all of whose kinds of marks match a machine; a site without marks never matches."""
    found = ((site.name, _match_identity(site.identity, machine)) for site in sites)
    return tuple(Match(name, reasons) for name, reasons in found if reasons)


def _match_identity(identity: Identity, machine: Machine) -> tuple[str, ...]:
    """Return the reasons why a machine matches, or nothing if one kind of mark does not match."""
    reasons: list[str] = []
    for what, value, patterns in (
        ("ClusterName", machine.cluster, identity.clusters),
        ("host name", machine.host.partition(".")[0], identity.hosts),
    ):
        hits = [pattern for pattern in patterns if value and fnmatchcase(value, pattern)]
        if patterns and not hits and not (what == "ClusterName" and not value):
            return ()
        reasons += [f"{what} {value} matches {hits[0]}"] if hits else []
    for name, pattern in identity.variables.items():
        if not fnmatchcase(machine.variables.get(name, ""), pattern):
            return ()
        reasons.append(f"{name} is {machine.variables[name]}")
    if not machine.files.issuperset(identity.files):
        return ()
    return (*reasons, *(f"{path} exists" for path in identity.files))


def machine_here(host: Host, sites: Iterable[Site] = ()) -> Machine:
    """Return the facts that identify this machine; `sites` are those whose files are looked for."""
    files = frozenset(path for site in sites for path in site.identity.files if Path(path).exists())
    return Machine(_cluster_name(host.environment), host.hostname, host.environment, files)


def sites_here(host: Host, skipped: Callable[[SiteError], None] | None = None) -> tuple[Site, ...]:
    """Return the sites that this machine matches, usually one or none.

    Parameters
    ----------
    skipped
        Called with the error of each profile and folder that is skipped, as by `read_sites`.
    """
    sites = {site.name: site for site in read_sites(profile_folders(host), skipped)}
    return tuple(sites[match.site] for match in detect_sites(sites.values(), machine_here(host, sites.values())))


def doubtful_profiles(host: Host) -> Iterator[str]:
    """Yield why the profile of this machine, and with it a folder of images, may be missing or another one."""
    skipped: list[SiteError] = []
    sites_here(host, skipped.append)
    for error in skipped:
        first = error.evidence.splitlines()[:1]
        yield "; ".join(filter(None, (": ".join((f"skipped: {error.what}", *first)), error.hint)))
    yield from replaced_profiles(profile_folders(host))


def advise_on_site(host: Host) -> str:
    """Return how to launch on the cluster of this machine; empty without Slurm."""
    skipped: list[SiteError] = []
    names = [site.name for site in sites_here(host, skipped.append) if site.has_slurm]
    if len(names) == 1:
        return f"add --site {names[0]}"
    if not names and "sbatch" not in host.programs:
        return ""
    advice = f"name your cluster with --site (argosy sites ls{advise_on_new_site(host)})"
    verb = "was" if len(skipped) == 1 else "were"
    note = f"; {count(len(skipped), 'profile')} {verb} skipped ('argosy sites ls' says why)"
    return advice + note if skipped else advice


def advise_on_new_site(host: Host) -> str:
    """Return how to write a profile of this cluster, to append to a hint; empty without Slurm or with a profile."""
    is_unknown = "sbatch" in host.programs and not sites_here(host)
    return "; for a profile of this cluster: argosy sites new NAME --on-node" if is_unknown else ""


def _cluster_name(environment: Mapping[str, str]) -> str:
    """Return ClusterName: that of the current job, else that of slurm.conf at SLURM_CONF or in its usual places."""
    if name := environment.get("SLURM_CLUSTER_NAME"):
        return name
    for path in (*map(Path, filter(None, [environment.get("SLURM_CONF")])), *SLURM_CONFIGURATIONS):
        if path.is_file():
            for line in path.read_text(errors="replace", encoding="utf-8").splitlines():
                key, _, value = line.partition("=")
                if key.strip().lower() == "clustername":
                    return value.split("#", 1)[0].strip()
    return ""
