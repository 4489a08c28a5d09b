"""Make a Debian root file system by mmdebstrap and pack it, once for each suite and list of packages."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path

from argosy.builder.backends.plan import PRIVATE_NAMESPACE
from argosy.core.cache_pins import pin_entry
from argosy.core.errors import ArgosyError, ToolFailed, ToolMissing, UsageError
from argosy.core.process import Argv, Command, Reply, tool_error
from argosy.core.session import Session
from argosy.core.store import fill_once
from argosy.core.suggest import suggest_word
from argosy.images.squashfs.pack import pack_tar

MIRROR = "ARGOSY_DEBIAN_MIRROR"
"""Variable that names another source of packages, whose suites may have names of their own."""

DEBIAN_NAME = r"[a-z0-9](?:[a-z0-9.-]|\+\+)*"
"""Two plus signs belong to a package's name (g++, libstdc++6), one begins the next."""

DEBIAN = re.compile(rf"debian:(?P<suite>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<packages>(?:\+{DEBIAN_NAME})*)\Z")

DEBIAN_SUITES = (
    *("buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid", "experimental"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable"),
)
"""Debian's own; source: https://wiki.debian.org/DebianReleases, https://www.debian.org/releases/."""

UBUNTU_SUITES = ("xenial", "bionic", "focal", "jammy", "noble", "plucky", "questing", "resolute")
"""Ubuntu's, from a mirror of it; source: https://wiki.ubuntu.com/Releases."""

RELEASES = {"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky", "latest": "stable"}
"""What Docker's images of Debian are called beside their suite."""

POCKETS = ("-backports", "-proposed-updates", "-proposed", "-security", "-updates", "-slim")
"""Ends of suites; ``-slim`` is Docker's, and every base that is made here is slim."""

LIKENESS = 0.7
"""Below this a word may be a suite of a mirror, or a new one."""


def parse_debian(reference: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Give suite and extra packages of ``debian:SUITE[+package…]``.

    Raises
    ------
    UsageError
        When it is not of that form, or the suite is a misspelt one of Debian's or Ubuntu's.
    """
    match = DEBIAN.match(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is no Debian base",
            evidence="the form is debian:SUITE[+package…], as in debian:bookworm or debian:trixie+git+libgomp1",
            hint="check the spelling; a suite is a name such as bookworm",
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
    """Tell whether a suite is one of Debian's or Ubuntu's, or of theirs for updates."""
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    return suite.removesuffix(end) in (*DEBIAN_SUITES, *UBUNTU_SUITES)


def _meant_suite(suite: str) -> str:
    """Give the suite that a word was probably meant to be; nothing where it is one, or is like none.

    A name that is like no suite may be one of a site's mirror, or one that is newer than this table.
    """
    known = (*DEBIAN_SUITES, *UBUNTU_SUITES)
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    name = suite.removesuffix(end)
    if name in known:
        return name if end == "-slim" else ""
    return RELEASES.get(name) or suggest_word(name, known, likeness=LIKENESS)


PACKED = "base.sqfs"

LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/lintian/*")
"""Nobody reads manuals in an image; copyright files are kept.

Where mmdebstrap 1.3 finds ``path-exclude=`` it starts a Python for each essential package, a third of all its time.
dpkg takes a blank for ``=`` as well; what was unpacked before dpkg was asked is removed by a hook.
"""

DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "riscv64": "riscv64"}
"""What Debian calls an architecture (dpkg-architecture(1))."""

WITHOUT_MANUALS: Argv = (
    *(f"--dpkgopt=path-exclude {pattern}" for pattern in LEFT_OUT),
    "--dpkgopt=path-include /usr/share/doc/*/copyright",
    " ".join(("--extract-hook=rm -rf", *(f'"$1"{pattern}' for pattern in LEFT_OUT))),
)
"""Options of mmdebstrap for that."""


def debian_file(reference: str, session: Session, needs: tuple[str, ...]) -> Path:
    """Give the squashfs in the cache that a Debian is made into, whether or not it was made yet."""
    suite, packages = parse_debian(reference, session.host.environment)
    return _place(suite, _with_needs(packages, needs), session) / PACKED


def _with_needs(named: tuple[str, ...], needs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*named, *needs, "ca-certificates"}))


def _place(suite: str, packages: tuple[str, ...], session: Session) -> Path:
    key = hashlib.sha256(repr((suite, packages, session.host.target, LEFT_OUT)).encode()).hexdigest()[:16]
    return session.paths.cache / "bases" / f"debian-{suite}-{key}"


def make_debian(reference: str, session: Session, needs: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Make a Debian in the cache where it is not there yet; give its squashfs, and which of `needs` were added.

    Raises
    ------
    ArgosyError
        As `explain_bootstrap` says; ToolMissing if there is no mmdebstrap; UsageError if the reference
        names no Debian.
    """
    suite, named = parse_debian(reference, session.host.environment)
    packages = _with_needs(named, needs)
    place = _place(suite, packages, session)
    pin_entry(session.paths.cache, f"bases/{place.name}", waiting=session.waiting)
    with fill_once(place, what=f"making {reference}", waiting=session.waiting) as folder:
        if folder is not None:
            _bootstrap(session, suite, packages, folder)
    return place / PACKED, tuple(package for package in needs if package not in named)


def _bootstrap(session: Session, suite: str, packages: tuple[str, ...], folder: Path) -> None:
    """Make a Debian root file system with mmdebstrap, rootless where we are not root, and pack it."""
    if "mmdebstrap" not in session.host.programs:
        raise ToolMissing(
            f"mmdebstrap is not installed here, which makes debian:{suite}",
            hint=f"install mmdebstrap; or take another base: docker://debian:{suite}, or an image file",
        )
    archive = folder / "root.tar"
    made = int(session.host.environment.get("SOURCE_DATE_EPOCH") or time.time())
    included = f"--include={','.join(packages)}"
    emulated = session.host.emulated
    # That its programs run here is known; mmdebstrap would want one more tool, arch-test, to find it out.
    foreign = (f"--architectures={DEBIAN_ARCH[emulated]}", "--skip=check/qemu") if emulated else ()
    words: Argv = ("mmdebstrap", "--variant=minbase", "--format=tar", *foreign, included, *WITHOUT_MANUALS)
    mirror = session.host.environment.get(MIRROR, "")
    environment = {**session.host.environment, "SOURCE_DATE_EPOCH": str(made), "LC_ALL": "C.UTF-8"}
    around = private_namespace(session)
    if around:
        words = (*around, *words, "--mode=root")
        environment["TMPDIR"] = str(folder)
    command = Command((*words, suite, str(archive), *((mirror,) if mirror else ())), env=environment)
    try:
        reply = session.runner.run(command)
    finally:
        left = [str(path) for path in folder.glob("mmdebstrap.*")]
        if left and "--map-auto" in around:  # stopped: some of it belongs to sub-users, and only their root removes it
            session.runner.run(Command(("unshare", *SUB_USERS, "rm", "-rf", *left)))
    if reply.code != 0:
        raise explain_bootstrap(suite, mirror, command, reply)
    pack_tar(session, archive, folder / PACKED, compression="none", time=made)
    archive.unlink()


SUB_USERS: Argv = ("--user", "--map-root-user", "--map-auto")
"""Options of unshare (util-linux 2.38): the user is root, and those of /etc/subuid are the others."""


def private_namespace(session: Session) -> Argv:
    """Give the words that start mmdebstrap as root of namespaces of ours; none where only its own ones are left.

    Killed, mmdebstrap 1.3 leaves what it mounted, its folder and, for an ordinary user, its programs: in here they end
    with the namespace, and the folder is swept with the cache's.
    """
    if "unshare" not in session.host.programs:
        return ()
    if session.host.can_mount:
        return PRIVATE_NAMESPACE
    tried = session.runner.run(Command(("unshare", *SUB_USERS, "true")))
    return (*PRIVATE_NAMESPACE[:1], *SUB_USERS, *PRIVATE_NAMESPACE[1:]) if tried.code == 0 else ()


BOOTSTRAP_FAULTS = (
    (ToolMissing, r"^.*failed to execute mmdebstrap.*", "mmdebstrap cannot be started, which makes debian:{suite}",
     "install mmdebstrap; or take another base: docker://debian:{suite}, or an image file"),
    (UsageError, r"^E: The repository .* does not have a Release file.*", "there is no Debian suite {suite!r}{at}",
     "take one that is there: bookworm, trixie; a site's mirror goes into ARGOSY_DEBIAN_MIRROR"),
    (UsageError, r"^E: (?:Unable to locate package|Package) \S+.*", "a package is not in Debian {suite}",
     "check the names after the + signs at packages.debian.org"),
    (ToolFailed, r"^.*(?:Temporary failure resolving|Could not connect|Could not resolve|Connection timed out).*",
     "Debian's packages cannot be reached{at}", "check the network; a site's mirror goes into ARGOSY_DEBIAN_MIRROR"),
    (ToolMissing, r"^.*(?:newuidmap|newgidmap|/etc/sub[ug]id).*", "mmdebstrap needs subordinate user ids of its user",
     "ask for lines in /etc/subuid and /etc/subgid; or take another base: docker://debian:{suite}"),
    (ToolMissing, r"^E: unable to pick chroot mode.*", "mmdebstrap finds no way to make a Debian as an ordinary user",
     "ask for lines in /etc/subuid and /etc/subgid, or for fakechroot; or take another base: docker://debian:{suite}"),
)  # fmt: skip
"""What apt says under mmdebstrap -> what it means, and what to do."""


def explain_bootstrap(suite: str, mirror: str, command: Command, reply: Reply) -> ArgosyError:
    """Say why no Debian could be made: apt's own line where its meaning is known, else the last lines of all."""
    at = f" at {mirror}" if mirror else ""
    for kind, pattern, what, hint in BOOTSTRAP_FAULTS:
        said = re.search(pattern, reply.stderr, re.MULTILINE)
        if said:
            return kind(what.format(suite=suite, at=at), evidence=said[0].strip(), hint=hint.format(suite=suite))
    hint = "check the suite's name and the network; a site mirror goes into ARGOSY_DEBIAN_MIRROR"
    return tool_error(command, reply, doing=f"making a Debian {suite}", hint=hint)
