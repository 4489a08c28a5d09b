"""Give tests of launching a desk: a cluster, images that Argosy built, and a user who types `argosy launch`."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kept import LAB
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.lab.conftest import Cluster, Ran

REPO = Path(__file__).parents[3]
TELL = ("python", str(Path(__file__).with_name("tell.py")))
BASE = "debian:bookworm"
ARGOSY = (sys.executable, "-m", "argosy.cli")

SITE = """\
name = "desk"
title = "the tests' cluster"
scheduler = "slurm"
checked = "2026-11-20"
[node]
cores = 8
[slurm]
polling_seconds = 0.5
"""
"""Without GPUs: at a site with GPUs each job would ask for them."""
GPUS = 'gpus = 2\ngpu_vendor = "nvidia"\ngpu_device = "/dev/nvidia0"\n'


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a user of the cluster sits: the login node, a home, a shared folder of this test."""

    cluster: Cluster
    image: str
    folder: str
    site: str = "/shared/site.toml"

    @property
    def here(self) -> Path:
        """The test's folder, as this machine sees it."""
        return self.cluster.shared / Path(self.folder).relative_to("/shared")

    @property
    def with_gpus(self) -> Desk:
        """The same with the site as it is: with the GPUs of its nodes."""
        return dataclasses.replace(self, site="/shared/gpu-site.toml")

    @property
    def telling(self) -> tuple[str, ...]:
        """The command whose ranks tell what they are."""
        return TELL

    def argosy(
        self, *words: str, check: bool = True, env: Mapping[str, str] | None = None, timeout: float = PATIENCE_S
    ) -> Ran:
        """Type a command on the login node."""
        return self.cluster.on("ctl", ["argosy", *words], cwd=self.folder, env=env, check=check, timeout=timeout)

    def words(self, *options: str, command: Sequence[str]) -> list[str]:
        return ["launch", self.image, "--site", self.site, *options, "--", *command]

    def follow(
        self,
        *options: str,
        command: Sequence[str],
        check: bool = True,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE_S,
    ) -> Ran:
        """Launch a job and follow it to its end."""
        return self.argosy(*self.words(*options, "--follow", command=command), check=check, env=env, timeout=timeout)

    def submit(self, *options: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """Launch a job and give its number."""
        return self.argosy(*self.words(*options, command=command), env=env).stdout.strip()

    def script(self, *options: str, command: Sequence[str]) -> str:
        """Write the script down, and give its path."""
        self.argosy(*self.words(*options, "--script", "job.sh", command=command))
        return f"{self.folder}/job.sh"

    def output(self, job: str) -> str:
        """Read what a job wrote."""
        found = list(self.here.glob(f"*-{job}.out"))
        return found[0].read_text(errors="replace") if found else ""

    def wait(self, job: str, timeout: float = PATIENCE_S) -> str:
        try:
            return self.cluster.wait_for(job, timeout=timeout)
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure}; so far it wrote\n{self.output(job)[-3000:]}")

    def until(self, ask: Callable[[], bool], complaint: str, timeout: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if ask():
                return
            time.sleep(0.1)
        pytest.fail(f"{complaint} within {timeout:g} s")

    def until_written(self, job: str, text: str, times: int = 1, timeout: float = PATIENCE_S) -> None:
        """Wait until a job has written something so often."""
        end = time.monotonic() + timeout
        while self.output(job).count(text) < times:
            if time.monotonic() > end:
                pytest.fail(f"job {job} did not write {text!r} {times} times within {timeout:g} s:\n{self.output(job)}")
            time.sleep(0.1)

    def sh(self, script: str, *, node: str = "ctl", check: bool = True, timeout: float = PATIENCE_S) -> Ran:
        words = ["bash", "-euc", script]
        return self.cluster.on(node, words, cwd=self.folder, check=check, timeout=timeout)

    def write(self, name: str, text: str) -> str:
        """Write a file that the nodes see, and give its path there."""
        (self.here / name).write_text(text)
        (self.here / name).chmod(0o755)
        return f"{self.folder}/{name}"

    def with_image(self, image: Path) -> Desk:
        """Give the same desk with another image."""
        lay(image, self.cluster.shared)
        return self.with_path(f"/shared/{image.name}")

    def with_path(self, image: str) -> Desk:
        """Give the same desk with the image of a path on the nodes."""
        return dataclasses.replace(self, image=image)

    def told(self, text: str) -> list[dict[str, Any]]:
        """Read the lines of tell.py in an output, in the order of the ranks."""
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return sorted(found, key=lambda row: int(row["rank"]))

    def tell(self, *options: str, words: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Launch a job whose ranks tell what they are, and read it."""
        return self.told(self.follow(*options, command=(*TELL, *words)).stdout)


def kept_image(name: str, requirements: str, base: str = BASE, form: str = "flat") -> Path:
    """Let Argosy build an image, or give the one that it built before from the same words."""

    def words(image: Path) -> tuple[str, ...]:
        recipe = image.with_suffix(".txt")
        recipe.write_text(requirements)
        return (*ARGOSY, "build", str(recipe), "--base", base, "--format", form, "-o", str(image))

    return built_once(f"{name}-{form}", f"{base}\n{requirements}", words)


def built_once(name: str, text: str, words: Callable[[Path], Sequence[str]], folder: Path = REPO) -> Path:
    """Run the command that builds an image, or give the image that was built before from the same text."""
    what = hashlib.sha256("\n".join([text, (REPO / "src/argosy/core/layout.py").read_text()]).encode())
    image = LAB / "images" / f"{name}-{what.hexdigest()[:12]}.sif"
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.is_file():
            done = subprocess.run(
                words(image),
                cwd=folder,
                env={**os.environ, "ARGOSY_CACHE": str(LAB / "cache")},
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            assert done.returncode == 0, done.stderr
            image.chmod(0o644)
    return image


def lay(image: Path, folder: Path) -> None:
    """Put an image where the nodes see it: a link where it can be, else a copy."""
    if (folder / image.name).exists():
        return
    try:
        (folder / image.name).hardlink_to(image)
    except OSError:
        shutil.copy(image, folder)


@pytest.fixture(scope="session")
def small_image() -> Path:
    """Give an image with Python and nothing more."""
    return kept_image("small", "pip\n")


@pytest.fixture(scope="session")
def torch_image() -> Path:
    """Give an image with torch and what the examples need: that of Lightning, which has all of it."""
    return example_image("lightning")


def example_image(name: str) -> Path:
    """Give the image of an example: of `mpi`, built by its project file, or of `lightning`."""
    if name == "lightning":
        # Of the two forms of an image, this one has a layer that can be attached in several ways.
        return kept_image(name, (REPO / "examples/lightning/requirements.txt").read_text(), form="delta")
    folder = REPO / "examples/mpi"
    text = "".join((folder / name).read_text() for name in ("argosy.toml", "requirements.txt"))
    return built_once("mpi", text, lambda image: (*ARGOSY, "build", "-o", str(image)), folder)


@pytest.fixture(scope="session")
def mpi_image() -> Path:
    """Give the image of the MPI example."""
    return example_image("mpi")


@pytest.fixture(scope="session")
def lightning_image(torch_image: Path) -> Path:
    """Give an image with torch and Lightning."""
    return torch_image


def sit_down(cluster: Cluster, image: Path, name: str) -> Desk:
    """Make a desk on any cluster."""
    lay(image, cluster.shared)
    (cluster.shared / "site.toml").write_text(SITE)
    (cluster.shared / "gpu-site.toml").write_text(SITE.replace("[slurm]", GPUS + "[slurm]"))
    folder = cluster.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return Desk(cluster, f"/shared/{image.name}", f"/shared/{name}")


@pytest.fixture
def desk(cluster: Cluster, small_image: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """Give a desk on the session's cluster, with the small image; what is left running is cancelled."""
    name = re.sub(r"\W+", "-", request.node.name)[:60] + f"-{os.urandom(2).hex()}"
    yield sit_down(cluster, small_image, name)
    cluster.sh("scancel --user=alice; true")


@pytest.fixture(scope="session")
def new_desk_at() -> Callable[[Cluster, Path, str], Desk]:
    """Return the function that makes a desk, for those who keep one longer than a test."""
    return sit_down


@pytest.fixture
def torch_desk(desk: Desk, torch_image: Path) -> Desk:
    """Give the same desk with the torch image."""
    return desk.with_image(torch_image)


@pytest.fixture
def new_desk(
    new_cluster: Callable[..., AbstractContextManager[Cluster]], small_image: Path
) -> Callable[..., AbstractContextManager[Desk]]:
    """Return a function of `lab/cluster up` options that gives a desk on a cluster of one's own."""

    @contextlib.contextmanager
    def start(*options: str) -> Iterator[Desk]:
        with new_cluster(*options) as cluster:
            yield sit_down(cluster, small_image, "desk")

    return start
