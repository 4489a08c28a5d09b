"""Fetch a file whose digest is known into the cache; a file with another digest is never used."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

from argosy.errors import CheckFailed, ToolFailed
from argosy.scrub import scrub
from argosy.session import Session
from argosy.store import explained, whole_file

BLOCK = 1 << 20
PATIENCE_SECONDS = 60.0
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
    with explained(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(place, force=True) as beside:
        found = _write(url, beside, where)
        if found != sha256:
            raise CheckFailed(
                f"{scrub(url)} is not the file that was meant",
                evidence=f"{where}: sha256 {sha256}\nfetched: sha256 {found}",
                hint="look at what has changed there, and only then write the new digest",
            )
    return place


def kept_file(sha256: str, session: Session) -> Path:
    """Give where the cache has a file that was fetched."""
    return session.places.cache / DOWNLOADS / sha256


def _write(url: str, out: Path, where: str) -> str:
    total = hashlib.sha256()
    try:
        # The scheme was checked when the project file was read: http, https, file.
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as source, out.open("wb") as file:  # noqa: S310
            while block := source.read(BLOCK):
                total.update(block)
                file.write(block)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise ToolFailed(
            f"{scrub(url)} cannot be fetched",
            evidence=f"{where}: {error}",
            hint="check the address and the network; where nodes have no network, build on a login node",
        ) from error
    return total.hexdigest()
