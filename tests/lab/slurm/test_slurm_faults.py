"""What goes wrong around a launch, and what the user is told; also what the caller's own variables may not change."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from argosy.jobs.outputs import NEW_RUN
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

FOUR = ("--nodes", "2", "--ranks", "4", "--launcher", "srun")

HOSTILE = {
    "SBATCH_JOB_NAME": "evil",
    "SBATCH_OUTPUT": "/nowhere/x",
    "SBATCH_EXPORT": "NONE",
    "SBATCH_GRES": "gpu:99",
    "SBATCH_TIMELIMIT": "7",
    "SLURM_NNODES": "7",
    "SLURM_NTASKS": "9",
    "SLURM_PROCID": "3",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_CPU_BIND": "mask_cpu:0xf000",
    "SLURM_JOB_NODELIST": "nowhere",
    "SLURM_DISTRIBUTION": "cyclic",
    "SRUN_CPUS_PER_TASK": "99",
    "PMI_RANK": "5",
    "APPTAINER_OVERLAY": "/not/there",
    "APPTAINER_CONTAIN": "1",
    "APPTAINERENV_X_LEAK": "leaked",
    "SINGULARITY_HOME": "/not/there",
    "SINGULARITYENV_RANK": "77",
    "LD_PRELOAD": "",
    "PYTHONHOME": "/not/there",
    "PYTHONPATH": "/not/there",
    "RANK": "66",
    "MASTER_ADDR": "nowhere",
}


def test_variables_of_the_caller_change_only_the_defaults_that_they_set(desk: Desk) -> None:
    # Not PYTHONHOME, which would keep argosy itself from starting.
    hostile = {name: value for name, value in HOSTILE.items() if not name.startswith("PYTHON")}
    job = desk.submit(*FOUR, command=desk.telling, env=hostile)
    assert desk.wait(job) == "COMPLETED", desk.output(job)
    told = desk.told(desk.output(job))
    assert [row["rank"] for row in told] == [0, 1, 2, 3]
    assert [row["host"] for row in told] == ["node1", "node1", "node2", "node2"]
    assert {row["set"]["MASTER_ADDR"] for row in told} == {"node1"}
    assert {row["set"]["SLURM_JOB_NAME"] for row in told} == {"tell"}
    assert all(row["hostile"] == {} for row in told)
    assert "TimeLimit=00:07:00" in desk.sh(f"scontrol show job {job}").stdout
    plan = json.loads(desk.argosy("jobs", "show", job, "--json").stdout)["plan"]
    assert ["--time", "7", "environment"] in [[row["key"], row["value"], row["source"]] for row in plan["choices"]]


def test_each_node_uses_its_own_folder_for_temporary_files(desk: Desk) -> None:
    for node in ("ctl", "node1"):  # what the login node names, and node2 does not have
        desk.cluster.on(node, ["mkdir", "-m", "777", "/srv/scratch"], user="root")
    look = ("sh", "-c", 'echo "$SLURMD_NODENAME $(mktemp --dry-run)"')
    done = desk.follow("--nodes", "2", "--launcher", "none", command=look, env={"TMPDIR": "/srv/scratch"})
    found = dict(line.split() for line in done.stdout.splitlines() if line.startswith("node"))
    assert found["node1"].startswith("/srv/scratch/tmp.")
    assert found["node2"].startswith("/tmp/tmp.")  # noqa: S108 - what Slurm falls back to


def test_a_job_can_be_launched_from_inside_another_one(desk: Desk) -> None:
    launch = shlex.join(["argosy", *desk.words(*FOUR, "--output", "inner.out", command=desk.telling)])
    outer = desk.sh(f"sbatch --parsable --ntasks=3 --mem=100 -o outer.out --wrap {shlex.quote(launch)}").stdout.strip()
    assert desk.wait(outer) == "COMPLETED"
    text = (desk.here / "outer.out").read_text()
    assert f"inside job {outer}: submitted as a new job" in text
    inner = next(line for line in text.splitlines() if line.isdigit())
    assert desk.wait(inner) == "COMPLETED"
    assert len(desk.told((desk.here / "inner.out").read_text())) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--partition", "nowhere"), "see the partitions with"),
        (("--mem", "99T"), "request less with --mem"),
        (("--time", "not a time"), "time"),
        (("--nodelist", "nowhere"), "see the nodes with"),
        (("--sbatch-arg=--no-such-option",), "no-such-option"),
    ],
)
def test_slurms_refusals_are_shown_with_a_next_step(desk: Desk, options: tuple[str, ...], says: str) -> None:
    done = desk.argosy(*desk.words(*options, command=("true",)), check=False)
    assert done.code == 125
    assert says in done.stderr
    assert "defect" not in done.stderr
    assert desk.sh("squeue -h --me").stdout == ""


def test_an_image_that_the_nodes_do_not_see_is_named_with_the_node(desk: Desk) -> None:
    desk.sh(f"cp {desk.image} /tmp/local.sif")
    done = desk.with_path("/tmp/local.sif").follow(*FOUR, command=("true",), check=False)  # noqa: S108 - node-local
    assert done.code == 6
    assert "the image /tmp/local.sif cannot be read on node" in done.stdout


def test_leaving_logs_f_keeps_the_job_and_tells_how_to_come_back(desk: Desk) -> None:
    job = desk.submit(*FOUR, command=("sh", "-c", "echo begun; sleep 600"))
    desk.until_written(job, "begun", 4)
    words = desk.cluster.words("exec", "-u", "alice", "-w", desk.folder, "ctl", "argosy", "logs", "-f", job)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as child:
        assert child.stdout
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130
    assert f"job {job} continues; follow it again with: argosy logs -f {job}" in said
    assert desk.sh(f"squeue -h -j {job} -o %T").stdout == "RUNNING\n"


def test_a_controller_that_is_down_is_explained_and_following_outlives_it(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk("--slurm", "MessageTimeout=2") as desk:
        command = ("sh", "-c", "echo begun; until [ -e go ]; do sleep 0.1; done; echo over")
        job = desk.submit("--nodes", "2", "--launcher", "none", command=command)
        desk.until_written(job, "begun", 2)
        words = desk.cluster.words("exec", "-u", "alice", "-w", desk.folder, "ctl", "argosy", "logs", "-f", job)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as follower:
            assert follower.stdout
            assert follower.stdout.readline() == "begun\n"
            desk.cluster.sh("pkill -x slurmctld", user="root")
            refused = desk.argosy(*desk.words(command=("true",)), check=False)
            assert refused.code == 125
            assert "the Slurm controller does not answer" in refused.stderr
            assert desk.argosy("jobs", check=False).code == 7
            desk.cluster.sh("slurmctld", user="root")
            desk.write("go", "")
            out, said = follower.communicate(timeout=PATIENCE_S)
        assert follower.returncode == 0, said
        assert out.count("over") == 2


def test_a_job_that_a_silent_controller_accepted_is_reported_as_possibly_queued(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk("--slurm", "MessageTimeout=2") as desk:
        desk.cluster.sh("pkill -STOP -x slurmctld", user="root")
        try:
            unsure = desk.argosy(*desk.words(command=("true",)), check=False)
        finally:
            desk.cluster.sh("pkill -CONT -x slurmctld", user="root")
        assert unsure.code == 125
        assert "nothing was submitted" not in unsure.stderr
        assert "the job may be in the queue nevertheless: check with 'argosy jobs'" in unsure.stderr
        known = "scontrol show job --oneliner | sed -n 's/^JobId=\\([0-9]*\\).*/\\1/p'"
        desk.until(lambda: bool(desk.sh(known).stdout.strip()), "the controller did not take the job")
        job = desk.sh(known).stdout.strip()
        desk.wait(job)
        assert json.loads(desk.argosy("jobs", "show", job, "--json").stdout)["record"]


def test_a_job_resumes_from_its_checkpoint_if_the_controller_was_silent_at_the_requeue(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    program = """\
trap 'echo here > saved; echo saved' USR2
[ -z "${SLURM_RESTART_COUNT:-}" ] || { echo "again with $(cat saved)"; exit 0; }
echo ready
until [ -e go ]; do sleep 0.1; done
"""
    with new_desk("--slurm", "MessageTimeout=2") as desk:
        options = ("--ranks", "1", "--launcher", "none", "--resume", "2", "--checkpoint", "saved", "--time", "10:00")
        job = desk.submit(*options, command=("sh", "-c", program))
        desk.until_written(job, "ready")
        desk.cluster.sh(f"scancel --batch --signal=USR2 {job}")
        desk.until_written(job, "saved")
        desk.cluster.sh("pkill -STOP -x slurmctld", user="root")
        try:
            desk.write("go", "")
            after = "restart 1 of 2\n"
            desk.until(lambda: bool(desk.output(job).partition(after)[2]), "scontrol did not complain")
        finally:
            desk.cluster.sh("pkill -CONT -x slurmctld", user="root")
        assert desk.wait(job) == "COMPLETED", desk.output(job)
        assert "again with here" in desk.output(job)


def test_a_requeued_job_continues_its_log_and_array_tasks_are_distinguished(desk: Desk) -> None:
    program = 'echo "run ${SLURM_RESTART_COUNT:-0}"; [ -n "${SLURM_RESTART_COUNT:-}" ] || sleep 600'
    job = desk.submit("--ranks", "1", command=("sh", "-c", program))
    split = desk.submit("--ranks", "1", "--launcher", "srun", "--log-dir", "logs", command=("sh", "-c", program))
    log = desk.here / "logs" / split / "rank-0.log"
    desk.until_written(job, "run 0")
    desk.until(lambda: log.is_file() and log.read_text() == "run 0\n", "the rank wrote nothing")
    desk.cluster.sh(f"scontrol requeue {job} && scontrol requeue {split}")
    desk.until_written(job, "run 1")
    assert desk.wait(split) == "COMPLETED"
    assert log.read_text().splitlines() == ["run 0", NEW_RUN, "run 1"]
    assert desk.output(job).index("run 0") < desk.output(job).index("run 1")
    array = desk.submit("--ranks", "1", "--array", "0-1", command=("sh", "-c", 'exit "$SLURM_ARRAY_TASK_ID"'))
    desk.until(lambda: "ended" in desk.argosy("jobs", "show", array).stdout, "the array did not end")
    shown = [json.loads(desk.argosy("jobs", "show", f"{array}_{task}", "--json").stdout) for task in (0, 1)]
    assert [(each["id"], each["code"], len(each["runs"]), len(each["ranks"])) for each in shown] == [
        (f"{array}_0", 0, 1, 1),
        (f"{array}_1", 1, 1, 1),
    ]


def test_a_second_command_runs_in_the_container_of_a_running_job(desk: Desk) -> None:
    job = desk.submit(*FOUR, "--env", "X_MARK=a 'b'", command=("sh", "-c", "echo begun; sleep 600"))
    desk.until_written(job, "begun", 4)
    inside = ("sh", "-c", 'echo "$(hostname) $X_MARK $1"; test -d /opt/argosy', "x", "$HOME *")
    done = desk.argosy("attach", job, "--node", "node2", "--", *inside)
    assert done.stdout == "node2 a 'b' $HOME *\n"
    first = {desk.argosy("attach", job, "--", "printenv", "SLURMD_NODENAME").stdout.strip() for _ in range(3)}
    assert first == {"node1"}
    assert desk.argosy("attach", job, "--", "sh", "-c", "exit 9", check=False).code == 9
    elsewhere = desk.argosy("attach", job, "--node", "node9", "--", "true", check=False)
    assert (elsewhere.code, "is not a node of job" in elsewhere.stderr) == (125, True)
    desk.argosy("cancel", job)
    desk.wait(job)
    late = desk.argosy("attach", job, "--", "true", check=False)
    assert late.code == 125
    assert "is not running: it was cancelled" in late.stderr


@pytest.mark.parametrize(("sent", "code"), [("KILL", 137), ("TERM", 143)])
def test_a_job_is_found_by_its_record_if_its_submission_was_interrupted(desk: Desk, sent: str, code: int) -> None:
    (desk.here / "bin").mkdir()
    desk.write("bin/sbatch", f'#!/bin/sh\n/usr/bin/sbatch "$@" > /dev/null\nkill -s {sent} "$PPID"; sleep 600\n')
    path = {"PATH": f"{desk.folder}/bin:/usr/local/bin:/usr/bin:/bin"}
    done = desk.argosy(*desk.words(command=("echo", "it runs")), env=path, check=False)
    assert done.code == code
    job = desk.sh("squeue --noheader --states=all --user=alice --format=%A | sort -n | tail -n 1").stdout.strip()
    assert sent == "KILL" or f"stopped; job {job} is submitted and continues" in done.stderr
    desk.wait(job)
    assert json.loads(desk.argosy("jobs", "show", job, "--json").stdout)["record"]
    assert desk.argosy("jobs", "--past", "1").stdout.startswith(job)
    assert desk.argosy("logs", job).stdout.startswith("it runs")
    assert desk.argosy("cancel", job).stdout == f"job {job} has already ended: ended well\n"


def test_jobs_shows_why_jobs_wait_and_queues_shows_free_nodes(desk: Desk) -> None:
    job = desk.submit("--sbatch-arg=--hold", "--name", "a | b", command=("true",))
    assert "JobHeldUser" in desk.argosy("jobs").stdout
    (row,) = json.loads(desk.argosy("jobs", "--json").stdout)
    assert (row["id"], row["state"], row["name"]) == (job, "PENDING", "a | b")
    told = json.loads(desk.argosy("queues", "--json").stdout)
    assert [(queue["name"], queue["nodes"], queue["gres"]) for queue in told["queues"]] == [("main", 2, "gpu:2")]
    assert desk.argosy("logs", job, check=False).code == 2
    assert desk.argosy("jobs", "show", "999999", check=False).code == 2


def test_a_job_waits_for_another_and_array_tasks_have_outputs_and_checkpoints_of_their_own(desk: Desk) -> None:
    first = desk.submit("--name", "first", command=("sh", "-c", "echo 1 > order"))
    command = ("sh", "-c", 'cat order; echo "$SLURM_ARRAY_TASK_ID"; ls saved-$SLURM_ARRAY_TASK_ID.argosy-*')
    options = ("--after", first, "--array", "3-4", "--output", "%A_%a.out", "--resume", "--checkpoint", "saved-%a")
    array = desk.submit(*options, "--time", "10", command=command)
    assert desk.wait(first) == "COMPLETED"
    assert desk.wait(array) == "COMPLETED"
    for number in (3, 4):
        text = (desk.here / f"{array}_{number}.out").read_text()
        assert text.startswith(f"1\n{number}\nsaved-{number}.argosy-")
        assert "verdict: ranks: 1 of 1 started on 1 node" in text


def test_a_broken_node_is_named_and_excluded(torch_desk: Desk) -> None:
    for node in ("ctl", "node1"):
        torch_desk.sh(f"cp {torch_desk.image} /tmp/here.sif", node=node)
    words = ("/tmp/here.sif", "--site", torch_desk.site, "--nodes", "2")  # noqa: S108 - of the nodes, not this one's
    done = torch_desk.argosy("bench", "nodes", *words, "--follow", check=False)
    assert done.code == 7, done.stdout + done.stderr
    assert "# node node1 cpu (processor): matmul " in done.stdout
    assert "node2 did not answer" in done.stdout
    job = re.findall(r"job (\d+)", done.stderr)[0]
    planned = torch_desk.argosy("launch", *words, "--exclude", f"@{job}", "--dry-run", "--", "true").stdout
    assert "\n#SBATCH --exclude=node2\n" in planned
    assert f"excluded nodes = node2: bad nodes of job {job}" in planned


def test_a_launch_from_a_folder_local_to_the_login_node_warns_and_reports_the_missing_output(desk: Desk) -> None:
    own = "/tmp/only-here"  # noqa: S108 - of the login node
    desk.sh(f"mkdir {own}")
    done = dataclasses.replace(desk, folder=own).follow("--launcher", "none", command=("true",), check=False)
    assert f"nodes may not see {own}, which is local to each machine" in done.stderr
    missed = rf"its output {own}/true-\d+.out is not on this machine: launch from a shared folder"
    assert re.search(missed, done.stderr)
