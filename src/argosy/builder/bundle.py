"""Pack everything that a build needs into one archive, and build from such an archive without a network.

::

    argosy.lock     the lock of the image
    base            the base's file, unchanged
    wheels/         pip packages: wheels of the index, or built from source
    conda/          conda packages, unpacked as in the cache
    tools/          the static uv
    project/        files that steps and stages copy
    downloads/      files that steps download, by sha256
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
from argosy.builder.build import build_image
from argosy.builder.downloads import DOWNLOADS, TOOLS, cached_file, fetch_file, fetched_uv, static_uv
from argosy.builder.finish import InstalledLayer, finish_layer
from argosy.builder.inputs import CONDA, LOCK_FILE, PROJECT, STAGES, WHEELS
from argosy.builder.layer import install_layer
from argosy.builder.plan import BuildPlan, plan_build
from argosy.builder.python.installer import BUILT_WHEELS
from argosy.builder.python.torch_index import INDEX, OPTION
from argosy.builder.records import BuildReport, BuildRequest, StepTimes
from argosy.builder.resolve import resolve_build
from argosy.builder.steps import name_of_digest
from argosy.core.cache import fill_once
from argosy.core.errors import ArgosyError, CheckFailed, ImageError, UsageError
from argosy.core.layout import ENV_PREFIX
from argosy.core.locks import hold_lock
from argosy.core.model import Bind
from argosy.core.os_errors import refuse_unwritable_folder
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.store import atomic_file, editing, refuse_existing, work_folder
from argosy.core.tool_errors import tool_error
from argosy.recipes.lock import Lock, LockedPackage, PackageKind, SourceKind, render_lock
from argosy.recipes.project_file import Project, words
from argosy.recipes.requirements import package_of
from argosy.recipes.uv_options import UvSettings

VALUED = {"--default-index": "PIP_INDEX_URL", "--index": "PIP_EXTRA_INDEX_URL", "--find-links": "PIP_FIND_LINKS"}

ADD_PIP = (
    "the environment has no pip, which downloads the wheels: 'pip download pip -d DIRECTORY' adds it to your folder"
)


def _fetch_wheels(layer: InstalledLayer, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Download the wheel of each pip package into a folder that already has some of them."""
    present = {package_of(file.name) for file in folder.iterdir()}
    pip = [package for package in packages if (package.name, package.version) not in present]
    if not pip:
        return
    (folder / "lock.txt").write_text("".join(f"{_line(package)}\n" for package in pip), encoding="utf-8")
    inside = f"{WORK_INSIDE}/wheels"
    local = (Bind(path, path, read_only=True) for path in layer.settings.local_paths if Path(path).exists())
    build_container = layer.build_container.with_mounts(
        Bind(str(layer.tree / "opt/argosy"), "/opt/argosy"), Bind(str(folder), inside), *local
    )
    argv = (f"{ENV_PREFIX}/bin/python", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:")
    options = ("--require-hashes", "--quiet", "--no-cache-dir", "--disable-pip-version-check")
    reply = build_container.run(
        *argv, *options, "--dest", inside, "-r", f"{inside}/lock.txt", variables=pip_variables(layer.settings)
    )
    (folder / "lock.txt").unlink()
    if reply.code != 0:
        hint = "build a wheel of the named package (pip wheel), and list the wheel in the requirements"
        raise CheckFailed(
            "cannot download all wheels",
            evidence="\n".join(reply.stderr.strip().splitlines()[-8:]),
            hint=ADD_PIP if "No module named pip" in reply.stderr else hint,
        )


def _line(package: LockedPackage) -> str:
    name = f"{package.name}=={package.version}"
    if package.source is not SourceKind.INDEX and package.url:
        name = f"{package.name} @ {package.url}"
    return " ".join((name, *(f"--hash=sha256:{digest}" for digest in package.sha256)))


def pip_variables(settings: UvSettings) -> tuple[tuple[str, str], ...]:
    """Translate uv's settings into variables of pip: an address may hold a login, which `ps` would show."""
    arguments = iter((*settings.arguments, *settings.own))
    found: dict[str, list[str]] = {}
    logins = dict(settings.environment)
    for argument in arguments:
        if argument in VALUED:
            found.setdefault(VALUED[argument], []).append(_with_login(next(arguments), logins))
        elif argument == OPTION:
            found.setdefault("PIP_EXTRA_INDEX_URL", []).append(f"{INDEX}{next(arguments)}")
        elif argument == "--no-index":
            found["PIP_NO_INDEX"] = ["1"]
    others = ((name, value) for name, value in logins.items() if not name.startswith("UV_"))
    cert = (("PIP_CERT", logins["SSL_CERT_FILE"]),) if "SSL_CERT_FILE" in logins else ()
    return (*((name, " ".join(values)) for name, values in found.items()), *others, *cert)


def _with_login(address: str, logins: dict[str, str]) -> str:
    """Put a login back into an address: uv gets ``argosy-1=https://…`` and the login in variables."""
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
    """Report a bundle; `size` is in bytes."""

    output: str
    size: int
    packages: int
    base: str
    digest: str
    notes: tuple[str, ...]


def bundle(request: BuildRequest, session: Session) -> BundleReport:
    """Write everything that a build needs into one archive."""
    context = resolve_build(replace(request, portable=True), session)
    request, session = context.request, context.session
    if context.inputs.project:
        _refuse_outside(context.inputs.project)
    refuse_existing(request.output, force=request.force)
    refuse_unwritable_folder(request.output.parent)
    plan, clock = plan_build(context), StepTimes(session)
    with work_folder(session.work_parent()) as work:
        base, layer = install_layer(plan, clock, work)
        with clock.step("bundle", "base, packages and lock") as step:
            lock = finish_layer(plan.inputs.recipe, base, layer, session).lock
            pip = _pip_packages(lock, base)
            _refuse_without_files(pip)
            step.say("downloading wheels")
            built = work / "uv" / BUILT_WHEELS
            built.rename(work / WHEELS) if built.is_dir() else (work / WHEELS).mkdir()
            _fetch_wheels(layer, pip, work / WHEELS)
            with (
                editing(request.output, waiting=session.waiting),
                atomic_file(request.output, force=request.force) as beside,
            ):
                _write(beside, base, lock, layer, session, work, uv=_fetch_target_uv(plan, session))
                size = beside.stat().st_size
            step.result = f"{render_size(size)} written to {request.output}"
    return BundleReport(str(request.output), size, len(lock.packages), base.reference, lock.content, layer.notes)


def _refuse_without_files(packages: Iterable[LockedPackage]) -> None:
    """Refuse packages without a hash: the build could not verify their files."""
    if bare := [package.name for package in packages if not package.sha256]:
        raise CheckFailed(
            f"cannot bundle {', '.join(bare)}: the index has no file with a hash",
            hint="build a wheel of it (pip wheel), and list the wheel in the requirements",
        )


def _pip_packages(lock: Lock, base: Base) -> tuple[LockedPackage, ...]:
    """Return the pip packages that the base does not have."""
    held = {(package.name, package.version) for package in base.lock.packages} if base.lock else set()
    pip = (package for package in lock.packages if package.kind is PackageKind.PYPI)
    return tuple(package for package in pip if (package.name, package.version) not in held)


def _fetch_target_uv(plan: BuildPlan, session: Session) -> Path | None:
    """Return the folder of the static uv for the image's architecture, or None if it cannot be downloaded."""
    if not session.host.emulated:
        return fetched_uv(session)
    target = replace(session, host=replace(session.host, arch=session.host.target))
    static_uv(target, plan.settings)
    return fetched_uv(target)


def _write(
    out: Path, base: Base, lock: Lock, layer: InstalledLayer, session: Session, work: Path, *, uv: Path | None
) -> None:
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
        if layer.project:
            _add_project(archive, layer.project, session)
        for digest, stage in {stage.digest: stage for stage in layer.staged.bases.values()}.items():
            archive.add(stage.image.path, f"{STAGES}/{name_of_digest(digest)}", filter=_plain)


def _add_project(archive: tarfile.TarFile, project: Project, session: Session) -> None:
    """Add the files that steps and stages copy, and those that steps downloaded."""
    fetched = [step.fetch.sha256 for step in project.table.step if step.fetch]
    for sha256 in dict.fromkeys(fetched):
        archive.add(cached_file(sha256, session), f"{DOWNLOADS}/{sha256}", filter=_plain)
    for word in dict.fromkeys(word for word, *_ in _copied(project)):
        archive.add(project.folder / word, f"{PROJECT}/{word}", filter=_plain)


def _refuse_outside(project: Project) -> None:
    """Refuse files from outside the project's folder: a bundle cannot contain them."""
    for word, kind, number in _copied(project):
        if Path(word).is_absolute() or ".." in Path(word).parts:
            raise project.fault(
                f"cannot bundle {word}: it is outside the project's folder",
                *(kind, number, "copy"),
                hint="copy it into the project's folder, or download it in a step (fetch)",
            )


def _copied(project: Project) -> Iterator[tuple[str, str, int]]:
    """Return each file that is copied, with the table and the number of the step or stage."""
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
    """Remove owner and time, which have no meaning on another machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.pax_headers = {}
    return entry


def build_bundle(archive: Path, request: BuildRequest, session: Session) -> BuildReport:
    """Build the image of a bundle, without a network."""
    with _unpacked(archive, session) as folder:
        base = request.base or str(folder / BASE)
        return build_image(replace(request, base=base, locked=str(folder / LOCK_FILE), bundle=folder), session)


@contextmanager
def _unpacked(archive: Path, session: Session) -> Iterator[Path]:
    _refuse_missing(archive)
    with work_folder(session.work_parent()) as work:
        folder = work / "bundle"
        with session.step("unpack", archive.name):
            _extract(archive, folder, session)
        if not (folder / LOCK_FILE).is_file() or not (folder / BASE).exists():
            raise _not_a_bundle(archive, "it lacks a lock or a base")
        _keep_tools(folder / TOOLS, session)
        for file in sorted((folder / DOWNLOADS).glob("*")):
            fetch_file(file.as_uri(), file.name, session, archive.name)
        yield folder


@contextmanager
def bundle_without_packages(archive: Path, request: BuildRequest, session: Session) -> Iterator[BuildRequest]:
    """Provide the request of a build from a bundle for its preview, with the lock and the size of the base only."""
    _refuse_missing(archive)
    with work_folder(session.work_parent()) as work:
        try:
            with tarfile.open(archive, "r:") as tar:
                lock, size = tar.extractfile(LOCK_FILE), tar.getmember(BASE).size
                (work / LOCK_FILE).write_bytes(lock.read() if lock else b"")
                with (work / BASE).open("wb") as file:
                    file.truncate(size)
        except (tarfile.TarError, KeyError) as error:
            raise _not_a_bundle(archive, str(error)) from error
        base = request.base or str(work / BASE)
        yield replace(request, base=base, locked=str(work / LOCK_FILE), bundle=work)


def _extract(archive: Path, folder: Path, session: Session) -> None:
    """Unpack with tar(1), which never writes outside the folder; Python's tarfile guarantees this only since 3.11.4."""
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
        failed = tool_error(Command(unpack), reply, doing=f"unpacking {archive.name}")
        if isinstance(failed, CheckFailed):  # the disk is full
            raise failed
        raise _not_a_bundle(archive, (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[0])


def _refuse_missing(archive: Path) -> None:
    if not archive.is_file():
        raise UsageError(f"there is no bundle {archive}", hint="create one: argosy bundle SOURCES --base BASE -o FILE")


def _not_a_bundle(archive: Path, why: str) -> ArgosyError:
    return ImageError(
        f"{archive} is not an Argosy bundle", evidence=why, hint="copy it again: the copy may be incomplete"
    )


def _keep_tools(tools: Path, session: Session) -> None:
    """Move the static uv to the cache, where builds look for it."""
    for tool in sorted(tools.iterdir()) if tools.is_dir() else ():
        folder = session.paths.cache / TOOLS / tool.name
        with fill_once(folder, what="unpacking uv", waiting=session.waiting, shared=True) as beside:
            if beside is not None:
                tool.rename(beside / "from-bundle")
                for entry in (beside / "from-bundle").iterdir():
                    entry.rename(beside / entry.name)
