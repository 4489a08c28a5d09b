"""A shell in an image on a node of its own: an allocation that lasts as long as the shell."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType

from argosy.errors import UsageError
from argosy.launch.attach import NAME as ATTACH
from argosy.launch.attach import SHELL
from argosy.launch.grounds import find_site, plan_here
from argosy.launch.records import LaunchRequest
from argosy.launch.story import Launched, keep_record, runs_folder, submission_environment
from argosy.launch.unused import given_options, refuse_options
from argosy.process import Command, Words
from argosy.records import replace
from argosy.session import Session
from argosy.shell import past_srun, plain_words, quote
from argosy.store import write_text

INSTEAD = MappingProxyType(
    {
        "array": "start each task by itself, with what it takes from SLURM_ARRAY_TASK_ID set by --env",
        "output": "the shell has the terminal: leave it out",
        "error": "the shell has the terminal: leave it out",
        "signal": "leave it out: the shell ends with its time limit",
        "resume": "leave it out: a shell does not go back into the queue",
    }
)
"""Options that mean nothing to a shell -> what to do."""

NOT_FOR_SALLOC = ("output", "error", "array", "requeue", "open-mode", "signal", "parsable")
"""Options of a batch job that an allocation does not have."""

NAME = "shell.sh"


def launch_interactive(request: LaunchRequest, session: Session) -> Launched:
    """Get nodes, open a shell (or run the request's command) in the image on the first of them, and give them back.

    Raises
    ------
    UsageError
        When the site has no Slurm, or an option is one of a batch job only.
    """
    site = find_site(request.site, session.host)
    if site.scheduler != "slurm":
        raise UsageError("--interactive needs a site with Slurm", hint=f"here: argosy shell {quote(request.image)}")
    refuse_options(
        request, dict(given_options(request)), INSTEAD, needs="a job", evidence="--interactive opens a shell"
    )
    folder = runs_folder(session)
    command = request.command or SHELL
    plan = plan_here(replace(request, command=command), session, record=str(folder))
    keep_record(plan, folder)
    write_text(folder / NAME, render_shell(folder, site.name, terminal=sys.stdin.isatty()))
    words = plan_allocation(plan.directives, ("sh", str(folder / NAME), *plain_words(past_srun(command))))
    session.reporter.note("leaving the shell gives the nodes back; argosy launch --here uses them meanwhile")
    code = session.runner.hand_over(Command(words, env=submission_environment(session)))
    return Launched(code, "", str(folder))


def plan_allocation(directives: Words, command: Words) -> Words:
    """Give the words that get nodes, run a command beside them, and give them back."""
    options = (option for option in directives if option[2:].partition("=")[0] not in NOT_FOR_SALLOC)
    return ("salloc", *options, *command)


def render_shell(folder: Path, site: str, *, terminal: bool) -> str:
    """Render the script that enters the container on the first node of an allocation."""
    told = f'{{"job": "%s", "output": "", "site": "{site}"}}\\n'
    step = "srun --overlap --nodes=1 --ntasks=1 --cpu-bind=none --mpi=none --export=ALL" + " --pty" * terminal
    lines = [
        "#!/bin/sh",
        "# Run by salloc: become the words of this script in the container on the first node of the allocation.",
        "set -eu",
        f'printf {quote(told)} "$SLURM_JOB_ID" > {quote(str(folder / "submitted.json"))}',
        "# --overlap: steps of argosy launch --here and argosy attach may run beside it.",
        f'exec {step} sh {quote(str(folder / ATTACH))} "$@"',
    ]
    return "\n".join(lines) + "\n"
