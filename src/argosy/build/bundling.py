"""Prepare here, finish there: a base, its conda packages and wheels, and their lock in one archive; and back.

::

    argosy.lock     what is built
    base            the base's file, as it is
    wheels/         pip packages, as the index has them
    conda/          conda packages, unpacked as the cache has them
    tools/          the static uv
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from argosy.build.base import Base
from argosy.build.clock import Clock
from argosy.build.fetching_wheels import fetch_wheels
from argosy.build.order import CONDA, LOCK_FILE, WHEELS, read_order
from argosy.build.report import BuildReport, BuildRequest
from argosy.build.story import Made, build, finish_layer, make_layer
from argosy.build.tools import TOOLS, fetched_uv
from argosy.errors import ArgosyError, CheckFailed, UsageError
from argosy.lock import Lock, PackageKind, render_lock
from argosy.process import Command
from argosy.session import Session
from argosy.store import lease, refuse_existing, whole_file, whole_folder, work_folder

BASE = "base"


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What was put together; `size` in bytes."""

    output: str
    size: int
    packages: int
    base: str
    digest: str
    notes: tuple[str, ...]


def bundle(request: BuildRequest, session: Session) -> BundleReport:
    """Write all that a build needs into one archive.

    Raises
    ------
    ArgosyError
        As a build does; also for packages of which there is no file that could be taken along.
    """
    order = read_order(request, session)
    refuse_existing(request.output, force=request.force)
    clock = Clock(session)
    with work_folder(session.work_parent()) as work:
        base, made = make_layer(order, request, clock, work)
        lock = finish_layer(order.recipe, base, made, session)
        refuse_without_files(lock)
        with clock.step("bundle", "base, packages and lock") as step:
            step.say("fetching wheels")
            fetch_wheels(made, lock, work / WHEELS)
            with whole_file(request.output, force=request.force) as beside:
                _write(beside, base, lock, session, work)
                size = beside.stat().st_size
            step.result = f"{size / 1e6:.0f} MB written to {request.output}"
    return BundleReport(str(request.output), size, len(lock.packages), base.reference, lock.content, made.notes)


def refuse_without_files(lock: Lock) -> None:
    """Refuse what is made on the spot: a folder, a repository.

    Raises
    ------
    CheckFailed
        Naming the packages.
    """
    made_here = [p.name for p in lock.packages if p.kind is PackageKind.PYPI and not p.sha256]
    if made_here:
        raise CheckFailed(
            f"{', '.join(made_here)} cannot be taken along: no file with a hash stands for it",
            hint="make a wheel of it (pip wheel), and name that in the requirements",
        )


def _write(out: Path, base: Base, lock: Lock, session: Session, work: Path) -> None:
    text = work / LOCK_FILE
    text.write_text(render_lock(lock))
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(text, LOCK_FILE, filter=_plain)
        archive.add(base.image.path, BASE, filter=_plain)
        for wheel in sorted((work / WHEELS).glob("*")):
            archive.add(wheel, f"{WHEELS}/{wheel.name}", filter=_plain)
        cache = session.places.cache / "conda"
        if any(package.kind is PackageKind.CONDA for package in lock.packages):
            with lease(cache / "lease", what="bundling conda packages", waiting=session.waiting):
                _add_conda(archive, lock, cache / "pkgs")
        if uv := fetched_uv(session):
            archive.add(uv, f"{TOOLS}/{uv.name}", filter=_plain)


def _add_conda(archive: tarfile.TarFile, lock: Lock, cache: Path) -> None:
    for package in lock.packages:
        if package.kind is PackageKind.CONDA:
            stem = f"{package.name}-{package.version}-{package.build}"
            for path in sorted(cache.glob(f"{stem}*")):
                if path.name.removeprefix(stem) in ("", ".lock"):
                    archive.add(path, f"{CONDA}/{path.name}", filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keep of a file what means something elsewhere: neither owner nor time."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.pax_headers = {}
    return entry


def build_bundle(archive: Path, request: BuildRequest, session: Session) -> BuildReport:
    """Build the image of a bundle; no network is needed.

    Raises
    ------
    ArgosyError
        When it is no bundle, or is damaged; and as a build does.
    """
    with _unpacked(archive, session) as folder:
        base = request.base or str(folder / BASE)
        return build(replace(request, base=base, locked=str(folder / LOCK_FILE), bundle=folder), session)


@contextmanager
def _unpacked(archive: Path, session: Session) -> Iterator[Path]:
    if not archive.is_file():
        raise UsageError(f"there is no bundle {archive}", hint="make one: argosy bundle SOURCES --base BASE -o FILE")
    with work_folder(session.work_parent()) as work:
        folder = work / "bundle"
        with session.step("unpack", archive.name):
            _extract(archive, folder, session)
        if not (folder / LOCK_FILE).is_file() or not (folder / BASE).exists():
            raise _no_bundle(archive, "it holds no lock and base")
        _keep_tools(folder / TOOLS, session)
        yield folder


def _extract(archive: Path, folder: Path, session: Session) -> None:
    """Unpack by tar(1): it lets nothing out of the folder, which Python's own does from 3.11.4 on only."""
    folder.mkdir()
    words = ("tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(folder))
    reply = session.runner.run(Command(words, env={**session.host.environment, "LC_ALL": "C"}))
    if reply.code != 0:
        raise _no_bundle(archive, (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[0])


def _no_bundle(archive: Path, why: str) -> ArgosyError:
    return UsageError(f"{archive} is no bundle of Argosy", evidence=why, hint="was its copy broken off? Copy it again")


def _keep_tools(tools: Path, session: Session) -> None:
    """Put the static uv where builds look for it."""
    for tool in sorted(tools.iterdir()) if tools.is_dir() else ():
        place = session.places.cache / TOOLS / tool.name
        with whole_folder(place, what="unpacking uv", waiting=session.waiting) as beside:
            if beside is not None:
                tool.rename(beside / "from-bundle")
                for entry in (beside / "from-bundle").iterdir():
                    entry.rename(beside / entry.name)


__all__ = ["BundleReport", "Made", "build_bundle", "bundle"]
