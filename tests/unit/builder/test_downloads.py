"""Files that are fetched by their digest: what a server answers, and what is made of it."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
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
    ends: str = ""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        code = self.codes.pop(0) if self.codes else 200
        self.send_response(code)
        self.send_header("Retry-After", "0")
        if self.ends == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(DATA)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(DATA if not self.ends else DATA[:5] if self.ends == "early" else b"e\r\n" + DATA[:5])

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


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("early", "the connection closed after 5 of 14 bytes"),
        ("chunked", "the connection closed before the end of the file"),
    ],
)
def test_a_connection_that_closes_early_is_reported_as_that(
    server: tuple[str, type[Server]], session: Session, ends: str, why: str
) -> None:
    address, handler = server
    handler.ends, handler.protocol_version = ends, "HTTP/1.1"
    with pytest.raises(ToolFailed, match="cannot download") as error:
        fetch_file(address, DIGEST, session, "argosy.toml:4")
    assert error.value.evidence == f"argosy.toml:4: {why}"
    assert error.value.hint.startswith("try again")
    assert list((session.paths.cache / "downloads").iterdir()) == []


@pytest.mark.parametrize("reply", [b"nonsense\r\n\r\n", b""], ids=["not HTTP", "nothing"])
def test_an_answer_that_is_not_http_is_an_error_of_the_network(session: Session, reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:

        def answer() -> None:
            caller, _ = service.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ToolFailed, match="cannot download") as error:
            fetch_file(f"http://127.0.0.1:{service.getsockname()[1]}/x", DIGEST, session, "argosy.toml:4")
        thread.join()
    assert "check the address and the network" in error.value.hint


def test_a_full_disk_is_not_an_error_of_the_network(
    server: tuple[str, type[Server]], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argosy.builder.downloads.atomic_file", lambda *_, **__: nullcontext(Path("/dev/full")))
    with pytest.raises(OSError, match="No space left on device"):
        fetch_file(server[0], DIGEST, session, "argosy.toml:4")


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
