"""Fetch a file whose digest is known into the cache; a file with another digest is never used."""

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
"""What a server answers that may soon answer otherwise."""
PAUSES_SECONDS = (1, 2, 4)
LONGEST_PAUSE_SECONDS = 60
LATER = "it asks us to come later: wait some minutes"
CHECK = "check the address and the network; where nodes have no network, build on a login node"
DOWNLOADS = "downloads"


def fetch_file(url: str, sha256: str, session: Session, where: str) -> Path:
    """Give the file at `url`, from the cache where it is there.

    Raises
    ------
    ToolFailed, CheckFailed
        When it cannot be fetched, or is another file than the one meant.
    """
    place = kept_file(sha256, session)
    if place.is_file():
        return place
    with translate_os_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(place, force=True) as beside:
        found = _write(url, beside, where)
        if found != sha256:
            raise CheckFailed(
                f"{redact(url)} is not the file that was meant",
                evidence=f"{where}: sha256 {sha256}\nfetched: sha256 {found}",
                hint="look at what has changed there, and only then write the new digest",
            )
    return place


def kept_file(sha256: str, session: Session) -> Path:
    """Give where the cache has a file that was fetched."""
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
    return ToolFailed(f"{redact(url)} cannot be fetched", evidence=f"{where}: {error}", hint=hint)


def _opened(url: str) -> HTTPResponse:
    """Open an address; one that is busy is asked again, as late as it says, at most so late as we can wait."""
    for pause in PAUSES_SECONDS:
        try:
            return _open(url)
        except urllib.error.HTTPError as error:
            if error.code not in BUSY:
                raise
            error.close()
            told = error.headers.get("Retry-After", "")
            time.sleep(min(int(told), LONGEST_PAUSE_SECONDS) if told.isdecimal() else pause)
    return _open(url)


def _open(url: str) -> HTTPResponse:
    # The scheme was checked when the project file was read: http, https, file.
    return urllib.request.urlopen(url, timeout=PATIENCE_SECONDS)  # type: ignore[no-any-return]  # noqa: S310
