"""Say that Slurm put a job back into the queue, why, and from where the next run starts."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from argosy.core.errors import ArgosyError
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.jobs.first_failure import find_checkpoint
from argosy.jobs.outputs import read_tail
from argosy.jobs.query import LAST_BYTES, JobFacts
from argosy.jobs.record import SCRIPT
from argosy.jobs.remote_record import session_of
from argosy.slurm.calls import run_slurm
from argosy.slurm.messages import STEPD
from argosy.slurm.states import ENDED

ENDED_BY = re.compile(STEPD + r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (\S+) DUE TO (?!TASK FAILURE)([A-Z ]+)")
"""Message of Slurm at the end of a run, with the time by the clock of the node; a reason may follow (24.11, req.c)."""

CAUSES = {
    "NODE FAILURE": "because a node failed",
    "PREEMPTION": "because another job preempted it",
    "JOB REQUEUE": "by 'scontrol requeue'",
}
"""Reason in Slurm's message -> its meaning."""

LOST_NODE = re.compile(r"srun: error: Node failure on (\S+)")
"""Message of srun about a lost node, which the program on the first node sees."""

OWN_REQUEUE = "so the job is requeued: restart {restart} of "
"""Message of a job script that requeues its job (``requeue_within`` in ``job.sh``)."""

END_MINUTES = 15
"""Minutes before the requeue in which Slurm's message about the end of that run was written, at most: a node writes it
before its ranks end and an epilog runs."""


def describe_requeue(session: Session, facts: JobFacts) -> str:
    """Describe that a job was put back into the queue; empty for a job in its first run, and for one that has ended.

    Its output shows the cause if a node of the job was left to write it; otherwise Slurm is asked for nodes of the last
    run that are down.
    """
    if not facts.restarts or facts.kind == ENDED:
        return ""
    tail = read_tail(facts.output, LAST_BYTES)
    if OWN_REQUEUE.format(restart=facts.restarts) in tail:
        cause = "at its time limit"
    else:
        cause = _find_cause(tail, facts.queued) or _find_lost_nodes(session, facts)
    return f"was put back into the queue{cause and f' {cause}'}; restart {facts.restarts} {_next_run(facts)}"


def _find_cause(tail: str, queued: str) -> str:
    """Return why the last run ended, from the end of the job's output; empty if it does not say that."""
    ends = [match for match in ENDED_BY.finditer(tail) if _is_shortly_before(match[1], queued)]
    cause = next((text for reason, text in CAUSES.items() if ends and ends[-1][2].startswith(reason)), "")
    lost = LOST_NODE.findall(tail)
    return f"because {lost[-1]} failed" if lost and cause == CAUSES["NODE FAILURE"] else cause


def _is_shortly_before(at: str, queued: str) -> bool:
    try:
        passed = dt.datetime.fromisoformat(queued) - dt.datetime.fromisoformat(at)
    except ValueError:
        return False
    return abs(passed) <= dt.timedelta(minutes=END_MINUTES)  # the clocks of two nodes may differ


def _find_lost_nodes(session: Session, facts: JobFacts) -> str:
    """Return the nodes of the last run that are down, with Slurm's reason; empty if none is known."""
    hosts = sorted({rank.host for rank in facts.ranks if rank.restart == facts.restarts - 1})
    if not hosts:
        return ""
    asked = ("sinfo", "--noheader", "--Node", "--states=down", f"--nodes={','.join(hosts)}", "--format=%N|%E")
    try:
        reply = run_slurm(session_of(session, Path(facts.record)), Command(asked))
    except ArgosyError:
        return ""
    down = dict(line.strip().split("|", 1) for line in reply.stdout.splitlines() if "|" in line)
    nodes = (f"{node} is down{'' if reason == 'none' else f' ({reason})'}" for node, reason in down.items())
    return f"because {' and '.join(nodes)}" if down else ""


def _next_run(facts: JobFacts) -> str:
    """Say from where the next run starts."""
    try:
        checkpoint = find_checkpoint(Path(facts.record, SCRIPT).read_text(encoding="utf-8")) if facts.record else ""
    except (OSError, UnicodeDecodeError):
        checkpoint = ""
    if checkpoint:
        return f"continues from {checkpoint}, if the program loads it"
    return "starts from the beginning; jobs with --resume continue from a checkpoint"
