"""Tell which site a machine belongs to, by its names and variables; two answers or none are said.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import Host
from argosy.sites.profile import Identity, Site
from argosy.sites.read import read_site, search_path, site_names


class Machine(msgspec.Struct, frozen=True):
    """What identifies a machine.

    Attributes
    ----------
    cluster
        Slurm's ClusterName; empty where it is not known.
    host
        Name without domain.
    """

    cluster: str
    host: str
    variables: Mapping[str, str]


class Match(msgspec.Struct, frozen=True):
    """A site that a machine looks like, and what shows it."""

    site: str
    reasons: tuple[str, ...]


def detect_sites(sites: Iterable[Site], machine: Machine) -> tuple[Match, ...]:
    """Give the sites whose every kind of mark is found here; those without marks are never found."""
    found = ((site.name, _judge_identity(site.identity, machine)) for site in sites)
    return tuple(Match(name, reasons) for name, reasons in found if reasons)


def _judge_identity(identity: Identity, machine: Machine) -> tuple[str, ...]:
    """Say what of a machine fits an identity; nothing where one kind of its marks does not."""
    reasons: list[str] = []
    for what, value, patterns in (
        ("ClusterName", machine.cluster, identity.clusters),
        ("host name", machine.host.partition(".")[0], identity.hosts),
    ):
        hits = [pattern for pattern in patterns if value and fnmatchcase(value, pattern)]
        if patterns and not hits and not (what == "ClusterName" and not value):
            return ()
        reasons += [f"{what} {value} is like {hits[0]}"] if hits else []
    for name, pattern in identity.variables.items():
        if not fnmatchcase(machine.variables.get(name, ""), pattern):
            return ()
        reasons.append(f"{name} is {machine.variables[name]}")
    return tuple(reasons)


SLURM_CONFIGURATIONS = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))


def machine_here(host: Host) -> Machine:
    """Give what identifies this machine."""
    return Machine(_cluster_name(host.environment), host.hostname, host.environment)


def sites_here(host: Host) -> tuple[Site, ...]:
    """Give the sites that this machine looks like: mostly one or none; a profile that is wrong is passed over."""
    sites = {site.name: site for site in _readable(host)}
    return tuple(sites[match.site] for match in detect_sites(sites.values(), machine_here(host)))


def _readable(host: Host) -> Iterator[Site]:
    folders = search_path(host.environment, Path(host.cwd))
    for name in site_names(folders):
        with suppress(SiteError):
            yield read_site(name, folders)


def _cluster_name(environment: Mapping[str, str]) -> str:
    """Give ClusterName: a job's own, else that of Slurm's configuration, by SLURM_CONF or in its usual places."""
    if name := environment.get("SLURM_CLUSTER_NAME"):
        return name
    for path in (*map(Path, filter(None, [environment.get("SLURM_CONF")])), *SLURM_CONFIGURATIONS):
        if path.is_file():
            for line in path.read_text(errors="replace", encoding="utf-8").splitlines():
                key, _, value = line.partition("=")
                if key.strip().lower() == "clustername":
                    return value.split("#", 1)[0].strip()
    return ""
