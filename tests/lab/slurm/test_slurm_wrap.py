"""Wrapped commands under Apptainer, as an ordinary user, and as tasks of Slurm on two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.slurm.conftest import kept_image
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

TELL = """
import os, subprocess, sys
again = [sys.executable, "-c", "import os, sys; print(sys.executable, os.environ['APPTAINER_CONTAINER'])"]
print(os.uname().nodename, sys.executable, subprocess.run(again, capture_output=True, text=True).stdout.strip())
"""

SAVE = """
import os, signal
# A handler would run too late for a signal that arrives just before a call that waits.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
open(f"ready-{os.environ['SLURM_PROCID']}", "w").close()
signal.sigwait({signal.SIGUSR1})
open(f"saved-{os.environ['SLURM_PROCID']}", "w").close()
"""


SLURM = (
    *(f"/usr/bin/{name}" for name in ("sbatch", "scancel", "scontrol", "squeue", "srun", "sacct")),
    *(f"/usr/lib/x86_64-linux-gnu/{name}" for name in ("slurm-wlm", "libmunge.so.2")),
    *("/etc/slurm", "/run/munge", "/etc/passwd"),
)
"""What Slurm's commands need of a Debian: binds of the site, for an image whose C library is not older."""

WHERE = """
import os, subprocess, sys
def where(*_):
    ask = "import os, sys; print(os.readlink('/proc/self/ns/mnt'), sys.executable)"
    again = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True).stdout.split()
    return os.uname().nodename, sys.executable, again == [os.readlink("/proc/self/ns/mnt"), sys.executable]
"""

SUBMITIT = f"""
import submitit
{WHERE}
executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=2)
print("told", *executor.submit(where).result())
"""

JOBQUEUE = f"""
from dask.distributed import Client
from dask_jobqueue import SLURMCluster
{WHERE}
if __name__ == "__main__":
    with SLURMCluster(cores=1, processes=1, memory="300MB", walltime="00:02:00") as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout={PATIENCE_S})
        for told in client.run(where).values():
            print("told", *told)
"""


@pytest.mark.soak  # a Debian of the nodes' own release is made for it
def test_submitit_and_dask_jobqueue_submit_from_inside_and_their_workers_are_the_wrapped_python(desk: Desk) -> None:
    own = desk.with_image(kept_image("submitting", "dask-jobqueue\nsubmitit\n", "debian:trixie"))
    binds = [word for path in SLURM for word in ("-B", path)]
    own.argosy("wrap", own.image, "--prefix", "env", *binds)
    python = f"{desk.folder}/env/bin/python"
    for name, text, workers in (("submitit.py", SUBMITIT, 1), ("jobqueue.py", JOBQUEUE, 2)):
        desk.write(f"by-{name}", text)
        lines = desk.sh(f"timeout 600 env/bin/python by-{name}").stdout.splitlines()
        told = [line.split()[1:] for line in lines if line.startswith("told ")]
        assert [words[1:] for words in told] == [[python, "True"]] * workers
        assert {words[0] for words in told} <= {"node1", "node2"}


def test_a_wrapped_python_is_the_same_on_every_node_and_gets_its_signals(desk: Desk) -> None:
    desk.argosy("wrap", desk.image, "--prefix", "env one")
    desk.write("tell.py", TELL)
    desk.write("save.py", SAVE)
    python = f"{desk.folder}/env one/bin/python"
    ran = desk.sh("timeout 600 srun -N2 -n2 'env one/bin/python' tell.py")
    image = f"{desk.folder}/env one/versions/1/image.sif"
    assert sorted(ran.stdout.splitlines()) == [f"{node} {python} {python} {image}" for node in ("node1", "node2")]
    job = desk.sh("sbatch --parsable -N2 -n2 --wrap 'srun \"env one/bin/python\" save.py'").stdout.strip()
    desk.until(lambda: all((desk.here / f"ready-{n}").exists() for n in (0, 1)), "both tasks start")
    desk.sh(f"scancel --signal=USR1 {job}.0")
    assert desk.wait(job) == "COMPLETED"
    assert all((desk.here / f"saved-{n}").exists() for n in (0, 1))


def test_a_wrapper_under_apptainer_does_not_change_its_environment(desk: Desk) -> None:
    desk.argosy("wrap", desk.image, "--prefix", "env one")
    dirty = {
        "APPTAINER_CONTAIN": "1",
        "SINGULARITYENV_PATH": "/nowhere",
        "PYTHONPATH": "/nowhere",
        "APPTAINER_BIND": "/etc:/mnt",
    }
    ask = "import os, sys; print('/nowhere' in sys.path, os.path.exists('/mnt/passwd'), os.environ['PATH'])"
    ran = desk.cluster.on("ctl", ["env one/bin/python", "-c", ask], cwd=desk.folder, env=dirty, check=True)
    assert ran.stdout.startswith(f"False True {desk.folder}/env one/bin:")
    desk.sh("'env one/bin/python' -m venv --system-site-packages --without-pip top")
    ask = "import pip, sys; print(sys.prefix, bool(pip.__version__))"
    ran = desk.sh(f"cd /; {desk.folder}/top/bin/python -c '{ask}'")
    assert ran.stdout.strip() == f"{desk.folder}/top True"


def test_with_the_hosts_folders_a_wrapped_command_submits_jobs_and_calls_those_of_another_prefix(desk: Desk) -> None:
    desk.argosy("wrap", desk.image, "-w", "/usr/bin/env", "--host", "--prefix", "hosted")
    ran = desk.sh("hosted/bin/env sbatch --parsable --output job.out --wrap 'hosted/bin/env hostname'")
    assert desk.wait(ran.stdout.strip()) == "COMPLETED"
    assert (desk.here / "job.out").read_text() in {"node1\n", "node2\n"}
    desk.argosy("wrap", desk.image, "--prefix", "other")
    ran = desk.sh("hosted/bin/env other/bin/python -c 'import sys; print(sys.executable); sys.exit(3)'", check=False)
    assert (ran.stdout, ran.code) == (f"{desk.folder}/other/bin/python\n", 3), "a command of one prefix calls another's"
    asked = desk.sh("hosted/bin/env scontrol ping")
    assert (asked.stdout.strip(), asked.stderr) == ("Slurmctld(primary) at ctl is UP", "")
