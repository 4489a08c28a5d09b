"""Parts of a launch: the port that a script chooses, sizes, warnings, the environment of sbatch."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ContainerRequest, Image, ImageKind, Variable
from argosy.core.process import Command, Reply
from argosy.core.shell import Helpers, ShellHelper, quote, render_helpers
from argosy.jobs.outputs import NEW_RUN
from argosy.launch.launchers.launcher import BIND, ELASTIC, GUARD, LOG, MPI_RANK, RANK, TORCHRUN
from argosy.launch.plan import APPTAINER_JSON, ONE_STRING, json_size, refuse_too_long
from argosy.launch.script.helpers import CHECK_CONTAINER, CHECK_NODE, FREE_PORT, OWN_FOLDERS, render_script_functions
from argosy.launch.script.parts import (
    Resume,
    plan_resume,
    render_modules,
    render_rendezvous,
    render_requeue,
    render_resume_check,
    script_shell,
)
from argosy.launch.submit import submission_environment
from argosy.runtimes.container_plan import plan_container
from argosy.sites.profile import Site
from argosy.sites.software import Modules
from argosy.slurm.calls import explain_sbatch
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_host, make_session

HOST = make_host("apptainer")
IMAGE = Image("/shared/x.sif", ImageKind.SIF, "", "amd64")
LMOD = Path("/etc/profile.d/lmod.sh")
SITE = Site(name="lab", title="the lab", scheduler="slurm")


# The variables of a rank

OF_PROXY = {
    **dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID", "SLURM_GTIDS"), "1"),
    "SLURM_LOCALID": "0",
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"), "2"),
    **dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), "1(x2)"),
}
"""Slurm's variables of a rank that hydra starts: those of hydra's own task on the second of two nodes."""


def start_mpi_rank(shell: str, environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of a rank of the launcher mpi, two of which are on each node."""
    words = (shell, "-c", MPI_RANK, MPI_RANK.name, "2", "", "env")
    given = {"PATH": os.environ["PATH"], **environment}
    shown = subprocess.run(words, capture_output=True, text=True, check=True, env=given).stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_rank_that_mpiexec_starts_sees_the_variables_of_a_slurm_task(shell: str) -> None:
    found = start_mpi_rank(shell, {**OF_PROXY, "PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"})
    assert {found[name] for name in ("RANK", "SLURM_PROCID")} == {"3"}
    assert {found[name] for name in ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")} == {"4"}
    assert {found[name] for name in ("LOCAL_RANK", "SLURM_LOCALID", "NODE_RANK", "SLURM_NODEID")} == {"1"}
    assert {found[name] for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE")} == {"2"}
    assert {found[name] for name in ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE")} == {"2(x2)"}
    assert "SLURM_GTIDS" not in found


def test_on_one_node_the_tasks_are_counted_without_the_number_of_nodes() -> None:
    given = {**OF_PROXY, "PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}
    assert start_mpi_rank("sh", given)["SLURM_TASKS_PER_NODE"] == "2"


def test_a_rank_that_srun_starts_keeps_the_variables_of_its_task() -> None:
    own = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_GTIDS": "1,3"}
    found = start_mpi_rank("sh", {**own, "PMI_RANK": "1", "PMI_SIZE": "4"})
    assert {name: found[name] for name in own} == own


# The port


def choose_port(shell: str, first: int) -> int:
    words = (shell, "-c", FREE_PORT, FREE_PORT.name, str(first))
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def busy() -> Iterator[int]:
    """Give a port on which somebody listens, with free ones of ours above it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_port_on_which_somebody_listens_is_skipped(shell: str, busy: int) -> None:
    assert busy < choose_port(shell, busy) < busy + 50


def meet(shell: str, hosts: str, first: str, **more: str) -> list[str]:
    call = render_rendezvous(SITE)
    helpers = render_helpers(Helpers(FREE_PORT.definitions))
    lines = "\n".join([*render_script_functions(call), *helpers, call, 'echo "$MASTER_ADDR $MASTER_PORT"'])
    scontrol = f"scontrol() {{ printf '%s\\n' {hosts}; }}\n"
    there = {"SLURM_JOB_NODELIST": "x", "SLURMD_NODENAME": first, "SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]}
    ran = subprocess.run(
        [shell, "-euc", scontrol + lines], env=there | more, capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def test_launches_within_one_allocation_do_not_meet_at_one_port() -> None:
    assert len({meet("sh", "node1", "node1")[1] for _ in range(12)}) == 12


def test_the_first_port_of_a_batch_job_follows_from_the_job_and_its_restarts_alone() -> None:
    find = "\n".join(render_script_functions(render_rendezvous(SITE)))
    stubs = 'scontrol() { echo node1; }\nsrun() { shift $(($# - 1)); echo "$1"; }\nSLURM_TASK_PID=$$ argosy_helpers=\n'
    for job, restart in ((7, 0), (7, 1), (8, 0), (123456, 2)):
        there = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": str(job), "SLURM_RESTART_COUNT": str(restart)}
        script = f"{stubs}{find}\n{render_rendezvous(SITE)}\necho $MASTER_PORT"
        ran = subprocess.run(("/bin/sh", "-euc", script), env=there, capture_output=True, text=True, check=True)
        assert int(ran.stdout) == 20000 + (job * 7 + restart * 31) % 10000


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("resolves", "shown", "address"),
    [
        ("true", "NodeAddr=10.0.0.7", "gpu-1"),
        ("false", "   NodeAddr=10.0.0.7 NodeHostName=ip-10-0-0-7 Version=24.11.5", "10.0.0.7"),
        ("false", "", "gpu-1"),
    ],
)
def test_a_node_whose_name_has_no_address_is_met_at_its_address(
    shell: str, resolves: str, shown: str, address: str
) -> None:
    find = "\n".join(render_script_functions(render_rendezvous(SITE)))
    asked = f"scontrol() {{ [ $2 = hostnames ] && echo gpu-1 || echo '{shown}'; }}; getent() {{ {resolves}; }}"
    stubs = f"{asked}\nsrun() {{ echo 20049; }}\nargosy_helpers=\n"
    script = f'{stubs}{find}\n{render_rendezvous(SITE)}\necho "$MASTER_ADDR"'
    there = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]}
    ran = subprocess.run((shell, "-euc", script), env=there, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{address}\n", "")


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_a_task_prolog_prints_is_no_part_of_the_port(shell: str) -> None:
    find = "\n".join(render_script_functions(render_rendezvous(SITE)))
    stubs = 'scontrol() { echo node1; }\nsrun() { echo "** node 1: welcome **"; echo; echo 20049; }\nargosy_helpers=\n'
    script = f'{stubs}{find}\n{render_rendezvous(SITE)}\necho "$MASTER_PORT"'
    there = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]}
    assert subprocess.run((shell, "-euc", script), env=there, capture_output=True, check=True).stdout == b"20049\n"


def test_no_file_in_a_folder_of_all_users_keeps_a_port() -> None:
    before = set(Path("/tmp").iterdir())  # noqa: S108 - where such files would lie
    port = meet("sh", "node1", "node1")[1]
    assert not [path for path in set(Path("/tmp").iterdir()) - before if port in path.name]  # noqa: S108


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("planted", ["link", "file", "stranger"])
def test_a_folder_on_a_node_that_the_user_does_not_own_ends_the_rank(shell: str, planted: str, tmp_path: Path) -> None:
    folder = tmp_path / "caches/miopen"
    words = (shell, "-c", OWN_FOLDERS, OWN_FOLDERS.name, str(folder), "echo", "ran")
    variables = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "node1"}

    def start() -> tuple[int, str]:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
        return ran.returncode, ran.stdout

    assert start() == (0, "ran\n")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert start() == (0, "ran\n"), "another rank of the node, or another run of the job"
    folder.rmdir()
    if planted == "link":
        (tmp_path / "other").mkdir()
        folder.symlink_to(tmp_path / "other")
    elif planted == "file":
        folder.touch()
    else:
        if os.geteuid() != 0:
            pytest.skip("only root gives a folder to another user")
        folder.mkdir()
        os.chown(folder, 12345, 12345)
    assert start() == (7, "")


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("planted", "code"),
    [
        ("open folder", 7),
        ("open folder above", 7),
        ("folder of a stranger", 7),
        ("link of a stranger", 7),
        ("link to an open folder", 7),
        ("sticky folder", 0),
        ("own link", 0),
    ],
)
def test_a_folder_that_another_user_can_replace_during_the_job_ends_the_rank(
    shell: str, planted: str, code: int, tmp_path: Path
) -> None:
    parent, other = tmp_path / "tmp/alice", tmp_path / "other"
    parent.parent.mkdir()
    other.mkdir()
    if "stranger" in planted and os.geteuid() != 0:
        pytest.skip("only root gives a folder to another user")
    if "link" in planted:
        parent.symlink_to(other)
    else:
        parent.mkdir()
    if "stranger" in planted:
        os.lchown(parent, 12345, 12345)
    elif planted == "open folder above":
        parent.parent.chmod(0o777)
    elif planted == "link to an open folder":
        other.chmod(0o777)
    elif planted != "own link":
        parent.chmod(0o1777 if planted == "sticky folder" else 0o777)
    words = (shell, "-c", OWN_FOLDERS, OWN_FOLDERS.name, f"{parent}/triton", "echo", "ran")
    variables = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "node1"}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert (ran.returncode, ran.stdout) == (code, "" if code else "ran\n")
    assert ("another user can replace what is in" in ran.stderr) == bool(code)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_ranks_meet_on_the_first_host_of_a_list(shell: str) -> None:
    told, port = meet(shell, "node03 node04 login1", "node03")
    assert (told, 20000 <= int(port) < 30000) == ("node03", True)


# Sizes


def limits(*command: str, variables: tuple[Variable, ...] = (), environment: dict[str, str] | None = None) -> None:
    container = plan_container(ContainerRequest(variables=variables), IMAGE, HOST)
    refuse_too_long(container, command, environment or {})


def test_one_argument_may_be_as_long_as_the_kernel_allows() -> None:
    limits("true", "x" * (ONE_STRING - 1))
    with pytest.raises(UsageError, match=r"argument 2 of the command is too long") as refused:
        limits("true", "x" * ONE_STRING)
    assert "131,073 bytes; the kernel accepts 131,072" in str(refused.value)


def test_bytes_count_and_not_letters() -> None:
    with pytest.raises(UsageError, match="too long"):
        limits("é" * (ONE_STRING // 2))


def test_a_variable_counts_with_the_name_that_forces_it() -> None:
    with pytest.raises(UsageError, match="the variable APPTAINERENV_X is too long"):
        limits("true", variables=(Variable("X", "x" * (ONE_STRING - len("APPTAINERENV_X="))),))


def test_too_many_arguments_are_refused_with_both_numbers() -> None:
    limits(*["x" * 100_000] * 10)
    with pytest.raises(UsageError, match="too long") as refused:
        limits(*["x" * 100_000] * 11)
    assert "1,100,033 bytes" in str(refused.value)
    assert f"{APPTAINER_JSON:,}" in str(refused.value)
    with pytest.raises(UsageError, match="too long"):
        limits(*["x" * 100_000] * 10, environment={"BIG": "x" * 50_000})
    with pytest.raises(UsageError, match="too long"):
        limits(*["<" * 100_000] * 2)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_json_is_as_long_as_go_writes_it(words: list[str]) -> None:
    text = "".join(json.dumps(word, ensure_ascii=False) + "," for word in words)
    for sign in "<>&":
        text = text.replace(sign, "\\u0000")
    assert json_size(words) == len(text.encode())


# Warnings


def test_ranks_have_most_of_the_grace_and_torchrun_its_half_minute() -> None:
    assert Resume(1, "/x").patience == 90
    assert Resume(1, "/x", grace=30).patience == 20
    assert plan_resume(0, "", JobOptions(signal="USR1")) is None
    assert plan_resume(2, "/x", JobOptions(time="2:01")) == Resume(2, "/x", "USR2", 120)


READS = "import sys; print('ready', flush=True); sys.stdin.read(); print('end', flush=True)"
HANDLES = f"import os, signal; signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b'warned\\n')); {READS}"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("program", "is_warned"), [(HANDLES, True), (READS, False)])
def test_a_warning_reaches_programs_with_a_handler_and_does_not_end_others(
    shell: str, program: str, *, is_warned: bool
) -> None:
    words = (shell, "-c", str(GUARD), GUARD.name, "USR2", sys.executable, "-c", program)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        said = child.stdout.readline()
        child.send_signal(signal.SIGUSR2)
        while is_warned and b"warned" not in said and child.poll() is None:
            child.send_signal(signal.SIGUSR2)  # the shell may not have known its program before
            said += os.read(child.stdout.fileno(), 99) if select.select([child.stdout], [], [], 0.1)[0] else b""
        child.stdin.close()
        said += child.stdout.read()
    assert said.split()[0] == b"ready"
    assert b"end" in said.split()  # the shell may pass a second warning on after it
    assert (b"warned" in said) == is_warned


def test_a_warning_before_the_job_starts_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves no time to compute: the ranks are warned 120 s before the limit"):
        plan_resume(2, "/x", JobOptions(time="2"))
    assert plan_resume(2, "/x", JobOptions(time="2", signal="USR2@100"))


def test_each_task_of_an_array_has_its_own_checkpoint() -> None:
    with pytest.raises(UsageError, match="needs %a") as caught:
        plan_resume(2, "/x/last.pt", JobOptions(array="0-3"))
    assert "--checkpoint last-%a.pt" in caught.value.hint
    resume = plan_resume(2, "/x y/$a-%a.pt", JobOptions(array="0-3"))
    assert resume is not None
    (line,) = [line for line in render_resume_check(resume) if line.startswith("resume_from")]
    env = {"SLURM_ARRAY_TASK_ID": "7", "PATH": "/usr/bin:/bin"}
    said = subprocess.run(
        ["/bin/sh", "-c", f'resume_from() {{ echo "$1"; }}; {line}'], env=env, capture_output=True, check=True
    )
    assert said.stdout == b"/x y/$a-7.pt\n"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("warned", "saved", "restart", "code", "said"),
    [
        ("", "true", 3, 0, ""),
        ("yes", "true", 3, 7, "the time limit ended restart 3 of 3: launch the job again with the same --checkpoint"),
        ("yes", "false", 1, 0, "this run wrote no new checkpoint /x, so the job is not requeued"),
    ],
)
def test_a_chain_that_ends_at_a_time_limit_is_not_reported_as_finished(
    shell: str, warned: str, saved: str, restart: int, code: int, said: str, tmp_path: Path
) -> None:
    call = render_requeue(Resume(3, "/x", grace=20))
    values = f"argosy_warned={quote(warned)} argosy_restart={restart} argosy_restarts=3 argosy_stopped=''"
    files = f"argosy_checkpoint=/x argosy_job=9 argosy_mark={tmp_path}/mark"
    saves = f"has_saved() {{ {saved}; }}"
    lines = "\n".join([*render_script_functions(call), saves, values, files, call, "exit 0"])
    ran = subprocess.run([shell, "-euc", lines], capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert said in ran.stdout + ran.stderr


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("failures", "code"), [(0, 0), (2, 0), (99, 7)])
def test_a_job_goes_back_into_the_queue_once_the_controller_answers_and_keeps_its_mark(
    shell: str, failures: int, code: int, tmp_path: Path
) -> None:
    tools, mark, tries = tmp_path / "bin", tmp_path / "mark", tmp_path / "tries"
    tools.mkdir()
    mark.touch()
    asked = f'echo "$*" >> {tries}; [ "$(wc -l < {tries})" -gt {failures} ]'
    for name, text in {"scontrol": asked, "sleep": ":"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    call = render_requeue(Resume(3, "/x", grace=20))
    values = f"argosy_warned=yes argosy_restart=0 argosy_restarts=3 argosy_stopped='' argosy_job=9 argosy_mark={mark}"
    lines = "\n".join([*render_script_functions(call), "has_saved() { :; }", values, call, "exit 0"])
    there = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "9"}
    ran = subprocess.run([shell, "-euc", lines], env=there, capture_output=True, text=True, check=False)
    assert (ran.returncode, mark.exists()) == (code, True), ran.stderr
    assert set(tries.read_text().splitlines()) == {"requeue 9"}


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("first", "code"), [("-9", 137), ("5", 5), ("", 143)])
def test_a_job_ends_with_the_code_or_the_signal_of_the_rank_that_failed_first(
    shell: str, first: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "end.sh").touch()
    (tmp_path / "first").write_text(f"42 0 1 node2 {first}\n41 0 1 node2 7\n" if first else "")
    call = f"note_end {tmp_path}/end.sh"
    values = "argosy_code=143 argosy_nodes=2 argosy_ranks_per_node=1"
    lines = "\n".join([*render_script_functions(call), values, call, 'exit "$argosy_code"'])
    there = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "42"}
    assert subprocess.run([shell, "-euc", lines], env=there, check=False).returncode == code


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("reason", "requeued"), [("TimeLimit", True), ("None", False)])
def test_a_job_that_is_cancelled_after_the_warning_does_not_requeue_itself(
    shell: str, reason: str, *, requeued: bool
) -> None:
    """Slurm sends TERM in both cases; the reasons were read in such jobs of Slurm 24.11."""
    call = render_requeue(Resume(3, "/x", grace=20))
    slurm = f'scontrol() {{ echo "$*: JobState=COMPLETING Reason={reason} Dependency=(null)"; }}'
    values = "argosy_warned=yes argosy_restart=0 argosy_restarts=3 argosy_stopped=yes argosy_job=9 argosy_mark=/x/mark"
    lines = "\n".join([*render_script_functions(call), slurm, "has_saved() { :; }", values, call])
    there = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "9"}
    ran = subprocess.run([shell, "-euc", lines], env=there, capture_output=True, text=True, check=True)
    assert ("requeue 9" in ran.stdout) is requeued
    assert ("the job was stopped, so its script" in ran.stdout) is not requeued


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("time", "kept"), [("2026-11-28T13:35:38", True), ("None", False)])
def test_a_job_that_slurm_preempts_keeps_its_mark_for_the_next_run(
    shell: str, time: str, *, kept: bool, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    call = render_requeue(Resume(3, "/x", grace=20))
    told = f"scontrol() {{ echo '   PreemptEligibleTime=2026-11-28T13:35:33 PreemptTime={time}'; }}"
    values = f"argosy_warned='' argosy_restart=0 argosy_restarts=3 argosy_stopped='' argosy_job=9 argosy_mark={mark}"
    lines = "\n".join([*render_script_functions(call), told, values, call])
    subprocess.run([shell, "-euc", lines], env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "9"}, check=True)
    assert mark.exists() is kept


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("Requeue=1 Restarts=1 BatchFlag=1", False),  # cancelled, or at the time limit
        ("Requeue=1 Restarts=2 BatchFlag=1", True),  # requeued: a node was lost, or an operator did it
        ("Requeue=1 Restarts=1 BatchFlag=1\n   PreemptTime=2026-11-28T13:35:38", True),  # in its grace time
        ("", True),  # the controller does not answer
    ],
)
def test_the_mark_of_a_stopped_job_stays_only_for_a_next_run(
    shell: str, told: str, *, kept: bool, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    call = render_requeue(Resume(3, "/x", grace=20))
    slurm = f'scontrol() {{ [ "$3" = 9 ] || exit 9; echo {quote(f"   {told} Reboot=0")}; }}'
    values = f"argosy_warned='' argosy_restart=1 argosy_restarts=3 argosy_stopped=yes argosy_job=9 argosy_mark={mark}"
    lines = "\n".join([*render_script_functions(call), slurm, values, call])
    subprocess.run([shell, "-euc", lines], env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "9"}, check=True)
    assert mark.exists() is kept


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_last_task_of_an_array_requeues_only_itself(shell: str, tmp_path: Path) -> None:
    """Its SLURM_JOB_ID is the number of the array: Slurm 24.11 would requeue all tasks, also those that ended."""
    resume = Resume(3, f"{tmp_path}/c.pt", grace=20)
    calls = [*render_resume_check(resume), "argosy_warned=yes", render_requeue(resume)]
    told = 'scontrol() { echo "$*"; }\nhas_saved() { :; }'
    lines = "\n".join([*render_script_functions("\n".join(calls)), told, *calls])
    array = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}
    there = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "9", **array}
    ran = subprocess.run([shell, "-euc", lines], env=there, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "requeue 9_3"
    assert (tmp_path / "c.pt.argosy-9").exists()


# Submitting


def test_sbatch_sees_nothing_of_an_outer_job_or_of_the_defaults_that_were_read(tmp_path: Path) -> None:
    given = {
        "PATH": "/bin",
        "SBATCH_ACCOUNT": "x",
        "SLURM_JOB_ID": "5",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "big",
        "SRUN_CPUS_PER_TASK": "4",
        "PMI_RANK": "1",
        "PMIX_RANK": "1",
        "SALLOC_PARTITION": "x",
    }
    assert submission_environment(make_session(tmp_path, make_host(environment=given))) == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "big",
    }


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("invalid partition specified: x", "argosy queues"),
        ("Invalid account or account/partition combination specified", "--account"),
        ("No partition specified or system default partition", "no default partition"),
        ("User's group not permitted to use this partition", "you may not use this partition"),
        ("Invalid qos specification", "--qos"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "too many jobs"),
        ("Invalid generic resource (gres) specification", "--gpu-type"),
        ("Invalid job array specification", "MaxArraySize"),
        ("Node count specification invalid", "fewer nodes"),
        ("Requested node configuration is not available", "fewer"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "--time"),
        ("Job dependency problem", "--after"),
        ("Unable to contact slurm controller (connect failure)", "nothing was submitted or changed; try again"),
        (
            "Socket timed out on send/recv operation",
            "the job may be in the queue nevertheless: check with 'argosy jobs'",
        ),
        ("Zero Bytes were transmitted or received", "the job may be in the queue nevertheless"),
        ("something new", ""),
    ],
)
def test_a_refusal_of_slurm_is_quoted_with_a_next_step(said: str, hint: str) -> None:
    line = f"sbatch: error: Batch job submission failed: {said}"
    error = explain_sbatch(Command(("sbatch", "x")), Reply(1, "", line), SITE.name)
    assert line in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    "last",
    [
        "sbatch: error: Batch job submission failed: Unspecified error",
        "sbatch: error: cli_filter plugin terminated with error",
    ],
)
def test_a_job_that_a_rule_of_the_site_rejects_gets_the_hint_to_read_its_message(last: str) -> None:
    text = f"sbatch: error: *** Welcome ***\nsbatch: error: You must give a --reason.\n{last}"
    error = explain_sbatch(Command(("sbatch", "x")), Reply(1, "", text), SITE.name)
    assert "You must give a --reason." in error.evidence
    assert "a rule of this site rejects the job" in error.hint


def test_the_reason_before_the_final_message_of_slurm_gives_the_hint() -> None:
    text = (
        "sbatch: error: Memory specification can not be satisfied\n"
        "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    )
    assert "--mem" in explain_sbatch(Command(("sbatch", "x")), Reply(1, "", text), SITE.name).hint


def test_an_option_that_sbatch_does_not_know_is_blamed_on_sbatch_arg() -> None:
    text = "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information"
    assert "--sbatch-arg" in explain_sbatch(Command(("sbatch", "x")), Reply(1, "", text), SITE.name).hint


def test_words_in_messages_of_the_site_are_not_taken_for_slurms() -> None:
    text = "sbatch: error: See the time limits\nsbatch: error: Batch job submission failed: Unspecified error"
    error = explain_sbatch(Command(("sbatch", "x")), Reply(1, "", text), SITE.name)
    assert "--time" not in error.hint


def test_a_refused_default_is_traced_to_its_variable() -> None:
    rows = (
        Choice("--constraint", "zz", "your default, SBATCH_CONSTRAINT", "environment"),
        Choice("SBATCH_X", "not used", "y", "environment"),
    )
    reply = Reply(1, "", "sbatch: error: Batch job submission failed: Invalid feature specification")
    error = explain_sbatch(Command(("sbatch", "x")), reply, SITE.name, rows)
    assert error.evidence.endswith("\n--constraint=zz is your default, SBATCH_CONSTRAINT")


def test_a_refused_value_is_traced_to_the_variable_or_file_that_sets_it() -> None:
    rows = (
        Choice("partition", "gpus", "requested", "ARGOSY_PARTITION"),
        Choice("--account", "a1", "requested", "ARGOSY_ACCOUNT"),
        Choice("--qos", "high", "default in /home/alice/config.toml:2", "/home/alice/config.toml:2"),
        Choice("--time", "10", "requested", "option"),
    )
    told = "ARGOSY_PARTITION: --partition=gpus", "ARGOSY_ACCOUNT: --account=a1", "/home/alice/config.toml:2: --qos=high"
    for said, lines in (("Invalid partition name specified", told[:2]), ("Invalid qos specification", told)):
        reply = Reply(1, "", f"sbatch: error: Batch job submission failed: {said}")
        error = explain_sbatch(Command(("sbatch", "x")), reply, SITE.name, rows)
        assert tuple(error.evidence.splitlines()[-len(lines) :]) == lines


def load_module(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run the lines of a job that load a module, with the programs and the modules of a folder."""
    loads = [*render_modules(Modules(use=(str(folder),), load=(name,))), "echo started"]
    lines = "\n".join([*render_script_functions("\n".join(loads)), "set -eu", *loads])
    there = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(["/bin/sh", "-c", lines], env=there, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_modules_load_although_the_profile_of_the_site_is_for_bash_only(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text('module() { echo "module $*"; }\nexport -f module\n')
    loads = list(render_modules(Modules(load=("ccl/1.0",))))
    lines = "\n".join([*render_script_functions("\n".join(loads)), "set -eu", *loads, "echo started"])
    words = (script_shell(Modules(load=("ccl/1.0",))), "-c", lines.replace("/etc/profile", str(profile)))
    ran = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "module load ccl/1.0\nstarted\n", "")


def test_a_module_that_cannot_be_loaded_ends_the_job_before_its_ranks_start(tmp_path: Path) -> None:
    (tmp_path / "module").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "module").chmod(0o755)
    ran = load_module(tmp_path, "ccl/1.0")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "the modules cannot be loaded" in ran.stderr


@pytest.mark.skipif(not LMOD.is_file(), reason="Lmod is not installed here")
def test_lmod_loads_a_module_or_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "ccl").mkdir()
    (tmp_path / "ccl/1.0.lua").write_text('setenv("CCL_ROOT", "/opt/ccl")\n')
    ran = load_module(tmp_path, "ccl/1.0")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "started\n", "")
    ran = load_module(tmp_path, "ccl/2.0")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert '"ccl/2.0"' in ran.stderr


# What runs in a container


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (TORCHRUN, ("2", "1")),
        (ELASTIC, ("1:2", "1", "")),
        (BIND, ("0;0",)),
        (LOG, ("logs/7",)),
        (RANK, ("1", "")),
        (CHECK_CONTAINER, ("",)),
        (OWN_FOLDERS, ("made",)),
    ],
)
def test_the_programs_around_a_rank_keep_variables_of_any_name(
    program: ShellHelper, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexec env\n")
    (tmp_path / "python").chmod(0o755)
    assigned = {*re.findall(r"\b([a-z]\w*)=", program), "n", "nodes", "logs", "cores", "folder", "per_node"}
    mine = {name: f"my {name}" for name in assigned if not name.startswith("argosy_")}
    slurm = dict.fromkeys(("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "LOCAL_RANK"), "1")
    slurm |= {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    there = mine | slurm | {"MASTER_ADDR": "h", "MASTER_PORT": "1", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    line = ["/bin/sh", "-c", program, program.name, *words, "env"]
    ran = subprocess.run(line, env=there, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = (tmp_path / "logs/7/rank-1.log").read_text() if program == LOG else ran.stdout
    assert {f"{name}={value}" for name, value in mine.items()} <= set(told.splitlines())


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("name", "first", "address"),
    [
        ("localhost", "localhost", "localhost"),
        ("a.invalid", "127.0.0.1", "127.0.0.1"),
        ("a.invalid", "b.invalid", "a.invalid"),
    ],
)
def test_a_node_of_an_elastic_run_is_found_at_its_address_if_its_name_has_none(
    shell: str, name: str, first: str, address: str, tmp_path: Path
) -> None:
    """Any node may become the first one, so the address of the rendezvous alone is not enough."""
    (tmp_path / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec "{sys.executable}" "$@"\necho "$@"\n')
    (tmp_path / "python").chmod(0o755)
    there = dict.fromkeys(("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID"), "1")
    there |= {"SLURMD_NODENAME": name, "MASTER_ADDR": first, "MASTER_PORT": "1", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    line = [shell, "-c", ELASTIC, ELASTIC.name, "", "--nnodes=1:2", "train.py"]
    ran = subprocess.run(line, env=there, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f" --local-addr={address} " in ran.stdout
    assert ran.stderr == ""


def test_a_node_binds_a_temporary_folder_with_a_blank_and_the_certificates_that_it_has(tmp_path: Path) -> None:
    temporary, authority = tmp_path / "of a job", tmp_path / "site.pem"
    temporary.mkdir()
    authority.write_text("")
    line = ["/bin/sh", "-c", CHECK_NODE, CHECK_NODE.name, "/", "sh", "", f"{tmp_path}/none {tmp_path}", "env"]
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "argosy_binds": "of the main part"}
    env |= {"REQUESTS_CA_BUNDLE": str(authority), "SSL_CERT_FILE": "/none/of/this/node.pem"}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
    assert f"APPTAINER_BIND={tmp_path},{temporary},{authority}" in done.stdout.splitlines()
    assert "argosy_binds=of the main part" in done.stdout.splitlines()


@pytest.mark.parametrize("family", ["APPTAINER", "SINGULARITY"])
def test_the_mounts_of_a_module_that_the_job_loaded_are_kept(family: str, tmp_path: Path) -> None:
    line = ["/bin/sh", "-c", CHECK_NODE, CHECK_NODE.name, "/", "sh", "", str(tmp_path), "env"]
    env = {"PATH": "/usr/bin:/bin", f"{family}_BIND": "/pfs,/opt/x:/opt/y:ro"}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    mounts = f"/pfs,/opt/x:/opt/y:ro,{tmp_path}"
    assert {f"APPTAINER_BIND={mounts}", f"SINGULARITY_BIND={mounts}"} <= set(done)


def test_the_log_of_a_rank_keeps_the_output_of_the_run_before(tmp_path: Path) -> None:
    """A requeued job has the same number, and torchrun restarts a worker with the same rank."""
    env = {"SLURM_JOB_ID": "7", "RANK": "1", "PATH": "/usr/bin:/bin"}
    for run in ("Traceback of the first run", "second run"):
        subprocess.run(["/bin/sh", "-c", LOG, LOG.name, "logs/7", "echo", run], env=env, cwd=tmp_path, check=True)
    text = (tmp_path / "logs/7/rank-1.log").read_text()
    assert text.splitlines() == ["Traceback of the first run", NEW_RUN, "second run"]
