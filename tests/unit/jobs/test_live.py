"""What `argosy top` makes of the replies of nodes: ranks, use of CPUs and GPUs, hung ranks, stacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.cli import cmd_top
from argosy.cli.live_view import choose_ranks, plain_lines, render_title
from argosy.cli.output import print_changes
from argosy.core.errors import Unreachable, UsageError
from argosy.core.locks import this_owner
from argosy.core.parse import render_cpulist
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import asdict, replace
from argosy.host.gpu_use import GpuUse
from argosy.jobs.live.probe import DATA, JobView, RankState, RankUse, RankView, parse_nodes, rank_gpus
from argosy.jobs.live.sources import OutputWatch, clean_line, open_source, resolve_job
from argosy.jobs.live.stacks import group_stacks, parse_stacks, render_groups
from argosy.jobs.live.watch import JobWatch
from argosy.jobs.query import JobFacts, describe_waiting
from argosy.jobs.record import STARTED
from argosy.jobs.scheduler import watch_list
from argosy.slurm.states import RUNNING
from tests.patience import wait_until_written
from tests.unit.machines import make_host, make_session, real_session

HOST = make_host("apptainer")

REPLY = """\
1: node node10 8 100 16000000 9000000
0: node node9 8 100 16000000 8000000
0: at 100.00
1: at 200.00
0: rank=0 local=0 pid=70 pids=81,70,80 ticks=1000 memory=2048 threads=9 cores=0-3
1: rank=1 local=0 pid=71 pids=71 ticks=5000 memory=1024 threads=1 cores=4-7 ROCR_VISIBLE_DEVICES=1
0: gpus nvidia
0: 0, GPU-8d3a, 97, 61440, 81559
0: 1, GPU-77aa, 0, 4, 81559
0: processes nvidia
0: 80, GPU-8d3a
0: at 102.00
0: rank=0 local=0 pid=70 pids=81,70,80 ticks=1100 memory=2048 threads=9 cores=0-3
1: end
0: end
"""


def test_the_replies_of_nodes_may_come_in_any_order() -> None:
    one, two = parse_nodes(REPLY)
    assert (one.host, two.host) == ("node9", "node10")
    first, second = one.moments
    assert (first.at, second.ranks[0].ticks) == (100.0, 1100)
    assert second.ranks[0].pids == (70, 80, 81)
    assert second.ranks[0].memory == 2 << 20
    assert one.gpus is not None
    assert rank_gpus(second.ranks[0], one.gpus) == (one.gpus[0],)
    assert two.gpus is None
    assert two.moments[0].ranks[0].visible == (("ROCR_VISIBLE_DEVICES", "1"),)


def test_a_node_that_was_cut_off_is_left_out() -> None:
    assert [node.host for node in parse_nodes(REPLY.replace("1: end\n", ""))] == ["node9"]
    assert parse_nodes("srun: error: no\n") == ()


def test_gpus_of_a_rank_are_those_of_its_processes_or_its_variables_or_unknown() -> None:
    gpus = (GpuUse(0), GpuUse(1), GpuUse(2, processes=(7,)))
    rank = RankUse(0, 0, (5,), 0, 0, "")
    assert rank_gpus(rank, gpus) == ()
    assert rank_gpus(RankUse(0, 0, (5, 7), 0, 0, ""), gpus) == (gpus[2],)
    assert rank_gpus(RankUse(0, 0, (5,), 0, 0, "", (("HIP_VISIBLE_DEVICES", "1"),)), gpus) == (gpus[1],)
    assert rank_gpus(RankUse(0, 0, (5,), 0, 0, "", (("HIP_VISIBLE_DEVICES", "0,1,2"),)), gpus) == ()
    assert rank_gpus(rank, gpus[:1]) == gpus[:1]


@pytest.mark.skipif(not shutil.which("awk"), reason="needs awk")
def test_processes_become_ranks() -> None:
    """Process 10 is torchrun; 11 is a rank with a worker; 30 belongs to this step; the name of 11 is hostile.

    Process 40 is the batch shell, which has a step's number since Slurm 26.05.
    """

    def stat(pid: int, name: str, parent: int, ticks: int, started: int) -> str:
        after = f"R {parent} 0 0 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0"
        return f"/proc/{pid}/stat:{pid} ({name}) {after}"

    lines = [
        *(f"/proc/{pid}/environ:SLURM_STEP_ID=0" for pid in (10, 11, 12)),
        "/proc/30/environ:SLURM_STEP_ID=7",
        "/proc/40/environ:SLURM_STEP_ID=-5",
        "/proc/40/environ:RANK=0",
        *(f"/proc/{pid}/environ:SLURM_PROCID=1" for pid in (10, 11, 12, 30)),
        *(f"/proc/{pid}/environ:RANK=9" for pid in (11, 12)),
        "/proc/11/environ:LOCAL_RANK=1",
        "/proc/11/environ:CUDA_VISIBLE_DEVICES=1",
        "/proc/12/environ:CUDA_VISIBLE_DEVICES=$(reboot)",
        "/proc/11/status:Cpus_allowed_list:\t4-7",
        *(f"/proc/{pid}/status:VmRSS:\t    1024 kB" for pid in (10, 11, 12)),
        *(f"/proc/{pid}/status:Threads:\t2" for pid in (11, 12)),
        stat(10, "torchrun", 1, 500, 100),
        stat(12, "python", 11, 30, 300),
        *stat(11, "a) R 1\n(b", 10, 70, 200).replace("\n", "\n/proc/11/stat:").splitlines(),
        stat(30, "sh", 1, 5, 400),
        stat(40, "bash", 1, 5, 50),
    ]
    argv = ["awk", "-v", "own=7", "-v", "root=", (DATA / "sum_ranks.awk").read_text()]
    done = subprocess.run(argv, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    (rank,) = done.stdout.splitlines()
    words = dict(word.split("=", 1) for word in rank.split())
    assert sorted(words.pop("pids").split(",")) == ["11", "12"]
    assert words == {
        "rank": "9",
        "local": "1",
        "pid": "11",
        "ticks": "100",
        "memory": "2048",
        "threads": "4",
        "cores": "4-7",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_a_process_of_this_machine_is_found_below_its_parent() -> None:
    """The script of a run on this machine: this test starts a rank, and asks below itself."""
    script, awk = ((DATA / name).read_text() for name in ("read_node.sh", "sum_ranks.awk"))
    argv = ["/bin/sh", "-c", script, "read_node.sh", awk, "1", str(os.getpid())]
    with subprocess.Popen(["/bin/sleep", "60"], env={**os.environ, "RANK": "3"}) as rank:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
        finally:
            rank.kill()
    (node,) = parse_nodes(done.stdout)
    (use,) = node.moments[0].ranks
    assert (use.rank, use.pids) == (3, (rank.pid,))
    assert use.cores


SPY = """\
0: rank 0 70 0 python
0: [{"pid": 70, "thread_id": 1, "thread_name": "worker", "frames": []},
0:  {"pid": 70, "thread_id": 2, "thread_name": "MainThread", "active": true,
0:   "frames": [{"name": "step", "filename": "/s/train.py", "short_filename": "train.py", "line": 3, "locals": null}]}]
0: rank 2 80 futex_do_wait python
0: missing py-spy
1: rank 1 71 0 python
1: [{"pid": 71, "thread_id": 9, "thread_name": "worker", "frames": []},
1:  {"pid": 71, "thread_id": 8, "thread_name": "MainThread",
1:   "frames": [{"name": "step", "filename": "/s/train.py", "line": 3}]}]
1: rank 3 90 0 a.out
1: rank 4 91 0 python
1: Error: Failed to open process 91
1: failed 1
"""


def test_equal_stacks_are_one_group_and_unreadable_ones_have_a_reason() -> None:
    hosts = {0: "node1", 2: "node1", 1: "node2", 3: "node2", 4: "node2"}
    text = "\n".join(render_groups(group_stacks(parse_stacks(SPY, hosts))))
    assert text.startswith("2 ranks: 0-1\n  MainThread\n    step (/s/train.py:3)\n  worker\n    no Python frames\n")
    assert "rank 2 on node1, waits in futex_do_wait (kernel)\n  unknown: there is no py-spy on node1" in text
    assert "rank 3 on node2\n  unknown: its program a.out is not Python" in text
    assert "unknown: py-spy failed: Error: Failed to open process 91" in text
    assert "pip install py-spy" in text


def test_numbers_become_ranges() -> None:
    assert render_cpulist([7, 0, 1, 2, 9]) == "0-2,7,9"


def test_the_last_line_of_each_rank(tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    output.write_bytes(b"0: one\n1: \x1b[31mred\x1b[0m\n 0: two\n1: not comp")
    watch = OutputWatch(str(output), None)
    watch.read([0, 1])
    assert (watch.ranks[0].line, watch.ranks[1].line) == ("two", "not comp")
    with output.open("ab") as file:
        file.write(b"lete\n[2] three\r")
    watch.read([0, 1])
    assert {rank: each.line for rank, each in watch.ranks.items()} == {0: "two", 1: "not complete", 2: "three"}
    output.write_text("0: after a requeue\n")
    watch.read([0, 1])
    assert watch.ranks[0].line == "after a requeue"


def test_output_cannot_change_the_terminal() -> None:
    assert clean_line("\x1b]0;title\x07\x1b[2Jred\x1b[0m \x07bell\x00 [bold]x[/]\t|") == "red bell [bold]x[/]   |"
    assert clean_line("\x1b\x1b[31m") == ""


def test_only_a_run_whose_process_runs_on_this_machine_is_chosen(tmp_path: Path) -> None:
    """One run lives. A daemon has the number of a killed one, and that of a run on another machine."""
    session = real_session(tmp_path)
    session = replace(session, runner=FakeRunner([(("timeout",), Reply(0, "", ""))]))
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    words = ("launch", "bare:", "--site", "local", "--launcher", "none", "--", "sh", "-c", f"echo > {ready}; exec cat")
    with subprocess.Popen(
        [sys.executable, "-m", "argosy", *words],
        stdin=subprocess.PIPE,
        env={**os.environ, "ARGOSY_STATE": str(session.paths.state), "ARGOSY_CACHE": str(session.paths.cache)},
    ) as running:
        wait_until_written(ready)
        (record,) = (session.paths.state / "runs").iterdir()
        mine = this_owner("launch")
        for name, owner in {
            "20260101-000000-000000-aaaa": replace(mine, started="1"),
            "20260101-000000-000000-bbbb": replace(mine, host="login2", boot="another"),
        }.items():
            (record.parent / name).mkdir()
            (record.parent / name / STARTED).write_text(json.dumps(asdict(owner)))
        assert resolve_job(session) == record.name
        assert open_source(session, record.name)[1].kind == RUNNING
        assert open_source(session, "20260101-000000-000000-aaaa")[1].meaning == "was killed"
        with pytest.raises(UsageError, match="is on login2"):
            open_source(session, "20260101-000000-000000-bbbb")
        running.communicate(b"")
    assert running.returncode == 0
    with pytest.raises(UsageError, match="no running jobs"):
        resolve_job(session)


def ranks(*states: RankState) -> tuple[RankView, ...]:
    return tuple(RankView(n, "node1", state) for n, state in enumerate(states))


def test_ranks_that_need_attention_are_shown_first() -> None:
    found = choose_ranks(ranks(RankState.RUNNING, RankState.HUNG, RankState.RUNNING, RankState.SILENT), 2)
    assert [each.rank for each in found] == [1, 3]


def test_a_job_in_lines() -> None:
    view = JobView("7", "train", "running", "runs", measured=100.0, ranks=ranks(RankState.RUNNING, RankState.HUNG))
    title, problem, heads, *rows, hint = plain_lines(replace(view, problem="no answer"))
    assert title == "job 7 train · runs · 2 ranks: 1 running, 1 hung"
    assert render_title(view, 130.0) == f"{title} · 30 s ago"
    assert (problem, heads.split()[0], len(rows)) == ("  no answer", "RANK", 2)
    assert hint.endswith("argosy top 7 --stacks")
    assert render_title(JobView("7", "train", "ended", "ended with an error", code=3), 0.0).endswith("error (code 3)")


def test_a_waiting_job_shows_its_expected_start() -> None:
    facts = JobFacts("7", "PENDING", "waiting", "waits in the queue", "Priority", "", "", 0, 0, "")
    assert describe_waiting(facts) == "waits in the queue (Priority)"
    known = replace(facts, start="2026-11-23T09:00:00", advice="it is held: scontrol release 7")
    expected = "expected start 2026-11-23 09:00:00; it is held: scontrol release 7"
    assert describe_waiting(known) == f"waits in the queue (Priority); {expected}"


def test_a_file_gets_the_view_again_only_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, _ = watched(tmp_path)
    waits = JobView("7", "train", "waiting", "waits in the queue")
    views = iter([waits, waits, replace(waits, kind="ended", meaning="was cancelled", code=143)])
    monkeypatch.setattr(JobWatch, "follow", lambda *_: views)
    print_changes(map(cmd_top.view_lines, watch.follow(1.0)))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("job ")]
    assert lines == ["job 7 train · waits in the queue", "job 7 train · was cancelled (code 143)"]


RUNNING_JOB = "JobId=7 JobName=train JobState=RUNNING NumNodes=2 NodeList=node[9-10] StdOut=/nowhere/7.out\n"


def watched(tmp_path: Path) -> tuple[JobWatch, FakeRunner]:
    """Watch a job whose nodes reply."""
    runner = FakeRunner([(("scontrol",), Reply(0, RUNNING_JOB, "")), (("timeout",), Reply(0, REPLY, ""))])
    return JobWatch(make_session(tmp_path, HOST, runner), "7"), runner


def test_a_suspended_job_is_not_measured_until_it_runs_again(tmp_path: Path) -> None:
    watch, runner = watched(tmp_path)
    runner.replies[0] = (("scontrol",), Reply(0, RUNNING_JOB.replace("RUNNING", "SUSPENDED"), ""))
    watch = JobWatch(make_session(tmp_path, HOST, runner), "7")
    view = watch.refresh()
    assert (view.kind, view.meaning, view.ranks) == ("waiting", "is suspended", ())
    assert not [command for command in runner.seen if command.argv[0] == "timeout"], "srun would wait for long"
    runner.replies[0] = (("scontrol",), Reply(0, RUNNING_JOB, ""))
    assert watch.refresh().counts == "2 ranks: 2 running"


def test_a_refresh_is_one_step_and_asks_slurm_nothing_else(tmp_path: Path) -> None:
    watch, runner = watched(tmp_path)
    assert [command.argv[0] for command in runner.seen] == ["scontrol", "scontrol"]
    view = watch.refresh()
    assert [command.argv[2] for command in runner.seen[2:]] == ["srun"]
    assert (view.name, view.counts) == ("train", "2 ranks: 2 running")
    assert [rank.cpu for rank in view.ranks] == [50.0, None]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Reply(1, "", "srun: error: node9: Communication connection failure"), "no node replied: srun: error: node9"),
        (Reply(124, "", ""), "the nodes did not reply within 45 s"),
        (Reply(1, "", "srun: error: Task launch failed on node node9"), "no node replied: srun: error: Task launch"),
    ],
)
def test_a_step_that_fails_keeps_the_last_values_and_shows_why(tmp_path: Path, step: Reply, problem: str) -> None:
    watch, runner = watched(tmp_path)
    before = watch.refresh()
    runner.replies[1] = (("timeout",), step)
    after = watch.refresh()
    assert after.problem.startswith(problem)
    assert (after.ranks, after.measured) == (before.ranks, before.measured)


def test_a_step_that_fails_may_mean_that_the_controller_does_not_answer(tmp_path: Path) -> None:
    watch, runner = watched(tmp_path)
    watch.refresh()
    silent = Reply(1, "", "error: Unable to contact slurm controller (connect failure)")
    runner.replies[:] = [(("scontrol",), silent), (("timeout",), silent)]
    assert watch.refresh().problem == "the Slurm controller does not answer"


def test_a_view_continues_after_a_lost_connection_by_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> Reply:
        raise Unreachable("cannot connect to far by ssh")

    watch, runner = watched(tmp_path)
    watch.refresh()
    with monkeypatch.context() as lost:
        lost.setattr(FakeRunner, "run", lose)
        assert watch.refresh().problem == "cannot connect to far by ssh"
        listed = watch_list(make_session(tmp_path, HOST, runner))
        assert next(listed) == ((), "cannot connect to far by ssh")
    assert watch.refresh().problem == ""


def test_a_step_that_fails_may_mean_that_the_job_ended(tmp_path: Path) -> None:
    watch, runner = watched(tmp_path)
    watch.refresh()
    error = "srun: error: Unable to confirm allocation for job 7: Job/step already completing or completed"
    ended = RUNNING_JOB.replace("RUNNING", "COMPLETED").replace("StdOut", "ExitCode=0:0 StdOut")
    runner.replies[:] = [(("scontrol",), Reply(0, ended, "")), (("timeout",), Reply(1, "", error))]
    view = watch.refresh()
    assert (view.kind, view.problem) == ("ended", "")


def test_a_rank_that_is_gone_ended_but_those_of_a_silent_node_are_unknown(tmp_path: Path) -> None:
    watch, runner = watched(tmp_path)
    watch.refresh()
    without_rank = "\n".join(line for line in REPLY.splitlines() if not line.startswith(("0: rank=", "1: ")))
    runner.replies[1] = (("timeout",), Reply(1, without_rank, "srun: error: node10: task 1: Killed"))
    view = watch.refresh()
    assert [rank.state for rank in view.ranks] == [RankState.ENDED, RankState.RUNNING]
    assert view.problem == "1 of 2 nodes did not reply"


def test_a_job_that_has_written_nothing_is_silent_since_its_file_was_created(tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    output.touch()
    os.utime(output, (1000, 1000))
    watch = OutputWatch(str(output), None)
    watch.read([0])
    assert watch.job is not None
    assert (watch.job.line, watch.job.at) == ("", 1000)
