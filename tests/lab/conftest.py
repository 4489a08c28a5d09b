"""Give tests the lab: one-shot login nodes and Slurm clusters; it never changes the machine that runs the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

REPO = Path(__file__).parents[2]
BUILD_SECONDS = 1200
TIMED_OUT = 124
"""Of timeout(1)."""
ENDED = """\
asked() { squeue --noheader --jobs="$1" --states=all --format=%T; }
# Asked on the node: a way into it costs seven times what squeue does.
while states=$(asked "$1"); do
    case $states in
        '' | *PENDING* | *RUNNING* | *COMPLETING* | *CONFIGURING* | *SUSPENDED* | *REQUEUED*) sleep 0.1 ;;
        *) break ;;
    esac
done
echo "${states:?}"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command in the lab said and how it ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Lab:
    """One-shot login nodes made of a root file system with a real Slurm and a real Apptainer."""

    root: Path

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "alice",
        cwd: Path | str = "",
        binds: Sequence[Path | str] = (),
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
        timeout: float = PATIENCE_S,
    ) -> Ran:
        """Run a command in a login node of its own; folders in `binds` are the machine's (`SRC` or `SRC:DST[:ro]`).

        Fails the test when the command fails, unless `check` is false.
        """
        words = [str(REPO / "lab" / "in"), "-u", user]
        words += [word for name, value in (env or {}).items() for word in ("-e", f"{name}={value}")]
        words += [word for bind in binds for word in ("-b", str(bind))]
        words += ["-w", str(cwd)] if cwd else []
        return run_program([*words, "--", *argv], stdin=stdin, check=check, timeout=timeout)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running Slurm cluster: `ctl`, the login node, and compute nodes; `shared` is /shared on all of them."""

    run: Path
    nodes: tuple[str, ...]

    @property
    def shared(self) -> Path:
        """Say where this machine sees the folder that every node calls /shared."""
        return self.run / "shared"

    def on(
        self,
        node: str,
        argv: Sequence[str],
        *,
        user: str = "alice",
        cwd: Path | str = "/shared",
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
        timeout: float = PATIENCE_S,
    ) -> Ran:
        """Run a command on a node in a clean environment; fails the test when the command does, unless told not to."""
        words = self.words("exec", "-u", user, "-w", str(cwd))
        words += [word for name, value in (env or {}).items() for word in ("-e", f"{name}={value}")]
        return run_program([*words, "--", node, *argv], stdin=stdin, check=check, timeout=timeout)

    def sh(
        self, script: str, *, node: str = "ctl", user: str = "alice", check: bool = True, timeout: float = PATIENCE_S
    ) -> Ran:
        """Run a shell script on a node (the login node) in /shared; it stops at its first failure."""
        return self.on(node, ["bash", "-euc", script], user=user, check=check, timeout=timeout)

    def control(self, *words: str) -> Ran:
        """Run another verb of lab/cluster on this cluster, such as kill, start, unplug or plug."""
        return run_program(self.words(*words))

    def has_mpi(self, plugin: str) -> bool:
        """Return whether srun has a plugin for a kind of MPI."""
        return plugin in self.sh("srun --mpi=list 2>&1").stdout.split()

    def words(self, *words: str) -> list[str]:
        """Return the words that start lab/cluster for this cluster."""
        return [str(REPO / "lab" / "cluster"), "--run", str(self.run), *words]

    def wait_for(self, job: str, *, timeout: float = PATIENCE_S) -> str:
        """Wait until a job has ended and Slurm has cleaned up after it; return its state."""
        waiting = ["timeout", f"{timeout:g}", "bash", "-euc", ENDED, "ended", job]
        ended = self.on("ctl", waiting, check=False, timeout=timeout + PATIENCE_S)
        if ended.code == TIMED_OUT:
            pytest.fail(f"job {job} did not end within {timeout:g} s")
        assert ended.code == 0, ended.stderr
        return ended.stdout.split()[0]


def run_program(words: Sequence[str], *, stdin: str = "", check: bool = True, timeout: float = PATIENCE_S) -> Ran:
    """Run a program of this machine; its words and both streams are in the failure."""
    done = subprocess.run(
        list(words), input=stdin, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout, check=False
    )
    if check and done.returncode:
        pytest.fail(f"exit {done.returncode}: {list(words)}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return Ran(done.returncode, done.stdout, done.stderr)


def why_no_lab() -> str:
    """Say what keeps the lab from running on this machine; empty when nothing does."""
    if os.geteuid() != 0:
        return "the lab needs root: it mounts file systems and makes namespaces"
    missing = [name for name in ("mmdebstrap", "unshare", "setpriv", "flock") if not shutil.which(name)]
    if missing:
        return f"the lab needs {', '.join(missing)}"
    tried = run_program([*map(str, (shutil.which("unshare"), "--mount", "--pid", "--fork", "true"))], check=False)
    return f"this machine allows no namespaces: {tried.stderr.strip()}" if tried.code else ""


@pytest.fixture(scope="session")
def lab() -> Lab:
    """Return the lab's login node; its root file system is built once per machine (a minute, then cached)."""
    if reason := why_no_lab():
        pytest.skip(reason)
    ensured = run_program([str(REPO / "lab" / "rootfs"), "ensure"], timeout=BUILD_SECONDS)
    return Lab(Path(ensured.stdout.strip()))


@pytest.fixture(scope="session")
def tiny_image(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SIF of one megabyte with a shell (busybox), readable by everyone, in a folder of its own."""
    folder = tmp_path_factory.mktemp("image")
    open_to_users(folder)
    folder.chmod(0o777)
    script = (
        "mkdir -p t/bin t/etc t/opt t/tmp t/proc t/sys t/dev t/home t/root t/var/tmp t/srv t/mnt && "
        "cp /bin/busybox t/bin/ && t/bin/busybox --install t/bin && touch t/etc/passwd t/etc/group && "
        "apptainer --quiet build tiny.sif t && rm -rf t"
    )
    lab.run(["sh", "-euc", script], cwd=folder, binds=[folder])
    return folder / "tiny.sif"


def open_to_users(folder: Path) -> None:
    """Let other users pass through pytest's temporary folders, which are closed to them."""
    for parent in (folder, *folder.parents):
        if parent.owner() == "root" and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)


@contextlib.contextmanager
def start_cluster(run: Path, *options: str) -> Iterator[Cluster]:
    """Bring a cluster up in the folder `run` with the options of `lab/cluster up`, and down again.

    The cluster holds a pipe of this process: should the tests be killed, it ends by itself.
    """
    cluster = Cluster(run, ())
    theirs, ours = os.pipe()
    try:
        subprocess.run(
            cluster.words("up", "--lifeline", str(theirs), *options),
            pass_fds=[theirs],
            check=True,
            timeout=BUILD_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        names = cluster.sh("sinfo --noheader --Node --format=%N").stdout.split()
        yield Cluster(run, tuple(names))
    finally:
        os.close(theirs)
        cluster.control("down")
        os.close(ours)


@pytest.fixture(scope="session")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster of two compute nodes with 8 CPUs and 2 fake GPUs each, up for the whole session."""
    assert lab.root.is_dir()
    with start_cluster(tmp_path_factory.mktemp("cluster"), "2") as running:
        yield running


@pytest.fixture(scope="session")
def new_cluster_at(lab: Lab) -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """Return the function that starts a cluster in a folder, for those who keep one longer than a test."""
    assert lab.root.is_dir()
    return start_cluster


@pytest.fixture
def new_cluster(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """Return a function of `lab/cluster up` options that gives a cluster of one's own, for use with `with`."""
    assert lab.root.is_dir()
    return lambda *options: start_cluster(tmp_path_factory.mktemp("cluster"), *options)
