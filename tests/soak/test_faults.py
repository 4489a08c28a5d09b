"""Each call that changes a file fails once, or is the last one: one clear error, nothing left, and a repeat succeeds.

A library that is preloaded counts the calls of a command and of the programs that it starts (`faults.c`). The places of
the faults are drawn with a fixed seed; ``ARGOSY_SEED`` draws others, and ``ARGOSY_FAULTS`` more of them.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.conftest import Ended, Shop
from tests.real.test_kills import wait_until_all_have_ended
from tests.soak.arguments import CODES
from tests.soak.test_kills import PROFILE, SBATCH, SEED

pytestmark = [pytest.mark.real, pytest.mark.soak]

FAULTS = int(os.environ.get("ARGOSY_FAULTS", "8"))
SOURCE = Path(__file__).with_name("faults.c")
TO_THE_END = str(1 << 30)
TEMPORARY = re.compile(r"\.part$|\.lock$|\.lease$|argosy-work-|\.old$|\.taking$")

Words = tuple[str, ...]
LAUNCH: Words = ("launch", "tiny.sif", "--site", "./here.toml", "--nodes", "1", "--", "true")
WRAP: Words = ("wrap", "new", "tiny.sif", "-w", "/bin", "--prefix", "prefix")
EXPORT: Words = ("images", "export", "tiny.sif", "-o", "out")


class Case(NamedTuple):
    """A command, those before it, and the one that repeats it after success."""

    words: Words
    before: tuple[Words, ...] = ()
    again: Words = ()


CASES = {
    "pull": Case(("images", "pull", "tiny.sif", "one"), again=("images", "pull", "tiny.sif", "one", "--force")),
    "tag": Case(("images", "tag", "tiny.sif", "two")),
    "run": Case(("run", "tiny.sif", "--", "true")),
    "dev": Case(("run", "--dev", "tiny.sif", "--", "sh", "-c", "echo > /opt/new")),
    "gc": Case(("cache", "gc", "--keep", "0"), before=(("run", "tiny.sif", "--", "true"),)),
    "launch": Case(LAUNCH),
    "report": Case(("report", "7", "-o", "report.html"), before=(LAUNCH,)),
    "import": Case(("import", "job.sh"), again=("import", "job.sh", "--name", "other")),
    "config": Case(("config", "set", "account", "project_1")),
    "wrap": Case(WRAP, again=("wrap", "update", "prefix", "--image", "tiny.sif")),
    "update": Case(("wrap", "update", "prefix", "--image", "tiny.sif"), before=(WRAP,)),
    "sqsh": Case((*EXPORT, "--format", "sqsh"), again=(*EXPORT, "--format", "sqsh", "--force")),
    "oci": Case((*EXPORT, "--format", "oci"), again=(*EXPORT, "--format", "oci", "--force")),
}

KINDS = {
    "full": {"FAULT_ERROR": str(int(errno.ENOSPC)), "FAULT_TO": TO_THE_END},
    "quota": {"FAULT_ERROR": str(int(errno.EDQUOT)), "FAULT_TO": TO_THE_END},
    "broken": {"FAULT_ERROR": str(int(errno.EIO))},
    "killed": {"FAULT_SIGNAL": str(int(signal.SIGKILL))},
    "stopped": {"FAULT_SIGNAL": str(int(signal.SIGTERM))},
}
"""A disk that stays full, one input/output error, and signals."""

NEVER_FAIL = ("unlink", "unlinkat", "rmdir", "chmod")
"""Calls before which a signal may arrive, but which do not fail."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    out = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run((compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-o", out, SOURCE, "-ldl"), check=True)
    return out


class Bench:
    """A folder in which a command runs again and again from the same state."""

    def __init__(self, shop: Shop, image: Path, library: Path, aside: Path) -> None:
        self.shop, self.library, self.aside = shop, library, aside
        programs = shop.folder / "bin"
        programs.mkdir()
        for name, text in {"sbatch": SBATCH, "squeue": "#!/bin/sh\n", "scontrol": "#!/bin/sh\nexit 1\n"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        shop.write("here.toml", PROFILE)
        shop.write("job.sh", "#!/bin/sh\n#SBATCH --job-name=train\n#SBATCH --nodes=2\nsrun python train.py\n")
        assert image == shop.folder / "tiny.sif"
        (shop.folder / "tmp").mkdir()
        (aside / "count").write_bytes(bytes(8))
        self.environment = {
            "PATH": f"{programs}:{shop.environment()['PATH']}",
            "TMPDIR": str(shop.folder / "tmp"),
            "ARGOSY_CACHE": str(shop.folder / "cache"),
            "ARGOSY_STATE": str(shop.folder / "state"),
            "ARGOSY_IMAGES": str(shop.folder / "images"),
        }

    def must(self, *words: str) -> None:
        """Run a command that must succeed."""
        done = self.shop.argosy(*words, **self.environment)
        assert done.code == 0, (words, done.err)

    def keep(self) -> None:
        """Keep the present state."""
        shutil.copytree(self.shop.folder, self.aside / "state", symlinks=True)

    def restore(self) -> None:
        """Return to the state that was kept."""
        for path in self.shop.folder.iterdir():
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
        shutil.copytree(self.aside / "state", self.shop.folder, symlinks=True, dirs_exist_ok=True)

    def run(self, *words: str, **fault: str) -> Ended:
        """Run a command with a fault."""
        (self.aside / "count").write_bytes(bytes(8))
        (self.aside / "log").unlink(missing_ok=True)
        preload = {
            "LD_PRELOAD": str(self.library),
            "FAULT_ROOT": f"{self.shop.folder}/",
            "FAULT_COUNT": str(self.aside / "count"),
            "FAULT_LOG": str(self.aside / "log"),
        }
        around = ("sh", "-c", 'FAULT_MAIN=$$ exec "$@"', "sh")
        with self.shop.start(*words, around=around, **self.environment, **preload, **fault) as child:
            out, err = child.communicate()
        assert wait_until_all_have_ended(child.pid) == []
        return Ended(child.returncode, out, err)

    def calls(self) -> list[tuple[int, str, str]]:
        """Give number, name and path of the calls of the last command."""
        lines = (self.aside / "log").read_text(errors="replace").splitlines() if (self.aside / "log").exists() else []
        rows = [line.split(" ", 2) for line in lines]
        return [(int(number), call, path) for number, call, path in rows]

    def left(self) -> list[str]:
        """Give the temporary files; an empty record of an owner is removed by age, and a launch has its own folder."""
        found = [path for path in self.shop.folder.rglob("*") if TEMPORARY.search(path.name)]
        return [str(path) for path in found if "runs" not in path.parts and not self._is_unowned(path)]

    @staticmethod
    def _is_unowned(path: Path) -> bool:
        """Tell whether a process ended between making a folder and writing its owner."""
        return path.is_dir() and all(each.stat().st_size == 0 for each in path.iterdir())


def draw(calls: list[tuple[int, str, str]], kind: str, seed: str) -> list[int]:
    """Draw the numbers of calls: each file and call once, without the digits and random letters of its name."""
    first: dict[tuple[str, str], int] = {}
    for number, call, path in calls:
        if "FAULT_SIGNAL" in KINDS[kind] or call not in NEVER_FAIL:
            first.setdefault((call, re.sub(r"[0-9a-f]{4,}|\d+", "", path)), number)
    numbers = sorted(first.values())
    return sorted(random.Random(seed).sample(numbers, min(FAULTS, len(numbers))))  # noqa: S311 - the same each time


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_one_error_and_the_next_time_all_is_well(
    name: str,
    kind: str,
    shop: Shop,
    image: Path,
    library: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    case, bench = CASES[name], Bench(shop, image, library, tmp_path)
    for words in case.before:
        bench.must(*words)
    bench.keep()
    done = bench.run(*case.words)
    assert done.code == 0, done.err
    places = draw(bench.calls(), kind, f"{SEED}:{name}:{kind}")
    for number in places:
        bench.restore()
        fault = {"FAULT_TO": str(number)} | KINDS[kind]
        done = bench.run(*case.words, FAULT_FROM=str(number), **fault)
        where = next((row for row in bench.calls() if row[0] == number), number)
        assert "Traceback" not in done.err, where
        assert "bug in Argosy" not in done.err, (where, done.err)
        assert done.code in CODES or (kind == "killed" and done.code == -signal.SIGKILL), (where, done.code, done.err)
        assert done.code <= 0 or len(re.findall("^argosy: ", done.err, re.MULTILINE)) == 1, (where, done.err)
        again = shop.argosy(*case.words, **bench.environment)
        if again.code != 0:
            assert case.again, (where, again.err)
            assert "already" in again.err, (where, again.err)
            bench.must(*case.again)
        assert bench.left() == [], where
        assert str(shop.folder) not in Path("/proc/self/mounts").read_text()
    record_property("faults of files", len(places))
