"""The golden scripts are run, with stand-ins for Slurm, modules and runtimes that tell what reached them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from argosy.cli.__main__ import run_app
from argosy.runtimes.edf import parse_edf
from tests.unit.machines import python_program

GOLDEN = Path(__file__).parents[2] / "golden"
JOB = "4711"

TELL = python_program("""\
import json, os, sys
with open(os.environ["TOLD"], "a") as out:
    out.write(json.dumps([sys.argv, dict(os.environ)]) + "\\n")
""")
STARTER = """#!/bin/sh
# Start the program behind the options, as the only task.
echo "$0 $*" >> "$TOLD.starts"
while [ "$1" != sh ] && [ "$1" != /bin/sh ]; do
    case $1 in --environment=*) cp "${1#*=}" "$TOLD.toml" ;; esac
    shift
done
SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=16 exec "$@"
"""
STUBS = {
    "scontrol": "#!/bin/sh\nprintf 'node1\\nnode2\\n'\n",
    "srun": STARTER,
    "mpiexec": STARTER,
    "singularity": TELL,
    "apptainer": TELL,
    "podman-hpc": TELL,
    "enroot": TELL,
    "python": TELL,
    "module": '#!/bin/sh\necho "module $*" >> "$TOLD.starts"\n',
}


@dataclass(frozen=True, slots=True)
class Told:
    """What the container runtime was started with."""

    words: list[str]
    environment: dict[str, str]
    starts: str
    cache_mode: int


def run_golden(folder: Path, name: str, shell: str = "dash", **facts: str) -> Told:
    """Run a golden script."""
    return run_script(folder, (GOLDEN / f"{name}.sh").read_text(), shell, **facts)


def run_script(folder: Path, script: str, shell: str = "dash", **facts: str) -> Told:
    """Run a script: its image is a file that is there, its GPU device is one that every machine has."""
    programs = folder / "bin"
    programs.mkdir()
    for stub, text in STUBS.items():
        (programs / stub).write_text(text)
        (programs / stub).chmod(0o755)
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(programs / "python")
    script = script.replace("/project/venv", str(venv))
    for image in (folder / "train.sif", folder / "train.sqsh"):
        image.write_text("an image")
        script = script.replace(f"/project/images/{image.name}", str(image))
    for path in re.findall(r"^ *argosy_image=(/appl/\S+\.sif)$", script, re.MULTILINE):
        script = script.replace(path, str(folder / "train.sif"))
    for device in ("/dev/kfd", "/dev/nvidiactl", "/dev/dri"):
        script = script.replace(f" {device} ", " /dev/null ")
    told = folder / "told"
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder),
        "USER": f"tester{os.getpid()}",
        "TOLD": str(told),
        "SLURM_JOB_ID": JOB,
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_CPUS_PER_NODE": "960(x2)",
        "SLURMD_NODENAME": "node1",
        "PYTHONPATH": "/of/the/host",
        **facts,
    }
    ran = subprocess.run(
        [shell, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    words, inside = json.loads(told.read_text().splitlines()[0])
    cache = Path(f"/tmp/{environment['USER']}-miopen-{JOB}")  # noqa: S108 - where the script makes it
    mode = cache.stat().st_mode if cache.exists() else 0
    if mode:
        cache.rmdir()
    return Told(words, inside, told.with_name("told.starts").read_text(), mode)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_lumi_starts_one_container_per_node_with_its_profiles_settings(tmp_path: Path, shell: str) -> None:
    told = run_golden(tmp_path, "lumi-g/many-nodes", shell)
    assert "--ntasks=2 --ntasks-per-node=1" in told.starts
    assert told.words[-4:] == ["-u", "train.py", "50", "10"]
    assert told.environment["SINGULARITYENV_NCCL_SOCKET_IFNAME"] == "hsn0,hsn1,hsn2,hsn3"
    assert "SINGULARITYENV_NCCL_NET_GDR_LEVEL" not in told.environment
    assert "PYTHONPATH" not in told.environment


def test_the_cache_folder_is_there_before_the_container_starts_and_is_the_users_alone(tmp_path: Path) -> None:
    told = run_golden(tmp_path, "lumi-g/one-gpu")
    assert told.environment["SINGULARITYENV_MIOPEN_USER_DB_PATH"].endswith(f"-miopen-{JOB}")
    assert told.cache_mode == 0o40700


def test_masks_on_lumi_need_no_number_of_cores(tmp_path: Path) -> None:
    told = run_golden(tmp_path, "lumi-g/many-nodes-srun-per-rank", SRUN_CPUS_PER_TASK="7")
    (start,) = [line for line in told.starts.splitlines() if "mask_cpu" in line]
    assert "--cpus-per-task" not in start
    assert "SRUN_CPUS_PER_TASK" not in told.environment


def test_dawns_mpiexec_gets_ranks_and_hosts_of_the_job(tmp_path: Path) -> None:
    told = run_golden(tmp_path, "dawn/many-nodes", SLURM_GPUS_ON_NODE="4", SLURM_MEM_PER_NODE="1000")
    assert "mpiexec -n 16 -ppn 8 --hosts node1,node2 sh" in told.starts
    assert told.environment["APPTAINERENV_OMP_NUM_THREADS"] == "120"
    assert told.environment["SLURM_EXPORT_ENV"] == "ALL"
    assert "SLURM_MEM_PER_NODE" not in told.environment
    assert told.starts.index("module load rhel9/default-dawn") < told.starts.index("mpiexec")


@pytest.mark.parametrize(
    ("name", "given", "threads"),
    [
        ("many-nodes", {"SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "80"}, "20"),
        ("many-nodes", {"SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_PER_TASK": "80"}, "40"),
        ("many-nodes", {"SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "3"}, "1"),
        ("many-nodes-srun-per-rank", {"SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_PER_TASK": "9"}, "9"),
    ],
)
def test_a_script_that_is_submitted_with_other_numbers_counts_threads_by_them(
    name: str, given: dict[str, str], threads: str, tmp_path: Path
) -> None:
    told = run_golden(tmp_path, f"mn5-acc/{name}", **given)
    assert told.environment["SINGULARITYENV_OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("step", "within"),
    [
        ("3", True),
        ("", False),  # the batch shell up to 25.11
        ("-5", False),  # since 26.05
        ("4294967290", False),  # the shell of salloc
        ("-6", False),  # since 26.05
    ],
)
def test_within_a_step_of_srun_that_steps_cores_do_not_bind_the_ranks(step: str, within: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    facts = {"SLURM_CPU_BIND": "quiet,mask_cpu:0x01", "SLURM_CPUS_PER_TASK": "80", "SLURM_STEP_ID": step}
    told = run_golden(tmp_path, "mn5-acc/many-nodes-srun-per-rank", SLURM_GPUS_ON_NODE="2", **facts)
    assert ("SLURM_CPU_BIND" in told.environment) is not within
    assert told.environment.get("SLURM_OVERLAP") == ("1" if within else None)
    assert f"--cpus-per-task={20 if within else 80} " in told.starts


def test_dawns_libraries_are_bound_if_the_node_has_them(tmp_path: Path) -> None:
    binds = run_golden(tmp_path, "dawn/one-gpu").environment.get("APPTAINER_BIND", "")
    for path in filter(None, binds.split(",")):
        assert Path(path).exists()
    assert "*" not in binds


def test_mn5s_module_is_loaded_before_its_runtime_is_looked_for(tmp_path: Path) -> None:
    told = run_golden(tmp_path, "mn5-acc/many-nodes", SLURM_GPUS_ON_NODE="4", SLURM_CPUS_PER_TASK="80")
    assert told.starts.splitlines()[:2] == ["module purge", "module load singularity"]
    assert "--cpus-per-task=80" in told.starts
    assert "--wait=60" in told.starts
    assert "--nv" in told.words


def test_variables_for_pyxis_are_named_so_that_no_image_overrides_them(tmp_path: Path) -> None:
    given = {"SLURM_JOB_CPUS_PER_NODE": "64(x2)", "SLURM_GPUS_ON_NODE": "2"}
    told = run_golden(tmp_path, "nvidia-pyxis/many-nodes-srun", **given)
    (start,) = [line for line in told.starts.splitlines() if "--container-image" in line]
    (names,) = re.findall(r"--container-env=(\S+)", start)
    forced = {"MASTER_ADDR": "node1", "OMP_NUM_THREADS": "32", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    assert forced.items() <= told.environment.items()
    assert set(names.split(",")) == {*forced, "MASTER_PORT", "NVIDIA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"}
    assert f"--container-workdir={Path.cwd()}" in start


def test_the_file_of_the_container_engine_holds_the_jobs_own_values_and_goes_away(tmp_path: Path) -> None:
    run_golden(tmp_path, "alps-daint/many-nodes-srun")
    edf = parse_edf((tmp_path / "told.toml").read_text(), "told.toml")
    assert edf.image == "nvcr.io#nvidia/pytorch:24.03-py3"
    assert edf.mounts == (f"{tmp_path}:{tmp_path}", f"{Path.cwd()}:{Path.cwd()}")
    assert dict(edf.env).items() >= {"MASTER_ADDR": "node1", "OMP_NUM_THREADS": "72"}.items()
    assert dict(edf.annotations)["com.hooks.aws_ofi_nccl.enabled"] == "true"
    assert (edf.entrypoint, edf.writable) == (False, False)
    assert list((tmp_path / ".edf").iterdir()) == []


def test_without_a_container_the_programs_of_the_prefix_come_first(tmp_path: Path) -> None:
    told = run_golden(tmp_path, "nvidia-pyxis/many-nodes-bare")
    assert told.environment["PATH"].startswith(f"{tmp_path}/venv/bin:")
    assert told.environment["CONDA_PREFIX"] == f"{tmp_path}/venv"
    assert told.environment["PYTHONPATH"] == "/of/the/host"


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.sh")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_golden_script_reaches_its_program(tmp_path: Path, path: Path) -> None:
    told = run_golden(tmp_path, f"{path.parent.name}/{path.stem}")
    assert told.words[-3:] == ["train.py", "50", "10"]


HOSTILE = "$(touch ran) `touch ran` \"; touch ran; ' \\\n*"


def test_text_of_a_profile_is_never_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(HOSTILE)
    profile = tmp_path / "hostile.toml"
    profile.write_text(
        f"""\
name = "hostile"
title = {text}
scheduler = "slurm"

[slurm]
mem = "1G; touch ran"
account_form = {text}

[runtime]
name = "apptainer"
why = {text}

[modules]
load = [{text}]

[[options]]
to = "srun-always"
word = "--comment=$(touch ran)"

[[settings]]
name = "HOSTILE"
value = {text}

[[settings]]
name = "LATE"
late = {json.dumps("{user} " + HOSTILE)}

[[caches]]
variables = ["CACHE"]
path = "{tmp_path}/x$(id)"

[[binds]]
paths = ["/etc/$(touch ran)*"]
"""
    )
    words = ["launch", "/project/images/train.sif", "--site", str(profile), "--launcher", "none", "--dry-run"]
    assert run_app([*words, "--", "true"]) == 0
    script = tmp_path / "golden.sh"
    script.write_text(capsys.readouterr().out)
    work = tmp_path / "work"
    work.mkdir()
    told = run_script(work, script.read_text())
    assert told.environment["APPTAINERENV_HOSTILE"] == HOSTILE
    assert told.environment["APPTAINERENV_LATE"] == f"{told.environment['USER']} {HOSTILE}"
    assert not list(tmp_path.rglob("ran"))
    assert not Path("ran").exists()
