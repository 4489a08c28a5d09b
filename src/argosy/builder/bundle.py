"""Prepare here, finish there: a base, its conda packages and wheels, and their lock in one archive; and back.

::

    argosy.lock     what is built
    base            the base's file, as it is
    wheels/         pip packages: as the index has them, or made here of what has no wheel
    conda/          conda packages, unpacked as the cache has them
    tools/          the static uv
    project/        what steps and stages copy
    downloads/      what steps fetch, by sha256
    stages/         the bases of stages, by digest
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from argosy.builder.backends.container import WORK_INSIDE
from argosy.builder.bases.base import Base
from argosy.builder.bases.for_site import aimed
from argosy.builder.build import build, make_layer
from argosy.builder.build_plan import CONDA, LOCK_FILE, PROJECT, STAGES, WHEELS, BuildPlan, read_build_plan
from argosy.builder.downloads import DOWNLOADS, fetch_file, kept_file
from argosy.builder.finish import Made, finish_layer
from argosy.builder.python.packages import MADE
from argosy.builder.python.pins import package_of
from argosy.builder.python.torch_index import INDEX, OPTION
from argosy.builder.python.uv import TOOLS, fetched_uv, static_uv
from argosy.builder.report import BuildReport, BuildRequest
from argosy.builder.request import complete_request
from argosy.builder.steps.run import name_of_digest
from argosy.builder.timing import Clock
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.layout import ENV_PREFIX
from argosy.core.locks import hold_lock
from argosy.core.model import Bind
from argosy.core.os_errors import require_writable_folder
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import atomic_file, fill_once, refuse_existing, work_folder
from argosy.images.identify import render_size
from argosy.recipes.lock import Lock, LockedPackage, PackageKind, SourceKind, render_lock
from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.project_tables import Project, words
from argosy.recipes.uv_options import UvSettings, plan_uv_settings

VALUED = {"--default-index": "PIP_INDEX_URL", "--index": "PIP_EXTRA_INDEX_URL", "--find-links": "PIP_FIND_LINKS"}


def _fetch_wheels(made: Made, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Put the wheel of each pip package into a folder where some are already.

    Raises
    ------
    CheckFailed
        When one of them has no wheel, or it cannot be fetched: pip's words are the evidence.
    """
    there = {package_of(file.name) for file in folder.iterdir()}
    pip = [package for package in packages if (package.name, package.version) not in there]
    if not pip:
        return
    (folder / "lock.txt").write_text("".join(f"{_line(package)}\n" for package in pip), encoding="utf-8")
    inside = f"{WORK_INSIDE}/wheels"
    local = (Bind(path, path, read_only=True) for path in made.settings.local_paths if Path(path).exists())
    build_container = made.build_container.with_mounts(
        Bind(str(made.tree / "opt/argosy"), "/opt/argosy"), Bind(str(folder), inside), *local
    )
    words = (f"{ENV_PREFIX}/bin/python", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:")
    options = ("--require-hashes", "--quiet", "--no-cache-dir", "--disable-pip-version-check")
    reply = build_container.run(
        *words, *options, "--dest", inside, "-r", f"{inside}/lock.txt", variables=pip_variables(made.settings)
    )
    (folder / "lock.txt").unlink()
    if reply.code != 0:
        raise CheckFailed(
            "not all wheels could be fetched",
            evidence="\n".join(reply.stderr.strip().splitlines()[-8:]),
            hint="make a wheel of what is named (pip wheel), and name that in the requirements",
        )


def _line(package: LockedPackage) -> str:
    name = f"{package.name}=={package.version}"
    if package.source is not SourceKind.INDEX and package.url:
        name = f"{package.name} @ {package.url}"
    return " ".join((name, *(f"--hash=sha256:{digest}" for digest in package.sha256)))


def pip_variables(settings: UvSettings) -> tuple[tuple[str, str], ...]:
    """Say uv's settings in pip's words, as variables: an address may hold a login, which no process list may show."""
    words = iter((*settings.arguments, *settings.own))
    found: dict[str, list[str]] = {}
    logins = dict(settings.environment)
    for word in words:
        if word in VALUED:
            found.setdefault(VALUED[word], []).append(_with_login(next(words), logins))
        elif word == OPTION:
            found.setdefault("PIP_EXTRA_INDEX_URL", []).append(f"{INDEX}{next(words)}")
        elif word == "--no-index":
            found["PIP_NO_INDEX"] = ["1"]
    kept = ((name, value) for name, value in logins.items() if not name.startswith("UV_"))
    cert = (("PIP_CERT", logins["SSL_CERT_FILE"]),) if "SSL_CERT_FILE" in logins else ()
    return (*((name, " ".join(values)) for name, values in found.items()), *kept, *cert)


def _with_login(address: str, logins: dict[str, str]) -> str:
    """Put a login back into an address: uv is told ``argosy-1=https://…`` and its variables."""
    name, equals, bare = address.partition("=")
    if not equals or not name.startswith("argosy-"):
        return address
    number = name.removeprefix("argosy-")
    user = logins.get(f"UV_INDEX_ARGOSY_{number}_USERNAME", "")
    password = logins.get(f"UV_INDEX_ARGOSY_{number}_PASSWORD", "")
    scheme, _, rest = bare.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"


BASE = "base"


class BundleReport(msgspec.Struct, frozen=True):
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
    request, session = replace(complete_request(request, session.host), portable=True), aimed(request, session)
    build_plan = read_build_plan(request, session)
    if build_plan.project:
        _refuse_outside(build_plan.project)
    refuse_existing(request.output, force=request.force)
    require_writable_folder(request.output.parent)
    clock = Clock(session)
    with work_folder(session.work_parent()) as work:
        base, made = make_layer(build_plan, request, clock, work)
        lock = finish_layer(build_plan.recipe, base, made, session).lock
        pip = _pip_packages(lock, base)
        _refuse_without_files(pip)
        with clock.step("bundle", "base, packages and lock") as step:
            step.say("fetching wheels")
            there = work / "uv" / MADE
            there.rename(work / WHEELS) if there.is_dir() else (work / WHEELS).mkdir()
            _fetch_wheels(made, pip, work / WHEELS)
            with atomic_file(request.output, force=request.force) as beside:
                _write(beside, base, lock, made, session, work, uv=_uv_there(build_plan, session))
                size = beside.stat().st_size
            step.result = f"{render_size(size)} written to {request.output}"
    return BundleReport(str(request.output), size, len(lock.packages), base.reference, lock.content, made.notes)


def _refuse_without_files(packages: Iterable[LockedPackage]) -> None:
    """Refuse packages that an index gives without a hash: nothing says whether a file is the one that was meant.

    Raises
    ------
    CheckFailed
        Naming the packages.
    """
    if bare := [package.name for package in packages if not package.sha256]:
        raise CheckFailed(
            f"{', '.join(bare)} cannot be taken along: no file with a hash stands for it",
            hint="make a wheel of it (pip wheel), and name that in the requirements",
        )


def _pip_packages(lock: Lock, base: Base) -> tuple[LockedPackage, ...]:
    """Give the pip packages that the base does not bring itself."""
    held = {(package.name, package.version) for package in base.lock.packages} if base.lock else set()
    pip = (package for package in lock.packages if package.kind is PackageKind.PYPI)
    return tuple(package for package in pip if (package.name, package.version) not in held)


def _uv_there(build_plan: BuildPlan, session: Session) -> Path | None:
    """Give the folder of the static uv for the machines of the bundle's image; None where it could not be fetched."""
    if not session.host.emulated:
        return fetched_uv(session)
    there = replace(session, host=replace(session.host, arch=session.host.target))
    config = read_pip_config(session.host.environment, Path(session.host.person.home))
    static_uv(there, plan_uv_settings(config, build_plan.recipe))
    return fetched_uv(there)


def _write(out: Path, base: Base, lock: Lock, made: Made, session: Session, work: Path, *, uv: Path | None) -> None:
    text = work / LOCK_FILE
    text.write_text(render_lock(lock), encoding="utf-8")
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(text, LOCK_FILE, filter=_plain)
        archive.add(base.image.path, BASE, filter=_plain)
        for wheel in sorted((work / WHEELS).glob("*")):
            archive.add(wheel, f"{WHEELS}/{wheel.name}", filter=_plain)
        cache = session.paths.cache / "conda"
        if any(package.kind is PackageKind.CONDA for package in lock.packages):
            with hold_lock(cache / "lease", what="bundling conda packages", waiting=session.waiting):
                _add_conda(archive, lock, cache / "pkgs")
        if uv:
            archive.add(uv, f"{TOOLS}/{uv.name}", filter=_plain)
        if made.project:
            _add_project(archive, made.project, session)
        for digest, stage in {stage.digest: stage for stage in made.staged.bases.values()}.items():
            archive.add(stage.image.path, f"{STAGES}/{name_of_digest(digest)}", filter=_plain)


def _add_project(archive: tarfile.TarFile, project: Project, session: Session) -> None:
    """Add what steps and stages copy, and what steps fetched."""
    fetched = [step.fetch.sha256 for step in project.table.step if step.fetch]
    for sha256 in dict.fromkeys(fetched):
        archive.add(kept_file(sha256, session), f"{DOWNLOADS}/{sha256}", filter=_plain)
    for word in dict.fromkeys(word for word, *_ in _copied(project)):
        archive.add(project.folder / word, f"{PROJECT}/{word}", filter=_plain)


def _refuse_outside(project: Project) -> None:
    """Refuse to take along what steps copy from outside the project's folder: a bundle has no place for it.

    Raises
    ------
    UsageError
        Naming the line.
    """
    for word, kind, number in _copied(project):
        if Path(word).is_absolute() or ".." in Path(word).parts:
            raise project.fault(
                f"{word} lies outside the project and cannot be taken along",
                *(kind, number, "copy"),
                hint="copy it into the project's folder, or fetch it by its address",
            )


def _copied(project: Project) -> Iterator[tuple[str, str, int]]:
    """Give each file that is copied, and the table and number of the step or stage that does."""
    tables = {"step": [each.copy for each in project.table.step], "stage": [each.copy for each in project.table.stage]}
    for kind, named in tables.items():
        for number, value in enumerate(named):
            yield from ((word, kind, number) for word in words(value))


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
        for file in sorted((folder / DOWNLOADS).glob("*")):
            fetch_file(file.as_uri(), file.name, session, archive.name)
        yield folder


def _extract(archive: Path, folder: Path, session: Session) -> None:
    """Unpack by tar(1): it lets nothing out of the folder, which Python's own does from 3.11.4 on only."""
    folder.mkdir()
    unpack = (
        "tar",
        "--extract",
        "--preserve-permissions",
        "--no-same-owner",
        "--file",
        str(archive),
        "--directory",
        str(folder),
    )
    reply = session.runner.run(Command(unpack, env={**session.host.environment, "LC_ALL": "C"}))
    if reply.code != 0:
        raise _no_bundle(archive, (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[0])


def _no_bundle(archive: Path, why: str) -> ArgosyError:
    return UsageError(f"{archive} is no bundle of Argosy", evidence=why, hint="was its copy broken off? Copy it again")


def _keep_tools(tools: Path, session: Session) -> None:
    """Put the static uv where builds look for it."""
    for tool in sorted(tools.iterdir()) if tools.is_dir() else ():
        place = session.paths.cache / TOOLS / tool.name
        with fill_once(place, what="unpacking uv", waiting=session.waiting) as beside:
            if beside is not None:
                tool.rename(beside / "from-bundle")
                for entry in (beside / "from-bundle").iterdir():
                    entry.rename(beside / entry.name)


__all__ = ["BundleReport", "Made", "build_bundle", "bundle"]
