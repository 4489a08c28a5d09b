"""The wheel and the source archive install with pip and uv; the bundle installs on old machines without Python."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.version import VERSION
from tests.kept import LAB
from tests.real.conftest import ALICE, AS_ALICE
from tests.real.indexes import pip_wheels

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = [pytest.mark.real, pytest.mark.soak]

REPO = Path(__file__).parents[2]
BUNDLE = REPO / f"dist/argosy-{VERSION}-linux-{platform.machine()}.run"
TMP = "/tmp"  # noqa: S108 - the empty one of a machine
ROOTS = LAB / "install-roots"
BULLSEYE = ("mmdebstrap", "--variant=minbase", "--aptopt=Acquire::Check-Valid-Until false", "--include=ca-certificates")
GLIBC = "libc libm libdl libpthread librt libresolv libutil libnss_files libnss_dns"
OTHERS = "libgcc_s libacl libselinux libpcre2-8"
"""Libraries of py-rattler and of GNU tar, which every Linux of a cluster has."""
NOT_OF_BUSYBOX = {"busybox", "tar", "setpriv", "unshare", "nsenter"}
"""BusyBox's versions have fewer options than GNU tar and util-linux, which every Linux of a cluster has."""
ROCKY = """\
NAME="Rocky Linux"
VERSION="8.10 (Green Obsidian)"
ID="rocky"
ID_LIKE="rhel centos fedora"
"""
OLD_PYTHON = """\
#!/bin/sh
echo "Python 3.6.8"
[ "$1" = --version ] || exit 1
"""


def run(*words: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        tuple(map(str, words)),
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and from it the wheel, out of a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("packages")
    files = run("git", "ls-files", "-z", cwd=REPO).split("\0")
    for name in filter(None, files):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, folder / "source" / name, follow_symlinks=False)
    run(sys.executable, "-m", "uv", "build", "-q", "--out-dir", folder / "dist", cwd=folder / "source")
    return folder / "dist"


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_pip_installs_the_wheel_and_the_source_archive(packages: Path, tmp_path: Path, kind: str) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    (package,) = packages.glob(kind)
    run(tmp_path / "venv/bin/pip", "install", "-q", package, cwd=tmp_path)
    check_command(tmp_path / "venv/bin/argosy", tmp_path)


def test_uv_installs_the_command_and_uvx_starts_it_without_an_installation(packages: Path, tmp_path: Path) -> None:
    uv = (sys.executable, "-m", "uv", "tool")
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    run(*uv, "install", "-q", "--find-links", packages, "argosy", cwd=tmp_path, **folders)
    check_command(tmp_path / "bin/argosy", tmp_path)
    shutil.rmtree(tmp_path / "tools")
    said = run(*uv, "run", "-q", "--find-links", packages, "argosy", "--version", cwd=tmp_path, **folders)
    assert said == f"argosy {VERSION}\n"


def check_command(argosy: Path, folder: Path) -> None:
    """Check that the installed command has its data files: profiles, shell files, known errors."""
    assert run(argosy, "--version", cwd=folder) == f"argosy {VERSION}\n"
    assert "lumi-g" in run(argosy, "sites", "ls", cwd=folder)
    words = ("launch", "x.sif", "--site", "lumi-g", "--nodes", "2", "--gpus-per-node", "8", "--account", "project_1")
    assert "#SBATCH --nodes=2" in run(argosy, *words, "--time", "1:00", "--dry-run", "--", "./x", cwd=folder)
    (folder / "log").write_text("CUDA out of memory\n", encoding="utf-8")
    run(argosy, "why", "log", cwd=folder)


def debian_11(path: Path) -> None:
    """Make a root file system of Debian 11 without Python: glibc 2.31."""
    run(*BULLSEYE, "bullseye", path, "http://deb.debian.org/debian", cwd=path.parent)


def like_rocky_8(path: Path) -> None:
    """Make a bare root file system: the glibc of Debian 11, BusyBox, GNU tar, and files as Rocky Linux 8 has them.

    It has a Python that is too old, certificates in the folder of Red Hat, and no programs of util-linux.
    """
    debian = old_root("debian-11")
    for name in (
        "bin",
        "etc/pki/tls/certs",
        "lib/x86_64-linux-gnu",
        "lib64",
        "proc",
        "dev",
        "tmp",
        "home/alice",
        "usr",
    ):
        (path / name).mkdir(parents=True)
    (path / "usr/bin").symlink_to("../bin")
    for library in f"{GLIBC} {OTHERS}".split():
        for file in debian.glob(f"**/x86_64-linux-gnu/{library}.so*"):
            shutil.copy2(file, path / "lib/x86_64-linux-gnu")
    (loader,) = (debian / "lib/x86_64-linux-gnu").glob("ld-2.*.so")  # /lib64 has a link with an absolute path to it
    shutil.copy2(loader, path / "lib64/ld-linux-x86-64.so.2")
    shutil.copy2("/bin/busybox", path / "bin/busybox")
    shutil.copy2(debian / "bin/tar", path / "bin/tar")
    for name in set(run("/bin/busybox", "--list", cwd=path).split()) - NOT_OF_BUSYBOX:
        (path / "bin" / name).symlink_to("busybox")
    shutil.copy2("/etc/ssl/certs/ca-certificates.crt", path / "etc/pki/tls/certs/ca-bundle.crt")
    (path / "etc/os-release").write_text(ROCKY, encoding="utf-8")
    (path / "bin/python3").write_text(OLD_PYTHON, encoding="utf-8")
    (path / "bin/python3").chmod(0o755)


def old_root(name: str) -> Path:
    """Give a root file system that stays for later runs; the work of an interrupted run is made again."""
    path = ROOTS / name
    if not path.exists():
        new = ROOTS / f"{name}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        {"debian-11": debian_11, "like-rocky-8": like_rocky_8}[name](new)
        for file in ("passwd", "group"):
            text = f"root:x:0:0::/root:/bin/sh\nalice:x:{ALICE}:{ALICE}::/home/alice:/bin/sh\n"
            (new / "etc" / file).write_text(text if file == "passwd" else f"alice:x:{ALICE}:\n", encoding="utf-8")
        (new / "home/alice").mkdir(parents=True, exist_ok=True)
        new.chmod(0o755)
        new.rename(path)
    return path


class Machine:
    """An old machine without a network, on which alice is an ordinary user."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home

    def run(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        variables = {"PATH": "/usr/bin:/bin", "HOME": "/home/alice", "USER": "alice", "LC_ALL": "C", **(env or {})}
        done = subprocess.run(
            (
                *AS_ALICE,
                *("bwrap", "--ro-bind", str(self.root), "/", "--bind", str(self.home), "/home/alice"),
                *("--dev", "/dev", "--proc", "/proc", "--tmpfs", TMP, "--unshare-all", "--die-with-parent"),
                *("--clearenv", *(word for pair in variables.items() for word in ("--setenv", *pair))),
                *("--chdir", "/home/alice", "--", *words),
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(params=["debian-11", "like-rocky-8"])
def machine(request: pytest.FixtureRequest, shop: Shop) -> Machine:
    if not BUNDLE.exists():
        pytest.skip(f"{BUNDLE.name} is not there: make bundle")
    home = shop.folder / "alice"
    home.mkdir()
    shutil.copy2(BUNDLE, home / "argosy.run")
    for path in (home, home / "argosy.run"):
        os.chown(path, ALICE, ALICE)
    return Machine(old_root(request.param), home)


def test_the_bundle_installs_and_works_without_root_network_and_python(machine: Machine, shop: Shop) -> None:
    shop.write("requirements.txt", "tinypkg==1.0\n")
    wheels = shop.folder / "wheels"
    shutil.copytree(shop.wheels, wheels, ignore=shutil.ignore_patterns("pip-*"))
    for pip in pip_wheels():  # a pip that can download
        shutil.copy(pip, wheels)
    done = replace(shop, wheels=wheels).argosy(
        "bundle", "requirements.txt", "--base", shop.base, "-o", machine.home / "mine.tar"
    )
    assert done.code == 0, done.err
    os.chown(machine.home / "mine.tar", ALICE, ALICE)

    said = machine.run("sh", "argosy.run", "--prefix", "software/argosy", "--link", "bin")
    assert f"installed: /home/alice/software/argosy/bin/argosy (argosy {VERSION})" in said
    assert machine.run("bin/argosy", "--version") == f"argosy {VERSION}\n"

    doctor = machine.run("bin/argosy", "doctor", code=7)
    assert "ok       mksquashfs         4.6.1" in doctor
    assert "ok       unsquashfs         4.6.1" in doctor

    machine.run("bin/argosy", "build", "--bundle", "mine.tar", "-o", "mine.sif")
    lock = machine.run("bin/argosy", "images", "freeze", "mine.sif")
    assert "tinypkg" in lock
    script = machine.run(
        *("bin/argosy", "launch", "mine.sif", "--site", "lumi-g", "--nodes", "2", "--gpus-per-node", "8"),
        *("--account", "project_1", "--time", "00:10:00", "--no-check", "--dry-run", "--", "python", "train.py"),
    )
    assert "#SBATCH --nodes=2" in script


def test_an_installation_can_be_moved_and_ignores_variables_of_other_pythons(machine: Machine) -> None:
    machine.run("sh", "argosy.run")
    machine.run("mv", ".local/share/argosy", "elsewhere")
    strange = {"PYTHONPATH": "/home/alice/other", "PYTHONHOME": "/nowhere", "LD_LIBRARY_PATH": "/nowhere"}
    assert machine.run("elsewhere/bin/argosy", "--version", env=strange) == f"argosy {VERSION}\n"
    code = "import ssl, ctypes, lzma, bz2, zlib, hashlib, rattler, msgspec, yaml, uv; print(uv.find_uv_bin())"
    python = "elsewhere/python/bin/python3"
    assert machine.run(python, "-I", "-c", code) == "/home/alice/elsewhere/python/bin/uv\n"
    assert "uv " in machine.run("elsewhere/python/bin/uv", "--version")
    assert "built-in accelerators" in machine.run("elsewhere/tools/proot", "--version")
