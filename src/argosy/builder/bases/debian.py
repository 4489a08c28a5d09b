"""Create a Debian root file system with mmdebstrap and pack it, once for each suite and list of packages."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from argosy.builder.backends.plan import PRIVATE_NAMESPACE
from argosy.core.cache import fill_once, pin_entry
from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.parse import parse_int
from argosy.core.process import Argv, Command, Reply
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.suggest import suggest_word
from argosy.core.tool_errors import FULL_DISK_HINT, tool_error
from argosy.images.squashfs.pack import pack_tar
from argosy.images.squashfs.superblock import LATEST_TIME
from argosy.recipes.build_options import PYTHON_BASE

MIRROR = "ARGOSY_DEBIAN_MIRROR"
"""Variable with the address of another package source, which may have other suites."""

EPOCH = "SOURCE_DATE_EPOCH"
"""Variable with the time of all files that are newer, in seconds since 1970: reproducible-builds.org/specs."""

DEBIAN_NAME = r"[a-z0-9](?:[a-z0-9.-]|\+\+)*"
"""Two plus signs belong to a package name (g++, libstdc++6); a single one begins the next name."""

DEBIAN = re.compile(rf"debian:(?P<suite>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<packages>(?:\+{DEBIAN_NAME})*)\Z")

DEBIAN_SUITES = (
    *("buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid", "experimental"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable"),
)
"""Suites of Debian; source: https://wiki.debian.org/DebianReleases, https://www.debian.org/releases/."""

UBUNTU_SUITES = ("xenial", "bionic", "focal", "jammy", "noble", "plucky", "questing", "resolute")
"""Suites of Ubuntu, from an Ubuntu mirror; source: https://wiki.ubuntu.com/Releases."""

RELEASES = {"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky", "latest": "stable"}
"""Tags of Docker's Debian images -> suite."""

POCKETS = ("-backports", "-proposed-updates", "-proposed", "-security", "-updates", "-slim")
"""Suffixes of suites; ``-slim`` is Docker's, and every Debian base of Argosy is slim."""

OTHER_BASE = f"use another base, for example {PYTHON_BASE}"
"""Part of a hint. Docker's ``debian:SUITE`` has no Python, which a build of Python packages needs."""

LIKENESS = 0.7
"""Names with less similarity to a known suite are accepted: a mirror may have its own suites, and new ones appear."""


def parse_debian(reference: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the suite and the extra packages of ``debian:SUITE[+package…]``.

    Raises
    ------
    UsageError
        If the reference has another form, or misspells a suite of Debian or Ubuntu.
    """
    match = DEBIAN.match(reference)
    if match is None:
        raise UsageError(
            f"invalid Debian base {reference!r}",
            evidence="the form is debian:SUITE[+package…], for example debian:bookworm or debian:trixie+git+libgomp1",
            hint="check the spelling; a suite has a name such as bookworm",
        )
    suite, packages = match["suite"], match["packages"]
    meant = "" if environment.get(MIRROR) else _meant_suite(suite)
    if meant:
        raise UsageError(
            f"there is no Debian suite {suite!r}",
            evidence=reference,
            hint=f"did you mean debian:{meant}{packages}? (Docker's image of that name: docker://debian:{suite})"
            if suite in RELEASES or suite.endswith("-slim")
            else f"did you mean debian:{meant}{packages}?",
        )
    return suite, tuple(re.findall(rf"\+({DEBIAN_NAME})", packages))


def is_known(suite: str) -> bool:
    """Return whether Debian or Ubuntu has a suite, including those for updates."""
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    return suite.removesuffix(end) in (*DEBIAN_SUITES, *UBUNTU_SUITES)


def _meant_suite(suite: str) -> str:
    """Return the suite that a misspelt name probably means; empty if the name is known, or similar to no suite.

    A name that is similar to no suite may be one of a site's mirror, or newer than this table.
    """
    known = (*DEBIAN_SUITES, *UBUNTU_SUITES)
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    name = suite.removesuffix(end)
    if name in known:
        return name if end == "-slim" else ""
    return RELEASES.get(name) or suggest_word(name, known, likeness=LIKENESS)


PACKED = "base.sqfs"

LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/lintian/*")
"""Documentation, which an image does not need; copyright files stay.

If mmdebstrap 1.3 finds ``path-exclude=``, it starts a Python for each essential package, which takes a third of its
time.  dpkg also accepts a blank instead of ``=``.  A hook removes files that were unpacked before dpkg runs.
"""

DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "riscv64": "riscv64"}
"""Architecture (``uname -m``) -> its name in Debian (dpkg-architecture(1))."""

WITHOUT_MANUALS: Argv = (
    *(f"--dpkgopt=path-exclude {pattern}" for pattern in LEFT_OUT),
    "--dpkgopt=path-include /usr/share/doc/*/copyright",
    " ".join(("--extract-hook=rm -rf", *(f'"$1"{pattern}' for pattern in LEFT_OUT))),
)
"""Options of mmdebstrap that leave out `LEFT_OUT`."""


def debian_file(reference: str, session: Session, needs: tuple[str, ...]) -> Path:
    """Return the path of a Debian's squashfs in the cache; the file may not exist yet."""
    suite, packages = parse_debian(reference, session.host.environment)
    return _cache_entry(suite, _with_needs(packages, needs), session) / PACKED


def _with_needs(named: tuple[str, ...], needs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*named, *needs, "ca-certificates"}))


def _cache_entry(suite: str, packages: tuple[str, ...], session: Session) -> Path:
    environment = session.host.environment
    mirror, epoch = environment.get(MIRROR, ""), _asked_epoch(environment)
    asked = {name: value for name, value in ((MIRROR, mirror), (EPOCH, epoch)) if value}
    facts = (suite, packages, session.host.target, LEFT_OUT, *asked.items())
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return session.paths.cache / "bases" / f"debian-{suite}-{key}"


def _asked_epoch(environment: Mapping[str, str]) -> str:
    """Return the time of the files that the user requests, in seconds since 1970; empty for the present."""
    text = environment.get(EPOCH, "")
    if text and not 0 <= parse_int(text, -1) <= LATEST_TIME:
        raise UsageError(
            f"invalid {EPOCH} {text[:40]!r}",
            evidence="it is the time of the files in a Debian base",
            hint=f"set it to seconds since 1970, for example {EPOCH}=$(date +%s), or unset it",
        )
    return text.strip()


def make_debian(reference: str, session: Session, needs: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Create a Debian in the cache unless it exists.

    Returns
    -------
    Its squashfs, and the packages of `needs` that were added.

    Raises
    ------
    UsageError
        If the reference or SOURCE_DATE_EPOCH is invalid.
    ToolMissing
        If mmdebstrap is missing.
    ArgosyError
        If mmdebstrap fails; see `explain_bootstrap`.
    """
    suite, named = parse_debian(reference, session.host.environment)
    packages = _with_needs(named, needs)
    entry = _cache_entry(suite, packages, session)
    pin_entry(session.paths.cache, f"bases/{entry.name}", waiting=session.waiting)
    with fill_once(entry, what=f"creating {reference}", waiting=session.waiting, shared=True) as folder:
        if folder is not None:
            _bootstrap(session, suite, packages, folder)
    return entry / PACKED, tuple(package for package in needs if package not in named)


def refuse_without_mmdebstrap(suite: str, session: Session) -> None:
    """Refuse to continue without the program that creates Debian bases."""
    if "mmdebstrap" not in session.host.programs:
        raise ToolMissing(
            f"cannot create debian:{suite}: mmdebstrap is not installed on this machine",
            hint=f"install mmdebstrap; or {OTHER_BASE}, or an image file",
        )


SPACE = 400 << 20
"""Bytes that the files of a small Debian and their archive take while it is created."""


def _refuse_full_disk(suite: str, folder: Path) -> None:
    """Refuse a disk that is nearly full: mmdebstrap 1.3.5 may then wait for ever."""
    free = shutil.disk_usage(folder).free
    if free < SPACE:
        raise CheckFailed(
            f"cannot create debian:{suite}: no space left",
            evidence=f"{folder} has {render_size(free)} of free space; about {render_size(SPACE)} are needed",
            hint=FULL_DISK_HINT,
        )


def _bootstrap(session: Session, suite: str, packages: tuple[str, ...], folder: Path) -> None:
    """Create a Debian root file system with mmdebstrap, without root if necessary, and pack it."""
    refuse_without_mmdebstrap(suite, session)
    _refuse_full_disk(suite, folder)
    archive = folder / "root.tar"
    made = int(_asked_epoch(session.host.environment) or time.time())
    included = f"--include={','.join(packages)}"
    emulated = session.host.emulated
    # Argosy has checked that the emulator works; mmdebstrap would need another tool, arch-test, to check it.
    foreign = (f"--architectures={DEBIAN_ARCH[emulated]}", "--skip=check/qemu") if emulated else ()
    argv: Argv = ("mmdebstrap", "--variant=minbase", "--format=tar", *foreign, included, *WITHOUT_MANUALS)
    mirror = session.host.environment.get(MIRROR, "")
    environment = {**session.host.environment, EPOCH: str(made), "LC_ALL": "C.UTF-8"}
    around = private_namespace(session)
    if around:
        argv = (*around, *argv, "--mode=root")
        environment["TMPDIR"] = str(folder)
    command = Command((*argv, suite, str(archive), *((mirror,) if mirror else ())), env=environment)
    try:
        reply = session.runner.run(command)
    finally:
        left = [str(path) for path in folder.glob("mmdebstrap.*")]
        # After an interruption: only root of the user namespace can remove files of the subordinate users.
        if left and "--map-auto" in around:
            session.runner.run(Command(("unshare", *SUB_USERS, "rm", "-rf", *left)))
    if reply.code != 0:
        raise explain_bootstrap(suite, mirror, command, reply)
    pack_tar(session, archive, folder / PACKED, compression="none", time=made)
    archive.unlink()


SUB_USERS: Argv = ("--user", "--map-root-user", "--map-auto")
"""Options of unshare (util-linux 2.38): the user is root, and the ids of /etc/subuid are the other users."""


def private_namespace(session: Session) -> Argv:
    """Return the command that starts mmdebstrap as root of its own namespaces; empty if that is impossible here.

    A killed mmdebstrap 1.3 leaves its mounts, its folder and, for an ordinary user, its programs behind.  Mounts and
    programs end with the namespace; the folder lies in the cache's work folder, which the next build removes.
    """
    if "unshare" not in session.host.programs:
        return ()
    if session.host.can_mount:
        return PRIVATE_NAMESPACE
    tried = session.runner.run(Command(("unshare", *SUB_USERS, "true")))
    return (*PRIVATE_NAMESPACE[:1], *SUB_USERS, *PRIVATE_NAMESPACE[1:]) if tried.code == 0 else ()


BOOTSTRAP_FAULTS = (
    (ToolMissing, r"^.*failed to execute mmdebstrap.*", "cannot create debian:{suite}: mmdebstrap cannot be started",
     f"install mmdebstrap; or {OTHER_BASE}, or an image file"),
    (UsageError, r"^E: The repository .* does not have a Release file.*", "there is no Debian suite {suite!r}{at}",
     "use one that exists, for example bookworm or trixie; set ARGOSY_DEBIAN_MIRROR to use a site's mirror"),
    (UsageError, r"^E: (?:Unable to locate package|Package) \S+.*", "a package is not in Debian {suite}",
     "check the names after the + signs at packages.debian.org"),
    (ToolFailed, r"^.*(?:Temporary failure resolving|Could not connect|Could not resolve|Connection timed out).*",
     "cannot reach Debian's package server{at}", "check the network; set ARGOSY_DEBIAN_MIRROR to use a site's mirror"),
    (ToolMissing, r"^.*(?:newuidmap|newgidmap|/etc/sub[ug]id).*",
     "cannot create debian:{suite}: mmdebstrap needs subordinate user ids",
     f"ask for entries in /etc/subuid and /etc/subgid; or {OTHER_BASE}"),
    (ToolMissing, r"^E: unable to pick chroot mode.*",
     "cannot create debian:{suite}: mmdebstrap needs subordinate user ids or fakechroot",
     f"ask for entries in /etc/subuid and /etc/subgid; or {OTHER_BASE}"),
)  # fmt: skip
"""Error class, pattern of apt's and mmdebstrap's messages, the message for the user, and the hint."""


def explain_bootstrap(suite: str, mirror: str, command: Command, reply: Reply) -> ArgosyError:
    """Return the error for a failed mmdebstrap, with the line of apt if it is known, otherwise with the last lines."""
    at = f" at {mirror}" if mirror else ""
    for kind, pattern, what, hint in BOOTSTRAP_FAULTS:
        said = re.search(pattern, reply.stderr, re.MULTILINE)
        if said:
            return kind(what.format(suite=suite, at=at), evidence=said[0].strip(), hint=hint.format(suite=suite))
    hint = (
        "check the suite's name and the network, and set ARGOSY_DEBIAN_MIRROR to use a site's mirror; "
        f"or {OTHER_BASE}, or an image file"
    )
    return tool_error(command, reply, doing=f"creating debian:{suite}", hint=hint)
