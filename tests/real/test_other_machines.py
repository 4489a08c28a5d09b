"""An image for machines of another architecture: an emulator runs its programs, where the kernel knows one."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.core.cache import fill_once
from argosy.version import VERSION
from tests.real.channel import Channel, CondaPackage, File
from tests.real.conftest import make_root

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

ENTRY = (
    r":argosy-test:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{emulator}:POCF"
)
"""64-bit little-endian ELF programs for machine 0xb7, in the words of Linux' admin-guide/binfmt-misc.rst."""

LIST = "/proc/sys/fs/binfmt_misc"
REGISTER = f'mount -t binfmt_misc binfmt_misc {LIST} && printf %s "$1" > {LIST}/register && shift && exec "$@"'
"""A user namespace has a list of its own (Linux 6.7): the machine's stays as it is."""

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture(scope="session")
def parts(pool: Shop) -> Path:
    """Give a folder with an emulator for aarch64 and a busybox for it, out of Debian's packages."""
    if platform.machine() != "x86_64":
        pytest.skip("emulates aarch64 on x86_64")
    extract = ("mmdebstrap", "--variant=extract", "--skip=check/qemu")
    place = pool.cache / "bases" / "parts-of-aarch64"  # kept between runs, as the shop's Debian is
    with fill_once(place, what="fetching an emulator", waiting=print) as folder:
        if folder is not None:
            pool.tool(*extract, "--include=qemu-user-static", "bookworm", folder / "here")
            pool.tool(*extract, "--architectures=arm64", "--include=busybox-static", "bookworm", folder / "there")
            (folder / "here/usr/bin/qemu-aarch64-static").rename(folder / "emulator")
            (folder / "there/bin/busybox").rename(folder / "busybox")
            shutil.rmtree(folder / "here")
            shutil.rmtree(folder / "there")
    return place


@pytest.fixture
def emulated(parts: Path) -> tuple[str, ...]:
    """Give the words that start a program where programs for aarch64 run."""
    words = (*NAMESPACE, "sh", "-c", REGISTER, "sh", ENTRY.format(emulator=parts / "emulator"))
    tried = subprocess.run((*words, "true"), capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"needs a binfmt_misc of a namespace (Linux 6.7): {tried.stderr}")
    return words


def test_an_image_for_other_machines_is_built_and_run_under_an_emulator_and_refused_without(
    shop: Shop, parts: Path, emulated: tuple[str, ...]
) -> None:
    make_root(shop.folder / "root", parts / "busybox")
    shop.write("argosy.toml", '[image]\nbase = "root"\noutput = "far.sif"\n[[step]]\nrun = "uname -m > /etc/machine"\n')
    built = shop.argosy("build", "--arch", "arm64", around=emulated)
    assert built.code == 0, built.err
    assert "programs for aarch64 run in an emulator on this machine" in built.err
    assert shop.sif(shop.folder / "far.sif").header.arch == "arm64"
    run = shop.argosy("run", "far.sif", "--", "cat", "/etc/machine", around=emulated)
    assert (run.code, run.out) == (0, "aarch64\n"), run.err
    again = shop.argosy("build", "--locked", "far.sif", "-o", "again.sif", "--json", around=emulated)
    assert again.code == 0, again.err
    assert (
        json.loads(again.out)["digest"] == json.loads(shop.argosy("images", "info", "far.sif", "--json").out)["digest"]
    )
    refused = shop.argosy("run", "far.sif", "--", "true")
    assert refused.code == 125
    assert "far.sif is for another architecture" in refused.err
    assert "image: arm64; wanted: amd64" in refused.err


def test_conda_packages_are_those_of_the_other_machine_and_their_scripts_run_as_there(
    shop: Shop, parts: Path, emulated: tuple[str, ...]
) -> None:
    script = File(b'uname -m > "$PREFIX/share/script"\n', 0o755)
    packages = [
        CondaPackage("far", "1.0", subdir=subdir, files={"share/subdir": File(name), "bin/.far-post-link.sh": script})
        for subdir, name in (("linux-64", b"here\n"), ("linux-aarch64", b"there\n"))
    ]
    channel = Channel(shop.folder / "channel").add(*packages).write_index()
    make_root(shop.folder / "root", parts / "busybox")
    shop.write("environment.yml", f"channels: [{channel.url}]\ndependencies: [far]\n")
    words = ("build", "environment.yml", "--base", "root", "--arch", "aarch64", "-o", "far.sif")
    built = shop.argosy(*words, around=emulated)
    assert built.code == 0, built.err
    share = "/opt/argosy/env/share"
    run = shop.argosy("run", "far.sif", "--", "cat", f"{share}/subdir", f"{share}/script", around=emulated)
    assert (run.code, run.out) == (0, "there\naarch64\n"), run.err


BUNDLE = Path(__file__).parents[2] / f"dist/argosy-{VERSION}-linux-aarch64.run"
OF_DEBIAN = "base-files,bash,coreutils,dash,debianutils,findutils,gzip,libc-bin,sed,tar"
OLD_ARM = ("mmdebstrap", "--variant=extract", "--architectures=arm64", "--aptopt=Acquire::Check-Valid-Until false")
USE = """
set -eu
export HOME=/home/ada
sh /home/ada/argosy.run
cd /home/ada
.local/bin/argosy doctor --json > doctor.json || true
.local/bin/argosy launch train.sqsh --site alps-clariden --nodes 2 --account p --dry-run -- python train.py > train.sh
.local/share/argosy/python/bin/python3 -c 'import bz2, ctypes, lzma, ssl, zlib, msgspec, rattler'
.local/share/argosy/python/bin/uv --version
mkdir tree
.local/share/argosy/tools/mksquashfs tree tree.sqsh -quiet -no-progress -comp zstd
.local/share/argosy/tools/unsquashfs -quiet -no-progress -d copy tree.sqsh
"""


@pytest.mark.soak
def test_the_bundle_for_aarch64_installs_and_works_on_an_old_system(shop: Shop, emulated: tuple[str, ...]) -> None:
    if not BUNDLE.exists():
        pytest.skip(f"{BUNDLE.name} is not there: packaging/bundle/build aarch64")
    root = shop.folder / "arm"
    shop.tool(*OLD_ARM, f"--include={OF_DEBIAN}", "bullseye", root, "http://deb.debian.org/debian")
    (root / "home/ada").mkdir(parents=True)
    shutil.copy2(BUNDLE, root / "home/ada/argosy.run")
    (root / "home/ada/use.sh").write_text(USE)
    enter = (
        f"mount --rbind /proc {root}/proc; mount --rbind /dev {root}/dev; exec chroot {root} /bin/sh /home/ada/use.sh"
    )
    done = subprocess.run((*emulated, "sh", "-c", enter), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "#SBATCH --nodes=2" in (root / "home/ada/train.sh").read_text()
    report = json.loads((root / "home/ada/doctor.json").read_text())
    findings = {each["what"]: each["state"] for each in report["findings"]}
    assert (findings["mksquashfs"], findings["unsquashfs"]) == ("ok", "ok")
    assert (root / "home/ada/copy").is_dir()
