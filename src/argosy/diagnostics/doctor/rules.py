"""Judge a machine: what is missing, what is slow or will hurt, and what to do about each; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.session import Session
from argosy.diagnostics.doctor.collect import Folder, Seen, look
from argosy.runtimes.apptainer import leaks
from argosy.runtimes.runtime import AUTOMATIC, RUNTIMES, load_runtime
from argosy.sites.detect import sites_here
from argosy.sites.load import load_site
from argosy.sites.profile import Site

OK, MIND, MISSING = "ok", "mind", "missing"
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.ceph", "panfs", "afs", "9p"})
GIGABYTE = 10**9
LITTLE = 10 * GIGABYTE
"""Bytes that should be free for a cache: a vendor's image and a torch of its own."""

FEW_FILES = 200_000
"""An environment with torch has some 50,000 files."""

HURTING = re.compile(r"PIP_(TARGET|PREFIX|USER|REQUIRE_VIRTUALENV)\Z|CONDA_(PREFIX|DEFAULT_ENV)\Z|BASH_ENV\Z|ENV\Z")

USES = {
    "mksquashfs": ("needed for builds", "apt-get install squashfs-tools, or load the module that has it", True),
    "unsquashfs": ("needed to run images under bubblewrap", "it comes with mksquashfs", False),
    "mmdebstrap": ("bases of the form debian:SUITE are made with it", "name another base, as docker://…", False),
    "skopeo": ("images of registries are fetched faster with it", "apt-get install skopeo", False),
    "squashfuse": ("Apptainer without setuid mounts images with it", "it usually comes with Apptainer", False),
}
"""Program -> what for, what to do without it, and whether Argosy needs it."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes
    ----------
    state
        ``ok``; ``mind`` for what may hurt; ``missing`` for what Argosy needs and this machine has not.
    hint
        What to do where it is not ok.
    """

    name: str
    state: str
    said: str
    hint: str = ""


def judge_machine(seen: Seen, site: Site | None) -> tuple[Finding, ...]:
    """Judge a machine, and hold it against its site where that is known."""
    return (
        *_runtimes(seen, site),
        *_programs(seen),
        *_kernel(seen),
        *map(_folder, seen.folders),
        *_quota(seen),
        *_slurm(seen, site),
        *_gpus(seen, site),
        *_variables(seen),
        *_site(seen, site),
    )


def _runtimes(seen: Seen, site: Site | None) -> Iterator[Finding]:
    here = [name for name in AUTOMATIC if load_runtime(name).program in seen.host.programs]
    said = ", ".join(f"{name} {seen.versions.get(name, '?')}" for name in here)
    by_site = site.runtime.name if site else ""
    if here or (by_site and by_site not in AUTOMATIC):
        yield Finding("container runtime", OK, said or f"{by_site}: the site's own, in jobs")
    elif by_site and site and site.modules.load:
        modules = " ".join(site.modules.load)
        yield Finding("container runtime", MIND, f"{by_site} comes by a module", f"module load {modules}")
    else:
        hint = "apt-get install bubblewrap, or ask for Apptainer"
        yield Finding("container runtime", MISSING, "none of " + ", ".join(AUTOMATIC), hint)


def _programs(seen: Seen) -> Iterator[Finding]:
    for name, (use, hint, needed) in USES.items():
        if name in seen.host.programs:
            yield Finding(name, OK, seen.versions.get(name, "?"))
        else:
            yield Finding(name, MISSING if needed else MIND, f"not here; {use}", hint)


def _kernel(seen: Seen) -> Iterator[Finding]:
    host = seen.host
    only_bwrap = not {"apptainer", "singularity"}.intersection(host.programs) and "bwrap" in host.programs
    if seen.namespaces or host.can_mount:
        yield Finding("user namespaces", OK, "could be made" if seen.namespaces else "not needed: this is root")
    else:
        hint = (
            "ask for user.max_user_namespaces > 0 (Debian: kernel.unprivileged_userns_clone=1; "
            "Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0), or for a setuid Apptainer"
        )
        yield Finding("user namespaces", MISSING if only_bwrap else MIND, "this user may not make them", hint)
    if not host.fuse:
        yield Finding(
            "fuse", MIND, "no access to /dev/fuse", "Apptainer without setuid unpacks images then: slow starts"
        )
    else:
        yield Finding("fuse", OK, "/dev/fuse")
    hint = "podman, apptainer --fakeroot and --base debian:SUITE want lines in /etc/subuid and /etc/subgid"
    yield Finding("subuid", OK, "this user has some") if seen.subuid else Finding("subuid", OK, f"none; {hint}")


def _folder(folder: Folder) -> Finding:
    what, is_large = folder.what, folder.what in {"cache", "work files"}
    size = f"{folder.free / GIGABYTE:.0f} GB free" if folder.free >= 0 else "size not known"
    said = f"{folder.path} ({folder.kind or 'unknown file system'}, {size})"
    way = "set ARGOSY_CACHE to a folder on a disk" if is_large else "ask the help desk"
    if not folder.writable:
        return Finding(what, MISSING, f"{said}: not writable", _way_to_write(what))
    if folder.kind in IN_MEMORY:
        return Finding(what, MIND, f"{said}: in memory", way)
    if is_large and 0 <= folder.free < LITTLE:
        return Finding(what, MIND, f"{said}: little space", f"free some, or {way}")
    if is_large and 0 <= folder.inodes < FEW_FILES:
        return Finding(what, MIND, f"{said}: room for {folder.inodes} files only", f"free some, or {way}")
    if what == "work files" and folder.kind in NETWORK:
        return Finding(what, MIND, f"{said}: on the network", "builds are faster with --work-dir on a local disk")
    return Finding(what, OK, said)


def _way_to_write(what: str) -> str:
    ways = {"cache": "set ARGOSY_CACHE", "state": "set ARGOSY_STATE", "work files": "set TMPDIR, or say --work-dir"}
    return ways.get(what, "set ARGOSY_CACHE and ARGOSY_STATE to folders that you can write to")


def _quota(seen: Seen) -> Iterator[Finding]:
    if seen.over_quota:
        yield Finding("quota", MIND, seen.over_quota.splitlines()[0], "free some space: writing will fail soon")


def _slurm(seen: Seen, site: Site | None) -> Iterator[Finding]:
    wanted = bool(site and site.has_slurm)
    if "sbatch" not in seen.host.programs:
        if wanted:
            yield Finding("Slurm", MISSING, "no sbatch here", "go to a login node of the site")
        return
    version = seen.versions.get("sbatch", "?")
    if seen.slurm_up:
        yield Finding("Slurm", OK, f"{version}; {seen.slurm}")
    else:
        said = f"{version}; the controller does not answer: {seen.slurm or 'scontrol ping said nothing'}"
        yield Finding("Slurm", MISSING if wanted else MIND, said, "try again later, or ask the help desk")


def _gpus(seen: Seen, site: Site | None) -> Iterator[Finding]:
    gpus = seen.host.gpus
    if gpus:
        driver = f", driver {seen.driver}" if seen.driver else ", and no driver that tells its version"
        yield Finding("GPUs", OK, f"{len(gpus)} of {gpus[0].vendor}{driver}")
    elif site and site.has_slurm:
        yield Finding("GPUs", OK, "none here, as on a login node; jobs see those of their nodes")
    else:
        yield Finding("GPUs", OK, "none: programs compute on the CPU")


def _variables(seen: Seen) -> Iterator[Finding]:
    environment = seen.host.environment
    hurting = [name for name in environment if name in NOT_FROM_CALLER or HURTING.match(name)]
    options = list(leaks(environment))
    if hurting:
        hint = "Argosy keeps them out of containers; other programs do not: unset them, or look into ~/.bashrc"
        yield Finding("variables", MIND, ", ".join(sorted(hurting)), hint)
    if options:
        hint = "their bind mounts are taken over, the rest is kept out; a plain apptainer exec obeys them all"
        yield Finding("runtime's variables", MIND, ", ".join(sorted(options)), hint)
    if not hurting and not options:
        yield Finding("variables", OK, "none that hurts")


def _site(seen: Seen, site: Site | None) -> Iterator[Finding]:
    if site is None:
        yield Finding("site", OK, "no profile fits this machine: name one with --site, where it has one")
        return
    facts = site.runtime
    program = load_runtime(facts.name).program if facts.name in RUNTIMES else ""
    has = seen.versions.get(program, "")
    if facts.version and has and not has.startswith(re.split(r"[ (]", facts.version)[0]):
        hint = "try it with 'argosy prove', and put the result into the profile"
        yield Finding("site", MIND, f"{site.name} documents {facts.name} {facts.version}, here is {has}", hint)
    elif site.node.arch and site.node.arch != seen.host.arch:
        hint = "build on a machine of the nodes' kind"
        yield Finding("site", MIND, f"nodes of {site.name} are {site.node.arch}, this is {seen.host.arch}", hint)
    else:
        yield Finding("site", OK, f"{site.name}: {site.title}")


def examine(session: Session, site: str = "") -> tuple[Finding, ...]:
    """Examine this machine, against the site named, else against the one that it belongs to.

    Raises
    ------
    SiteError
        When there is no site of that name.
    """
    return judge_machine(look(session), _profile(session, site))


def _profile(session: Session, name: str) -> Site | None:
    if name:
        return load_site(name, session.host)
    found = sites_here(session.host)
    return found[0] if len(found) == 1 else None
