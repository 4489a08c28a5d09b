"""What Slurm says when it refuses a job, and what to do then; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from argosy.errors import ArgosyError, SiteError
from argosy.launch.slurm_calls import no_answer
from argosy.model import Choice
from argosy.process import Command, Reply, failed
from argosy.schedulers.slurm import says_no_answer
from argosy.sites import Site

HINTS = (
    (r"nvalid account", "see your accounts with: sacctmgr show associations user=$USER; then add --account"),
    (
        r"No partition specified",
        "there is no default one: see the partitions with 'argosy queues'; then add --partition",
    ),
    (r"nvalid partition", "see the partitions with: sinfo -s; then add --partition"),
    (
        r"group not permitted|Access/permission denied",
        "you may not use it: see yours with 'argosy queues', or ask for it",
    ),
    (r"nvalid qos", "see the QOS you may use with: sacctmgr show qos; then add --qos"),
    (r"accounting/QOS policy", "it is more than your account or QOS gives, or you have too many jobs: 'argosy queues'"),
    (r"[Mm]emory specification", "ask for less with --mem, or another --partition"),
    (r"nvalid feature", "see what nodes have with: sinfo -o '%N %f'; then change --constraint"),
    (
        r"nvalid generic resource|GRES specification",
        "see what nodes have with: sinfo -o '%N %G'; then change --gpu-type",
    ),
    (r"nvalid license", "see them with: scontrol show licenses"),
    (r"job array", "see MaxArraySize in 'scontrol show config'; then change --array"),
    (r"eservation is invalid", "see them with: scontrol show reservation; then change --reservation"),
    (r"ependency problem", "there is no such job, or it has ended badly: argosy jobs; then change --after"),
    (
        r"[Nn]ode configuration is not available",
        "ask for fewer nodes, GPUs or cores, another --partition, or other nodes",
    ),
    (
        r"ode count specification|More processors",
        "ask for fewer nodes or cores, or another --partition: 'argosy queues'",
    ),
    (
        r"nvalid node name|node not in this partition",
        "see the nodes with: sinfo -N; then change --nodelist or --exclude",
    ),
    (r"time limit|MaxTime", "ask for less with --time, or another --partition"),
    (r"partition not available", "it is closed: wait for the centre, or name another by --partition"),
)
"""What Slurm says (its slurm_errno.c) -> what to do; the first that is found counts."""


def explain_sbatch(
    command: Command, reply: Reply, site: Site, choices: Iterable[Choice] = (), *, ssh: str = ""
) -> ArgosyError:
    """Say what Slurm refused, in its own words, and what to do.

    Parameters
    ----------
    choices
        Those of the plan: what an option comes from that the user did not type.
    ssh
        The host on which it was submitted; empty for here.
    """
    error = failed(command, reply, doing="submitting the job", hint="")
    text = reply.stderr
    usual = (row for row in choices if row.source == "environment" and row.what.startswith("--"))
    error.evidence = "\n".join((error.evidence, *(f"{row.what}={row.value} is {row.why}" for row in usual)))
    if says_no_answer(text):
        look = f"argosy jobs{f' --ssh {ssh}' if ssh else ''}"
        return no_answer(
            reply,
            otherwise=f"the job may be in the queue all the same: look with '{look}' before you submit it again",
        )
    for pattern, hint in HINTS:
        if re.search(pattern, text):
            return SiteError(f"{site.name} refuses this job", evidence=error.evidence, hint=hint)
    return error
