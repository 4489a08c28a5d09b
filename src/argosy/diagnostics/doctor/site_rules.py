"""Check whether this machine belongs to a site and has the programs that the site needs; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from argosy.core.findings import Finding, State
from argosy.core.model import Host
from argosy.diagnostics.doctor.collect import MachineFacts
from argosy.runtimes.runtime import RUNTIMES, load_runtime
from argosy.sites.profile import Site

CONDA = "conda install -c conda-forge"
INSTALL: Mapping[str, str] = {
    "apptainer": f"{CONDA} apptainer (it needs user namespaces), or ask the administrators for it",
    "singularity": "load its module, or ask the administrators for it",
    "bwrap": f"{CONDA} bubblewrap",
    "podman-hpc": "ask the administrators for it",
    "proot": "curl -Lo ~/bin/proot https://proot.gitlab.io/proot/bin/proot && chmod +x ~/bin/proot",
    "mksquashfs": f"{CONDA} squashfs-tools",
    "unsquashfs": f"{CONDA} squashfs-tools",
    "squashfuse": f"{CONDA} squashfuse",
    "skopeo": f"{CONDA} skopeo",
    "umoci": "apt-get install umoci, or https://github.com/opencontainers/umoci/releases",
    "mmdebstrap": "use another base, for example docker://debian:12",
}
"""Program -> how to get it without root; `Build.programs` of a profile comes first."""

BACKEND_PROGRAMS = {"userns": "bwrap", "root": "bwrap"}
"""Build backend -> its program, if the names differ."""


class Here(StrEnum):
    """Whether a machine belongs to a site."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def is_here(site: Site, matching: Sequence[Site], host: Host) -> Here:
    """Return whether this machine belongs to a site.

    A profile without marks (cluster and host names, variables) is never detected. A machine without Slurm certainly
    does not belong to a site with Slurm.

    Parameters
    ----------
    matching
        The sites whose marks fit this machine.
    """
    if site.name in {each.name for each in matching}:
        return Here.YES
    if site.identity.has_marks or (site.has_slurm and "sbatch" not in host.programs):
        return Here.NO
    return Here.UNKNOWN if site.has_slurm else Here.YES


def how_to_get(program: str, site: Site | None) -> str:
    """Return how a user without root gets a program: the site's way, else the usual one."""
    return (site.build.programs.get(program, "") if site else "") or INSTALL.get(
        program, "ask the administrators for it"
    )


def check_site_needs(seen: MachineFacts, site: Site, *, here: Here) -> Iterator[Finding]:
    """Check the container runtime of a site's jobs and the build backends that work there."""
    if site.runtime.name in RUNTIMES:
        yield _check_runtime(seen, site, here=here)
    for backend in site.build.backends:
        program = BACKEND_PROGRAMS.get(backend, backend)
        if program in seen.host.programs:
            yield Finding(program, State.OK, seen.versions.get(program, seen.host.programs[program]))
        elif here is Here.NO and (seen.namespaces or seen.host.can_mount):
            evidence = f"not installed; builds at {site.name} need it, builds on this machine do not"
            yield Finding(program, State.WARN, evidence, f"at {site.name}: {how_to_get(program, site)}")
        else:
            evidence = f"not installed; builds at {site.name} need it"
            yield Finding(program, State.WARN, evidence, how_to_get(program, site))


def _check_runtime(seen: MachineFacts, site: Site, *, here: Here) -> Finding:
    name = site.runtime.name
    program = load_runtime(name).program
    if program in seen.host.programs:
        return Finding("site runtime", State.OK, f"{name} {seen.versions.get(program, '')}".strip())
    evidence = f"{program} is not installed; jobs of {site.name} start containers with {name}"
    if here is Here.NO:
        hint = f"builds do not need it; test images on this machine with another runtime, or at {site.name}"
        return Finding("site runtime", State.WARN, evidence, hint)
    if site.modules.load:
        load = f"module load {' '.join(site.modules.load)}"
        return Finding("site runtime", State.WARN, evidence, f"jobs load it; to run images on this machine: {load}")
    return Finding("site runtime", State.FAIL, evidence, how_to_get(program, site))


def check_site(seen: MachineFacts, site: Site, *, here: Here) -> Iterator[Finding]:
    """Check whether the machine belongs to the site and agrees with the profile."""
    differences = tuple(_find_differences(seen, site, here=here))
    yield from differences
    host = seen.host.hostname
    if here is Here.NO:
        why = "" if "sbatch" in seen.host.programs or not site.has_slurm else ": it has no Slurm"
        hint = f"build here and send the image with 'argosy images send', or run 'argosy doctor' at {site.name}"
        yield Finding("site", State.WARN, f"this machine ({host}) does not belong to {site.name}{why}", hint)
    elif here is Here.UNKNOWN:
        evidence = f"{site.name}: {site.title}; its profile does not tell whether {host} belongs to it"
        yield Finding("site", State.UNKNOWN, evidence, "compare the host name with the login nodes of the site")
    elif not differences:
        yield Finding("site", State.OK, f"{site.name}: {site.title}")


def _find_differences(seen: MachineFacts, site: Site, *, here: Here) -> Iterator[Finding]:
    facts = site.runtime
    program = load_runtime(facts.name).program if facts.name in RUNTIMES else ""
    version = seen.versions.get(program, "")
    if (
        here is not Here.NO
        and facts.version
        and version
        and not version.startswith(re.split(r"[ (]", facts.version)[0])
    ):
        evidence = f"the profile of {site.name} has {facts.name} {facts.version}, this machine has {version}"
        hint = f"run 'argosy sites validate {site.name}', and merge the result into the profile"
        yield Finding("site", State.WARN, evidence, hint)
    if site.node.arch and site.node.arch != seen.host.arch:
        evidence = f"the nodes of {site.name} are {site.node.arch}, this machine is {seen.host.arch}"
        yield Finding("architecture", State.WARN, evidence, f"build on a {site.node.arch} machine")
