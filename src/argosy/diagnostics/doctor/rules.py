"""Check this machine against what Argosy needs, and against its site; pure, except for `check_this_machine`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from argosy.builder.backends.plan import BACKENDS
from argosy.core.errors import SiteError
from argosy.core.findings import Finding, State
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import APPTAINERS, Host
from argosy.core.mounts import IN_MEMORY
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.diagnostics.doctor.collect import Folder, MachineFacts, collect_facts
from argosy.host.quota import Quota
from argosy.recipes.build_options import PYTHON_BASE
from argosy.recipes.user_config import describe_unused_settings
from argosy.runtimes.apptainer import leaks
from argosy.runtimes.choose import load_command
from argosy.runtimes.runtime import AUTOMATIC, RUNTIMES, load_runtime
from argosy.sites.load import advise_on_new_site, load_site, sites_here
from argosy.sites.profile import Site
from argosy.sites.read import describe_unused, list_profiles, profile_folders

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
    "mmdebstrap": f"use another base, for example {PYTHON_BASE}",
}
"""Program -> how to get it without root; `Build.programs` of a profile comes first."""

NETWORK = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.ceph", "panfs", "afs", "9p"})
GIGABYTE = 10**9
LOW_SPACE = 10 * GIGABYTE
"""Free bytes below which the cache may be too small: a vendor's image and an own torch need about that much."""

NEARLY_FULL = 0.9
"""Share of a quota from which a warning is printed."""

FEW_FILES = 200_000
"""Free inodes below which the cache may be too small: an environment with torch has about 50,000 files."""

HARMFUL = re.compile(r"PIP_(TARGET|PREFIX|USER|REQUIRE_VIRTUALENV)\Z|CONDA_(PREFIX|DEFAULT_ENV)\Z|BASH_ENV\Z|ENV\Z")
OF_MODULES = re.compile(r"/init/[\w.-]+\Z")
"""Files to which Lmod and Environment Modules set BASH_ENV and ENV: lmod.readthedocs.io, modules.readthedocs.io."""

PROGRAMS = {
    "mksquashfs": ("builds need it", True),
    "unsquashfs": ("bubblewrap and proot need it to unpack images", False),
    "mmdebstrap": ("--base debian:SUITE needs it", False),
    "skopeo": ("it makes downloads from registries faster", False),
    "squashfuse": ("Apptainer without setuid needs it to mount images", False),
}
"""Program -> purpose, and whether Argosy needs it."""


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


def _how_to_get(program: str, site: Site | None) -> str:
    """Return how a user without root gets a program: the site's way, else the usual one."""
    return (site.build.programs.get(program, "") if site else "") or INSTALL.get(
        program, "ask the administrators for it"
    )


def _check_site_needs(seen: MachineFacts, site: Site, *, here: Here) -> Iterator[Finding]:
    """Check the container runtime of a site's jobs and the build backends that work there."""
    if site.runtime.name in RUNTIMES:
        yield _check_runtime(seen, site, here=here)
    for backend in site.build.backends:
        program = BACKENDS[backend].programs[0]
        if program in seen.host.programs:
            yield Finding(program, State.OK, seen.versions.get(program, seen.host.programs[program]))
        else:
            is_elsewhere = here is Here.NO and (seen.namespaces or seen.host.can_mount)
            more, place = (", builds on this machine do not", f"at {site.name}: ") if is_elsewhere else ("", "")
            evidence = f"not installed; builds at {site.name} need it{more}"
            yield Finding(program, State.WARN, evidence, f"{place}{_how_to_get(program, site)}")


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
    return Finding("site runtime", State.FAIL, evidence, _how_to_get(program, site))


def _check_site(seen: MachineFacts, site: Site, *, here: Here) -> Iterator[Finding]:
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
    if site.node.architecture and site.node.architecture != seen.host.arch:
        evidence = f"the nodes of {site.name} are {site.node.architecture}, this machine is {seen.host.arch}"
        yield Finding("architecture", State.WARN, evidence, f"build on a {site.node.architecture} machine")


def check_machine(seen: MachineFacts, site: Site | None, *, here: Here = Here.YES) -> tuple[Finding, ...]:
    """Check a machine.

    Parameters
    ----------
    site
        The site to compare with; None if no site is known.
    here
        Whether the machine belongs to `site`.
    """
    at_site = site is not None and here is not Here.NO
    return (
        *((*_check_site(seen, site, here=here), *_check_site_needs(seen, site, here=here)) if site else ()),
        *(() if at_site and site and site.runtime.name in RUNTIMES else _check_runtimes(seen, site)),
        *_check_programs(seen, site if at_site else None),
        *_check_proot(seen, site),
        *_check_kernel(seen, site if at_site else None),
        *map(_check_folder, seen.folders),
        *map(_check_quota, seen.quotas),
        *_check_slurm(seen, site, here=here),
        *_check_gpus(seen, site if at_site else None),
        *_check_variables(seen),
    )


def _check_runtimes(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    here = [name for name in AUTOMATIC if load_runtime(name).program in seen.host.programs]
    if here:
        evidence = ", ".join(f"{name} {seen.versions.get(name, '?')}" for name in here)
        yield Finding("container runtime", State.OK, evidence)
    else:
        module = load_command(site) if site else ""
        first = f"at {site.name}: {module}; elsewhere: " if site and module else ""
        if not first and any(map(seen.host.environment.get, ("MODULEPATH", "LMOD_CMD", "MODULESHOME"))):
            first = "it may be a module: module avail 2>&1 | grep -iE 'apptainer|singularity'; else "
        hint = f"{first}{INSTALL['bwrap']}; or ask the administrators for Apptainer"
        yield Finding("container runtime", State.FAIL, f"found none of {', '.join(AUTOMATIC)}", hint)


def _check_programs(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    """Check the programs that Argosy uses; at a site without user namespaces two of them have no use."""
    useless = ("mmdebstrap", "squashfuse") if site and site.runtime.user_namespaces is False else ()
    for name, (purpose, needed) in PROGRAMS.items():
        if (
            name == "skopeo"
            and name in seen.host.programs
            and seen.host.programs.keys().isdisjoint({"umoci", *APPTAINERS})
        ):
            evidence = f"{seen.versions.get(name, '?')}, but no umoci; docker:// images need both, or Apptainer"
            yield Finding(name, State.WARN, evidence, _how_to_get("umoci", site))
        elif name in seen.host.programs:
            yield Finding(name, State.OK, seen.versions.get(name, "?"))
        elif name == "skopeo" and seen.host.programs.keys().isdisjoint(APPTAINERS):
            evidence = "not installed; docker:// images need skopeo and umoci, or Apptainer or SingularityCE"
            yield Finding(name, State.WARN, evidence, _how_to_get(name, site))
        elif name not in useless:
            state = State.FAIL if needed else State.WARN
            yield Finding(name, state, f"not installed; {purpose}", _how_to_get(name, site))


def _check_proot(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    """Check proot if it is the only backend for builds on this machine, unless the site's needs contain it."""
    if seen.namespaces or seen.host.can_mount or (site and "proot" in site.build.backends):
        return
    if "proot" in seen.host.programs:
        yield Finding("proot", State.OK, "builds use it, since this user cannot create user namespaces")
    else:
        evidence = "not installed; without user namespaces builds need it"
        yield Finding("proot", State.WARN, evidence, _how_to_get("proot", site))


def _check_kernel(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    host = seen.host
    only_bwrap = host.programs.keys().isdisjoint(APPTAINERS) and "bwrap" in host.programs
    if seen.namespaces:
        yield Finding("user namespaces", State.OK, "this user can create them")
    elif host.can_mount:
        yield Finding("user namespaces", State.OK, "not needed, since this user is root")
    elif site and site.runtime.user_namespaces is False:
        evidence = (
            f"this user cannot create them, as documented for {site.name}; {site.runtime.name} does not need them"
        )
        yield Finding("user namespaces", State.OK, evidence)
        return
    else:
        hint = (
            "ask the administrators for user.max_user_namespaces > 0 (Debian: kernel.unprivileged_userns_clone=1; "
            "Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0) or for a setuid Apptainer"
        )
        state = State.FAIL if only_bwrap else State.WARN
        yield Finding("user namespaces", state, "this user cannot create them", hint)
    if host.fuse:
        yield Finding("fuse", State.OK, "/dev/fuse")
    else:
        hint = "Apptainer without setuid then unpacks images, so starts are slow; ask for access to /dev/fuse"
        yield Finding("fuse", State.WARN, "no access to /dev/fuse", hint)
    yield _check_subordinate_ids(seen)


def _check_subordinate_ids(seen: MachineFacts) -> Finding:
    """Check /etc/subuid: without mmdebstrap, as on most clusters, nobody builds the bases that need it."""
    if seen.subuid:
        return Finding("subordinate ids", State.OK, "this user has some")
    if seen.host.can_mount:
        return Finding("subordinate ids", State.OK, "root needs none")
    none = "this user has none; bases debian:SUITE, podman and apptainer --fakeroot need them"
    if "mmdebstrap" not in seen.host.programs:
        return Finding("subordinate ids", State.OK, none)
    hint = (
        "ask for entries in /etc/subuid and /etc/subgid, or install fakechroot: the default base is debian:bookworm; "
        f"another one does not need them, for example --base {PYTHON_BASE}"
    )
    return Finding("subordinate ids", State.WARN, none, hint)


def _check_folder(folder: Folder) -> Finding:
    what, is_large = folder.what, folder.what in {"cache", "work files"}
    size = f"{folder.free / GIGABYTE:.0f} GB free" if folder.free >= 0 else "unknown size"
    evidence = f"{folder.path} ({folder.kind or 'unknown file system'}, {size})"
    hint = "set ARGOSY_CACHE to a folder on a disk" if is_large else "ask the help desk"
    if not folder.writable:
        return Finding(what, State.FAIL, f"{evidence}: not writable", _hint_to_write(what))
    if folder.kind in IN_MEMORY:
        return Finding(what, State.WARN, f"{evidence}: in memory", hint)
    if is_large and 0 <= folder.free < LOW_SPACE:
        return Finding(what, State.WARN, f"{evidence}: little space", f"free some space, or {hint}")
    if is_large and 0 <= folder.inodes < FEW_FILES:
        return Finding(what, State.WARN, f"{evidence}: only {folder.inodes} more files fit", f"delete files, or {hint}")
    if what == "work files" and folder.kind in NETWORK:
        hint = "use --work-dir with a folder on a local disk for faster builds"
        return Finding(what, State.WARN, f"{evidence}: network file system", hint)
    return Finding(what, State.OK, evidence)


def _hint_to_write(what: str) -> str:
    hints = {"cache": "set ARGOSY_CACHE", "state": "set ARGOSY_STATE", "work files": "set TMPDIR, or use --work-dir"}
    return hints.get(what, "set ARGOSY_CACHE and ARGOSY_STATE to folders that you can write to")


def _check_quota(quota: Quota) -> Finding:
    parts = [f"{render_size(quota.used)} of {render_size(quota.limit)}"] if quota.limit else []
    parts += [f"{quota.files} of {quota.file_limit} files"] if quota.file_limit else []
    evidence = f"{quota.place}: {', '.join(parts)}"
    if quota.share < NEARLY_FULL:
        return Finding("quota", State.OK, evidence)
    hint = "free some space: writing will soon fail; 'argosy cache gc' and 'argosy images rm' remove files of Argosy"
    return Finding("quota", State.WARN, evidence, hint)


def _check_slurm(seen: MachineFacts, site: Site | None, *, here: Here) -> Iterator[Finding]:
    needed = bool(site and site.has_slurm and here is not Here.NO)
    if "sbatch" not in seen.host.programs:
        if needed:
            yield Finding("Slurm", State.FAIL, "sbatch is not installed", "run this on a login node of the site")
        return
    version = seen.versions.get("sbatch", "?")
    if seen.slurm_up:
        yield Finding("Slurm", State.OK, f"{version}; {seen.slurm}")
    else:
        evidence = f"{version}; the controller does not answer: {seen.slurm or 'scontrol ping printed nothing'}"
        yield Finding("Slurm", State.FAIL if needed else State.WARN, evidence, "try again later, or ask the help desk")


def _check_gpus(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    gpus = seen.host.gpus
    if gpus:
        driver = f"driver {seen.driver}" if seen.driver else "unknown driver version"
        yield Finding("GPUs", State.OK, f"{len(gpus)} of {gpus[0].vendor}, {driver}")
    elif site and site.has_slurm:
        yield Finding("GPUs", State.OK, "none on this machine, which is usual for a login node")
    else:
        yield Finding("GPUs", State.OK, "none: programs run on the CPU")


def _check_variables(seen: MachineFacts) -> Iterator[Finding]:
    environment = seen.host.environment
    own = {name for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name) == sys.prefix}
    own |= {name for name in ("BASH_ENV", "ENV") if OF_MODULES.search(environment.get(name, ""))}
    harmful = [name for name in environment if name not in own and (name in NOT_FROM_CALLER or HARMFUL.match(name))]
    options = list(leaks(environment))
    if harmful:
        hint = "unset them, and check ~/.bashrc; Argosy keeps them out of containers, but other programs do not"
        yield Finding("variables", State.WARN, ", ".join(sorted(harmful)), hint)
    if options:
        hint = "Argosy uses only their bind mounts; a plain 'apptainer exec' obeys all of them"
        yield Finding("runtime variables", State.WARN, ", ".join(sorted(options)), hint)
    if not harmful and not options:
        yield Finding("variables", State.OK, "no harmful variable is set")


def check_this_machine(session: Session, site: str = "") -> tuple[Finding, ...]:
    """Check this machine.

    Parameters
    ----------
    site
        The site to compare with; empty for the one that this machine belongs to.

    Raises
    ------
    SiteError
        When there is no site of that name.
    """
    skipped: list[SiteError] = []
    seen, matching = collect_facts(session), sites_here(session.host, skipped.append)
    invalid = tuple(_check_profiles(skipped, session.host))
    if site:
        profile = load_site(site, session.host)
        return (*check_machine(seen, profile, here=is_here(profile, matching, session.host)), *invalid)
    if len(matching) == 1:
        return (*check_machine(seen, matching[0]), *invalid)
    names = ", ".join(each.name for each in matching)
    evidence = f"this machine matches several profiles: {names}" if names else "no profile matches this machine"
    hint = f"choose one with --site; 'argosy sites ls' lists them{advise_on_new_site(session.host)}"
    unknown = Finding("site", State.UNKNOWN, evidence, hint)
    return (*check_machine(seen, None), *invalid, unknown)


def _check_profiles(skipped: Sequence[SiteError], host: Host) -> Iterator[Finding]:
    """Warn of the profiles that no command uses, and of keys that are not used: one may be that of this machine."""
    if skipped:
        evidence = "skipped: " + "; ".join(error.what for error in skipped)
        yield Finding("profiles", State.WARN, evidence, "correct or move them; details: argosy sites ls")
    notes = (describe_unused_settings(), *map(describe_unused, list_profiles(profile_folders(host))))
    for note in filter(None, notes):
        yield Finding("profiles", State.WARN, note, "correct the keys; those of a newer Argosy may stay")
