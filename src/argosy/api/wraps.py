"""Make the commands of an environment or image plain programs: wrap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from argosy.api.session import use_session
from argosy.core.findings import Finding
from argosy.core.model import GpuMode
from argosy.core.session import Session
from argosy.recipes.build_options import PackageOptions
from argosy.recipes.option_row import plain_values
from argosy.runtimes.container_plan import parse_bind
from argosy.wrap import activation, check, prefix
from argosy.wrap.model import Settings, UpdateRequest, Version, WrapReport, WrapRequest
from argosy.wrap.request import plan_recipe, script_paths, with_package_options


def wrap(
    *sources: str, to: str | Path, base: str = "", paths: Sequence[str] = (), bind: Sequence[str] = (),
    gpu: str = "auto", runtime: str = "", session: Session | None = None, **options: Unpack[PackageOptions],
) -> WrapReport:  # fmt: skip
    """Wrap an environment, an image or an installation into a folder, as ``argosy wrap new`` does.

    Parameters
    ----------
    sources
        Environment files, one image, or one installation.
    to
        The folder (``--prefix``).
    paths
        Folders or programs in the image whose commands are wrapped.
    """
    here = use_session(session)
    given = plain_values(options, PackageOptions)
    recipe = with_package_options(plan_recipe(sources, base), given, here.host.environment)
    settings = Settings(tuple(paths), tuple(map(parse_bind, bind)), gpu=GpuMode(gpu), runtime=runtime)
    return prefix.wrap(WrapRequest(Path(to).absolute(), recipe, settings), here)


def update_wrap(
    folder: str | Path, *, packages: Sequence[str] = (), files: Sequence[str | Path] = (), image: str = "",
    after: Sequence[Path] = (), session: Session | None = None,
) -> WrapReport:  # fmt: skip
    """Make the next version of a wrapped folder, as ``argosy wrap update`` does.

    Parameters
    ----------
    packages
        Requirements to add.
    files
        Environment files; a file replaces the one of the same name.
    image
        Another image.
    after
        Scripts to run after the installation.
    """
    named = tuple(str(Path(file).absolute()) for file in files)
    request = UpdateRequest(Path(folder).absolute(), tuple(packages), named, image, script_paths(tuple(after)))
    return prefix.update(request, None, use_session(session))


def rollback_wrap(folder: str | Path, *, version: int = 0, session: Session | None = None) -> WrapReport:
    """Switch a wrapped folder to a version (0: the one before), as ``argosy wrap rollback`` does."""
    return prefix.rollback(Path(folder).absolute(), version, use_session(session))


def list_wrap_versions(folder: str | Path) -> tuple[tuple[Version, bool], ...]:
    """List the versions of a wrapped folder and which one is current, as ``argosy wrap history`` does."""
    return tuple(prefix.history(Path(folder).absolute()))


def prune_wrap(folder: str | Path, *, keep: int = 1, session: Session | None = None) -> tuple[int, ...]:
    """Remove old versions of a wrapped folder, as ``argosy wrap prune`` does, and return their numbers."""
    return tuple(prefix.prune(Path(folder).absolute(), keep, use_session(session)))


def check_wrap(folder: str | Path, *, session: Session | None = None) -> tuple[Finding, ...]:
    """Check that the commands of a wrapped folder start on this machine, as ``argosy wrap check`` does."""
    return tuple(check.check(Path(folder).absolute(), use_session(session)))


def add_kernel(
    folder: str | Path, *, to: str | Path | None = None, name: str = "", title: str = "", force: bool = False,
    session: Session | None = None,
) -> Path:  # fmt: skip
    """Add the Python of a wrapped folder to Jupyter, as ``argosy wrap kernel`` does, and return its file."""
    target = Path(to).absolute() if to else None
    request = activation.KernelRequest(Path(folder).absolute(), target, name, title, force)
    return activation.add_kernel(request, use_session(session))
