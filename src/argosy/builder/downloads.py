"""Download a file with a known digest into the cache."""

from __future__ import annotations

import hashlib
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path

from argosy.core.errors import CheckFailed, ToolFailed
from argosy.core.os_errors import translate_os_errors
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.store import atomic_file

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
