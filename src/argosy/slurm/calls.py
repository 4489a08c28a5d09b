"""Run the programs of Slurm, and say why where there is none or its controller does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from argosy.core.errors import ArgosyError, CheckFailed, SiteError, ToolMissing
from argosy.core.model import Choice
from argosy.core.process import Argv, Command, Reply, tool_error
from argosy.core.session import Session
from argosy.slurm.text import may_be_done, says_no_answer

NO_CLUSTER = "Could not establish a configuration source"


def ask_slurm(session: Session, words: Argv, *, doing: str, otherwise: str = "") -> str:
    """Ask Slurm something; give what it prints.

    Parameters
    ----------
    otherwise
        As `no_answer`.

    Raises
    ------
    ToolMissing, CheckFailed, ToolFailed
        When there is no Slurm here, its controller does not answer, or it says no.
    """
    command = Command(words)
    reply = run_slurm(session, command)
    if reply.code != 0:
        raise (
            no_answer(reply, otherwise=otherwise)
            if says_no_answer(reply.stderr)
            else tool_error(command, reply, doing=doing)
        )
    return reply.stdout


def run_slurm(session: Session, command: Command) -> Reply:
    """Run a program of Slurm.

    Raises
    ------
    ToolMissing
        When there is no Slurm here.
    CheckFailed
        When its programs know no cluster.
    """
    try:
        reply = session.runner.run(command)
    except ToolMissing as error:
        raise ToolMissing(
            "there is no Slurm on this machine",
            evidence=error.evidence,
            hint="run this on a login node of the cluster, where need be after 'module load slurm'; launch, jobs and "
            "queues reach one from here by --ssh HOST",
        ) from error
    if reply.code != 0 and NO_CLUSTER in reply.stderr:
        raise CheckFailed(
            "Slurm's programs are here, and find no cluster",
            evidence=reply.stderr.strip().splitlines()[-1],
            hint="run this on a login node; or export SLURM_CONF=FILE, or load Slurm's module, as your site says",
        )
    return reply


def no_answer(reply: Reply, *, otherwise: str = "") -> CheckFailed:
    """Make the error for a controller that does not answer.

    Parameters
    ----------
    otherwise
        What to do where it may have carried out a request that changes something; empty for a mere question.
    """
    again = "try again in some minutes"
    if otherwise:
        again = otherwise if may_be_done(reply.stderr) else f"nothing was submitted or changed; {again}"
    return CheckFailed("the Slurm controller does not answer", evidence=reply.stderr.strip(), hint=again)


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
    command: Command, reply: Reply, site: str, choices: Iterable[Choice] = (), *, ssh: str = ""
) -> ArgosyError:
    """Say what Slurm refused, in its own words, and what to do.

    Parameters
    ----------
    choices
        Those of the plan: what an option comes from that the user did not type.
    ssh
        The host on which it was submitted; empty for here.
    """
    error = tool_error(command, reply, doing="submitting the job", hint="")
    text = reply.stderr
    usual = (row for row in choices if row.source == "environment" and row.key.startswith("--"))
    error.evidence = "\n".join((error.evidence, *(f"{row.key}={row.value} is {row.why}" for row in usual)))
    if says_no_answer(text):
        look = f"argosy jobs{f' --ssh {ssh}' if ssh else ''}"
        return no_answer(
            reply,
            otherwise=f"the job may be in the queue all the same: look with '{look}' before you submit it again",
        )
    for pattern, hint in HINTS:
        if re.search(pattern, text):
            return SiteError(f"{site} refuses this job", evidence=error.evidence, hint=hint)
    return error
