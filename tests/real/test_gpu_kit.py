"""`make gpu` on a machine whose GPUs are fake: device files without a function, and a driver compiled from C.

The devices and the linker's cache are visible only in a private mount namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.kit import build_image

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="device files need root")
NEEDS_TOOLS = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "mmdebstrap", "mksquashfs", "bwrap"))), reason="needs gcc, mmdebstrap and bwrap"
)
HOST = """\
set -eu
mount --make-rprivate /
mkdir "$1/dev" "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs argosy /dev
for node in "$1"/dev/*; do
    name=${node##*/}
    if [ -d "$node" ]; then mkdir "/dev/$name"; mount --rbind "$node" "/dev/$name"
    elif [ -L "$node" ]; then cp -P "$node" "/dev/$name"
    else touch "/dev/$name"; mount --bind "$node" "/dev/$name"; fi
done
mknod -m 666 /dev/nvidia0 c 1 3
mknod -m 666 /dev/nvidia1 c 1 3
mknod -m 666 /dev/nvidiactl c 1 3
printf '%s\\n' "$1/driver" > "$1/ld.conf"
cat /etc/ld.so.conf >> "$1/ld.conf"
ldconfig -f "$1/ld.conf" -C "$1/ld.cache"
mount --bind "$1/ld.cache" /etc/ld.so.cache
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    built = ROOT / "build/gpu-kit/image.sqsh"
    if built.exists():
        shutil.copy(built, folder / built.name)
    else:
        build_image(folder / built.name)
    return folder


@NEEDS_ROOT
@NEEDS_TOOLS
def test_the_kit_finds_the_gpus_that_bubblewrap_passes_in(kit: Path, tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    source = ROOT / "tests/unit/gpu/fake_cuda.c"
    library = tmp_path / "driver/libcuda.so.1"
    options = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run((str(shutil.which("gcc")), *options, "-o", library, source), check=True)
    report = tmp_path / "report.json"
    words = (sys.executable, "-m", "gpu", "--kit", str(kit), "--report", str(report))
    host = ("unshare", "--mount", "sh", "-c", HOST, "sh", str(tmp_path), *words)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "ARGOSY_LAB": str(tmp_path / "no-lab")}
    done = subprocess.run(host, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=480)
    assert report.exists(), done.stderr
    steps = {step["name"]: step for step in json.loads(report.read_text(encoding="utf-8"))["steps"]}
    assert steps["run bwrap"]["state"] == steps["launch --ranks"]["state"] == "ok", done.stderr
    (probe,) = steps["run bwrap"]["values"]["probes"]
    assert [device["name"] for device in probe["devices"]] == ["Fake GPU 0", "Fake GPU 1"]
    ranks = steps["launch --ranks"]["values"]["probes"]
    assert sorted(probe["local_rank"] for probe in ranks) == [0, 1]
    assert done.returncode == 0, done.stderr
    assert steps["nccl and verify"]["state"] == "skipped"
