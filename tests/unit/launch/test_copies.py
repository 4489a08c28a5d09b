"""Several copies on one machine: the first that fails ends the others, whichever of them the shell waits for."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from argosy.core.shell import read_shell
from argosy.launch.script import local
from tests.patience import PATIENCE_S

COPIES = read_shell(Path(local.__file__).parent / "data/copies.sh")
START = """\
set -eu
argosy_rank=0 argosy_pids='' argosy_stopped='' argosy_codes=$(mktemp)
while [ "$argosy_rank" -lt 3 ]; do
    start_beside sh -c "$1" sh "$argosy_rank"
done
wait_for_copies
"""


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def start(shell: str, copy: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (shell, "-c", f"{COPIES}\n{START}", "sh", copy),
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_first_failure_is_seen_whichever_copy_it_is(shell: str, failing: int, tmp_path: Path) -> None:
    copy = f'[ "$1" != {failing} ] || exit 7; exec sleep {PATIENCE_S}'
    child = start(shell, copy, tmp_path)
    child.communicate(timeout=PATIENCE_S / 2)
    assert child.returncode == 7
    assert list(tmp_path.iterdir()) == []


def test_copies_that_end_well_give_0(shell: str, tmp_path: Path) -> None:
    child = start(shell, 'echo "$1"', tmp_path)
    out, _ = child.communicate()
    assert (child.returncode, sorted(out.split())) == (0, ["0", "1", "2"])
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_all_copies(shell: str, tmp_path: Path) -> None:
    copy = f"trap 'echo \"ended $1\"; exit 9' TERM; echo begun; while :; do sleep {PATIENCE_S} & wait $!; done"
    child = start(shell, copy, tmp_path)
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
    child.send_signal(signal.SIGTERM)
    ended = [child.stdout.readline() for _ in range(3)]
    assert (sorted(ended), child.wait()) == (["ended 0\n", "ended 1\n", "ended 2\n"], 9)
    child.stdout.close()
