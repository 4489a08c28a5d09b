"""A real Docker daemon for tests: with namespaces and a store of its own, all of it gone at the end.

Nobody else's Docker is touched: its network, mounts, processes and ``/run`` are private, and it listens on a socket in
its folder alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("dockerd", "containerd", "runc", "docker", "unshare", "ip")
STARTS_SECONDS = 240.0
ROOM = """\
set -eu
# Arguments: a folder, and the uid of the user who may use the daemon and whom the machine knows by name.
mount -t tmpfs none /run
{ cat /etc/passwd; echo "alice:x:$2:$2::/home/alice:/bin/sh"; } > /run/passwd
{ cat /etc/group; echo "alice:x:$2:"; } > /run/group
for file in passwd group; do mount --bind "/run/$file" "/etc/$file"; done
ip link set lo up
dockerd --data-root "$1/data" --host "unix://$1/docker.sock" --group "$2" --iptables=false --ip6tables=false \\
    > "$1/log" 2>&1 &
# The end of the input is the end of the daemon, asked for first: then it ends its containers too.
read -r _ || kill "$!"
wait "$!"
"""


@dataclass(frozen=True)
class Daemon:
    """A daemon that answers."""

    folder: Path

    @property
    def address(self) -> str:
        """What DOCKER_HOST is for it."""
        return f"unix://{self.folder}/docker.sock"

    def docker(self, *words: str | Path, stdin: bytes | None = None) -> str:
        """Run docker, which must succeed, and give what it printed."""
        environment = {**os.environ, "DOCKER_HOST": self.address}
        given = ("docker", *map(str, words))
        done = subprocess.run(given, env=environment, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, f"{words}\n{done.stderr.decode(errors='replace')}"
        return done.stdout.decode().strip()


@contextmanager
def running(folder: Path, uid: int) -> Iterator[Daemon]:
    """Run a daemon that the user of this number may use; skip the test where it cannot be."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or PROGRAMS)} (Debian: docker.io)")
    folder.mkdir()
    folder.chmod(0o755)
    own = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen((*own, "sh", "-c", ROOM, "sh", str(folder), str(uid)), stdin=subprocess.PIPE) as process:
        try:
            _answered(Daemon(folder), process)
            yield Daemon(folder)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            shutil.rmtree(folder)


def _answered(daemon: Daemon, process: subprocess.Popen[bytes]) -> None:
    """Return when the daemon takes connections."""
    end = time.monotonic() + STARTS_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
            asking.connect(daemon.address.removeprefix("unix://"))
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        log = daemon.folder / "log"
        said = log.read_text()[-2000:] if log.exists() else ""
        assert process.poll() is None, f"dockerd ended:\n{said}"
        if time.monotonic() > end:
            pytest.fail(f"dockerd does not answer:\n{said}")
