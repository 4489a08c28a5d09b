"""The same launches on the oldest release of Slurm, with bubblewrap in place of Apptainer, and on the newest one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = [pytest.mark.lab, pytest.mark.soak]  # another Debian is made for each

FOUR = ("--nodes", "2", "--ranks", "4", "--launcher", "srun")
SLEEPER = ("python", str(Path(__file__).with_name("sleeper.py")))


@pytest.fixture
def old_desk(new_desk: Callable[..., AbstractContextManager[Desk]]) -> Iterator[Desk]:
    with new_desk("--bookworm") as desk:
        yield desk


@pytest.fixture
def newest_desk(new_desk: Callable[..., AbstractContextManager[Desk]]) -> Iterator[Desk]:
    with new_desk("--sid") as desk:
        yield desk


def release(desk: Desk) -> tuple[int, ...]:
    """Return the release of Slurm, for example (26, 5)."""
    numbers = re.match(r"slurm-wlm (\d+)\.(\d+)", desk.sh("sbatch --version").stdout)
    assert numbers is not None
    return tuple(map(int, numbers.groups()))


def check_ranks_arguments_codes_and_warnings(desk: Desk) -> None:
    told = desk.tell(*FOUR, "--env", "X_A=`id` $HOME", words=("a  b", "", "*"))
    assert [(row["rank"], row["host"]) for row in told] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    assert len({(*row["words"], *row["hostile"].values()) for row in told}) == 1
    assert {row["set"]["MASTER_ADDR"] for row in told} == {"node1"}

    failing = ("sh", "-c", '[ "$RANK" != 3 ] || exit 42; sleep 600')
    failed = desk.follow(*FOUR, command=failing, check=False)
    assert failed.code == 42
    assert "rank 3 on node2 failed first (code 42)" in failed.stderr.splitlines()[-1]

    job = desk.submit(*FOUR, command=(*SLEEPER, "300"))
    desk.until_written(job, "ready", 4)
    assert [row["state"] for row in json.loads(desk.argosy("jobs", "--json").stdout)] == ["RUNNING"]
    desk.sh(f"scancel --batch --signal=USR1 {job}")
    desk.until_written(job, "saved after SIGUSR1", 4)
    desk.argosy("cancel", job)
    assert desk.wait(job) == "CANCELLED"


def test_slurm_22_05_gives_the_same_ranks_arguments_codes_and_warnings(old_desk: Desk) -> None:
    assert release(old_desk) == (22, 5)
    check_ranks_arguments_codes_and_warnings(old_desk)


def test_the_newest_slurm_gives_the_same_ranks_arguments_codes_and_warnings(newest_desk: Desk) -> None:
    assert release(newest_desk) >= (26, 5)
    check_ranks_arguments_codes_and_warnings(newest_desk)


def test_the_newest_slurm_starts_the_steps_of_a_job_script_with_its_own_cores(newest_desk: Desk) -> None:
    """Since 26.05 the job script has a step's number, too; in a step of srun, its cores would not count."""
    printed = 'echo "$RANK ${SLURM_OVERLAP-none} $OMP_NUM_THREADS $(nproc)"'
    options = ("--nodes", "2", "--ranks", "2", "--cpus-per-rank", "3", "--launcher", "srun")
    told = newest_desk.follow(*options, command=("sh", "-c", printed)).stdout.splitlines()
    assert {"0 none 3 3", "1 none 3 3"} <= set(told)


def test_the_newest_slurm_shows_why_a_job_ended_or_waits(newest_desk: Desk) -> None:
    desk = newest_desk
    late = desk.submit(*FOUR, "--time", "1", command=("sleep", "600"))
    absent = desk.sh("sbatch --parsable --output=absent-%j.out --wrap 'srun /no/such/program'").stdout.strip()
    desk.wait(absent)
    why = desk.argosy("why", f"absent-{absent}.out", check=False).stdout
    assert "a node could not start the program /no/such/program" in why

    # Unless slurm.conf sets EnforcePartLimits, 25.11 and newer accept a job that is larger than the cluster.
    large = desk.submit("--nodes", "99", command=("true",))
    desk.until(lambda: "PartitionConfig" in desk.argosy("jobs").stdout, "Slurm did not name the reason")
    assert f"argosy cancel {large}" in desk.argosy("jobs").stdout
    desk.argosy("cancel", large)

    assert desk.wait(late) == "TIMEOUT"
    assert "] error: *** STEP" in desk.output(late)
    assert "time limit" in desk.argosy("why", late, check=False).stdout
