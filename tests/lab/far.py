"""Let a node of the cluster reach its login node by a real ssh, as a laptop reaches a cluster."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.conftest import Cluster

START = """\
mkdir -p /run/sshd /tmp/sshd
[ -f /tmp/sshd/key ] || ssh-keygen -q -t ed25519 -N "" -f /tmp/sshd/key
/usr/sbin/sshd -p 2222 -h /tmp/sshd/key -o PidFile=/tmp/sshd/pid
"""
KEYS = """\
mkdir -p ~/.ssh; chmod 700 ~/.ssh
[ -f ~/.ssh/id ] || ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id
cp ~/.ssh/id.pub ~/.ssh/authorized_keys
printf %s {config} > ~/.ssh/config; chmod 600 ~/.ssh/*
ssh {host} true
"""
CONFIG = """\
Host {host}
  HostName ctl
  Port 2222
  IdentityFile ~/.ssh/id
  StrictHostKeyChecking accept-new
  LogLevel ERROR
"""


@contextlib.contextmanager
def reached_by_ssh(cluster: Cluster, host: str) -> Iterator[None]:
    """Start an ssh daemon on the login node, and give the user's ssh a name for it."""
    cluster.on("ctl", ["sh", "-euc", START], user="root", cwd="/")
    try:
        cluster.sh(KEYS.format(config=shlex.quote(CONFIG.format(host=host)), host=host))
        yield
    finally:
        cluster.sh("rm -rf ~/.ssh", check=False)
        cluster.on("ctl", ["sh", "-euc", "kill $(cat /tmp/sshd/pid)"], user="root", cwd="/", check=False)
