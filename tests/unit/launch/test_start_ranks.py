"""The program that starts the ranks of a node in one container: variables, cores, output, signals and exit codes."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.jobs.first_failure import find_first_failure
from argosy.launch.launchers.launcher import START_RANKS

TEXT = START_RANKS.read_text(encoding="utf-8")
SECOND_NODE = {"SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURMD_NODENAME": "node2"}
PRINT = "import json, os; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0))]))"


def words(command: tuple[str, ...], ranks: int = 2, cores: str = "", label: str = "") -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", TEXT, str(ranks), cores, label, *command)


def start(
    *command: str, ranks: int = 2, cores: str = "", label: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **SECOND_NODE, **(env or {})}
    return subprocess.run(
        words(command, ranks, cores, label), env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_the_program_runs_with_python_3_6_and_fits_into_a_script() -> None:
    ast.parse(TEXT, feature_version=(3, 6))
    assert "'" not in TEXT
    assert max(map(len, TEXT.splitlines())) <= 100


def test_each_rank_sees_the_variables_of_a_slurm_task() -> None:
    env = {"SLURM_CPUS_PER_TASK": "14", "SLURM_TRES_PER_TASK": "cpu=14", "SLURM_NTASKS": "2", "PMI_RANK": "1"}
    env |= {"MASTER_ADDR": "node1", "MASTER_PORT": "20001"}
    done = start(*python(PRINT), env=env)
    rows = [found for found, _ in map(json.loads, done.stdout.splitlines())]
    assert sorted(row["RANK"] for row in rows) == ["2", "3"]
    for row in rows:
        local = int(row["LOCAL_RANK"])
        assert row["RANK"] == row["SLURM_PROCID"] == str(2 + local)
        assert row["SLURM_LOCALID"] == str(local)
        world = ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
        assert {row[name] for name in world} == {"4"}
        assert {row[name] for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE")} == {"2"}
        assert {row[name] for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID")} == {"1"}
        assert {row[name] for name in ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE")} == {"2(x2)"}
        assert (row["SLURM_GTIDS"], row["SLURM_CPUS_PER_TASK"], row["SLURM_TRES_PER_TASK"]) == ("2,3", "7", "cpu=7")
        assert row["JAX_COORDINATOR_ADDRESS"] == "node1:20001"
        assert "PMI_RANK" not in row
    assert len({row["SLURM_TASK_PID"] for row in rows}) == 2


def test_ranks_share_the_cores_of_the_step_or_have_those_of_their_list() -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("needs two cores")
    shared = [cores for _, cores in map(json.loads, start(*python(PRINT)).stdout.splitlines())]
    assert sorted(map(len, shared)) == [len(usable) // 2] * 2
    assert not set(shared[0]) & set(shared[1])
    done = start(*python(PRINT), cores=f"{usable[1]};{usable[0]}-{usable[0]}")
    by_rank = {row["LOCAL_RANK"]: cores for row, cores in map(json.loads, done.stdout.splitlines())}
    assert by_rank == {"0": [usable[1]], "1": [usable[0]]}


@pytest.mark.parametrize(
    ("end", "code", "report"),
    [
        ("sys.exit(5)", 5, "ended with code 5"),
        ("os.kill(os.getpid(), 9)", 137, "ended with signal 9"),
    ],
)
def test_the_first_rank_that_fails_ends_the_others_and_gives_the_code(end: str, code: int, report: str) -> None:
    text = f"import os, sys, time\nif os.environ['LOCAL_RANK'] == '1': {end}\ntime.sleep(300)"
    done = start(*python(text), ranks=3)
    assert done.returncode == code
    assert done.stderr == f"argosy: rank 4 on node2 {report}\n"
    end_of = find_first_failure(done.stderr + "srun: error: node2: task 1: Exited with exit code 5\n")
    assert end_of
    assert (end_of.rank, end_of.host, end_of.code) == (4, "node2", code)


def test_a_rank_that_ends_well_ends_no_other() -> None:
    text = "import os, time\nif os.environ['LOCAL_RANK'] == '0': time.sleep(0.2)\nprint(os.environ['RANK'])"
    done = start(*python(text))
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["2", "3"])


WAIT = """\
import os, signal, sys
def note(number, frame):
    os.write(1, f"{os.environ['RANK']} got {number}\\n".encode())
    if number == signal.SIGTERM: sys.exit(3)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, note)
os.write(1, b"ready\\n")
while True: signal.pause()
"""


def test_signals_reach_every_rank() -> None:
    environment = {"PATH": os.environ["PATH"], **SECOND_NODE}
    with subprocess.Popen(words(python(WAIT)), env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert [child.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
            child.send_signal(number)
            got = sorted(child.stdout.readline() for _ in range(2))
            assert got == [f"{rank} got {number.value}\n" for rank in (2, 3)]
        assert child.wait(timeout=30) == 3


def test_ranks_have_the_default_action_of_every_signal() -> None:
    text = "import signal; print([n for n in (1, 2, 3, 10, 12, 15, 17) if signal.getsignal(n) is signal.SIG_IGN])"
    assert start(*python(text), ranks=1).stdout == "[]\n"
    ignored = int(start("sh", "-c", "grep SigIgn /proc/self/status", ranks=1).stdout.split()[1], 16)
    of_glibc = (
        1 << 31 | 1 << 32
    )  # signals 32 and 33: posix_spawn, which make uses, ignores them, and nobody may reset them
    assert ignored & ~of_glibc == 0


def test_lines_are_labelled_as_srun_does_and_never_mixed() -> None:
    text = "import os, sys\nfor n in range(2000): sys.stdout.write('x' * 20 + '\\n')\nsys.stderr.write('open')"
    done = start(*python(text), ranks=6, label="yes")
    lines = done.stdout.splitlines()
    assert {line.partition(": ")[2] for line in lines} == {"x" * 20}
    assert {line.partition(": ")[0] for line in lines} == {f"{rank:>2}" for rank in range(6, 12)}
    assert done.stderr.count("open") == 6
    plain = start(*python(text), ranks=6).stdout.splitlines()
    assert (len(plain), set(plain)) == (12000, {"x" * 20})


def test_a_program_that_does_not_exist_is_reported() -> None:
    done = start("no-such-program", ranks=1)
    assert done.returncode == 127
    assert "argosy: no-such-program: not found in the container\n" in done.stderr


def test_a_process_that_a_rank_leaves_does_not_keep_the_node(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    done = start("sh", "-c", f"sleep 300 & echo $! > {pid}; echo ended; printf 'no newline' >&2", ranks=1)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "no newline")
