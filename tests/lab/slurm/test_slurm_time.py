"""Time limits on a real cluster: warnings as asked, plain words at the end, and jobs that go on in a next allocation.

A time limit is a minute at least, so all that waits for one runs side by side, and beside the first test.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.lab.conftest import Cluster, Ran
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

COUNTER = ("python", str(Path(__file__).with_name("counter.py")))
SLEEPER = ("python", str(Path(__file__).with_name("sleeper.py")))
TWO = ("--nodes", "2", "--ranks", "2", "--launcher", "srun")


class Timed(NamedTuple):
    """What runs side by side: jobs that are warned in the two ways, and one that goes on, followed to its end."""

    desk: Desk
    warned: tuple[str, str]
    chain: Future[Ran]


@pytest.fixture(scope="module")
def timed(cluster: Cluster, small_image: Path, new_desk_at: Callable[[Cluster, Path, str], Desk]) -> Iterator[Timed]:
    desk = new_desk_at(cluster, small_image, "timed")
    steps = (*TWO, "--time", "1", "--signal")
    # Slurm looks each 30 s, and warns whom it would be late for at the next look: 40 s might come before the ranks.
    to_steps, to_shell = (desk.submit(*steps, f"{to}USR1@20", command=(*SLEEPER, "300")) for to in ("", "B:"))
    resume = ("--resume", "20", "--checkpoint", "steps.txt", "--time", "1", "--signal", "USR2@55")
    command = (*COUNTER, "steps.txt", "540", "leave")
    with ThreadPoolExecutor() as beside:
        chain = beside.submit(desk.follow, *TWO, *resume, "--name", "chain", command=command, timeout=2 * PATIENCE_S)
        yield Timed(desk, (to_steps, to_shell), chain)


def numbers(word: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(rf"^{word} (\d+)$", text, re.MULTILINE)]


@pytest.mark.usefixtures("timed")
def test_a_lost_node_takes_the_same_path_and_no_progress_ends_the_chain(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk() as desk:
        resume = ("--resume", "--checkpoint")
        able = desk.submit(*TWO, *resume, "a.txt", "--name", "able", command=(*COUNTER, "a.txt", "100", "stay"))
        unable = desk.submit(*TWO, *resume, "b.txt", "--name", "unable", command=(*COUNTER, "b.txt", "10000", "never"))
        for job in (able, unable):
            desk.until_written(job, "beside it")
            desk.until_written(job, "from 0")
            desk.sh(f"scancel --signal=USR2 {job}")
        desk.until_written(able, "saved")
        desk.cluster.sh("scontrol update nodename=node2 state=down reason=test", user="root")
        desk.until(lambda: "Restarts=1" in desk.sh(f"scontrol show job {unable}").stdout, "the job was not requeued")
        told = desk.argosy("jobs", "show", unable).stdout
        assert "was put back into the queue because" in told, told
        desk.cluster.sh("scontrol update nodename=node2 state=resume || true", user="root")  # it may be back
        assert desk.wait(unable) == "FAILED"
        assert "the last run wrote no new checkpoint" in desk.output(unable)
        assert desk.wait(able) == "COMPLETED", desk.output(able)
        assert numbers("from", desk.output(able)) == [0, numbers("saved", desk.output(able))[-1]]


@pytest.mark.usefixtures("timed")
def test_a_job_that_is_cancelled_after_the_warning_stays_cancelled(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk() as desk:
        resume = ("--resume", "--checkpoint", "c.txt", "--name", "unwanted")
        job = desk.submit(*TWO, *resume, command=(*COUNTER, "c.txt", "10000", "stay"))
        desk.until_written(job, "beside it")
        desk.until_written(job, "from 0")
        desk.sh(f"scancel --batch --signal=USR2 {job}")
        desk.until_written(job, "saved")
        desk.argosy("cancel", job)
        assert desk.wait(job) == "CANCELLED"
        assert "the job was stopped, so its script does not requeue it" in desk.output(job)
        assert not list(desk.here.glob("c.txt.argosy-*"))


def test_a_job_longer_than_its_time_limit_finishes_in_more_than_one_allocation(timed: Timed) -> None:
    text = timed.chain.result().stdout
    assert "counted to 540" in text
    assert numbers("from", text) == [0, *numbers("saved", text)]
    assert len(numbers("from", text)) > 1


def test_the_whole_chain_has_one_log_and_leaves_no_mark(timed: Timed) -> None:
    printed = timed.chain.result().stdout
    (output,) = timed.desk.here.glob("chain-*.out")
    assert output.read_text() == printed
    assert not list(timed.desk.here.glob("*.argosy-*"))
    shown = json.loads(timed.desk.argosy("jobs", "show", output.stem.removeprefix("chain-"), "--json").stdout)
    assert (shown["state"], shown["code"]) == ("COMPLETED", 0)
    assert shown["restarts"] > 0


@pytest.mark.parametrize("way", [0, 1], ids=["to the steps", "to the batch shell"])
def test_a_warning_before_the_limit_reaches_the_ranks(timed: Timed, way: int) -> None:
    timed.desk.until_written(timed.warned[way], "saved after SIGUSR1", 2)


@pytest.mark.parametrize("way", [0, 1], ids=["to the steps", "to the batch shell"])
def test_the_time_limit_is_reported_in_plain_words(timed: Timed, way: int) -> None:
    job = timed.warned[way]
    assert timed.desk.wait(job) == "TIMEOUT"
    assert timed.desk.output(job).count("got SIGTERM") == 2
    shown = timed.desk.argosy("logs", "-f", job, check=False)
    assert shown.code == 143
    assert "reached its time limit: request more with --time (code 143)" in shown.stderr


@pytest.mark.soak
def test_ranks_on_a_disconnected_node_never_join_the_next_run(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk("--slurm", "SlurmdTimeout=10", "3") as desk:
        command = ("sh", "-c", 'echo "run ${SLURM_RESTART_COUNT:-0} $MASTER_PORT $(hostname)"; sleep 600')
        job = desk.submit("--nodes", "2", "--launcher", "none", "--requeue", command=command)
        desk.until_written(job, "run 0", 2)
        desk.cluster.control("unplug", "node2")
        desk.until_written(job, "run 1", 2)
        alive = desk.cluster.on("node2", ["pgrep", "-u", "alice", "sleep"], user="root", check=False)
        assert alive.code == 0
        runs = re.findall(r"^run (\d) (\d+) (\w+)$", desk.output(job), re.MULTILINE)
        assert {host for run, _, host in runs if run == "1"} == {"node1", "node3"}
        assert len({(run, port) for run, port, _ in runs}) == len({port for _, port, _ in runs}) == 2
