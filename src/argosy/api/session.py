"""The session of a call: the caller's own, or a quiet one for this machine."""

from __future__ import annotations

from argosy.core.process import Runner
from argosy.core.session import Reporter, Session
from argosy.host import probe
from argosy.recipes.user_config import configure_folders


def open_session(*, reporter: Reporter | None = None, runner: Runner | None = None, work: str = "") -> Session:
    """Probe this machine, and return a session with the folders of the configuration files.

    Parameters
    ----------
    reporter
        Receives progress reports. Default: they are dropped.
    runner
        Starts programs. Default: programs start on this machine.
    work
        Folder for work files; empty means TMPDIR or the cache.
    """
    return configure_folders(probe.open_session(reporter=reporter, runner=runner, work=work))


def use_session(session: Session | None) -> Session:
    """Return the given session, or open one that reports nothing."""
    return session or open_session()
