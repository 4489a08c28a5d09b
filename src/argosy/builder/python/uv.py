"""Find the static uv that runs in any base's root; it installs nothing into an image."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from argosy.core.errors import ToolMissing
from argosy.core.model import Host
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.store import fill_once, remove_tree
from argosy.recipes.uv_options import UvSettings

TOOLS = "tools"

MUSL = {"x86_64": "x86_64-unknown-linux-musl", "aarch64": "aarch64-unknown-linux-musl"}
"""The wheels for these platforms hold a statically linked uv; the glibc ones a dynamic one."""


def installed_uv(host: Host) -> Path:
    """Find the uv that came with Argosy (a dependency), wherever pip put its program, else one on PATH.

    Raises
    ------
    ToolMissing
        When there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else _dependency() or shutil.which("uv", path=host.environment.get("PATH"))
    if not found:
        raise ToolMissing("uv is not installed", hint="reinstall argosy, or 'pip install uv'")
    return Path(found)


def _dependency() -> str:
    """Ask uv's own package where its program is: pip has other places for it under --user and --target."""
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - who has uv on PATH alone has no such package

        return find_uv_bin()
    except (ImportError, OSError):
        return ""


def static_uv(session: Session, settings: UvSettings) -> Path:
    """Give a statically linked uv of the installed one's version, fetched once from the package index.

    Where the index cannot be reached the installed uv is used: it runs in every base with glibc.
    """
    uv = installed_uv(session.host)
    place = _place(session, uv)
    if place is None:
        return uv
    if not _runs(place / "bin/uv", session):
        remove_tree(place)  # what is there and does not run is damaged
        _, version, platform = place.name.split("-", 2)
        fetched = _fetch(session, uv, settings, f"uv=={version}", platform, place)
        if not fetched:
            session.reporter.note("the static uv could not be fetched; the installed one is used (needs a glibc base)")
            return uv
    return place / "bin/uv"


def _runs(uv: Path, session: Session) -> bool:
    """Tell whether a program is uv: an empty file would run too."""
    if not uv.is_file() or not os.access(uv, os.X_OK):
        return False
    return session.runner.run(Command((str(uv), "--version"))).stdout.startswith("uv ")


def _place(session: Session, uv: Path) -> Path | None:
    """Give the folder in the cache for the static uv of the installed one's version; None where there is no such uv."""
    platform = MUSL.get(session.host.arch)
    version = session.runner.run(Command((str(uv), "--version"))).stdout.split()
    if platform is None or len(version) < 2:  # noqa: PLR2004 - "uv 0.9.1 (…)"
        return None
    return session.paths.cache / TOOLS / f"uv-{version[1]}-{platform}"


def fetched_uv(session: Session) -> Path | None:
    """Give the folder of the static uv that was fetched; None where there is none."""
    place = _place(session, installed_uv(session.host))
    return place if place and _runs(place / "bin/uv", session) else None


class _NotFetched(Exception):
    """The index did not give it: the folder begun for it must not stay."""


def _fetch(session: Session, uv: Path, settings: UvSettings, wanted: str, platform: str, place: Path) -> bool:
    options = ("--python-platform", platform, "--no-deps", "--no-config", *settings.arguments)
    words = (str(uv), "pip", "install", "--python", sys.executable, *options, wanted, "--target")
    environment = {**session.host.environment, **dict(settings.environment)}
    try:
        with fill_once(place, what="fetching uv", waiting=session.waiting) as folder:
            if folder is not None:
                _install(session, Command((*words, str(folder)), env=environment))
    except _NotFetched:
        return False
    return True


def _install(session: Session, command: Command) -> None:
    if session.runner.run(command).code != 0:
        raise _NotFetched
