"""A shell in an image on a node of its own: an allocation that lasts as long as the shell."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType

from argosy.core.errors import UsageError
from argosy.core.process import Argv, Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import escape_colons, literal_argv, quote
from argosy.core.store import write_text
from argosy.jobs.query import find_job, session_of
from argosy.jobs.record import read_submitted
from argosy.launch.model import LaunchRequest
from argosy.launch.option_checks import given_options, refuse_options
from argosy.launch.resolve import prepare_launch
from argosy.launch.script.attach import ATTACH
from argosy.launch.submit import Launched, new_record_folder, submission_environment, write_record
from argosy.sites.load import load_profile
from argosy.slurm.text import RUNNING

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
"""What a job is attached to with, where no command is said: images need not have bash."""


def _plan_attach(job: str, script: str, command: Argv, *, node: str, terminal: bool) -> Argv:
    """Return the words that run a command in a job's container, on one node and beside its ranks."""
    step = ("srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--export=ALL")
    where = (f"--nodelist={node}",) if node else ()
    return (
        *step,
        *where,
        *(("--pty",) if terminal else ()),
        "sh",
        script,
        *literal_argv(escape_colons(command or SHELL)),
    )


def attach(session: Session, job: str, command: Argv, *, node: str = "") -> int:
    """Run a command in the container of a running job; give its exit code.

    Raises
    ------
    UsageError
        When the job does not run, or not on that node, or was not launched by Argosy.
    """
    facts = find_job(session, job)
    script = Path(facts.record, ATTACH)
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
    place = str(Path(read_submitted(script.parent).get("there") or facts.record, ATTACH))
    words = _plan_attach(job, place, command, node=node, terminal=sys.stdin.isatty())
    return session.runner.run_foreground(Command(words, env=dict(session.host.environment)))


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

SHELL_SCRIPT = "shell.sh"


def launch_interactive(request: LaunchRequest, session: Session) -> Launched:
    """Get nodes, open a shell (or run the request's command) in the image on the first of them, and give them back.

    Raises
    ------
    UsageError
        When the site has no Slurm, or an option is one of a batch job only.
    """
    profile = load_profile(request.site, session.host)
    if not profile.site.has_slurm:
        raise UsageError("--interactive needs a site with Slurm", hint=f"here: argosy shell {quote(request.image)}")
    refuse_options(
        request, dict(given_options(request)), INSTEAD, needs="a job", evidence="--interactive opens a shell"
    )
    folder = new_record_folder(session)
    command = request.command or SHELL
    plan = prepare_launch(replace(request, command=command), session, profile=profile, record=str(folder))
    write_record(plan, folder)
    write_text(folder / SHELL_SCRIPT, render_shell(folder, plan.site, terminal=sys.stdin.isatty()))
    words = plan_allocation(plan.directives, ("sh", str(folder / SHELL_SCRIPT), *literal_argv(escape_colons(command))))
    session.reporter.note("leaving the shell gives the nodes back; argosy launch --in-allocation uses them meanwhile")
    code = session.runner.run_foreground(Command(words, env=submission_environment(session)))
    return Launched(code, "", str(folder))


def plan_allocation(directives: Argv, command: Argv) -> Argv:
    """Return the words that get nodes, run a command beside them, and give them back."""
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
        "# --overlap: steps of argosy launch --in-allocation and argosy attach may run beside it.",
        f'exec {step} sh {quote(str(folder / ATTACH))} "$@"',
    ]
    return "\n".join(lines) + "\n"
