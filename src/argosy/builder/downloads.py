"""Download files into the cache: files with a known digest, and the static uv that runs in any base."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path

from argosy.core.errors import CheckFailed, ToolFailed, ToolMissing
from argosy.core.model import Host
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.store import atomic_file, fill_once, remove_tree
from argosy.recipes.uv_options import UvSettings

BLOCK = 1 << 20
PATIENCE_SECONDS = 60.0
BUSY = frozenset({429, 502, 503, 504})
"""HTTP status codes of a temporary problem."""
PAUSES_SECONDS = (1, 2, 4)
LONGEST_PAUSE_SECONDS = 60
LATER = "the server is busy; wait some minutes and try again"
CHECK = "check the address and the network; if the nodes have no network, build on a login node"
DOWNLOADS = "downloads"


def fetch_file(url: str, sha256: str, session: Session, where: str) -> Path:
    """Return the file at `url`, from the cache if it is there.

    Raises
    ------
    ToolFailed, CheckFailed
        If the download fails, or the file has another digest.
    """
    file = cached_file(sha256, session)
    if file.is_file():
        return file
    with translate_os_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file, force=True) as beside:
        found = _write(url, beside, where)
        if found != sha256:
            raise CheckFailed(
                f"{redact(url)} has another digest than expected",
                evidence=f"{where}: sha256 {sha256}\ndownloaded: sha256 {found}",
                hint="find out why the file changed before you write the new digest",
            )
    return file


def cached_file(sha256: str, session: Session) -> Path:
    """Return the path of a downloaded file in the cache."""
    return session.paths.cache / DOWNLOADS / sha256


def _write(url: str, out: Path, where: str) -> str:
    total = hashlib.sha256()
    try:
        with _opened(url) as source, out.open("wb") as file:
            while block := source.read(BLOCK):
                total.update(block)
                file.write(block)
    except urllib.error.HTTPError as error:
        error.close()
        raise _not_fetched(url, where, error, LATER if error.code in BUSY else CHECK) from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise _not_fetched(url, where, error, CHECK) from error
    return total.hexdigest()


def _not_fetched(url: str, where: str, error: OSError, hint: str) -> ToolFailed:
    return ToolFailed(f"cannot download {redact(url)}", evidence=f"{where}: {error}", hint=hint)


def _opened(url: str) -> HTTPResponse:
    """Open an address; if the server is busy, retry after its Retry-After time, up to a maximum."""
    for pause in PAUSES_SECONDS:
        try:
            return _open(url)
        except urllib.error.HTTPError as error:
            if error.code not in BUSY:
                raise
            error.close()
            delay = error.headers.get("Retry-After", "")
            time.sleep(min(int(delay), LONGEST_PAUSE_SECONDS) if delay.isdecimal() else pause)
    return _open(url)


def _open(url: str) -> HTTPResponse:
    # Reading the project file has checked the scheme: http, https or file.
    return urllib.request.urlopen(url, timeout=PATIENCE_SECONDS)  # type: ignore[no-any-return]  # noqa: S310


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
