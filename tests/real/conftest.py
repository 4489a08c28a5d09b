"""A shop of small things to build with: a Debian base made once per machine, wheels written on the fly, a way to start
Argosy with nothing of the caller's settings; it never touches the user's own cache or configuration.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pytest

from argosy.core.process import Command, RealRunner
from argosy.images.sif.format import Sif
from argosy.images.sif.read import read_sif, verify_sif
from argosy.images.sif.write import FileSlice, plan_system_part, write_sif
from tests.kept import LAB
from tests.memory import scratch_folder
from tests.patience import PATIENCE_S

REPO = Path(__file__).parents[2]
CACHE = LAB / "cache"
LAB_IN = REPO / "lab" / "in"
PROGRAMS = ("bwrap", "mksquashfs", "unsquashfs", "mmdebstrap", "setpriv", "unshare")

ALICE = 2001
AS_ALICE = ("setpriv", "--reuid", str(ALICE), "--regid", str(ALICE), "--clear-groups", "--inh-caps=-all", "--")
SYSTEM_PYTHON = "/usr/bin/python3"

HELLO = "def main() -> None:\n    print({text!r})\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pure-Python package of one module."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def info(self) -> str:
        return f"{self.name}-{self.version}.dist-info"

    def contents(self) -> dict[str, str]:
        """Give every file but RECORD, as a wheel and as an installed package have it."""
        meta = [f"Name: {self.name}", f"Version: {self.version}", *(f"Requires-Dist: {r}" for r in self.requires)]
        files = {f"{self.name}/__init__.py": f'VERSION = "{self.version}"\n'} | dict(self.files)
        files[f"{self.info}/METADATA"] = "\n".join(("Metadata-Version: 2.1", *meta)) + "\n"
        files[f"{self.info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        if self.scripts:
            points = "".join(f"{name} = {value}\n" for name, value in self.scripts.items())
            files[f"{self.info}/entry_points.txt"] = f"[console_scripts]\n{points}"
        return files

    def write(self, folder: Path) -> Path:
        """Write the wheel file, the same bytes each time."""
        files = self.contents()
        rows = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
        record = f"{self.info}/RECORD"
        files[record] = "\n".join((*rows, f"{record},,")) + "\n"
        path = folder / f"{self.name}-{self.version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), text)
        return path

    def unpack(self, site_packages: Path) -> None:
        """Put the package where an installer would have."""
        for name, text in self.contents().items():
            file = site_packages / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def hello(name: str, version: str, *requires: str) -> Wheel:
    """Make a package whose console script of the same name says what it is."""
    text = HELLO.format(text=f"{name} {version}")
    return Wheel(name, version, requires, {name: f"{name}.main:main"}, {f"{name}/main.py": text})


WHEELS = (
    hello("pip", "24.0"),  # no other is in reach: each build wants one
    hello("tinypkg", "1.0", "tinydep>=1"),
    hello("tinypkg", "2.0", "tinydep>=1"),
    hello("tinydep", "1.5"),
    hello("another", "0.3"),
    hello("onemore", "0.1"),
    hello("needsnine", "1.0", "tinydep>=9"),
    hello("torchvision", "0.24.0", "torch==2.9.0"),
    hello("oldtorch", "1.0", "torch<2"),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a program said and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Shop:
    """Where the tests build: the folder is for one test, the rest is shared and only read."""

    folder: Path
    wheels: Path
    base: Path
    squashfs: Path
    cache: Path
    python: str = sys.executable
    user: tuple[str, ...] = ()

    def environment(self, **more: str) -> dict[str, str]:
        """Give the whole environment of a build: packages come from the shop's wheels alone."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "ARGOSY_CACHE": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PYTHONPATH": ":".join(path for path in sys.path if path.endswith(("site-packages", "/src"))),
        } | more

    @property
    def home(self) -> Path:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return home

    def with_cache(self, name: str) -> Shop:
        """Give the same shop with a cache that no other test fills; bases and tools are those of all tests."""
        cache = self.folder / name
        cache.mkdir()
        for kept in ("bases", "tools"):
            (cache / kept).symlink_to((self.cache / kept).resolve())
        return replace(self, cache=cache)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def make_wheel(self, name: str, version: str, *requires: str, **more: Mapping[str, str]) -> Wheel:
        """Give a package that only one test needs: with `scripts` and `files` of its own."""
        return Wheel(name, version, requires, more.get("scripts", {}), more.get("files", {}))

    def tool(self, *words: str | Path) -> None:
        """Run a program of this machine that must succeed."""
        reply = RealRunner().run(Command(tuple(map(str, words))))
        assert reply.code == 0, reply.stderr

    def words(self, *words: str | Path) -> tuple[str, ...]:
        return (*self.user, self.python, "-m", "argosy.cli", *map(str, words))

    def start(self, *words: str | Path, around: Sequence[str] = (), **more: str) -> subprocess.Popen[str]:
        """Start Argosy in a process group of its own; `around` is what starts it."""
        return subprocess.Popen(
            (*around, *self.words(*words)),
            cwd=self.folder,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def argosy(self, *words: str | Path, around: Sequence[str] = (), **more: str) -> Ended:
        """Run Argosy to its end; a hang is ended with everything it started."""
        with self.start(*words, around=around, **more) as child:
            try:
                out, err = child.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                pytest.fail(f"still running after {PATIENCE_S} s: {words}\n{child.communicate()}")
        return Ended(child.returncode, out, err)

    def build(
        self, requirements: str, *more: str | Path, out: str = "out.sif", base: str | Path = "", **env: str
    ) -> Path:
        """Build over the shop's base, and give the image."""
        name = "environment.yml" if "dependencies:" in requirements else "requirements.txt"
        recipe = self.write(name, requirements)
        output = self.folder / out
        done = self.argosy("build", recipe, "--base", base or self.base, "-o", output, *more, **env)
        assert done.code == 0, done.err
        self.nothing_left(output)
        return output

    def run(self, image: Path, *command: str, **env: str) -> Ended:
        return self.argosy("run", image, "--", *command, **env)

    def lab(self, *words: str | Path, user: str = "alice", **env: str) -> Ended:
        """Run a program in a login node of the lab, which has a real Apptainer and this checkout's argosy."""
        variables = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        place = ("-u", user, "-w", self.folder, "-b", self.wheels.parent)
        done = subprocess.run(
            tuple(map(str, (LAB_IN, *place, *variables, "--", *words))),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def nothing_left(self, output: Path | None = None) -> None:
        """Check that a build left its image and nothing else: no part, no lease, no work folder, no mount."""
        beside = {path.name for path in self.folder.iterdir() if path.name.startswith(".")}
        assert beside == set()
        assert output is None or output.is_file()
        for work in (self.cache / "work", self.folder / "work"):
            assert not work.is_dir() or list(work.iterdir()) == []
        assert str(self.folder) not in Path("/proc/self/mounts").read_text()
        assert "argosy-work" not in Path("/proc/self/mounts").read_text()

    def sif(self, path: Path) -> Sif:
        verify_sif(path)
        return read_sif(path)


@pytest.fixture(scope="session")
def pool() -> Iterator[Shop]:
    """Make what all tests share: the Debian base as a squashfs and as a SIF, and the wheels."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or PROGRAMS)}")
    with scratch_folder("argosy-real-") as folder:
        (folder / "wheels").mkdir()
        for wheel in WHEELS:
            wheel.write(folder / "wheels")
        base, squashfs = folder / "base.sif", folder / "base.sqfs"
        whole = _debian(folder)
        system = read_sif(whole).parts[0]
        with whole.open("rb") as file:
            file.seek(system.offset)
            squashfs.write_bytes(file.read(system.size))
        whole.unlink()
        part = plan_system_part(FileSlice(squashfs, 0, system.size), arch="amd64")
        write_sif(base, [part], uuid=uuid5(NAMESPACE_URL, "base"), time=1, arch="amd64")
        base.chmod(0o644)
        cache = folder / "cache"
        cache.mkdir()
        for name in ("bases", "tools"):  # what takes long is made once per machine, the rest is this run's own
            (cache / name).symlink_to(CACHE / name)
        yield Shop(folder, folder / "wheels", base, squashfs, cache)


def _debian(folder: Path) -> Path:
    """Let Argosy build over its own Debian base, which stays in the lab's cache for later runs of the tests."""
    recipe = folder / "requirements.txt"
    recipe.write_text("pip\n")
    CACHE.mkdir(parents=True, exist_ok=True)
    words = ("build", str(recipe), "--base", "debian:bookworm", "--format", "delta", "-o", str(folder / "first.sif"))
    done = subprocess.run(
        (sys.executable, "-m", "argosy.cli", *words),
        env={**os.environ, "ARGOSY_CACHE": str(CACHE)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "first.sif"


BUSYBOX = Path("/bin/busybox")
APPLETS = "cat chmod chown cp dirname echo env find ls mkdir mv printf readlink rm sh stat test touch tr true uname"


def make_root(tree: Path, busybox: Path) -> None:
    """Make the tree of a root file system out of one static program."""
    for name in ("bin", "etc", "usr", "opt", "tmp", "var/tmp", "proc", "sys", "dev", "root", ".singularity.d/env"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(busybox, tree / "bin/busybox")
    for name in APPLETS.split():
        (tree / "bin" / name).symlink_to("busybox")
    (tree / "etc/old").write_text("old\n")
    (tree / ".singularity.d/env/99-base.sh").touch()


@pytest.fixture(scope="session")
def tiny(pool: Shop) -> Path:
    """Give a root file system of one static program, as a squashfs: what needs no Python is built in a second."""
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    tree, packed = pool.folder / "tiny-root", pool.folder / "tiny-root.sqfs"
    make_root(tree, BUSYBOX)
    pool.tool("mksquashfs", tree, packed, "-quiet", "-no-progress", "-all-root")
    packed.chmod(0o644)
    return packed


@pytest.fixture
def shop(pool: Shop) -> Iterator[Shop]:
    """Give a test a folder of its own in the shop."""
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=pool.folder))
    folder.chmod(0o755)
    yield Shop(folder, pool.wheels, pool.base, pool.squashfs, pool.cache)
    shutil.rmtree(folder)


@pytest.fixture
def alices(shop: Shop) -> Shop:
    """Give a shop of an ordinary user: folder and cache are hers, only the static uv is there already.

    Argosy runs under the system's Python there, since the one that runs the tests may lie where she cannot read.
    """
    version = "Python {}.{}.".format(*sys.version_info)
    asked = subprocess.run((SYSTEM_PYTHON, "--version"), capture_output=True, text=True, check=False).stdout
    if not asked.startswith(version):
        pytest.skip(f"the system's Python is not {version}*: {asked.strip()}")
    cache = shop.cache.with_name("cache-alice")
    if not cache.exists():
        cache.mkdir()
        (cache / "tools").symlink_to(shop.cache / "tools")
    for path in (shop.folder, shop.home, cache):
        os.chown(path, ALICE, ALICE)
    return replace(shop, cache=cache, python=SYSTEM_PYTHON, user=AS_ALICE)
