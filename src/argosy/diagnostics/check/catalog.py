"""Check the images of the catalog against a site: `argosy images ls --check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from argosy.core.errors import ArgosyError
from argosy.core.findings import Finding, State
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.check.rules import CONTENTS, check_opened
from argosy.images.describe import CatalogEntry
from argosy.images.open import open_image
from argosy.sites.load import load_site


def check_entries(entries: Sequence[CatalogEntry], site: str, session: Session) -> list[CatalogEntry]:
    """Return the entries with the answer whether they work at a site; images are started, but not unpacked.

    Raises
    ------
    ArgosyError
        If the site does not exist.
    """
    profile = load_site(site, session.host)
    checked: list[CatalogEntry] = []
    for entry in entries:
        try:
            findings = check_opened(open_image(Path(entry.path)), profile, session, unpack=False)
        except ArgosyError as error:
            checked.append(replace(entry, works="no", reason=error.what))
            continue
        works, reason = judge(findings)
        checked.append(replace(entry, works=works, reason=reason))
    return checked


def judge(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return ``yes``, ``no`` or ``unknown``, and the reason; with ``yes``, the warnings."""
    wrong = [each for each in findings if each.state is State.FAIL]
    if wrong:
        return "no", _reasons(wrong)
    blind = [each for each in findings if each.state is State.UNKNOWN and each.what == CONTENTS]
    if blind:
        return "unknown", _reasons(blind)
    return "yes", _reasons([each for each in findings if each.state is State.WARN])


def _reasons(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{each.what}: {each.evidence}" for each in findings)
