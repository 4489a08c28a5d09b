"""Progress of a download in a pseudo-terminal and in a pipe; the server waits until the progress was seen."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, ImageError, ToolFailed, UsageError
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session
from tests.patience import PATIENCE_S
from tests.screen import open_screen
from tests.unit.machines import make_session

CHUNK, CHUNKS = b"x" * 100_000, 100
SHA256 = hashlib.sha256(CHUNK * CHUNKS).hexdigest()

PROGRAM = """\
import sys
from argosy.builder.downloads import fetch_file
from argosy.cli.common import open_session

session = open_session(verbose=sys.argv[3:] == ["verbose"])
with session.step("fetch", "data") as step:
    fetch_file(sys.argv[1], sys.argv[2], session, "here")
"""


@contextmanager
def slow_server(*, go_on: threading.Event) -> Iterator[str]:
    """Serve a file of 10 MB, and after half of it wait for the event; small blocks keep the client reading."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CHUNK) * CHUNKS))
            self.end_headers()
            self.wfile.write(CHUNK * (CHUNKS // 2))
            rest = memoryview(CHUNK * (CHUNKS - CHUNKS // 2))
            while rest and not go_on.wait(0.05):
                self.wfile.write(rest[:4096])
                rest = rest[4096:]
            self.wfile.write(rest)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/data.tar"
    finally:
        go_on.set()
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_shows_amount_rate_and_time_left(tmp_path: Path, columns: int) -> None:
    go_on = threading.Event()
    with slow_server(go_on=go_on) as url:
        argv = (sys.executable, "-c", PROGRAM, url, SHA256)
        with open_screen(argv, columns, 10, env={"ARGOSY_CACHE": str(tmp_path)}) as screen:
            screen.until("fetch", "downloading data.tar:", "of 10 MB", "B/s", "left")
            go_on.set()
            assert screen.wait() == 0
            assert screen.is_restored()
            assert [row[:3] for row in screen.rows] == [["✓", "fetch", "data"]]


def test_a_pipe_gets_one_line_at_the_end(tmp_path: Path) -> None:
    go_on = threading.Event()
    go_on.set()
    with slow_server(go_on=go_on) as url:
        argv = (sys.executable, "-c", PROGRAM, url, SHA256)
        environment = {"ARGOSY_CACHE": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    (line,) = done.stderr.splitlines()
    assert line.startswith("fetch     data (")
    assert done.stdout == ""


@pytest.mark.parametrize("error", [UsageError("there is no base"), ImageError("it is damaged")])
def test_a_step_that_was_refused_before_it_worked_is_not_reported_as_failed(error: ArgosyError) -> None:
    def work(session: Session, *doing: str) -> None:
        with session.step("base", "x.tar"), session.step("pack", "x.tar") as step:
            for text in doing:
                step.say(text)
            raise error

    stream = io.StringIO()
    session = replace(make_session(), reporter=PlainReporter(stream))
    with pytest.raises(type(error)):
        work(session)
    assert stream.getvalue() == ""
    with pytest.raises(type(error)):
        work(session, "packing")
    assert stream.getvalue().startswith("pack      failed (")
    assert stream.getvalue().count("\n") == 1


def test_a_step_whose_work_failed_is_reported_as_failed() -> None:
    stream = io.StringIO()
    session = replace(make_session(), reporter=PlainReporter(stream))
    with pytest.raises(ToolFailed), session.step("base", "x.def"):
        raise ToolFailed("building failed")
    assert stream.getvalue().startswith("base      failed (")
