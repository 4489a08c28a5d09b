"""Build images: init, build, lock and bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from argosy.api.session import use_session
from argosy.builder import build as builder
from argosy.builder import bundle as bundler
from argosy.builder import lock as locker
from argosy.builder.inputs import LOCK_FILE
from argosy.builder.preview import BuildPreview
from argosy.builder.preview import preview_build as preview
from argosy.builder.records import BuildReport
from argosy.builder.resolve import apply_project_file, make_build_request, resolve_build_request
from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.launch.new_project import TEMPLATE_NAMES, NewProject, write_project
from argosy.recipes.build_options import BuildOptions, InstallOptions
from argosy.recipes.lock import Lock
from argosy.sites.load import load_site


def build(
    *sources: str | Path, output: str | Path | None = None, session: Session | None = None,
    **options: Unpack[BuildOptions],
) -> BuildReport:  # fmt: skip
    """Build an image from environment files over a base image, as ``argosy build`` does.

    Parameters
    ----------
    sources
        Environment files, a definition file or Dockerfile; none: the ``argosy.toml`` of the current folder.
    output
        The image file; None: the project file names it.
    options
        The options of `argosy build` (see `BuildOptions`).
    """
    here = _session(session, options)
    request = resolve_build_request(tuple(map(str, sources)), _path(output), options, here.host)
    return bundler.build_bundle(request.bundle, request, here) if request.bundle else builder.build_image(request, here)


def preview_build(
    *sources: str | Path, output: str | Path | None = None, session: Session | None = None,
    **options: Unpack[BuildOptions],
) -> BuildPreview:  # fmt: skip
    """Return the steps of a build and their sizes, as ``argosy build --dry-run`` does; build nothing.

    Parameters are those of `build`.
    """
    here = _session(session, options)
    return preview(resolve_build_request(tuple(map(str, sources)), _path(output), options, here.host), here)


def lock(
    *sources: str | Path, output: str | Path = LOCK_FILE, upgrade: Sequence[str] = (), session: Session | None = None,
    **options: Unpack[InstallOptions],
) -> locker.LockReport:  # fmt: skip
    """Resolve versions and write them to a lock file, as ``argosy lock`` does.

    Parameters
    ----------
    output
        The lock file.
    upgrade
        Packages whose versions are resolved again; the other versions stay.
    """
    here = _session(session, options)
    asked = make_build_request(tuple(map(str, sources)), _path(output), options, here.host.environment)
    return locker.lock(locker.LockRequest(apply_project_file(asked, here.host), tuple(upgrade)), here)


def check_lock(
    *sources: str | Path, output: str | Path = LOCK_FILE, session: Session | None = None,
    **options: Unpack[InstallOptions],
) -> Lock:  # fmt: skip
    """Return the lock file if it belongs to these sources and this base, as ``argosy lock --check`` does.

    Raises
    ------
    CheckFailed
        If the lock file does not fit.
    """
    here = _session(session, options)
    asked = make_build_request(tuple(map(str, sources)), _path(output), options, here.host.environment)
    return locker.check_lock(locker.LockRequest(apply_project_file(asked, here.host)), here)


def bundle(
    *sources: str | Path, output: str | Path, locked: str = "", force: bool = False, session: Session | None = None,
    **options: Unpack[InstallOptions],
) -> bundler.BundleReport:  # fmt: skip
    """Pack base, packages and lock into one archive for offline builds, as ``argosy bundle`` does.

    Parameters
    ----------
    output
        The archive.
    locked
        A lock file, or an image with a lock, whose packages are packed.
    force
        Whether an existing archive is replaced.
    """
    here = _session(session, options)
    asked = make_build_request(tuple(map(str, sources)), _path(output), options, here.host.environment)
    return bundler.bundle(apply_project_file(replace(asked, force=force, locked=locked), here.host), here)


def _path(output: str | Path | None) -> Path | None:
    return Path(output).absolute() if output else None


def _session(session: Session | None, options: BuildOptions | InstallOptions) -> Session:
    found, work = use_session(session), options.get("work_dir", "")
    return replace(found, work=work) if work else found


def new_project(
    folder: str | Path = ".", *, template: str = "ddp", site: str = "local", account: str = "",
    session: Session | None = None,
) -> tuple[Path, ...]:  # fmt: skip
    """Write argosy.toml, requirements.txt and train.py, as ``argosy init`` does, and return their paths.

    Parameters
    ----------
    template
        The program: ``ddp``, ``hello``, ``lightning`` or ``mpi``.

    Raises
    ------
    UsageError
        When one of the files exists, or there is no such template.
    """
    if template not in TEMPLATE_NAMES:
        raise UsageError(f"there is no template {template!r}", hint=f"use one of {', '.join(TEMPLATE_NAMES)}")
    here = use_session(session)
    profile = load_site(site, here.host)
    project = NewProject(Path(folder), template, profile, account, has_gpus=bool(here.host.gpus))
    return write_project(project)
