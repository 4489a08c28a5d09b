"""Open the session that stories act with: probe the machine, choose the folders, find somebody to report to."""

from __future__ import annotations

from pathlib import Path

from argosy.core.process import OnLine, RealRunner, Runner
from argosy.core.session import QuietReporter, Reporter, Session, paths_from
from argosy.host.probe import probe_host


def open_session(
    *, reporter: Reporter | None = None, runner: Runner | None = None, echo: OnLine | None = None, work: str = ""
) -> Session:
    """Probe the machine and give what stories act with.

    Parameters
    ----------
    reporter
        Who watches; nobody by default.
    runner
        Who starts programs; the real one by default, `argosy.core.process.FakeRunner` in tests.
    echo
        Told each command line before it starts.
    work
        Folder for work files; empty means TMPDIR or the cache.
    """
    host = probe_host()
    return Session(
        host=host,
        runner=runner or RealRunner(echo),
        paths=paths_from(dict(host.environment), Path(host.person.home)),
        reporter=reporter or QuietReporter(),
        work=work,
    )
