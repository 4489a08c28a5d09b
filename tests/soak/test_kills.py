"""Commands are killed at random moments: the same command then works, and nothing half-written is ever taken for whole.

Builds are killed in tests/real/test_kills.py, wrapped prefixes in tests/real/test_wrap.py.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from argosy.images.sif.read import verify_sif
from tests.real.registry import Registry, running
from tests.real.test_kills import wait_until_all_have_ended

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = [pytest.mark.real, pytest.mark.soak]

SEED = os.environ.get("ARGOSY_SEED", "20")
KILLS = int(os.environ.get("ARGOSY_KILLS", "25"))

PROFILE = """\
name = "here"
title = "a cluster"
scheduler = "slurm"
checked = "2026-01-01"
[node]
cores = 4
[runtime]
name = "bwrap"
"""
SBATCH = """\
#!/bin/sh
for script; do :; done
[ -s "$script" ] || exit 9
tail -n 1 "$script" | grep -q main || exit 9
echo "$script" >> "${0%/*}/submitted"
echo 7
"""
"""Refuses a script that is not whole."""


class Case(NamedTuple):
    """A command that is killed."""

    words: tuple[str | Path, ...]
    before: tuple[tuple[str | Path, ...], ...] = ()
    """Commands that fill what the killed one changes."""
    after: tuple[tuple[str | Path, ...], ...] = ()
    """Commands that must succeed after each kill, before the killed one runs again."""
    result: str = ""
    """Image that is absent or whole at any time, below the folder of the catalog."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("kills") / "registry") as it:
        yield it


@pytest.fixture
def environment(shop: Shop, registry: Registry) -> dict[str, str]:
    programs = shop.folder / "bin"
    programs.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": "#!/bin/sh\n", "scontrol": "#!/bin/sh\nexit 1\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (shop.folder / "here.toml").write_text(PROFILE)
    return {
        "PATH": f"{programs}:{shop.environment()['PATH']}",
        "ARGOSY_CACHE": str(shop.folder / "cache"),
        "ARGOSY_STATE": str(shop.folder / "state"),
        "ARGOSY_IMAGES": str(shop.folder / "images"),
        "ARGOSY_INSECURE_REGISTRIES": registry.address,
    }


def find_case(name: str, image: Path, address: str) -> Case:
    """Give a command by its name in the test's parameters."""
    look = (("cache", "info"), ("images", "ls"))
    launch = ("launch", image, "--site", "./here.toml", "--nodes", "1", "--", "true")
    cases = {
        "pull": Case(
            ("images", "pull", f"oras://{address}/tiny:1", "pulled", "--force"),
            before=(("images", "push", image, f"oras://{address}/tiny:1"),),
            after=look,
            result="pulled.sif",
        ),
        "push": Case(
            ("images", "push", image, f"oras://{address}/pushed:1"),
            after=(*look, ("images", "push", image, f"oras://{address}/other:1")),
        ),
        "copy": Case(("images", "pull", image, "copied", "--force"), after=look, result="copied.sif"),
        "gc": Case(
            ("cache", "gc", "--keep", "0"),
            before=(("run", image, "--", "true"),),
            after=(*look, ("run", image, "--", "true")),
        ),
        "run": Case(
            ("run", image, "--", "true"),
            before=(("cache", "gc", "--keep", "0"),),
            after=(*look, ("cache", "gc", "--keep", "0")),
        ),
        "launch": Case(launch, after=(("jobs", "--past", "50"), ("jobs",))),
        "config": Case(("config", "set", "account", "project_1"), after=(("config",),)),
    }
    return cases[name]


@pytest.mark.parametrize("name", ["pull", "push", "copy", "gc", "run", "launch", "config"])
def test_a_command_that_is_killed_works_the_next_time(
    name: str,
    shop: Shop,
    image: Path,
    environment: dict[str, str],
    registry: Registry,
    record_property: Callable[[str, object], None],
) -> None:
    case = find_case(name, image, registry.address)

    def must(*words: str | Path) -> None:
        done = shop.argosy(*words, **environment)
        assert done.code == 0, (words, done.err)

    for words in case.before:
        must(*words)
    begin = time.monotonic()
    must(*case.words)
    duration = time.monotonic() - begin
    chance = random.Random(f"{SEED}:{name}")  # noqa: S311 - the same moments each time
    for _ in range(KILLS):
        for words in case.before:
            must(*words)
        child = shop.start(*case.words, **environment)
        with suppress(subprocess.TimeoutExpired):
            child.wait(chance.uniform(0.0, 1.1) * duration)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert wait_until_all_have_ended(child.pid) == []
        if case.result and (shop.folder / "images" / case.result).exists():
            verify_sif(shop.folder / "images" / case.result)
        for words in case.after:
            must(*words)
        must(*case.words)
    if case.result:
        assert verify_sif(shop.folder / "images" / case.result).size == image.stat().st_size
    # The record of a launch that was killed before its submission stays as it was.
    assert [path for path in shop.folder.rglob("*.part") if "runs" not in path.parts] == []
    assert str(shop.folder) not in Path("/proc/self/mounts").read_text()
    record_property("kills", KILLS)
