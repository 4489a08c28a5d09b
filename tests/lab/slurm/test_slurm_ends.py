"""How jobs end: codes, the rank that failed first, signals as users send them, and nothing left on any node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

SLEEPER = ("python", str(Path(__file__).with_name("sleeper.py")))
FOUR = ("--nodes", "2", "--ranks", "4", "--cpus-per-rank", "2")
LAUNCHERS = ("srun-node", "srun-rank", "none", "torchrun")
"""Launchers; `srun` with one container per node and per rank."""


def launched_by(launcher: str) -> tuple[str, ...]:
    """Give the options of a launcher."""
    name, _, per = launcher.partition("-")
    return ("--launcher", name, *(("--container-per", per) if per else ()))


FAIL = """\
import os, pathlib, signal, sys, time
rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
pathlib.Path(f"begun-{rank}").touch()
if rank == int(sys.argv[1]):
    while len(list(pathlib.Path().glob("begun-?"))) < 4: time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "KILL" else sys.exit(int(sys.argv[2]))
time.sleep(300)
"""


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def any_desk(desk: Desk, request: pytest.FixtureRequest, launcher: str) -> Desk:
    """Give a desk with the image that the launcher needs."""
    return desk.with_image(request.getfixturevalue("torch_image")) if launcher == "torchrun" else desk


def nobody_is_left(desk: Desk) -> bool:
    """Tell whether no process of the user runs on any node."""
    found = [desk.cluster.on(n, ["pgrep", "-l", "-u", "alice"], user="root", check=False) for n in desk.cluster.nodes]
    return all(ran.stdout == "" for ran in found)


def test_a_single_rank_gives_its_own_code(desk: Desk) -> None:
    done = desk.follow(command=("sh", "-c", "exit 42"), check=False)
    assert done.code == 42
    assert done.stderr.splitlines()[-1].endswith(
        "ended with an error (code 42): rank 0 on node1 failed first (code 42)"
    )
    assert desk.follow(command=("true",)).code == 0


@pytest.mark.parametrize(("rank", "how", "code"), [(3, "42", 42), (2, "KILL", 137)])
def test_the_first_rank_that_fails_is_named_and_takes_all_along(
    any_desk: Desk, launcher: str, rank: int, how: str, code: int
) -> None:
    command = ("python", "-c", FAIL, str(rank), how)
    done = any_desk.follow(*FOUR, "--name", "failing", *launched_by(launcher), command=command, check=False)
    assert done.code == code
    assert f"rank {rank} on node2 failed first (code {code}" in done.stderr.splitlines()[-1]
    (output,) = any_desk.here.glob("failing-*.out")
    job = output.stem.removeprefix("failing-")
    shown = json.loads(any_desk.argosy("jobs", "show", job, "--json").stdout)
    assert (shown["first"]["rank"], shown["first"]["host"], shown["code"]) == (rank, "node2", code)
    # Slurm has the same code, and not the 143 of the ranks that were ended.
    assert f"ExitCode={code}:0" in any_desk.sh(f"scontrol show job {job}").stdout
    assert shown["plan"]["shape"]["nodes"] == 2
    assert shown["plan"]["digest"]
    assert shown["plan"]["versions"]["argosy"]
    assert [(row["rank"], row["host"]) for row in shown["ranks"]] == [(n, f"node{n // 2 + 1}") for n in range(4)]
    (run,) = shown["runs"]
    assert (run["nodes"], run["started"] <= run["ended"]) == ("node[1-2]", True)
    verdict = any_desk.argosy("verify", job, check=False)
    assert "4 on 2 nodes" in verdict.stdout
    assert "argosy: verdict: ranks: 4 of 4 started on 2 nodes" in any_desk.output(job)
    any_desk.until(lambda: nobody_is_left(any_desk), "processes of a job were left")


def test_warnings_to_the_steps_and_to_the_batch_shell_reach_every_rank(any_desk: Desk, launcher: str) -> None:
    # This checkpoint takes longer than the lab's KillWait, 3 s, which counts from the end and not from a warning.
    saving = ("--env", "SAVE_SECONDS=4")
    job = any_desk.submit(*FOUR, *saving, *launched_by(launcher), command=(*SLEEPER, "300"))
    any_desk.until_written(job, "ready", 4)
    for sent, name in (("scancel --signal=USR1", "SIGUSR1"), ("scancel --batch --signal=USR2", "SIGUSR2")):
        any_desk.sh(f"{sent} {job}")
        any_desk.until_written(job, f"saved after {name}", 4)
        assert len(list(any_desk.here.glob(f"saved-{name}-*"))) == 4
    any_desk.argosy("cancel", job)
    assert any_desk.wait(job) == "CANCELLED"
    assert any_desk.output(job).count("got SIGTERM") == 4
    any_desk.until(lambda: nobody_is_left(any_desk), "processes of a job were left")
