"""Download files into the cache: files with a known digest, and the static uv that runs in any base."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import urllib.error
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

try:
    from uv import find_uv_bin
except ImportError:  # uv may be installed as a program only

    def find_uv_bin() -> str:
        """Return an empty path."""
        return ""


from argosy.core.cache import fill_once
from argosy.core.errors import CheckFailed, ToolFailed, ToolMissing
from argosy.core.model import Host
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shared_folders import share_new
from argosy.core.store import atomic_file, make_folder, remove_path
from argosy.images.part_digest import remembered
from argosy.recipes.uv_options import UvSettings

if TYPE_CHECKING:
    from http.client import HTTPResponse

BLOCK = 1 << 20
PATIENCE_SECONDS = 60.0
BUSY = frozenset({429, 502, 503, 504})
"""HTTP status codes of a temporary problem."""
PAUSES_SECONDS = (1, 2, 4)
LONGEST_PAUSE_SECONDS = 60
AGAIN = "try again; if it happens again, check the network and the server"
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
        make_folder(file.parent)
    with atomic_file(file, force=True) as beside:
        found = _write(url, beside, where, session)
        if found != sha256:
            raise CheckFailed(
                f"{redact(url)} does not have the expected digest",
                evidence=f"{where}: sha256 {sha256}\ndownloaded: sha256 {found}",
                hint="find out why the file changed before you write the new digest",
            )
        share_new(beside)
    return file


def cached_file(sha256: str, session: Session) -> Path:
    """Return the path of a downloaded file in the cache."""
    return session.paths.cache / DOWNLOADS / sha256


def _write(url: str, out: Path, where: str, session: Session) -> str:
    total, received = hashlib.sha256(), 0
    with _network_errors(url, where):
        source = _opened(url)
    with source, out.open("wb") as file:
        length = source.headers.get("Content-Length", "")
        expected = int(length) if length.isdecimal() else 0
        meter = session.meter(f"downloading {PurePosixPath(urllib.parse.urlsplit(url).path).name}", expected)
        while block := _read(source, url, where):
            total.update(block)
            file.write(block)
            received += len(block)
            meter.add(len(block))
    if received < expected:
        raise _not_fetched(url, where, f"the connection closed after {received} of {expected} bytes", AGAIN)
    return total.hexdigest()


def _read(source: HTTPResponse, url: str, where: str) -> bytes:
    with _network_errors(url, where):
        return source.read(BLOCK)


@contextmanager
def _network_errors(url: str, where: str) -> Iterator[None]:
    """Translate errors of the network, which are not errors of the file that is written."""
    from http.client import HTTPException, IncompleteRead  # noqa: PLC0415 - loads ssl

    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise _not_fetched(url, where, str(error), LATER if error.code in BUSY else CHECK) from error
    except IncompleteRead as error:
        raise _not_fetched(url, where, "the connection closed before the end of the file", AGAIN) from error
    except (OSError, HTTPException) as error:
        raise _not_fetched(url, where, str(error) or repr(error), CHECK) from error


def _not_fetched(url: str, where: str, why: str, hint: str) -> ToolFailed:
    return ToolFailed(f"cannot download {redact(url)}", evidence=f"{where}: {why}", hint=hint)


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
    import urllib.request  # noqa: PLC0415 - likewise

    # Reading the project file has checked the scheme: http, https or file.
    return urllib.request.urlopen(url, timeout=PATIENCE_SECONDS)  # type: ignore[no-any-return]  # noqa: S310


TOOLS = "tools"

MUSL = {"x86_64": "x86_64-unknown-linux-musl", "aarch64": "aarch64-unknown-linux-musl"}
"""Wheels for these platforms contain a statically linked uv; wheels for glibc a dynamic one."""


def installed_uv(host: Host) -> Path:
    """Find the uv that was installed with Argosy, wherever pip installed its program; otherwise the one on PATH.

    Raises
    ------
    ToolMissing
        If there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else _packaged_uv() or shutil.which("uv", path=host.environment.get("PATH"))
    if not found:
        raise ToolMissing("uv is not installed", hint="reinstall argosy, or 'pip install uv'")
    return Path(found)


def _packaged_uv() -> str:
    """Ask uv's Python package for its program, which pip installs elsewhere with --user and --target."""
    try:
        return find_uv_bin()
    except OSError:
        return ""


def static_uv(session: Session, settings: UvSettings) -> Path:
    """Return a statically linked uv with the version of the installed one, downloaded once from the package index.

    If the index cannot be reached, return the installed uv, which runs in every base with glibc.
    """
    installed = installed_uv(session.host)
    folder = _cache_folder(session, installed)
    if folder is None:
        return installed
    if not _runs(folder / "bin/uv", session):
        remove_path(folder)  # an existing uv that does not run is damaged
        _, version, platform = folder.name.split("-", 2)
        fetched = _fetch(session, installed, settings, f"uv=={version}", platform, folder)
        if not fetched:
            session.reporter.note("cannot download the static uv; the installed one is used, which needs a glibc base")
            return installed
    return folder / "bin/uv"


def _runs(uv: Path, session: Session) -> bool:
    """Return whether a program is uv, because an empty file would also run."""
    if not uv.is_file() or not os.access(uv, os.X_OK):
        return False
    return _version(session, uv).startswith("uv ")


def _version(session: Session, uv: Path) -> str:
    """Return the line that a uv prints about itself."""
    argv = (str(uv), "--version")
    return remembered(session.paths.cache, uv, argv, lambda: session.runner.run(Command(argv))).stdout


def _is_static(session: Session, uv: Path) -> bool:
    """Return whether an installed uv is the static one, as in Argosy's bundle for login nodes."""
    return "-linux-musl" in _version(session, uv)


def _cache_folder(session: Session, installed: Path) -> Path | None:
    """Return the cache folder of the static uv for this version and machine, or None if there is no such uv."""
    platform = MUSL.get(session.host.arch)
    version = _version(session, installed).split()
    if platform is None or len(version) < 2:  # noqa: PLR2004 - "uv 0.9.1 (…)"
        return None
    return session.paths.cache / TOOLS / f"uv-{version[1]}-{platform}"


def fetched_uv(session: Session) -> Path | None:
    """Return the folder of the downloaded static uv, or None without one."""
    folder = _cache_folder(session, installed_uv(session.host))
    return folder if folder and _runs(folder / "bin/uv", session) else None


class _NotFetched(Exception):
    """The download failed, so the new folder must be removed."""


def _fetch(session: Session, installed: Path, settings: UvSettings, wanted: str, platform: str, folder: Path) -> bool:
    options = ("--python-platform", platform, "--no-deps", "--no-config", *settings.arguments)
    argv = (str(installed), "pip", "install", "--python", sys.executable, *options, wanted, "--target")
    environment = {**session.host.environment, **dict(settings.environment)}
    try:
        with fill_once(folder, what="downloading uv", waiting=session.waiting, shared=True) as beside:
            if beside is not None and _is_static(session, installed):
                (beside / "bin").mkdir()
                shutil.copy2(installed, beside / "bin/uv")
            elif beside is not None:
                _install(session, Command((*argv, str(beside)), env=environment))
    except _NotFetched:
        return False
    return True


def _install(session: Session, command: Command) -> None:
    if session.runner.run(command).code != 0:
        raise _NotFetched
