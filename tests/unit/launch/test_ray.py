"""One Ray cluster of a job's nodes: how the program that makes it meets, ends and fails.

Ray itself has its part played here by a program that listens, as its head does; docs/how-to/ray.md runs the real one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.launch.context import one_rank_per_node
from argosy.launch.launchers.launcher import RAY, Counts, LauncherSpec, find_launcher
from argosy.launch.model import ResourceRequest
from tests.unit.machines import python_program

PLAYED = python_program("""\
import os, signal, socket, sys
words = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[2:])
if os.environ.get("BROKEN") == os.environ["SLURM_NODEID"]:
    sys.exit("ray: no shared memory")
with open(os.environ["JOINED"], "a") as joined:
    joined.write("node\\n")
if "head" in words:
    folder = words["temp-dir"]
    assert os.stat(folder).st_mode & 0o777 == 0o700
    with open(os.environ["JOINED"].replace("joined", "folders"), "a") as folders:
        folders.write(folder + "\\n")
    server = socket.create_server((words["node-ip-address"], int(words["port"])))
signal.pause()
""")
MODULE = """\
import os, signal, subprocess
def hasty(start):
    def begin(words, **more):
        child = start(words, **more)
        if words[0] != "ray":
            open(os.environ["BEGUN"]).read()  # a pipe
            os.kill(os.getpid(), signal.SIGUSR1)
        return child
    return begin
if "BEGUN" in os.environ:
    subprocess.Popen = hasty(subprocess.Popen)
def init(**words): assert os.environ["RAY_ADDRESS"].startswith("127.")
def shutdown(): pass
def nodes():
    try:
        return [{"Alive": True} for _ in open(os.environ["JOINED"])]
    except OSError:
        return []
"""


class Nodes:
    """Two nodes on loopback, with a Ray that is played."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, []  # type: ignore[var-annotated]  # of Popen
        (folder / "ray").write_text(PLAYED)
        (folder / "ray").chmod(0o755)
        (folder / "ray.py").write_text(MODULE)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def start(self, node: int, *command: str, nodes: int = 2, **more: str) -> subprocess.Popen[str]:
        variables = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "PYTHONPATH": str(self.folder),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "SLURM_JOB_ID": f"test{os.getpid()}",
            "SLURM_STEP_ID": str(self.port),
            "SLURM_NODEID": str(node),
            "JOINED": str(self.folder / "joined"),
        }
        words = (sys.executable, "-u", "-c", RAY.read_text(), str(nodes), *command)
        pipe = subprocess.PIPE
        child = subprocess.Popen(words, env=variables | more, stdout=pipe, stderr=pipe, text=True)
        self.started.append(child)
        return child

    @property
    def left(self) -> bool:
        """Whether a folder is left that Ray was given."""
        return any(Path(name).exists() for name in (self.folder / "folders").read_text().split())


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for child in made.started:
        child.terminate()  # its Ray ends with it
        child.communicate(timeout=300)


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=300)
    return child.returncode, out, err


@pytest.mark.parametrize("code", [0, 3])
def test_the_command_runs_on_the_head_once_all_nodes_are_there_and_both_end_with_it(nodes: Nodes, code: int) -> None:
    script = f"wc -l < {nodes.folder}/joined; echo ${{RAY_ADDRESS%:*}}; exit {code}"
    other = nodes.start(1, "unused")
    assert ended(nodes.start(0, "sh", "-c", script)) == (code, "2\n127.0.0.1\n", "")
    assert ended(other) == (0, "", "")
    assert not nodes.left


@pytest.mark.parametrize("planted", ["link", "open folder"])
def test_a_folder_that_another_user_created_is_not_used(nodes: Nodes, planted: str) -> None:
    folder, log = nodes.folder / "argosy-ray-planted", nodes.folder / "other/start.log"
    log.parent.mkdir(mode=0o700)
    log.write_text("precious")
    if planted == "link":
        folder.symlink_to(log.parent)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with socket.create_server(("127.0.0.1", nodes.port)) as server:
        other = nodes.start(1, "unused")
        head, _ = server.accept()
        with head:
            head.sendall(f"127.0.0.1:1 {folder}".encode())
            code, _, said = ended(other)
    assert (code, log.read_text(), os.path.lexists(folder)) == (1, "precious", True)
    assert "is not a private folder of this user" in said


def test_a_connection_from_outside_the_job_is_not_counted_as_a_node(nodes: Nodes) -> None:
    head = nodes.start(0, "echo", "begun")
    stranger = None
    while stranger is None and head.poll() is None:
        with contextlib.suppress(OSError):
            stranger = socket.create_connection(("127.0.0.1", nodes.port))
    assert stranger
    with stranger:
        stranger.sendall(b"GET / HTTP/1.0")
        nodes.start(1, "unused")
        assert ended(head)[:2] == (0, "begun\n")


def test_one_node_needs_no_rendezvous(nodes: Nodes) -> None:
    assert ended(nodes.start(0, "echo", "a  b", nodes=1, MASTER_PORT="")) == (0, "a  b\n", "")


def test_a_signal_reaches_the_command_and_its_code_comes_back(nodes: Nodes) -> None:
    program = "trap 'echo saved; exit 9' USR1; echo ready; while :; do sleep 0.1; done"
    head = nodes.start(0, "sh", "-c", program, nodes=1)
    assert head.stdout
    assert head.stdout.readline() == "ready\n"
    head.send_signal(signal.SIGUSR1)
    assert ended(head)[:2] == (9, "saved\n")


def test_a_signal_while_the_command_starts_is_not_lost(nodes: Nodes) -> None:
    begun = str(nodes.folder / "begun")
    os.mkfifo(begun)
    program = "trap 'echo saved; exit 9' USR1; echo > $BEGUN; while :; do sleep 0.1; done"
    assert ended(nodes.start(0, "sh", "-c", program, nodes=1, BEGUN=begun))[:2] == (9, "saved\n")


def test_a_missing_command_is_reported(nodes: Nodes) -> None:
    code, _, said = ended(nodes.start(0, "no-such-program", nodes=1))
    assert (code, said) == (127, "argosy: no-such-program does not start: No such file or directory\n")
    assert not nodes.left


def test_a_node_on_which_ray_fails_to_start_reports_the_reason(nodes: Nodes) -> None:
    nodes.start(0, "true", BROKEN="1")
    code, _, said = ended(nodes.start(1, "unused", BROKEN="1"))
    assert code == 1
    assert "it ended with code 1\nray: no shared memory" in said


def test_an_image_without_ray_is_reported_as_such(nodes: Nodes) -> None:
    (nodes.folder / "ray").unlink()
    code, _, said = ended(nodes.start(0, "true", nodes=1, PATH="/nowhere"))
    assert code == 1
    assert "the image does not contain Ray: add ray" in said


def test_the_program_can_be_embedded_in_a_script() -> None:
    text = RAY.read_text()
    assert "'" not in text
    started = find_launcher("ray").plan(LauncherSpec(("python", "x.py"), Counts("2", "1")))
    assert started.command == ("python", "-u", "-c", text, "2", "python", "x.py")
    assert not started.per_rank


def test_a_rank_is_a_node() -> None:
    assert one_rank_per_node(ResourceRequest(nodes=3, gpus_per_node=4)) == ResourceRequest(
        nodes=3, gpus_per_node=4, ranks=3
    )
    assert one_rank_per_node(ResourceRequest()) == ResourceRequest(ranks=1)
    with pytest.raises(UsageError, match="starts one rank on each node"):
        one_rank_per_node(ResourceRequest(nodes=2, ranks=8))
