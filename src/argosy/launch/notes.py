"""Notes before a launch: where it runs, what it costs, and which files may be lost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from argosy.core.model import BARE_PREFIX, ChoiceKey, Host
from argosy.core.session import Session
from argosy.jobs.launch_plan import SHARE, LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.recipes.user_config import describe_unused_settings
from argosy.runtimes.apptainer import parse_bind_variables
from argosy.sites.load import LoadedSite, detect_sites, machine_here, sites_here
from argosy.sites.profile import Site
from argosy.sites.read import describe_unused, foreign_profiles, fragment_files, profile_folders

OF_A_NODE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names
"""Folders that are local to each node."""


def note_local(session: Session, plan: LaunchPlan) -> None:
    """Note that the site is ``local`` on a machine with Slurm, outside of jobs: the user may expect a job."""
    host = session.host
    if plan.site != "local" or host.environment.get("SLURM_JOB_ID") or not {"sbatch", "srun"} & host.programs.keys():
        return
    names = [each.name for each in sites_here(host)]
    known = " or ".join(f"--site {name}" for name in names) or "--site NAME ('argosy sites ls' lists them)"
    place = f"the site is 'local', so the program runs on {host.hostname} itself"
    session.reporter.note(f"{place}; to submit a job to Slurm, use {known}, or set site in argosy.toml")


def note_target(session: Session, plan: LaunchPlan, *, in_allocation: bool) -> None:
    """Note where a launch runs if the user may expect another place: in an allocation, or on a login node."""
    job = session.host.environment.get("SLURM_JOB_ID", "")
    if in_allocation:
        session.reporter.note(f"runs as steps of job {job}")
    elif job and plan.is_job:
        session.reporter.note(f"inside job {job}: submitted as a new job; use --in-allocation to run in this one")
    else:
        note_local(session, plan)


def note_site(session: Session, profile: LoadedSite, sources: Mapping[str, tuple[str, str]]) -> None:
    """Note what users may not expect of the site of a launch: another site, or keys that are not used."""
    note_other_site(session, profile.site, sources)
    folders, path = profile_folders(session.host), Path(profile.path)
    unused = map(describe_unused, (path, *fragment_files(path, folders)))
    for line in filter(None, (*map(foreign_profiles, folders), *unused, describe_unused_settings())):
        session.reporter.note(line)


def note_other_site(session: Session, site: Site, sources: Mapping[str, tuple[str, str]]) -> None:
    """Note that a job has the settings of a site that this machine does not belong to, and what chose the site.

    Parameters
    ----------
    sources
        Values that the user did not type, with their sources, as in `LaunchRequest`.
    """
    host = session.host
    if not site.has_slurm or detect_sites([site], machine_here(host, [site])):
        return
    names = [each.name for each in sites_here(host) if each.has_slurm]
    if names and site.name not in names:
        source = sources["site"][1] if "site" in sources else "--site"
        here = f"this machine is {' or '.join(names)}, but {source} says {site.name}"
        session.reporter.note(f"{here}: use {' or '.join(f'--site {name}' for name in names)} for its settings")


def answering_site(site: str, host: Host) -> str:
    """Return the site whose Slurm answers on this machine, for a job with the settings of `site`."""
    names = [each.name for each in sites_here(host) if each.has_slurm]
    return site if site in names else " or ".join(names) or site


def warn_before_submission(plan: LaunchPlan, cwd: str) -> Iterator[str]:
    """Yield warnings before a submission: resources that are billed but not used, and files that may be lost."""
    for choice in plan.choices:
        if choice.key == ChoiceKey.BILLED:
            yield f"billed: {choice.value}; {choice.why}"
        if choice.key == ChoiceKey.CORES_PER_RANK and choice.value == SHARE and choice.source == "default":
            yield f"cores: {choice.why}"
    if _is_of_a_node(cwd):
        yield f"nodes may not see {cwd}, which is local to each machine: start from a shared folder"
    elif _is_of_a_node(plan.output):
        yield f"the output goes to {plan.output}, which may be local to a node: use --output with a shared folder"
    files = (plan.image, *(word for word in plan.command if os.path.isfile(word)))  # noqa: PTH113 - words may be long
    for path in files:
        if _is_of_a_node(path) and not PurePosixPath(path).is_relative_to(cwd):
            yield f"nodes may not see {path}, which is local to each machine: use a shared folder"


def missing_paths(request: LaunchRequest, host: Host) -> Iterator[str]:
    """Yield notes about paths of ``--bind``, ``--workdir`` and ``APPTAINER_BIND`` that this machine does not have.

    Nodes may have others, so they are not refused.  A folder of ``--workdir`` may also be one of the image, unless it
    lies in the folder of the launch, or the job has no image.
    """
    container, is_bare, cwd = request.container, request.image.startswith(BARE_PREFIX), host.cwd
    given = {"--bind": () if is_bare else tuple(bind.source for bind in container.binds if not bind.optional)}
    if container.workdir and (is_bare or PurePosixPath(cwd, container.workdir).is_relative_to(cwd)):
        given["--workdir"] = (container.workdir,)
    if not (is_bare or container.contain):
        for bind, name in parse_bind_variables(host.environment).items():
            given[f"{name}:"] = (*given.get(f"{name}:", ()), bind.source)
    for option, paths in given.items():
        for path in paths:
            if not os.path.lexists(PurePosixPath(cwd, path)):
                yield f"{option} {path} does not exist on this machine: the job fails if its nodes lack it, too"


def _is_of_a_node(path: str) -> bool:
    """Return whether a path lies in a folder that is usually local to each node."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in OF_A_NODE)
