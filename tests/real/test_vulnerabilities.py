"""Known vulnerabilities are found by the real pip-audit, which asks a database on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real.conftest import Shop

pytestmark = [pytest.mark.real, pytest.mark.soak]

FAULT = {
    "id": "OSV-2026-1",
    "aliases": ["CVE-2026-1"],
    "summary": "tinypkg prints its name",
    "affected": [
        {
            "package": {"name": "tinypkg", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}],
        }
    ],
}


class Database(BaseHTTPRequestHandler):
    """Answer as the query API of OSV does (https://google.github.io/osv.dev/post-v1-query)."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_bad = (asked["package"]["name"], asked["version"]) == ("tinypkg", "1.0")
        body = json.dumps({"vulns": [FAULT]} if is_bad else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


@pytest.fixture(scope="module")
def scanner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install pip-audit, and give the folder of its program."""
    venv = tmp_path_factory.mktemp("pip-audit")
    for words in (("-m", "venv", str(venv)), None):
        command = (sys.executable, *words) if words else (str(venv / "bin/pip"), "install", "-q", "pip-audit")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot install pip-audit here: {done.stderr.strip().splitlines()[-1]}")
    return venv / "bin"


def test_a_known_vulnerability_is_named_with_its_fix(shop: Shop, scanner: Path, database: str) -> None:
    image = shop.build("tinypkg==1.0\n")
    path = f"{scanner}:{shop.environment()['PATH']}"
    osv = {"PATH": path, "PIP_AUDIT_VULNERABILITY_SERVICE": "osv", "PIP_AUDIT_OSV_URL": database}
    done = shop.argosy("images", "scan", image, "--json", **osv)
    assert done.code == 7, done.err
    report = json.loads(done.out)
    assert [(each["package"], each["id"], each["fixed"]) for each in report["found"]] == [
        ("tinypkg", "CVE-2026-1", ["2.0"])
    ]
    assert report["others"]["deb"] > 50
    shown = shop.argosy("images", "scan", image, **osv)
    assert ["tinypkg", "1.0", "CVE-2026-1", "OSV-2026-1", "2.0"] in [line.split() for line in shown.out.splitlines()]
    fixed = shop.build("tinypkg==2.0\n", out="fixed.sif")
    assert shop.argosy("images", "scan", fixed, **osv).code == 0
    silent = shop.argosy("images", "scan", image, **osv | {"PIP_AUDIT_OSV_URL": "http://127.0.0.1:9/v1/query"})
    assert silent.code not in {0, 7}
    assert "pip-audit cannot scan the image" in silent.err
    assert "Traceback" not in silent.err
