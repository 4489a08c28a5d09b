"""Make one Ray cluster of the nodes of a job, and run a command on the first node; needs Ray.

Usage, once on each node: python -c PROGRAM NODES COMMAND...

The command runs on the first node as soon as all nodes have joined.  With symmetric-run of Ray 2.49, the other nodes
need a minute to find out that the head is gone, and end with an error.  Here each node holds a connection to the head,
and ends well when the head closes it.  The text travels in a job script in single quotes, so it must not contain any.
"""

from __future__ import annotations

import importlib
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 300  # seconds until all nodes must have joined
LAST_LINES = 15
JOB = "{}.{}".format(os.environ.get("SLURM_JOB_ID", os.getpid()), os.environ.get("SLURM_STEP_ID", "0"))


class Node:
    """The part of the cluster on this node: its folder, and the programs of Ray that it started."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.folder = self.log = ""
        self.owns_folder = False
        self.started: list[subprocess.Popen[bytes]] = []

    def fail(self, why: str) -> NoReturn:
        """End with the reason and the last lines that Ray printed."""
        lines: list[str] = []
        if self.log and Path(self.log).exists():
            lines = Path(self.log).read_text(errors="replace", encoding="utf-8").splitlines(keepends=True)[-LAST_LINES:]
        sys.exit(f"argosy: Ray on {socket.gethostname()}: {why}\n" + "".join(lines))

    def make_folder(self) -> None:
        """Make a new folder for Ray."""
        self.folder, self.owns_folder = tempfile.mkdtemp(prefix="argosy-ray-", dir="/tmp"), True
        self.log = f"{self.folder}/start-{os.getpid()}.log"

    def use_folder(self, name: str) -> None:
        """Use the folder of the head: Ray passes its name to all nodes.  Another user may have made one before."""
        try:
            Path(name).mkdir(0o700)
            self.owns_folder = True
        except FileExistsError:
            found = os.lstat(name)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                self.fail(f"{name} is not a private folder of this user")
        self.folder, self.log = name, f"{name}/start-{os.getpid()}.log"

    def start_ray(self, *options: str) -> None:
        """Start Ray on this node with the cores that this process may use."""
        usual = ("--block", "--disable-usage-stats", f"--num-cpus={len(os.sched_getaffinity(0))}")
        with Path(self.log).open("xb") as out:
            argv = ("ray", "start", *usual, *options)
            self.started.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def stop(self) -> None:
        """Stop Ray, and remove the folder if this process made it."""
        for ray in self.started:
            ray.terminate()
            try:
                ray.wait(15)
            except subprocess.TimeoutExpired:
                ray.kill()
        if self.owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def check(self) -> None:
        """End if Ray has ended."""
        for ray in self.started:
            if ray.poll() is not None:
                self.fail(f"it ended with code {ray.returncode}")

    def wait_until(self, done: Callable[[], Any], what: str) -> None:
        """Wait until a condition is true; end if it is not in time."""
        end = time.monotonic() + PATIENCE
        while not done():
            self.check()
            if time.monotonic() > end:
                self.fail(f"{what} within {PATIENCE} s")
            time.sleep(0.2)

    def accept_nodes(self) -> list[socket.socket]:
        """Wait for a connection from each of the other nodes of this job."""
        others: list[socket.socket] = []
        with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
            server.settimeout(0.1)

            def all_joined() -> bool:
                try:
                    other = server.accept()[0]
                    other.settimeout(5)  # a program of someone else may connect and send nothing
                    if other.recv(99) == JOB.encode():
                        others.append(other)
                    other.settimeout(None)
                except OSError:
                    pass
                return len(others) == self.nodes - 1

            self.wait_until(all_joined, f"not all {self.nodes} nodes came")
        return others

    def lead(self, command: Sequence[str]) -> int:
        """Start the head, run the command when all nodes have joined, and return its exit code."""
        ray = importlib.import_module("ray")
        others = self.accept_nodes() if self.nodes > 1 else []
        own = others[0].getsockname()[0] if others else "127.0.0.1"
        with socket.create_server((own, 0)) as free:
            port = free.getsockname()[1]
        self.make_folder()
        address = f"--node-ip-address={own}", f"--port={port}"
        self.start_ray("--head", *address, f"--temp-dir={self.folder}", "--include-dashboard=false")
        self.wait_until(lambda: connect((own, port)), "its head did not begin")
        os.environ["RAY_ADDRESS"] = f"{own}:{port}"
        for other in others:
            other.sendall("{} {}".format(os.environ["RAY_ADDRESS"], self.folder).encode())
        ray.init(logging_level="ERROR", log_to_driver=False)
        joined = f"not all {self.nodes} nodes joined"
        self.wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) >= self.nodes, joined)
        ray.shutdown()
        code = run(command)
        for other in others:
            other.close()
        return code

    def follow(self) -> int:
        """Join the cluster of the first node, and stay until that node ends."""
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        head: list[socket.socket] = []

        def connected() -> bool:
            connection = connect(address)
            if connection:
                head.append(connection)
            return bool(connection)

        self.wait_until(connected, "the first node did not answer")
        head[0].settimeout(None)
        head[0].sendall(JOB.encode())
        cluster, _, folder = head[0].recv(999).decode().partition(" ")
        if not cluster:
            self.fail("the first node went")
        self.use_folder(folder)
        self.start_ray(f"--address={cluster}", f"--node-ip-address={head[0].getsockname()[0]}")
        while not select.select([head[0]], [], [], 1)[0]:
            self.check()
        return 0


def connect(address: tuple[str, int]) -> socket.socket | None:
    """Return a connection, or None if nothing listens there."""
    try:
        return socket.create_connection(address, 5)
    except OSError:
        return None


def on_signals(names: str, act: Callable[[int, Any], Any]) -> None:
    """Call a function when one of these signals arrives."""
    for name in names.split():
        signal.signal(getattr(signal, f"SIG{name}"), act)


def run(command: Sequence[str]) -> int:
    """Run the command, pass signals on to it, and return its exit code."""
    early: list[int] = []  # signals that arrive while the command starts
    on_signals("TERM INT USR1 USR2", lambda number, _: early.append(number))
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"argosy: {command[0]} does not start: {error.strerror}\n")
        return 127
    on_signals("TERM INT USR1 USR2", lambda number, _: child.send_signal(number))
    for number in early:
        child.send_signal(number)
    code = child.wait()
    return code if code >= 0 else 128 - code


def main() -> int:
    """Lead or join the cluster; return the exit code of the command, or 0 on the other nodes."""
    on_signals("TERM INT", lambda number, _: sys.exit(128 + number))
    on_signals("USR1 USR2", lambda *_: None)
    node = Node(int(sys.argv[1]))
    if not shutil.which("ray"):
        node.fail("the image does not contain Ray: add ray to its packages")
    try:
        return node.follow() if int(os.environ.get("SLURM_NODEID", "0")) else node.lead(sys.argv[2:])
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(main())
