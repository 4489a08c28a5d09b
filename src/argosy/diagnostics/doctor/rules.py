"""Check this machine against what Argosy needs, and against its site; pure, except for `examine`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.findings import Finding, State
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.session import Session
from argosy.diagnostics.doctor.collect import Folder, MachineFacts, collect_facts
from argosy.runtimes.apptainer import leaks
from argosy.runtimes.runtime import AUTOMATIC, RUNTIMES, load_runtime
from argosy.sites.detect import sites_here
from argosy.sites.load import load_site
from argosy.sites.profile import Site

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.ceph", "panfs", "afs", "9p"})
GIGABYTE = 10**9
LOW_SPACE = 10 * GIGABYTE
"""Free bytes below which the cache may be too small: a vendor's image and an own torch need about that much."""

FEW_FILES = 200_000
"""Free inodes below which the cache may be too small: an environment with torch has about 50,000 files."""

HARMFUL = re.compile(r"PIP_(TARGET|PREFIX|USER|REQUIRE_VIRTUALENV)\Z|CONDA_(PREFIX|DEFAULT_ENV)\Z|BASH_ENV\Z|ENV\Z")

PROGRAMS = {
    "mksquashfs": ("builds need it", "apt-get install squashfs-tools, or load the module that contains it", True),
    "unsquashfs": ("bubblewrap needs it to run images", "install squashfs-tools, which contains it", False),
    "mmdebstrap": ("--base debian:SUITE needs it", "use another base, for example docker://…", False),
    "skopeo": ("it makes downloads from registries faster", "apt-get install skopeo", False),
    "squashfuse": ("Apptainer without setuid needs it to mount images", "it usually comes with Apptainer", False),
}
"""Program -> purpose, hint if it is missing, and whether Argosy needs it."""


def check_machine(seen: MachineFacts, site: Site | None, *, is_here: bool = True) -> tuple[Finding, ...]:
    """Check a machine.

    Parameters
    ----------
    site
        The site to compare with; None if no site is known.
    is_here
        Whether the machine may belong to `site`; False if the site's marks (cluster and host names) do not match.
    """
    return (
        *_check_runtimes(seen, site),
        *_check_programs(seen),
        *_check_proot(seen),
        *_check_kernel(seen),
        *map(_check_folder, seen.folders),
        *_check_quota(seen),
        *_check_slurm(seen, site),
        *_check_gpus(seen, site),
        *_check_variables(seen),
        _check_site(seen, site, is_here=is_here),
    )


def _check_runtimes(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    here = [name for name in AUTOMATIC if load_runtime(name).program in seen.host.programs]
    evidence = ", ".join(f"{name} {seen.versions.get(name, '?')}" for name in here)
    by_site = site.runtime.name if site else ""
    if here or (by_site and by_site not in AUTOMATIC):
        yield Finding("container runtime", State.OK, evidence or f"{by_site}, which the site provides in jobs")
    elif by_site and site and site.modules.load:
        modules = " ".join(site.modules.load)
        yield Finding("container runtime", State.WARN, f"{by_site} is in a module", f"module load {modules}")
    else:
        hint = "apt-get install bubblewrap, or ask the administrators for Apptainer"
        yield Finding("container runtime", State.FAIL, f"found none of {', '.join(AUTOMATIC)}", hint)


def _check_programs(seen: MachineFacts) -> Iterator[Finding]:
    for name, (purpose, hint, needed) in PROGRAMS.items():
        if name in seen.host.programs:
            yield Finding(name, State.OK, seen.versions.get(name, "?"))
        else:
            yield Finding(name, State.FAIL if needed else State.WARN, f"not installed; {purpose}", hint)


def _check_proot(seen: MachineFacts) -> Iterator[Finding]:
    """Check proot if it is the only backend for builds: without root and without user namespaces."""
    if seen.namespaces or seen.host.can_mount:
        return
    if "proot" in seen.host.programs:
        yield Finding("proot", State.OK, "builds use it, since this user cannot create user namespaces")
    else:
        evidence = "not installed; without user namespaces builds need it"
        yield Finding("proot", State.WARN, evidence, "load the module that contains proot, or build on another machine")


def _check_kernel(seen: MachineFacts) -> Iterator[Finding]:
    host = seen.host
    only_bwrap = not {"apptainer", "singularity"}.intersection(host.programs) and "bwrap" in host.programs
    if seen.namespaces:
        yield Finding("user namespaces", State.OK, "this user can create them")
    elif host.can_mount:
        yield Finding("user namespaces", State.OK, "not needed, since this user is root")
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
    none = "this user has none; only podman, apptainer --fakeroot and --base debian:SUITE need them"
    yield Finding("subordinate ids", State.OK, "this user has some" if seen.subuid else none)


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


def _check_quota(seen: MachineFacts) -> Iterator[Finding]:
    if seen.over_quota:
        yield Finding("quota", State.WARN, seen.over_quota.splitlines()[0], "free some space: writing will soon fail")


def _check_slurm(seen: MachineFacts, site: Site | None) -> Iterator[Finding]:
    needed = bool(site and site.has_slurm)
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
    harmful = [name for name in environment if name in NOT_FROM_CALLER or HARMFUL.match(name)]
    options = list(leaks(environment))
    if harmful:
        hint = "unset them, and check ~/.bashrc; Argosy keeps them out of containers, but other programs do not"
        yield Finding("variables", State.WARN, ", ".join(sorted(harmful)), hint)
    if options:
        hint = "Argosy uses only their bind mounts; a plain 'apptainer exec' obeys all of them"
        yield Finding("runtime variables", State.WARN, ", ".join(sorted(options)), hint)
    if not harmful and not options:
        yield Finding("variables", State.OK, "no harmful variable is set")


def _check_site(seen: MachineFacts, site: Site | None, *, is_here: bool) -> Finding:
    if site is None:
        return Finding("site", State.UNKNOWN, "no profile matches this machine", "name a profile with --site")
    facts = site.runtime
    program = load_runtime(facts.name).program if facts.name in RUNTIMES else ""
    version = seen.versions.get(program, "")
    if not is_here:
        evidence = f"this machine ({seen.host.hostname}) does not belong to {site.name}"
        return Finding("site", State.WARN, evidence, f"run 'argosy doctor' on a login node of {site.name}")
    if facts.version and version and not version.startswith(re.split(r"[ (]", facts.version)[0]):
        evidence = f"the profile of {site.name} has {facts.name} {facts.version}, this machine has {version}"
        hint = "test the site with 'argosy sites validate', and merge the result into the profile"
        return Finding("site", State.WARN, evidence, hint)
    if site.node.arch and site.node.arch != seen.host.arch:
        evidence = f"the nodes of {site.name} are {site.node.arch}, this machine is {seen.host.arch}"
        return Finding("site", State.WARN, evidence, f"build on a {site.node.arch} machine")
    return Finding("site", State.OK, f"{site.name}: {site.title}")


def examine(session: Session, site: str = "") -> tuple[Finding, ...]:
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
    seen, matching = collect_facts(session), sites_here(session.host)
    if not site:
        return check_machine(seen, matching[0] if len(matching) == 1 else None)
    profile = load_site(site, session.host)
    # A profile without marks is never detected, for example one for a kind of cluster.
    has_marks = bool(profile.identity.clusters or profile.identity.hosts or profile.identity.variables)
    is_here = not has_marks or profile.name in {each.name for each in matching}
    return check_machine(seen, profile, is_here=is_here)
