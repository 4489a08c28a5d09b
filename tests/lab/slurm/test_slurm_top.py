"""`argosy top` on a job of two nodes: one rank computes, the other waits for ever without output."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.screen import Screen, open_screen

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

TRAIN = """\
import os, threading, time

def wait_for_a_message_that_never_comes():
    threading.Event().wait()

rank, step = int(os.environ["RANK"]), 0
print("rank", rank, "starts", flush=True)
if rank == 1:
    wait_for_a_message_that_never_comes()
while not os.path.exists("stop"):
    step += 1
    if step % 200_000 == 0:
        print("step", step, flush=True)
"""

SHAPE = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--log-dir", "logs", "--name", "stuck")


@pytest.fixture
def job(desk: Desk) -> str:
    """Launch the job, and give its number when both ranks have started."""
    desk.write("train.py", TRAIN)
    number = desk.submit(*SHAPE, command=("python", "train.py"))
    logs = desk.here / "logs" / number
    desk.until(lambda: len(list(logs.glob("rank-?.log"))) == 2, "both ranks start")
    desk.until(lambda: "starts" in (logs / "rank-1.log").read_text(), "rank 1 starts")
    return number


def watching(
    desk: Desk, *words: str, command: str = "top", columns: int = 80, lines: int = 24
) -> AbstractContextManager[Screen]:
    """Type a command in a shell of the login node; the shell then shows whether the terminal echoes keys again."""
    modes = "stty -a | tr ' ;' '\\n' | grep -x -e echo -e icanon"
    line = f"argosy {command} {' '.join(words)}; code=$?; {modes}; exit $code"
    typed = ("script", "-qec", f"sh -c {shlex.quote('trap : INT; ' + line)}", "/dev/null")
    argv = desk.cluster.words("exec", "-u", "alice", "-w", desk.folder, "--", "ctl", *typed)
    return open_screen(argv, columns, lines)


def is_sane(screen: Screen) -> bool:
    """Return whether the terminal is as before the command."""
    return screen.is_restored() and {"echo", "icanon"} <= set(screen.text.split())


def measured(desk: Desk, job: str, *options: str) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(desk.argosy("top", job, "--json", *options).stdout)
    return view


def test_the_hung_rank_is_marked_until_the_job_ends(desk: Desk, job: str) -> None:
    with watching(desk, job, "--hung-after", "1") as screen:
        screen.until("HUNG", "1 running, 1 hung", "step ")
        rows = {row[0]: row for row in screen.rows if row[0] in {"0", "1"}}
        assert rows["0"][1] == "node1"
        assert "running" in rows["0"]
        assert rows["1"][1] == "node2"
        assert "CORES" not in screen.text  # not on 80 columns
        assert "GPU use unknown" in screen.text
        desk.write("stop", "")
        desk.cluster.sh(f"scancel {job}")
        assert screen.wait() == 0
        assert is_sane(screen)
        assert "was cancelled" in screen.text


@pytest.mark.soak
def test_ctrl_c_and_q_leave_a_sane_terminal_and_the_job(desk: Desk, job: str) -> None:
    with watching(desk, job, columns=140, lines=30) as screen:
        screen.until("CORES", "LAST OUTPUT", "rank 1 starts")
        screen.press("\x03")
        assert screen.wait() == 130
        assert is_sane(screen)
        assert f"job {job} continues" in screen.text
    with watching(desk) as screen:  # the only running job
        screen.until("2 ranks")
        screen.press("q")
        assert screen.wait() == 0
        assert is_sane(screen)
    assert measured(desk, job)["kind"] == "running"


@pytest.mark.soak
def test_a_controller_that_does_not_answer_is_a_line_in_the_view(desk: Desk, job: str) -> None:
    ask = "pgrep -x slurmctld"
    with watching(desk, job) as screen:
        screen.until("2 ranks")
        desk.cluster.sh(f"kill -STOP $({ask})", user="root")
        try:
            screen.until("the Slurm controller does not answer", "2 ranks", timeout=180)
        finally:
            desk.cluster.sh(f"kill -CONT $({ask})", user="root")
        screen.until("2 ranks")
        screen.press("q")
        assert screen.wait() == 0


def test_a_log_gets_plain_lines_and_programs_get_json(desk: Desk, job: str) -> None:
    lines = desk.argosy("top", job, "--once").stdout.splitlines()
    assert lines[0].startswith(f"job {job} stuck · runs · 2 ranks: 1 running, 1 idle")
    assert not any("\x1b" in line for line in lines)
    one, two = measured(desk, job)["ranks"]
    assert (one["host"], two["host"]) == ("node1", "node2")
    assert one["cpu"] > 10 > two["cpu"]
    assert one["memory"] > 1_000_000 < two["memory"]
    assert two["last_line"] == "rank 1 starts"
    assert desk.argosy("top", "99999", check=False).code == 2


@pytest.fixture
def py_spy(desk: Desk) -> str:
    """Put py-spy where the nodes find it, and give the PATH for it."""
    folder = desk.here / "bin"
    folder.mkdir()
    shutil.copy(Path(sys.executable).with_name("py-spy"), folder)
    (folder / "py-spy").chmod(0o755)
    return f"{desk.folder}/bin:/usr/bin:/bin:/usr/local/bin"


def test_stacks_show_where_each_rank_is(desk: Desk, job: str, py_spy: str) -> None:
    groups = json.loads(desk.argosy("top", job, "--stacks", "--json", env={"PATH": py_spy}).stdout)
    (stuck,) = (group for group in groups if group["ranks"] == [1])
    frames = [frame for thread in stuck["stack"]["threads"] for frame in thread["frames"]]
    assert any(frame.startswith("wait_for_a_message_that_never_comes (") for frame in frames)
    text = desk.argosy("top", job, "--stacks", env={"PATH": py_spy}).stdout
    assert "rank 1 on node2" in text
    without = desk.argosy("top", job, "--stacks").stdout
    assert "there is no py-spy on node1" in without
    assert "pip install py-spy" in without


@pytest.mark.soak
def test_a_waiting_job_is_watched_until_it_runs_and_the_list_until_it_is_empty(desk: Desk, job: str) -> None:
    later = desk.submit(*SHAPE, "--after", job, command=("python", "train.py"))
    with watching(desk, later) as screen, watching(desk, "--watch", command="jobs", columns=140) as listed:
        screen.until("waits in the queue (Dependency)")
        listed.until(f"{job} ", "runs", f"{later} ", "waits in the queue")
        desk.cluster.sh(f"scancel {job} {later}")
        assert screen.wait() == 0
        assert listed.wait() == 0
        assert is_sane(screen)
        assert is_sane(listed)
        assert f"job {later} stuck · was cancelled" in screen.text
        assert "you have no waiting or running jobs" in listed.text
