"""Probe the facts about this machine as a `Host`; no program is started.

Only this module and the command line read the environment.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from argosy.core.model import APPTAINERS, Host, Person
from argosy.core.process import OnLine, RealRunner, Runner
from argosy.core.session import QuietReporter, Reporter, Session, paths_from
from argosy.host.gpus import read_gpus

SETTING = re.compile(r"^\s*enable\s+(overlay|underlay)\s*=\s*(\w+)", re.MULTILINE)


def parse_apptainer_conf(text: str) -> str:
    """Return whether the overlay partition of an image is mounted: ``yes`` or ``no``.

    ``enable overlay = no`` and ``enable underlay = preferred`` both skip it silently (tested with Apptainer 1.4.5).
    The defaults are ``yes`` (SingularityCE: ``try``) and ``yes``.
    """
    settings = {key: value.lower() for key, value in SETTING.findall(text)}
    return "no" if settings.get("overlay") == "no" or settings.get("underlay") == "preferred" else "yes"


PROGRAMS = (
    "apptainer",
    "singularity",
    "bwrap",
    "unshare",
    "nsenter",
    "mksquashfs",
    "unsquashfs",
    "squashfuse",
    "fuse-overlayfs",
    "fusermount3",
    "mmdebstrap",
    "proot",
    "skopeo",
    "umoci",
    "sbatch",
    "srun",
    "podman",
    "docker",
    "podman-hpc",
    "enroot",
    "buildah",
    "pip-audit",
)
CAP_SYS_ADMIN = 21
MOST_LINKS = 40
"""Maximal number of symbolic links in a path, as in Linux: path_resolution(7)."""
CONF_FILES = ("/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf")


def probe_host(environment: Mapping[str, str] | None = None) -> Host:
    """Return the facts about this machine."""
    variables = dict(os.environ if environment is None else environment)
    programs = _find_programs(variables.get("PATH", os.defpath))
    return Host(
        hostname=os.uname().nodename,
        arch=os.uname().machine,
        person=_person(variables),
        cwd=_cwd(variables),
        cpus=_usable_cpus(),
        memory=_usable_memory(),
        programs=MappingProxyType(programs),
        user_namespaces=_user_namespaces(),
        can_mount=_can_mount(),
        fuse=os.access("/dev/fuse", os.R_OK | os.W_OK),
        overlay=_overlay(programs),
        gpus=read_gpus(),
        environment=MappingProxyType(variables),
    )


def _find_programs(path: str) -> dict[str, str]:
    """Find `PROGRAMS` on a search path; each folder is listed once, which costs a single request on Lustre."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(filter(None, path.split(os.pathsep))):
        with contextlib.suppress(OSError):
            for name in set(os.listdir(folder)).intersection(PROGRAMS):  # noqa: PTH208 - no Path for each of thousands
                candidate = f"{folder}/{name}"
                if name not in found and os.access(candidate, os.X_OK):
                    found[name] = candidate
    return found


def _person(variables: Mapping[str, str]) -> Person:
    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        name, home = variables.get("USER") or f"user{uid}", "/"
    return Person(uid, gid, name, variables.get("HOME") or home)


def _cwd(variables: Mapping[str, str]) -> str:
    """Return the current directory with the symbolic links that the shell keeps in PWD (/scratch -> /pfs/…)."""
    real = os.getcwd()  # noqa: PTH109 - a string is needed
    named = variables.get("PWD", "")
    with contextlib.suppress(OSError):
        if named.startswith("/") and os.path.samefile(named, real):  # noqa: PTH121 - two stat calls
            return named
    return real


def read_links(paths: Iterable[str]) -> dict[str, str]:
    """Return the symbolic links in absolute paths with their targets, for example ``~/scratch`` to ``/scratch/me``."""
    links: dict[str, str] = {}
    for path in filter(Path.is_absolute, map(Path, paths)):
        rest = path
        for _ in range(MOST_LINKS):
            link = next(filter(os.path.islink, (*reversed(rest.parents), rest)), None)  # Path's may raise
            if link is None:
                break
            target = os.path.normpath(link.parent / link.readlink())
            links[str(link)] = target
            rest = Path(target, rest.relative_to(link))
    return links


def _usable_cpus() -> int:
    """Return the number of usable CPUs: affinity and cgroup quota (v2 cpu.max, v1 cpu.cfs_quota_us)."""
    cpus = len(os.sched_getaffinity(0))
    for quota, period in _cpu_quotas():
        cpus = min(cpus, max(1, -(-quota // period)))
    return cpus


def _cpu_quotas() -> Iterator[tuple[int, int]]:
    words = _cgroup_file("", "cpu.max").split()
    if len(words) == 2 and words[0] != "max":  # noqa: PLR2004 - "quota period", cgroup-v2 documentation
        yield int(words[0]), int(words[1])
    quota = _cgroup_file("cpu", "cpu.cfs_quota_us").strip()
    period = _cgroup_file("cpu", "cpu.cfs_period_us").strip()
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota), int(period)


def _usable_memory() -> int:
    """Return the usable memory in bytes: that of the machine, or the cgroup's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text in (_cgroup_file("", "memory.max"), _cgroup_file("memory", "memory.limit_in_bytes")):
        if text.strip().isdecimal():
            total = min(total, int(text))
    return total


def _cgroup_file(controller: str, name: str) -> str:
    """Read a file of this process's cgroup; empty if it does not exist. `controller` is empty for cgroup v2."""
    for line in _cgroups():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = Path("/sys/fs/cgroup") / controller / path.lstrip("/")
            return _read(str(folder / name))
    return ""


@cache
def _cgroups() -> tuple[str, ...]:
    return tuple(_read("/proc/self/cgroup").splitlines())


def _user_namespaces() -> bool:
    """Return whether the kernel's three settings allow user namespaces; build backends test it before they use them.

    The third setting is from Ubuntu 23.10 and later: namespaces can be created, but nothing can be mounted in them.
    """
    limit = _read("/proc/sys/user/max_user_namespaces").strip()
    debian = _read("/proc/sys/kernel/unprivileged_userns_clone").strip()
    ubuntu = _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip()
    return limit not in {"", "0"} and debian != "0" and ubuntu != "1"


def _can_mount() -> bool:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return os.geteuid() == 0 and bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False


def _overlay(programs: Mapping[str, str]) -> str:
    """Read whether Apptainer's configuration allows overlays, from /etc and from the prefix of the program."""
    paths = list(CONF_FILES)
    for name in APPTAINERS:
        if name in programs:
            prefix = Path(programs[name]).resolve().parent.parent
            paths.append(str(prefix / "etc" / name / f"{name}.conf"))
    for conf in paths:
        if text := _read(conf):
            return parse_apptainer_conf(text)
    return "unknown"


def _read(path: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return Path(path).read_text(encoding="utf-8")
    return ""


def open_session(
    *, reporter: Reporter | None = None, runner: Runner | None = None, echo: OnLine | None = None, work: str = ""
) -> Session:
    """Probe the machine and return a session for commands.

    Parameters
    ----------
    reporter
        Receives progress reports; by default they are dropped.
    runner
        Starts programs; by default a `RealRunner`. Tests pass a `argosy.core.process.FakeRunner`.
    echo
        Called with each command line before it starts.
    work
        Folder for work files; empty means TMPDIR or the cache.
    """
    host = probe_host()
    return Session(
        host=host,
        runner=runner or RealRunner(echo),
        paths=paths_from(dict(host.environment), Path(host.person.home)),
        reporter=reporter or QuietReporter(),
        work=work,
    )
