"""What Slurm says when it refuses a job, and what to do then; pure."""

from __future__ import annotations

import re

from argosy.errors import ArgosyError, SiteError
from argosy.launch.slurm_calls import no_answer
from argosy.process import Command, Reply, failed
from argosy.schedulers.slurm import says_no_answer
from argosy.sites import Site


def explain_sbatch(command: Command, reply: Reply, site: Site) -> ArgosyError:
    """Say what Slurm refused, in its own words, and what to do."""
    error = failed(command, reply, doing="submitting the job", hint="")
    text = reply.stderr
    hints = (
        (r"nvalid account", "see your accounts with: sacctmgr show associations user=$USER; then add --account"),
        (r"nvalid partition", "see the partitions with: sinfo -s; then add --partition"),
        (r"nvalid qos", "see the QOS you may use with: sacctmgr show qos; then add --qos"),
        (r"[Mm]emory specification", "ask for less with --mem, or another --partition"),
        (r"nvalid feature", "see what nodes have with: sinfo -o '%N %f'; then change --constraint"),
        (r"eservation is invalid", "see them with: scontrol show reservation; then change --reservation"),
        (r"ependency problem", "there is no such job, or it has ended badly: argosy jobs; then change --after"),
        (
            r"[Nn]ode configuration is not available",
            "ask for fewer nodes, GPUs or cores, another --partition, or other nodes",
        ),
        (r"nvalid node name", "see the nodes with: sinfo -N; then change --nodelist or --exclude"),
        (r"time limit|MaxTime", "ask for less with --time, or another --partition"),
    )
    if says_no_answer(text):
        return no_answer(reply)
    for pattern, hint in hints:
        if re.search(pattern, text):
            return SiteError(f"{site.name} refuses this job", evidence=error.evidence, hint=hint)
    return error
