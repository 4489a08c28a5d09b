"""Files that are fetched by their digest: what a server answers, and what is made of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from argosy.builder.downloads import PAUSES_SECONDS, fetch_file, static_uv
from argosy.core.errors import ToolFailed
from argosy.core.session import Session
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_session, real_session

DATA = b"what was meant"
DIGEST = hashlib.sha256(DATA).hexdigest()


class Server(BaseHTTPRequestHandler):
    """Answers with the codes in the list, one after another, and then with the file."""

    codes: list[int]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        code = self.codes.pop(0) if self.codes else 200
        self.send_response(code)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (Server,), {"codes": [], "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{service.server_port}/x", handler
        service.shutdown()
        thread.join()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path)


def test_a_busy_server_is_queried_again(server: tuple[str, type[Server]], session: Session) -> None:
    address, handler = server
    handler.codes += [429, 503]
    assert fetch_file(address, DIGEST, session, "argosy.toml:4").read_bytes() == DATA
    assert len(handler.asked) == 3


def test_a_server_that_stays_busy_is_reported(server: tuple[str, type[Server]], session: Session) -> None:
    address, handler = server
    handler.codes += [429] * 9
    with pytest.raises(ToolFailed, match="cannot download") as error:
        fetch_file(address, DIGEST, session, "argosy.toml:4")
    assert error.value.evidence == "argosy.toml:4: HTTP Error 429: Too Many Requests"
    assert error.value.hint == "the server is busy; wait some minutes and try again"
    assert len(handler.asked) == len(PAUSES_SECONDS) + 1


def test_a_wrong_address_is_queried_once(server: tuple[str, type[Server]], session: Session) -> None:
    address, handler = server
    handler.codes += [404]
    with pytest.raises(ToolFailed, match="cannot download") as error:
        fetch_file(address, DIGEST, session, "argosy.toml:4")
    assert "check the address" in error.value.hint
    assert len(handler.asked) == 1


def test_a_static_uv_that_came_with_argosy_is_copied_and_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "uv"
    installed.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'uv 9.9.9 (x86_64-unknown-linux-musl)'\n")
    installed.chmod(0o755)
    monkeypatch.setattr("argosy.builder.downloads.installed_uv", lambda _: installed)
    uv = static_uv(real_session(tmp_path), UvSettings())
    assert uv.read_bytes() == installed.read_bytes()
    assert uv.is_relative_to(tmp_path / "cache")
