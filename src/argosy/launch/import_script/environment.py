"""Decide which variables of a command or of the environment a job needs, also by the profile of its site; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from argosy.launch.import_script.model import Fate, Note
from argosy.launch.import_script.shape import SlurmShape
from argosy.launch.shape import THREADS
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


def is_certain(setting: Setting, site: Site, shape: SlurmShape) -> bool:
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


COMPUTED = re.compile("[$`]")
"""Signs of a value that a shell computes."""

OF_SLURM = re.compile(r"([^$`\"\\]|\$\{SLURM_\w+(:-\w*)?\})*")
"""A value that the job's own variables complete."""

OF_USER = re.compile(r"([^$`\"\\]|\$\{\w+(:-\w*)?\})*")
"""A value that variables complete."""


class StepVariables(msgspec.Struct):
    """The variables of a command: those of the table, assignments for the shell of each rank, and notes."""

    env: dict[str, str] = {}
    prelude: list[str] = []
    notes: list[Note] = []


def translate_variables(variables: Mapping[str, str]) -> StepVariables:
    """Translate the variables of a command, with their values as the script writes them."""
    found = StepVariables()
    for name, value in variables.items():
        text, is_computed = f"{name}={value}", bool(COMPUTED.search(value))
        reason = reason_to_replace(name, value)
        if reason and (is_computed or name in RENDEZVOUS):
            found.notes.append((text, Fate.REPLACED, reason))
        elif not is_computed:
            found.env[name] = value
        elif OF_SLURM.fullmatch(value):
            found.prelude.append(f'export {name}="{value}"')
            found.notes.append((text, Fate.KEPT, "the shell of each rank sets it"))
        else:
            found.notes.append((text, Fate.UNTRANSLATED, _remedy(name, value)))
    return found


def _remedy(name: str, value: str) -> str:
    """Return what to do about a value that the job does not know."""
    if value == f"${{{name}}}":
        return f"your shell has the value: launch with --env {name}"
    if OF_USER.fullmatch(value):
        return f"your shell completes the value: launch with --env {name}=VALUE"
    return "the job computes the value: set it in the program, which sees the job's SLURM_* variables"
