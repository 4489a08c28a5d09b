"""Run the programs of Slurm, and say why where there is none or its controller does not answer."""

from __future__ import annotations

from argosy.errors import CheckFailed, ToolMissing
from argosy.process import Command, Reply, Words, failed
from argosy.schedulers.slurm import may_be_done, says_no_answer
from argosy.session import Session

NO_CLUSTER = "Could not establish a configuration source"


def ask_slurm(session: Session, words: Words, *, doing: str, otherwise: str = "") -> str:
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
            else failed(command, reply, doing=doing)
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
