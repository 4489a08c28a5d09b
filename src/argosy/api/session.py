"""The session of a call: the caller's own, or a quiet one for this machine."""

from __future__ import annotations

from argosy.core.session import QuietReporter, Session
from argosy.host.probe import open_session


def use_session(session: Session | None) -> Session:
    """Return the given session, or open one that reports nothing."""
    return session or open_session(reporter=QuietReporter())
