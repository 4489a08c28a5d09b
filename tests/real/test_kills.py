"""Builds are killed at random moments: the image is absent or whole, nothing lives on, and the next build succeeds.

The moments are drawn with a fixed seed over the time that one build takes here; ``ARGOSY_SEED`` draws others.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.images.sif.read import verify_sif
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

SAMPLE = 4
FULL = 67
SEED = int(os.environ.get("ARGOSY_SEED", "20"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
BUILD_BACKENDS = ("root", "userns", "proot")


def start(shop: Shop, backend: str) -> subprocess.Popen[str]:
    recipe = shop.write("r.txt", "tinypkg\nanother\n")
    words = ("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "--force", "--build-backend", backend)
    return shop.start(*words)


@pytest.fixture(scope="module")
def duration(pool: Shop) -> dict[str, float]:
    """Measure one build with each build backend, after one that fills the cache."""
    took: dict[str, float] = {}
    for backend in BUILD_BACKENDS:
        start(pool, backend).communicate()
        begin = time.monotonic()
        child = start(pool, backend)
        _, err = child.communicate()
        took[backend] = time.monotonic() - begin
        assert child.returncode == 0, err
    (pool.folder / "x.sif").unlink()
    (pool.folder / "r.txt").unlink()
    return took


def session_members(session: int) -> list[str]:
    """Give the programs that a build started and that still live: they are in its session."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            words = rest.split()
            if int(words[3]) == session and words[0] != "Z":
                members.append(name)
    return members


def wait_until_all_have_ended(session: int) -> list[str]:
    """Give what does not end: the kernel kills the children of a killed process at once, but not in no time."""
    deadline = time.monotonic() + PATIENCE_S
    while (members := session_members(session)) and time.monotonic() < deadline:
        os.sched_yield()
    return members


@pytest.mark.parametrize(
    "turn",
    [pytest.param(turn, marks=[pytest.mark.soak] if turn >= SAMPLE else []) for turn in range(FULL)],
)
def test_a_build_that_is_killed_leaves_the_image_absent_or_whole(
    shop: Shop, duration: dict[str, float], turn: int
) -> None:
    chance = random.Random(SEED * 1000 + turn)  # noqa: S311 - the same moments each time
    number, backend = SIGNALS[turn % len(SIGNALS)], BUILD_BACKENDS[turn % len(BUILD_BACKENDS)]
    output = shop.folder / "x.sif"
    child = start(shop, backend)
    with suppress(subprocess.TimeoutExpired):
        child.wait(chance.uniform(0.0, 1.1) * duration[backend])
    child.send_signal(number)
    child.communicate()
    assert wait_until_all_have_ended(child.pid) == []
    assert "argosy-work" not in Path("/proc/self/mounts").read_text()
    if output.exists():
        verify_sif(output)
    again = start(shop, backend)
    _, err = again.communicate()
    assert again.returncode == 0, err
    verify_sif(output)
    assert shop.run(output, "tinypkg").out == "tinypkg 2.0\n"
    assert shop.run(output, "test", "-e", "/.argosy").code == 1, (
        "a mount point was left in the base that images run from"
    )
    shop.nothing_left(output)


def strays() -> set[Path]:
    """Give what mmdebstrap leaves in the folder for temporary files when it is killed."""
    return set(Path(tempfile.gettempdir()).glob("mmdebstrap.*"))


@pytest.mark.soak
def test_making_a_debian_base_that_is_killed_leaves_no_half_base_and_no_process(shop: Shop) -> None:
    from dataclasses import replace  # noqa: PLC0415

    own = replace(shop, cache=shop.folder / "cache")
    before = strays()
    recipe = own.write("r.txt", "tinypkg\n")
    for patience in (1.0, 5.0, 12.0):
        child = own.start("build", recipe, "--base", "debian:bookworm", "-o", own.folder / "x.sif")
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
        child.kill()
        child.communicate()
        assert wait_until_all_have_ended(child.pid) == []
        assert str(own.folder) not in Path("/proc/self/mounts").read_text()
        bases = [path for path in (own.cache / "bases").glob("[!.]*") if path.is_dir()]
        assert bases == []
        assert strays() - before == set()
