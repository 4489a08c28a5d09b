"""The two sh files beside a job script note what ranks were given and how a run ended, in any POSIX shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from argosy.core.parse import parse_cpulist
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.outputs import find_output, lines_of_rank, of_batch
from argosy.jobs.record import Run, last_run, parse_ranks, read_first, read_first_output, read_ranks, read_runs
from argosy.launch.launchers.launcher import COPY, NOTE, Counts, LauncherSpec, find_launcher
from argosy.launch.script.helpers import render_script_functions
from argosy.launch.script.parts import (
    CORES,
    DATA,
    END_CALL,
    END_FILE,
    GPUS,
    OUTPUT_CALL,
    OUTPUT_FILE,
    RANK_FILE,
    render_end,
    render_output,
    render_rank,
)
from tests.unit.plans import plan_text

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
TORCHRUN = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_12:00:01
  host      : node2
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 363)
srun: error: node1: task 0: Exited with exit code 1
"""
SRUN = """\
srun: error: node2: task 3: Exited with exit code 42
srun: error: node1: tasks 0-1: Exited with exit code 143
"""


BY_STARTER = """\
argosy: rank 5 on node2 ended with code 42
srun: error: node2: task 1: Exited with exit code 42
srun: Terminating StepId=7.0
argosy: rank 0 on node1 ended with signal 9
srun: error: node1: task 0: Exited with exit code 137
"""
BY_SIGNAL = """\
srun: error: node1: task 1: Illegal instruction
srun: Terminating StepId=7.0
srun: error: node1: task 0: Terminated
srun: error: node2: tasks 2-3: Terminated
"""


IMAGE = "/shared/it's mine.sif"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Give a folder of a run, with a blank in its path."""
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / RANK_FILE).write_text(render_rank(IMAGE))
    (folder / END_FILE).write_text(render_end(("0", "1"), gpus=2))
    return folder


def rank(record: Path, shell: str, number: int, **variables: str) -> subprocess.CompletedProcess[str]:
    words = ("-c", NOTE, NOTE.name, str(record / RANK_FILE))
    own = {"RANK": str(number), "LOCAL_RANK": str(number % 2), "SLURMD_NODENAME": f"node{number // 2 + 1}"}
    environment = {"PATH": os.environ["PATH"], **own, **variables}
    command = (shell, *words, "sh", "-c", 'env; printf "%s|" "$@"', "x", "a  b", "$HOME", "")
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def end(record: Path, shell: str, code: int, output: str = "", restart: int = 0) -> str:
    file = record / "out"
    file.write_text(output)
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    environment |= {"SLURM_RESTART_COUNT": str(restart), "SLURM_JOB_START_TIME": "100"}
    with file.open("a") as stream:
        subprocess.run(
            (shell, str(record / END_FILE), str(code), "4"), env=environment, stdout=stream, stderr=stream, check=True
        )
    return file.read_text().removeprefix(output)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_rank_records_its_facts_and_its_program_starts_unchanged(record: Path, shell: str) -> None:
    done = rank(record, shell, 3, CUDA_VISIBLE_DEVICES="0,1", ROCR_VISIBLE_DEVICES="a b; rm -rf")
    assert done.stderr == ""
    assert done.stdout.endswith("a  b|$HOME||")
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert not names & {"host", "cores", "name", "value", "line", "seen", "devices"}
    (told,) = read_ranks(record)
    assert (told.rank, told.local, told.host) == (3, 1, "node2")
    assert parse_cpulist(told.cores) == os.sched_getaffinity(0)
    assert told.visible == (("CUDA_VISIBLE_DEVICES", "0,1"),)


def test_the_verdict_counts_the_ranks_of_ten_thousand_nodes(tmp_path: Path) -> None:
    folder = tmp_path / ("r" * 200)  # with its path, the files are more than a command line can hold
    folder.mkdir()
    (folder / END_FILE).write_text(render_end((), gpus=0))
    for number in range(10_000):
        line = f"rank={number} local=0 host=node{number} job=7 restart=0 cores=0 devices=0\n"
        (folder / f"ranks-node{number}").write_text(line)
    assert "ranks: 10000 of 4 started on 10000 nodes" in end(folder, "sh", 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_rank_by_srun_numbers_itself_and_notes_it_in_one_shell(record: Path, shell: str) -> None:
    command = ("sh", "-c", 'echo "$RANK of $WORLD_SIZE: $1"', "x", "a  b")
    spec = LauncherSpec(command, Counts("2", "2"), note_file=str(record / RANK_FILE))
    _, *words = find_launcher("srun").plan(spec).command
    task = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
    where = {"MASTER_ADDR": "n1", "MASTER_PORT": "20001", "SLURMD_NODENAME": "n2", "PATH": os.environ["PATH"]}
    line = (shell, *map(str, words))
    done = subprocess.run(line, env=task | where, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3 of 4: a  b\n", "")
    (told,) = read_ranks(record)
    assert (told.rank, told.local, told.host) == (3, 1, "n2")
    (record / RANK_FILE).unlink()
    assert subprocess.run(line, env=task | where, capture_output=True, text=True, check=True).stdout == done.stdout


def run_with_output(record: Path, program: str, restart: int = 0) -> None:
    """Run a job script that waits until the first line of its program is recorded, or the watch has ended."""
    (record / OUTPUT_FILE).write_text(render_output())
    text = "\n".join([*render_script_functions(OUTPUT_CALL), "echo before", OUTPUT_CALL, program, "wait"])
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restart)}
    environment["argosy_record"] = str(record)
    with (record / "out").open("a") as stream:
        subprocess.run(("/bin/sh", "-euc", text), env=environment, stdout=stream, stderr=stream, check=True)


def test_the_first_line_of_the_ranks_is_recorded_for_each_run(record: Path) -> None:
    for restart in (0, 1):
        run_with_output(record, "echo 'argosy: not a line of a rank'; echo 'srun: neither'; echo epoch 1", restart)
    found = read_first_output(record)
    assert list(found) == [("7", 0), ("7", 1)]
    assert all(abs(time - (record / "first-output").stat().st_mtime) < 600 for time in found.values())


def test_a_job_whose_ranks_write_nothing_has_no_time_of_a_first_line(record: Path) -> None:
    (record / OUTPUT_FILE).write_text(render_output())
    with (record / "out").open("a") as stream:
        words = ("/bin/sh", "-c", f'sh "{record / OUTPUT_FILE}" 999999999 0')
        subprocess.run(words, env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}, stdout=stream, check=True)
    assert read_first_output(record) == {}


def test_a_removed_record_ends_a_job_silently(record: Path) -> None:
    values = f"argosy_record='{record}' argosy_nodes=1 argosy_ranks_per_node=1 argosy_code=0"
    text = "\n".join([values, *render_script_functions(END_CALL), END_CALL, "echo done"])
    (record / END_FILE).unlink()
    done = subprocess.run(("/bin/sh", "-euc", text), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_record_that_was_removed_does_not_keep_a_rank_from_its_work(record: Path) -> None:
    (record / RANK_FILE).unlink()
    assert rank(record, SHELLS[0], 0).returncode == 0
    record.joinpath(RANK_FILE).write_text(render_rank(IMAGE))
    record.chmod(0o500)
    assert rank(record, SHELLS[0], 0).returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("program", "text", "code", "said"),
    [
        ("no-such-program", None, 127, f"no-such-program: not found in the container of {IMAGE}"),
        ("./gone.sh", None, 127, f"./gone.sh: not found in the container of {IMAGE}"),
        (
            "./plain.sh",
            "#!/bin/sh\n",
            126,
            "./plain.sh: permission denied: not executable in",
        ),
        ("./", None, 126, "./: is a folder, not a program"),
        ("./x.sh", "#! /no/such/sh -e\n", 127, "./x.sh: its interpreter /no/such/sh is not found in the container of"),
        ("./x.sh", "#!/bin/sh\r\n", 126, "./x.sh: bad interpreter: /bin/sh^M"),
        ("./x.sh", "#!/bin/sh\nexit 3\n", 3, ""),
        ("./x.sh", "exit 4\n", 4, ""),
    ],
)
def test_a_program_that_cannot_start_is_named_with_its_image_only(
    record: Path, shell: str, program: str, text: str | None, code: int, said: str
) -> None:
    if text is not None:
        (record / program).write_text(text)
        (record / program).chmod(0o755 if "x" in program else 0o644)
    own = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "n1"}
    words = (shell, "-c", NOTE, NOTE.name, str(record / RANK_FILE), program)
    done = subprocess.run(words, env=own, cwd=record, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(f"argosy: {said}" if said else "")
    assert done.stderr.count("\n") == (1 if said else 0)
    assert RANK_FILE not in done.stderr
    if said:
        (found,) = find_errors(done.stderr, read_signatures())
        assert found.name in {"no-exec-in-image", "not-executable", "program-is-folder", "dos-line-ends"}


def test_the_last_lines_of_a_rank_are_its_own_and_the_last_traceback() -> None:
    lines = ("rank 3 step 2", "warming up", "rank 0 step 2", "Traceback (most recent call last):", "  x", "KeyError: 1")
    assert lines_of_rank((*lines, "rank 1 step 3"), 3) == ("rank 3 step 2", *lines[3:])
    assert lines_of_rank((" 3: a", "10: b", "12:30:01 c"), 3) == (" 3: a",)
    assert lines_of_rank(("[rank3]: a", "[rank0]: b"), 3) == ("[rank3]: a",)
    assert lines_of_rank(lines[3:], 3) == lines[3:], "no line names its rank"


def test_copies_on_one_machine_name_a_program_that_is_not_there() -> None:
    words = ("/bin/sh", "-c", COPY, COPY.name, "0", "2", "no-such-program")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = "argosy: no-such-program: not found in the container\n"
    assert (done.returncode, done.stderr) == (127, said)
    assert find_errors(said, read_signatures())[0].name == "no-exec-in-image"


def test_a_program_without_a_container_is_searched_on_the_node(record: Path) -> None:
    (record / RANK_FILE).write_text(render_rank(""))
    words = (SHELLS[0], "-c", NOTE, NOTE.name, str(record / RANK_FILE), "no-such-program")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == "argosy: no-such-program: not found on this node\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_end_of_a_job_prints_and_records_its_verdict(record: Path, shell: str) -> None:
    for number in range(4):
        line = f"rank={number} local={number % 2} host=node{number // 2 + 1} restart=0 cores={number % 2} devices=2\n"
        with (record / f"ranks-node{number // 2 + 1}").open("a") as file:
            file.write(line)
    said = end(record, shell, 0)
    assert said.startswith(
        "argosy: verdict: ranks: 4 of 4 started on 2 nodes · cores: 4 of 4 as planned · GPUs: use not shown; "
    )
    assert "each rank can see 2" in said
    (record / "nccl-0-node1-9.log").write_text("n:1:1 [0] NCCL INFO Using network Socket\n")
    said = end(record, shell, 0)
    assert "network: TCP SOCKETS, not the fast network" in said
    assert "ranks: 4 of 4 on 2 nodes" in said
    (record / "nccl-0-node1-9.log").write_text(
        "n:1:1 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)\n"
        "n:1:1 [0] NCCL INFO Using network Libfabric\n"
        "n:1:1 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 busId c1000 - Init START\n"
        "n:1:1 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 busId c1000 - Init COMPLETE\n"
        "n:1:2 [1] NCCL INFO comm 0x55 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId c6000 commId 0x1 - Init COMPLETE\n"
    )
    assert "GPUs: 2 used by NCCL or RCCL; each rank can see 2" in end(record, shell, 0)
    assert end(record, shell, 0).endswith("network: Libfabric, libfabric cxi\n")
    runs = read_runs(record)
    assert len(runs) == 4
    assert (runs[0].code, runs[0].nodes, runs[0].started) == (0, "node[1-2]", 100)
    assert runs[0].ended > 100


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("output", "first"),
    [
        (TORCHRUN, RankEnd(3, "node2", 137)),
        (
            SRUN,
            RankEnd(3, "node2", 42),
        ),
        (f"{TORCHRUN}argosy: job 7 ended with code 1\nall was well in the second run\n", None),
        (f"{SRUN}argosy: the run wrote a new checkpoint, so the job is requeued: restart 1 of 2\n", None),
        (BY_STARTER, RankEnd(5, "node2", 42)),
        (BY_STARTER.replace("code 42", "signal 11"), RankEnd(5, "node2", 139)),
        (BY_SIGNAL, RankEnd(1, "node1", 132)),
        (BY_SIGNAL.replace("Illegal instruction", "Segmentation fault (core dumped)"), RankEnd(1, "node1", 139)),
        (BY_SIGNAL.replace("Illegal instruction", "Terminated"), None),
        (f"srun: forcing job termination\n{BY_SIGNAL.replace('Illegal instruction', 'Killed')}", None),
    ],
)
def test_the_rank_that_failed_first_is_noted(record: Path, shell: str, output: str, first: RankEnd | None) -> None:
    said = end(record, shell, 1, output)
    assert read_first(record) == first
    assert bool(first) == ("failed first" in said)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_that_leaves_its_line_open_hides_nothing(record: Path, shell: str) -> None:
    said = end(record, shell, 1, "a bar: 50%|## | 5/10srun: error: node2: task 3: Exited with exit code 42\nlast bar")
    assert said == "\nargosy: rank 3 on node2 failed first (code 42)\n"
    assert read_first(record) == RankEnd(3, "node2", 42)


def test_jax_that_falls_back_to_the_cpu_does_not_use_the_gpus(record: Path) -> None:
    (record / END_FILE).write_text(render_end((), gpus=2))
    (record / "ranks-node1").write_text("rank=0 local=0 host=node1 restart=0 cores=0 devices=2\n")
    jax = "An NVIDIA GPU may be present, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.\n"
    assert "GPUs: not used by JAX, a build for the CPU; each rank can see 2" in end(record, SHELLS[0], 0, jax)
    assert "GPUs: use not shown" in end(record, SHELLS[0], 0)


def test_device_files_are_not_counted_if_no_gpu_was_planned(record: Path) -> None:
    (record / END_FILE).write_text(render_end((), gpus=0))
    lines = [f"rank={number} local=0 host=node{number} restart=0 cores=0 devices=2\n" for number in range(2)]
    (record / "ranks-all").write_text("".join(lines))
    said = "argosy: verdict: ranks: 2 of 4 started on 2 nodes · network: not shown (no GPU)\n"
    assert end(record, SHELLS[0], 0) == said
    (record / "nccl-0-node1-9.log").write_text("n:1:1 [0] NCCL INFO comm 0x55 rank 0 cudaDev 0 busId c1000\n")
    assert "GPUs: 1 used by NCCL or RCCL; each rank can see 2" in end(record, SHELLS[0], 0)


def test_a_run_has_the_code_of_the_rank_that_failed_first_as_its_job_has(record: Path) -> None:
    end(record, SHELLS[0], 143, TORCHRUN)
    end(record, SHELLS[0], 1, "", restart=1)
    end(record, SHELLS[0], 0, TORCHRUN, restart=2)
    assert [run.code for run in read_runs(record)] == [137, 1, 0]


def test_facts_of_an_earlier_run_are_not_used_for_the_last(record: Path) -> None:
    end(record, SHELLS[0], 1, TORCHRUN)
    end(record, SHELLS[0], 1, "", restart=1)
    assert read_first(record) is None


def test_shellcheck_finds_nothing_in_them() -> None:
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("shellcheck is not installed")
    words = (shellcheck, "--shell=sh", *map(str, DATA.glob("*.sh")))
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == ""
    assert not {CORES, GPUS} & set(re.findall(r"@\w+@", render_end((), gpus=0)))


@pytest.mark.parametrize(
    ("pattern", "job", "path"),
    [
        ("/a/%x-%j.out", "7", "/a/a%b c-7.out"),
        ("/a/%A/%u-%5j-%%.out", "7", "/a/7/ada-00007-%.out"),
        ("/a/%A_%3a.out", "7_2", "/a/7_002.out"),
        ("/a/%j-%N.out", "7", "/a/7-%N.out"),
        ("/a/%j-%N.out", "7_2", ""),
    ],
)
def test_the_output_of_a_job_that_slurm_has_forgotten_is_found(
    pattern: str, job: str, path: str, tmp_path: Path
) -> None:
    (tmp_path / "submitted.json").write_text(json.dumps({"output": pattern}))
    (tmp_path / "job.json").write_text(plan_text(name="a%b c"))
    assert find_output(tmp_path, job, "ada") == path


def test_scontrol_leaves_node_step_and_task_of_an_output_to_be_filled() -> None:
    assert of_batch({"StdOut": "/a/x-%N-%n-%3t-%s.out", "BatchHost": "n1.hpc"}) == "/a/x-n1-0-000-batch.out"
    assert of_batch({"StdOut": "/a/x-%N.out"}) == "/a/x-%N.out"


def test_a_failed_task_gives_the_end_of_its_array() -> None:
    requeued, array = (Run("7", 0, 1, "n1"), Run("7", 1, 0, "n1")), (Run("8", 0, 3, "n1"), Run("9", 0, 0, "n1"))
    assert last_run(()) is None
    assert (last_run(requeued), last_run(array)) == (requeued[1], array[0])


def test_a_line_cut_by_a_full_disk_is_passed_over() -> None:
    assert parse_ranks("rank=1 local=1 host=n1 co\nrank=2 loc") == parse_ranks("rank=1 local=1 host=n1\n")
