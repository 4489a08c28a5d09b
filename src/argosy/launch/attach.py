"""A second command in the container of a running job: as a step of that job, beside its ranks."""

from __future__ import annotations

import sys
from pathlib import Path

from argosy.errors import UsageError
from argosy.launch.jobs import find_job, session_of
from argosy.launch.record import read_submitted
from argosy.process import Command, Words
from argosy.schedulers.slurm import RUNNING
from argosy.session import Session
from argosy.shell import past_srun, plain_words

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
"""What a job is attached to with, where no command is said: images need not have bash."""

NAME = "attach.sh"


def _plan_attach(job: str, script: str, command: Words, *, node: str, terminal: bool) -> Words:
    """Give the words that run a command in a job's container, on one node and beside its ranks."""
    step = ("srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--export=ALL")
    where = (f"--nodelist={node}",) if node else ()
    return (*step, *where, *(("--pty",) if terminal else ()), "sh", script, *plain_words(past_srun(command or SHELL)))


def attach(session: Session, job: str, command: Words, *, node: str = "") -> int:
    """Run a command in the container of a running job; give its exit code.

    Raises
    ------
    UsageError
        When the job does not run, or not on that node, or was not launched by Argosy.
    """
    facts = find_job(session, job)
    script = Path(facts.record, NAME)
    if facts.kind != RUNNING:
        raise UsageError(f"job {job} does not run: it {facts.meaning}", hint=f"see 'argosy jobs show {job}'")
    if not facts.record or not script.is_file():
        raise UsageError(
            f"job {job} was not launched by Argosy, so its container is not known",
            hint=f"open a shell beside it: srun --overlap --jobid={job} --pty bash",
        )
    session = session_of(session, script.parent)
    hosts = session.runner.run(Command(("scontrol", "show", "hostnames", facts.nodes))).stdout.split() if node else []
    if hosts and node not in hosts:
        raise UsageError(
            f"{node} is no node of job {job}", evidence=f"it runs on {facts.nodes}", hint="name one of those by --node"
        )
    place = str(Path(read_submitted(script.parent).get("there") or facts.record, NAME))
    words = _plan_attach(job, place, command, node=node, terminal=sys.stdin.isatty())
    return session.runner.hand_over(Command(words, env=dict(session.host.environment)))
