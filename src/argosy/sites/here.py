"""Ask the machine which site it belongs to: its name, its variables, and ClusterName of Slurm's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from argosy.errors import SiteError
from argosy.model import Host
from argosy.sites.detecting import Machine, detect_sites
from argosy.sites.reading import read_site, search_path, site_names
from argosy.sites.records import Site

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
