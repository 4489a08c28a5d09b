"""The lab's cluster behaves as a real one: Slurm, nodes of their own, failures, and nothing left when it is down."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import REPO, run_program
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.conftest import Cluster, Lab

    NewCluster = Callable[..., AbstractContextManager[Cluster]]

pytestmark = pytest.mark.lab

# srun waits for ever on a drained node; a test must not.
SRUN = "timeout 600 srun"


def test_all_nodes_are_idle_when_up_returns(cluster: Cluster) -> None:
    shown = cluster.sh("sinfo --noheader --Node --format='%N %t %G %c'").stdout
    assert shown.splitlines() == ["node1 idle gpu:2 8", "node2 idle gpu:2 8"]


def test_a_step_runs_on_both_nodes_as_the_calling_user(cluster: Cluster) -> None:
    shown = cluster.sh(f"{SRUN} -N2 sh -c 'echo $(hostname) $(id -un)'").stdout
    assert sorted(shown.splitlines()) == ["node1 alice", "node2 alice"]


def test_a_batch_job_runs_an_image_on_both_nodes(cluster: Cluster, tiny_image: Path) -> None:
    (cluster.shared / "tiny.sif").write_bytes(tiny_image.read_bytes())
    script = "#!/bin/sh\nsrun --ntasks-per-node=1 apptainer exec /shared/tiny.sif hostname\n"
    job = cluster.on("ctl", ["sbatch", "--parsable", "-N2", "--output=/shared/image.out"], stdin=script).stdout.strip()
    assert cluster.wait_for(job) == "COMPLETED"
    lines = (cluster.shared / "image.out").read_text().splitlines()
    assert sorted(line for line in lines if line.startswith("node")) == ["node1", "node2"]


def test_gpus_are_given_out_by_slurm(cluster: Cluster) -> None:
    task = "echo $(hostname) $CUDA_VISIBLE_DEVICES; test -c /dev/nvidia1"
    shown = cluster.sh(f"{SRUN} -N2 --ntasks-per-node=2 --gpus-per-task=1 sh -c '{task}'").stdout
    assert sorted(shown.splitlines()) == ["node1 0", "node1 1", "node2 0", "node2 1"]


def test_names_addresses_and_tmp_are_each_nodes_own_and_shared_is_not(cluster: Cluster) -> None:
    cluster.sh("echo local > /tmp/word; echo shared > /shared/word", node="node1")
    assert cluster.sh("cat /shared/word", node="node2").stdout == "shared\n"
    assert cluster.sh("cat /tmp/word", node="node2", check=False).code != 0
    assert cluster.sh("getent hosts node1 | cut -d' ' -f1", node="node2").stdout == "10.77.0.11\n"


def test_every_process_of_a_step_ends_with_it(cluster: Cluster) -> None:
    cluster.sh(f"{SRUN} -N1 -w node1 sh -c 'setsid sleep 4711 & true'")
    running = "pgrep -f 'sleep 471[1]'"
    cluster.sh(f"while {running}; do sleep 0.1; done", node="node1", user="root")
    none_found = 1  # other codes mean that pgrep is missing or failed
    assert cluster.sh(running, node="node1", user="root", check=False).code == none_found


def test_a_step_signal_reaches_tasks_only(cluster: Cluster) -> None:
    # proctrack/linuxproc would signal the child as well; real sites track processes by cgroup.
    task = (
        "sh -c \"trap 'echo child signalled' USR1; touch /shared/ready; "
        'while [ ! -e /shared/go ]; do sleep 0.05; done" & '
        "trap 'echo task signalled; touch /shared/go' USR1; wait; wait"
    )
    script = f"#!/bin/bash\nsrun -N1 -n1 bash -c '{task.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'\n"
    job = cluster.on("ctl", ["sbatch", "--parsable", "--output=/shared/signal.out"], stdin=script).stdout.strip()
    cluster.sh(f"until [ -e /shared/ready ]; do sleep 0.05; done; scancel --signal=USR1 {job}")
    cluster.wait_for(job)
    assert (cluster.shared / "signal.out").read_text() == "task signalled\n"


def test_exec_gives_exit_codes_arguments_and_signals_to_the_command(cluster: Cluster) -> None:
    assert cluster.on("node1", ["sh", "-c", "exit 42"], check=False).code == 42
    assert cluster.on("node1", ["printf", "<%s>", "a b", "$HOME", "", "*"]).stdout == "<a b><$HOME><><*>"
    words = cluster.words("exec", "node1", "bash", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.terminate()
    assert started.returncode == 9


@pytest.mark.parametrize(
    ("library", "flavour", "plugin"),
    [
        ("libmpi.so.40", "openmpi", "pmix"),
        ("libmpich.so.12", "mpich", "pmi2"),  # Debian's MPICH speaks PMI2 and no PMIx
    ],
)
def test_mpi_ranks_find_each_other_across_nodes(cluster: Cluster, library: str, flavour: str, plugin: str) -> None:
    if not cluster.has_mpi(plugin):
        pytest.skip(f"the Slurm of this root file system has no plugin for {plugin}")
    program = cluster.shared / "allreduce.py"
    program.write_text((Path(__file__).parent / "allreduce.py").read_text())
    shown = cluster.sh(f"{SRUN} --mpi={plugin} -N2 -n4 python3 /shared/allreduce.py {library} {flavour}").stdout
    assert sorted(shown.splitlines()) == [f"rank {rank} of 4, sum 6" for rank in range(4)]


def test_argosy_runs_on_every_machine_of_the_cluster(cluster: Cluster) -> None:
    for node in ("ctl", *cluster.nodes):
        assert cluster.on(node, ["argosy", "--version"]).stdout.startswith("argosy")


def test_a_powered_off_node_fails_its_job_and_comes_back(new_cluster: NewCluster) -> None:
    with new_cluster("2") as own:
        job = own.sh("sbatch --parsable --no-requeue -w node2 --wrap 'touch /shared/ready; sleep 600'").stdout.strip()
        own.sh("until [ -e /shared/ready ]; do sleep 0.05; done")
        own.control("kill", "node2")
        assert own.on("node2", ["true"], check=False).code != 0
        own.on("ctl", ["scontrol", "update", "nodename=node2", "state=down", "reason=test"], user="root")
        assert own.wait_for(job) == "NODE_FAIL"
        own.control("start", "node2")
        assert own.sh(f"{SRUN} -w node2 hostname").stdout == "node2\n"
        assert own.sh("pgrep -f 'sleep 60[0]'", node="node2", check=False).code == 1


def test_an_unplugged_node_is_out_of_reach_but_alive(new_cluster: NewCluster) -> None:
    reach = "timeout 5 bash -c 'exec 3<> /dev/tcp/node2/6818'"
    with new_cluster("2") as own:
        own.control("unplug", "node2")
        assert own.sh(reach, check=False).code != 0
        assert own.sh("hostname; pgrep -c slurmd", node="node2").stdout == "node2\n1\n"
        own.control("plug", "node2")
        own.sh(f"until {reach}; do sleep 0.1; done")
        assert own.sh(f"{SRUN} -w node2 hostname").stdout == "node2\n"


LUMI_MASKS = (0xFE << 48, 0xFE << 56, 0xFE << 16, 0xFE << 24, 0xFE, 0xFE << 8, 0xFE << 32, 0xFE << 40)
LUMI_SHAPE = ("--cpus", "1:64:1", "--numa", "4", "--gpus", "8", "--reserved", "0,8,16,24,32,40,48,56")


def test_tasks_have_the_masks_over_reserved_cores_that_this_machine_lacks(new_cluster: NewCluster) -> None:
    masks = ",".join(hex(mask) for mask in LUMI_MASKS)
    step = f"{SRUN} -N2 --ntasks-per-node=8 -c7 --exclusive --gpus-per-node=8 --cpu-bind=mask_cpu:{masks}"
    task = "echo $(hostname) $SLURM_LOCALID $(taskset -p $$ | sed s/.*:.//)"
    with new_cluster(*LUMI_SHAPE, "2") as own:
        shown = own.sh(f"{step} sh -c '{task}'").stdout
        expected = [f"{node} {rank} {mask:x}" for node in own.nodes for rank, mask in enumerate(LUMI_MASKS)]
        assert sorted(shown.splitlines()) == expected
        refused = own.sh(f"{SRUN} -n1 -c1 --cpu-bind=mask_cpu:0x100 true", check=False)
        assert "CPU binding outside of job step allocation" in refused.stderr
        assert own.sh("cat /sys/devices/system/node/node3/cpulist", node="node1").stdout == "48-63\n"
        assert own.sh("nproc", node="node1").stdout == "64\n"


def test_a_container_sees_the_mask_of_its_task_too(new_cluster: NewCluster) -> None:
    pack = (
        "mkdir -p t/tmp t/proc t/sys t/dev t/etc t/home t/var/tmp && "
        "cp -L --parents /bin/sh /bin/taskset /lib64/ld-linux-x86-64.so.2 t && "
        "cp -L --parents $(ldd /bin/taskset | grep -o '/lib/[^ ]*') t && "
        "touch t/etc/passwd t/etc/group && apptainer --quiet build tasks.sif t"
    )
    with new_cluster("--cpus", "2:16:2", "1") as own:
        own.sh(pack)
        shown = own.sh(f"{SRUN} -n1 -c4 --cpu-bind=map_cpu:33 apptainer exec tasks.sif sh -c 'taskset -cp $$'").stdout
        assert shown.endswith("affinity list: 33\n")


def test_node_names_may_sort_differently_from_their_order(new_cluster: NewCluster) -> None:
    with new_cluster("--hosts", "zeta,alpha10,alpha9") as own:
        assert set(own.sh(f"{SRUN} -N3 hostname").stdout.split()) == set(own.nodes)
        assert set(own.nodes) == {"zeta", "alpha10", "alpha9"}
        assert own.sh("getent hosts zeta | cut -d' ' -f1").stdout == "10.77.0.11\n"


@pytest.mark.soak  # a Debian of its own is made for it
def test_sacct_works_with_accounting(new_cluster: NewCluster) -> None:
    with new_cluster("--accounting", "1") as own:
        own.sh(f"{SRUN} --gpus=1 true")
        shown = own.sh("sacct --noheader --parsable2 --allocations --format=JobID,State").stdout
        assert shown.splitlines() == ["1|COMPLETED"]


@pytest.mark.soak  # likewise, for tests that are of the soak
def test_bookworms_slurm_runs_too(new_cluster: NewCluster) -> None:
    with new_cluster("--bookworm", "2") as own:
        shown = own.sh(f"{SRUN} -N2 sh -c 'srun --version; test -x /usr/bin/bwrap'").stdout
        assert set(shown.splitlines()) == {"slurm-wlm 22.05.8"}


@pytest.mark.soak  # likewise
def test_sids_slurm_runs_too_with_and_without_accounting(new_cluster: NewCluster) -> None:
    for options in ((), ("--accounting",)):
        with new_cluster("--sid", *options, "1") as own:
            own.sh(f"{SRUN} sh -c 'apptainer --version; test -x /usr/bin/bwrap'")
            shown = own.sh(
                "sacct --noheader --parsable2 --allocations --format=JobID,State", check=bool(options)
            ).stdout
            assert shown.splitlines() == (["1|COMPLETED"] if options else [])


def test_a_users_line_replaces_a_default(new_cluster: NewCluster) -> None:
    with new_cluster("--slurm", "KillWait=7", "--slurm", "PartitionName=debug Nodes=ALL MaxTime=10", "1") as own:
        assert "KillWait                = 7 sec" in own.sh("scontrol show config").stdout
        assert own.sh("sinfo --noheader --format=%R").stdout.split() == ["main", "debug"]


def test_two_clusters_live_side_by_side(cluster: Cluster, new_cluster: NewCluster) -> None:
    cluster.sh("echo first > /home/alice/word")
    with new_cluster("2") as own:
        assert own.sh("cat /home/alice/word", check=False).code != 0
        assert own.sh(f"{SRUN} -N2 hostname").code == 0
    assert cluster.sh(f"{SRUN} -N2 hostname").code == 0


def test_down_leaves_nothing(new_cluster: NewCluster) -> None:
    before = traces()
    with new_cluster("2") as own:
        own.sh("sbatch -N2 --wrap 'srun sleep 600'")
        assert traces() != before
    assert not new_since(before)
    assert not processes_that_name(str(own.run))


def test_down_leaves_nothing_after_a_crash_of_the_fabric(new_cluster: NewCluster) -> None:
    before = traces()
    with new_cluster("2") as own:
        os.kill(int((own.run / "pid" / "fabric").read_text().split()[0]), signal.SIGKILL)
    assert not new_since(before)
    assert not processes_that_name(str(own.run))


def test_down_accepts_a_fabric_that_dies_while_it_looks(tmp_path: Path) -> None:
    (tmp_path / "pid").mkdir()
    (tmp_path / "pid" / "fabric").touch()
    # The process is there at the first look only, and has ended at the second one.
    script = """
        set -eu
        . "$1/lab/lib/power.sh"
        die() { echo "$*"; exit 1; }
        pid_of() { [ ! -e "$RUN/looked" ] && touch "$RUN/looked" && echo "$gone"; }
        machine_cgroup() { echo group; }
        thaw_cgroups() { :; }
        remove_cgroups() { :; }
        wait_until() { shift; "$@"; }
        true & gone=$!
        wait "$gone"
        stop_cluster
    """
    done = run_program(["env", f"RUN={tmp_path}", "bash", "-c", script, "bash", str(REPO)], check=False)
    assert (done.code, done.stdout) == (0, "")
    assert not (tmp_path / "pid").exists()


def test_a_cluster_ends_with_the_process_that_holds_its_lifeline(lab: Lab, cluster: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = type(cluster)(run, ("node1",))
    theirs, ours = os.pipe()
    subprocess.run(own.words("up", "--lifeline", str(theirs), "1"), pass_fds=[theirs], check=True, timeout=PATIENCE_S)
    fabric = os.pidfd_open(int((run / "pid" / "fabric").read_text().split()[0]))
    os.close(theirs)
    os.close(ours)
    assert select.select([fabric], [], [], 30)[0]
    own.control("down")
    assert lab.root.is_dir()
    assert not processes_that_name(str(run))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cpus", "two"], "--cpus takes a number, not 'two'"),
        (["--cpus", "1:6:1", "--numa", "4"], "6 cores do not divide into 4 NUMA nodes"),
        (["0"], "a cluster has 1 to 240 compute nodes, not 0"),
        (["--bind", "/no/such"], "there is no /no/such to bind"),
        (["--sidd"], "up does not know '--sidd', or its value is missing; 'lab/cluster' lists the options"),
        (["--sidd", "3"], "up does not know '--sidd'; 'lab/cluster' lists the options"),
    ],
)
def test_impossible_shapes_are_refused_in_one_line(
    lab: Lab, tmp_path: Path, options: list[str], complaint: str
) -> None:
    words = [str(Path(__file__).parents[2] / "lab" / "cluster"), "--run", str(tmp_path / "run"), "up", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert lab.root.is_dir()
    assert (done.returncode, done.stderr) == (1, f"cluster: {complaint}\n")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_files_is_never_used_as_a_cluster(lab: Lab, tmp_path: Path) -> None:
    assert lab.root.is_dir()
    (tmp_path / "home").mkdir()
    words = [str(Path(__file__).parents[2] / "lab" / "cluster"), "--run", str(tmp_path), "up"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1
    assert (tmp_path / "home").is_dir()


@pytest.mark.soak
def test_twenty_ups_and_downs_in_a_row(new_cluster: NewCluster) -> None:
    before = traces()
    for _ in range(20):
        with new_cluster("2") as own:
            assert own.sh(f"{SRUN} -N2 hostname").code == 0
        assert not new_since(before)


def traces() -> dict[str, list[str]]:
    """List what a cluster could leave on this machine: mounts, network links, control groups."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/argosy-lab-*") if path.is_dir()]
    links = subprocess.run(["/usr/sbin/ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "mounts": Path("/proc/self/mounts").read_text().splitlines(),
        "links": [line.split()[0] for line in links.splitlines()],
        "groups": sorted(groups),
    }


def new_since(before: dict[str, list[str]]) -> list[str]:
    """List what there is now and was not before, without the control groups in which another cluster lives."""
    found = (trace for kind, now in traces().items() for trace in now if trace not in before[kind])
    return [trace for trace in found if not lives_in(Path(trace))]


def lives_in(group: Path) -> bool:
    """Tell whether processes are in a control group."""
    return any(file.read_text() for file in group.glob("**/cgroup.procs"))


def processes_that_name(folder: str) -> list[str]:
    """List the command lines that hold a folder's name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in words:
            found.append(words)
    return found
