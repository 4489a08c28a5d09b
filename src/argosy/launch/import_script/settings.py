"""Compare variables that a job script sets with the settings of a site's profile; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.launch.cores import THREADS
from argosy.launch.import_script.options import Shape
from argosy.sites.conditions import Facts, evaluate_condition, parse_condition, render_condition
from argosy.sites.profile import Site
from argosy.sites.profile_parts import Setting

RENDEZVOUS = frozenset(
    "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK".split()  # noqa: SIM905
)
"""Variables that Argosy sets for each rank."""

CORES_OF_SRUN = "SRUN_CPUS_PER_TASK"

CORES = re.compile(r"\$\{?SLURM_CPUS_PER_TASK(:-\w*)?\}?|\$\(nproc.*\)|`nproc.*`")
"""Values of `THREADS` that mean the cores of a rank; a job keeps any other one."""

NO_GPU = frozenset({"", "-1", "NoDevFiles"})
"""Values of CUDA_VISIBLE_DEVICES and its like that hide all GPUs from the program."""

SET_BY_ARGOSY: Mapping[str, str] = {
    **dict.fromkeys(RENDEZVOUS, "Argosy sets it for each rank"),
    THREADS: "Argosy sets it to the cores of a rank",
    CORES_OF_SRUN: "Argosy passes the cores on to srun",
    "CUDA_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
    "ROCR_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
    "HIP_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
}


def reason_to_replace(name: str, value: str) -> str:
    """Return why a job does not need a variable with this value, as the script writes it; empty if it does."""
    is_own = (name == THREADS and not CORES.fullmatch(value)) or (name.endswith("_VISIBLE_DEVICES") and value in NO_GPU)
    return "" if is_own else SET_BY_ARGOSY.get(name, "")


def is_certain(setting: Setting, site: Site, shape: Shape) -> bool:
    """Return whether the profile sets a variable in a job of this shape; versions in the image are not known."""
    facts = Facts(
        nodes=str(shape.nodes or ""),
        gpus_per_node=str(shape.gpus_per_node or ""),
        vendor=site.node.gpu_vendor if shape.gpus or shape.gpus_per_node or shape.gpus_per_task else "",
    )
    return evaluate_condition(parse_condition(setting.when), facts) is True


def describe_setting(setting: Setting, site: Site) -> str:
    """Describe the value of the profile for a variable that the script sets."""
    condition = f", but only if {render_condition(setting.when)}" if setting.when else ""
    return f"the profile of {site.name} would set {setting.value or setting.late}{condition}"
