"""PyPI and PyTorch's indexes under their own names, served on loopback: a proxy answers for them, with a certificate
that only the test trusts.
"""

from __future__ import annotations

import contextlib
import ensurepip
import ssl
import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def pip_wheels() -> list[Path]:
    """Return the wheels of pip that this Python has: Debian keeps them in a folder of its own (ensurepip)."""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/-"))
    return sorted(wheel for folder in folders for wheel in folder.glob("pip-*.whl"))


HOSTS = ("pypi.org", "download.pytorch.org")


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder: its listings are what an index's pages are."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Busy(Quiet):
    """Serves a folder, or what another server has, but says of the first request for each page that it is too many."""

    refused: set[str]
    behind: str

    def do_GET(self) -> None:
        """Refuse a page once."""
        if self.path not in self.refused:
            self.refused.add(self.path)
            self.answer(429, {"Retry-After": "0"})
        elif self.behind:
            self.pass_on()
        else:
            super().do_GET()

    def pass_on(self) -> None:
        """Give what the other server answers."""
        server = HTTPConnection(self.behind)
        with contextlib.closing(server):
            server.request("GET", self.path, headers={"Accept": ", ".join(self.headers.get_all("Accept", ["*/*"]))})
            reply = server.getresponse()
            kept = {name: value for name, value in reply.getheaders() if name.startswith(("Docker-", "Content-Type"))}
            self.answer(reply.status, kept, reply.read())

    def answer(self, status: int, headers: Mapping[str, str], data: bytes = b"") -> None:
        """Send one answer."""
        self.send_response(status)
        for name, value in (*headers.items(), ("Content-Length", str(len(data)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def serve_busy(root: Path = Path(), *, behind: str = "") -> Iterator[tuple[str, set[str]]]:
    """Serve a folder, or what ``HOST:PORT`` has, by `Busy`; give its address, and the pages that were refused once."""
    refused: set[str] = set()
    handler = partial(type("Handler", (Busy,), {"refused": refused, "behind": behind}), directory=str(root))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", refused
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Proxy(BaseHTTPRequestHandler):
    """Answers for each host itself, and keeps which were asked for."""

    root: Path
    context: ssl.SSLContext
    asked: set[str]

    def do_CONNECT(self) -> None:
        """Speak TLS with whoever wants a host, and serve that host's folder."""
        host = self.path.partition(":")[0]
        self.asked.add(host)
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError), self.context.wrap_socket(self.connection, server_side=True) as wrapped:
            Quiet(wrapped, self.client_address, self.server, directory=str(self.root / host))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def add_wheel(root: Path, index: str, wheel: Path) -> None:
    """Put a wheel into an index: ``pypi.org/simple``, ``download.pytorch.org/whl/cpu``."""
    folder = root / index / wheel.name.partition("-")[0]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / wheel.name).write_bytes(wheel.read_bytes())


@contextlib.contextmanager
def serve_indexes(root: Path) -> Iterator[tuple[dict[str, str], set[str]]]:
    """Serve the folders of `HOSTS` below `root`; give the variables that lead there, and the hosts asked for."""
    key, certificate = root / "key.pem", root / "certificate.pem"
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test")
    more = ("-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={names}")
    subprocess.run((*words, *more, "-keyout", str(key), "-out", str(certificate)), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    asked: set[str] = set()
    handler = type("Handler", (Proxy,), {"root": root, "context": context, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        plain = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_CERT": str(certificate)}
        yield {**plain, "https_proxy": address, "HTTPS_PROXY": address}, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
