"""A real registry: Debian's docker-registry on the loopback, with a storage of its own, open or locked."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HTPASSWD = "me:$2b$04$enCmGH5.FVEtaQBWzqo1gekOmY5l3NYVxl5C.UodnqZS9F6Xbm9F6\n"
"""bcrypt, the one kind that the registry reads; the password is PASSWORD."""
PASSWORD = "geheim"  # noqa: S105 - of a registry that lives for one test
STARTS_SECONDS = 240.0


def do(*words: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run a program that must succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Registry:
    """A registry that listens on the loopback."""

    address: str
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()

    def push(self, source: str, name: str) -> str:
        """Push an image; give its reference."""
        words = (
            "skopeo",
            "--insecure-policy",
            "copy",
            "-q",
            "--dest-tls-verify=false",
            "--dest-creds",
            f"me:{PASSWORD}",
        )
        do(*words, source, f"docker://{self.address}/{name}")
        return f"docker://{self.address}/{name}"


@contextmanager
def running(folder: Path, *, locked: bool = False) -> Iterator[Registry]:
    """Run a registry with a storage of its own on a free port."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (folder / "htpasswd").write_text(HTPASSWD)
    config = {
        "version": "0.1",
        "log": {"level": "debug"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "store")}, "delete": {"enabled": True}},
        "http": {"addr": address},
        **({"auth": {"htpasswd": {"realm": "it", "path": str(folder / "htpasswd")}}} if locked else {}),
    }
    (folder / "config.yml").write_text(json.dumps(config))
    log = folder / "log"
    program = shutil.which("docker-registry") or ""
    # REGISTRY_AUTH_FILE and its like are settings of the registry too.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGISTRY_")}
    with log.open("wb") as stream:
        words = [program, "serve", str(folder / "config.yml")]
        process = subprocess.Popen(words, stdout=stream, stderr=stream, env=environment)
    registry = Registry(address, log, process)
    try:
        answered(registry)
        yield registry
    finally:
        registry.stop()


def answered(registry: Registry) -> None:
    """Return when the registry takes connections."""
    host, _, port = registry.address.partition(":")
    end = time.monotonic() + STARTS_SECONDS
    while True:
        assert registry.process.poll() is None, registry.log.read_text()
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                pytest.fail(f"the registry did not start:\n{registry.log.read_text()}")
        else:
            return
