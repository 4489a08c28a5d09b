"""Ask Slurm for the GPUs of the current allocation, if the variables of its shell do not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.core.model import Host
from argosy.core.parse import parse_int
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.launch.complete import COUNTS
from argosy.slurm.calls import run_slurm
from argosy.slurm.queries import parse_scontrol_job

GPUS = re.compile(r"(?:^|[,/:])gpu(?:[:/][A-Za-z][\w.-]*)?[:=](\d+)")
"""The GPUs in a list of resources: ``gres/gpu:a100:4``, ``gres:gpu:4``, ``gpu:4`` or ``cpu=8,gres/gpu=4``."""

OF_NODE = ("TresPerNode",)
OF_JOB = ("TresPerJob", "AllocTRES", "TRES")
"""Fields of ``scontrol show job`` with the resources of a node and of the job; AllocTRES is TRES before Slurm 23.02."""


def with_allocated_gpus(session: Session) -> Host:
    """Return this machine with the GPUs of its allocation in ``SLURM_GPUS_PER_NODE``.

    salloc sets that variable only for the option of the same name, and a shell on the login node has no
    ``SLURM_GPUS_ON_NODE``.
    """
    host = session.host
    job = host.environment.get("SLURM_JOB_ID", "")
    if not job or any(host.environment.get(name) for name in COUNTS["gpus_per_node"]):
        return host
    reply = run_slurm(session, Command(("scontrol", "show", "job", "--oneliner", job)))
    gpus = gpus_per_node(parse_scontrol_job(reply.stdout)) if reply.code == 0 else 0
    return replace(host, environment={**host.environment, "SLURM_GPUS_PER_NODE": str(gpus)}) if gpus else host


def gpus_per_node(facts: Mapping[str, str]) -> int:
    """Return the GPUs on each node of a job, from the fields of ``scontrol show job``; 0 if they are not shown."""
    nodes = max(1, parse_int(facts.get("NumNodes", "").partition("-")[0]))
    for names, over in ((OF_NODE, 1), (OF_JOB, nodes)):
        for name in names:
            if found := GPUS.search(facts.get(name, "")):
                return int(found[1]) // over
    return 0
