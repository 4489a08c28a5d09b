"""Interactive work on nodes: attach to a running job, or open a shell in a new allocation."""

from __future__ import annotations

import re
import sys
from collections import deque
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.process import Argv, Command, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import as_comment, escape_colons, join, literal_argv, quote, render_command
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.names import resolve_name
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import (
    ATTACH,
    SUBMITTED,
    Submission,
    discard_record,
    new_record_folder,
    new_submission,
    read_plan,
    read_submission,
    render_submission,
)
from argosy.jobs.remote_record import session_of
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.notes import answering_site
from argosy.launch.option_checks import given_options, refuse_options
from argosy.launch.resolve import prepare_launch
from argosy.launch.submit import Launched, submission_environment, write_record
from argosy.runtimes.sessions import attach_session, read_session
from argosy.sites.load import advise_on_site, load_profile
from argosy.slurm.calls import explain_sbatch, list_hosts
from argosy.slurm.queries import base_number, is_job_id
from argosy.slurm.states import HALTED, RUNNING

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
"""The command if the user gives none: images may not have bash."""

STEP = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none")
"""A step on one node next to the ranks of the job."""


def attach(session: Session, job: str, command: Argv, *, node: str = "") -> int:
    """Run a command in the container of a running job or a detached session, and return its exit code.

    Parameters
    ----------
    job
        Number or name of the job, ``last`` for the newest one, or name of the session.
    node
        The node to run on; empty for the first one.

    Raises
    ------
    UsageError
        If the job does not run, does not run on that node, belongs to another user, was not launched by Argosy, or is
        an array of which several tasks run.
    """
    if read_session(job, session) is not None:
        return attach_session(job, command, session)
    job = _resolve_job(session, job)
    facts = find_job(session, job)
    script = Path(facts.record, ATTACH)
    if facts.kind != RUNNING:
        raise UsageError(f"job {job} is not running: it {facts.meaning}", hint=f"see 'argosy jobs show {job}'")
    _refuse_several(facts)
    if facts.state in HALTED:
        raise UsageError(f"job {job} {facts.meaning}: Slurm starts nothing in it", hint="wait until it runs again")
    if facts.other_user:
        raise UsageError(f"job {job} belongs to {facts.other_user}", hint="see your jobs with 'argosy jobs'")
    if not facts.record or not script.is_file():
        raise UsageError(
            f"job {job} was not launched by Argosy, so its container is not known",
            hint=f"open a shell without the container: srun --overlap --jobid={job} --pty bash",
        )
    session = session_of(session, script.parent)
    hosts = list_hosts(session, facts.nodes)
    if node and hosts and node not in hosts:
        raise UsageError(
            f"{node} is not a node of job {job}",
            evidence=f"it runs on {facts.nodes}",
            hint="choose one of these nodes with --node",
        )
    path = str(Path(read_submission(script.parent).there or facts.record, ATTACH))
    node = node or next(iter(hosts), "")  # srun alone would choose another node each time
    where = (f"--nodelist={node}",) if node else ()
    always = read_plan(script.parent).step_options
    step = (*STEP, *always, f"--jobid={facts.number or job}", "--export=ALL", *where, *_terminal(), "bash", path)
    argv = (*step, *literal_argv(escape_colons(command or SHELL)))
    return session.runner.run_foreground(Command(argv, env=dict(session.host.environment)))


def _refuse_several(facts: JobFacts) -> None:
    """Refuse an array of which several tasks run: srun would enter another one than that of these facts."""
    if len(facts.running_tasks) > 1:
        tasks = [task for task, _ in facts.running_tasks]
        raise UsageError(
            f"{len(tasks)} tasks of job {base_number(facts.id)} run",
            evidence="\n".join(f"{task} on {nodes}" for task, nodes in facts.running_tasks),
            hint=f"attach to one of them: argosy attach {tasks[0]}",
        )


def _resolve_job(session: Session, name: str) -> str:
    """Return the number of the job of Slurm that a number, a name or ``last`` means."""
    try:
        job = resolve_name(session, name)
    except UsageError as error:
        hint = "see your jobs with 'argosy jobs', and sessions with 'argosy sessions ls'"
        raise UsageError(f"there is no job or session {name!r}", evidence=error.evidence, hint=hint) from error
    if not is_job_id(job):
        raise UsageError(
            f"{job} is a run on this machine, not a job of Slurm",
            hint="a container that you can enter at any time: argosy shell IMAGE --detach NAME",
        )
    return job


def _terminal() -> Argv:
    return ("--pty",) if sys.stdin.isatty() else ()


def _plan_step(options: Argv, terminal: Argv, script: str) -> Argv:
    """Plan the step that starts a script, and its arguments, on the first node of an allocation."""
    return (*STEP, *options, "--mpi=none", "--export=ALL", *terminal, "bash", script)


INSTEAD = {
    "array": "start one shell per task, and set SLURM_ARRAY_TASK_ID with --env",
    "output": "remove it: the shell uses the terminal",
    "error": "remove it: the shell uses the terminal",
    "signal": "remove it: the shell ends at its time limit",
    "resume": "remove it: a shell cannot be requeued",
}
"""Options that have no effect on an interactive shell -> hint."""

BATCH_OPTIONS = ("output", "error", "array", "requeue", "open-mode", "signal", "parsable")
"""Options of sbatch that salloc does not have."""

SHELL_SCRIPT = "shell.sh"

MOST_BLOCKS = 64
"""Blocks at the end of the error output that are kept, for the case that no shell starts."""

STOPPED = "aborted due to signal|Interrupted by signal"
"""Messages of salloc (24.11) after Ctrl-C."""

RELEASED = "the nodes are released when the shell ends; until then, --in-allocation launches on them"

NUMBER = "<job>"
"""The place of the job's number, which the shell fills in."""


def launch_interactive(request: LaunchRequest, session: Session) -> Launched:
    """Allocate nodes, run a shell or the request's command in the image on the first one, and release the nodes.

    Raises
    ------
    UsageError
        If the site does not have Slurm, or an option applies to batch jobs only.
    ArgosyError
        With Slurm's message if it refuses the allocation.
    """
    folder = new_record_folder(session)
    plan = prepare_interactive(request, session, record=str(folder))
    write_record(plan, folder, session)
    submission = new_submission(session.host, site=plan.site, profile=request.site, output="")
    write_text(folder / SHELL_SCRIPT, render_shell(folder, submission, plan.step_options))
    allocation, command = plan_allocation(plan.directives), literal_argv(escape_colons(plan.command))
    start = Command((*allocation, "sh", str(folder / SHELL_SCRIPT), *command), env=submission_environment(session))
    errors = deque[bytes](maxlen=MOST_BLOCKS)
    code = session.runner.run_foreground(start, errors.append)
    text = b"".join(errors).decode(errors="replace")
    if code and not (folder / SUBMITTED).is_file() and not re.search(STOPPED, text):
        reply = Reply(code, "", text)
        discard_record(folder, reply)
        raise explain_sbatch(start, reply, answering_site(plan.site, session.host), plan.choices)
    return Launched(code, "", str(folder))


def prepare_interactive(
    request: LaunchRequest, session: Session, *, purpose: Purpose = Purpose.START, record: str = ""
) -> LaunchPlan:
    """Plan an interactive launch: ``submit`` allocates the nodes and starts ``script`` on the first of them.

    Raises
    ------
    UsageError
        If the site does not have Slurm, or an option applies to batch jobs only.
    """
    profile = load_profile(request.site, session.host)
    if not profile.site.has_slurm:
        hint = "; or ".join(filter(None, (advise_on_site(session.host), f"here: argosy shell {quote(request.image)}")))
        raise UsageError("--interactive needs a site with Slurm", hint=hint)
    refuse_options(
        request, dict(given_options(request)), INSTEAD, needs="a batch job", evidence="--interactive opens a shell"
    )
    request = replace(request, command=request.command or SHELL)
    plan = prepare_launch(request, session, profile=profile, purpose=purpose, record=record)
    # A dry run may be piped to a file or a pager: the shell that it describes still gets a terminal.
    terminal = ("--pty",) if purpose is Purpose.SHOW else _terminal()
    step = _plan_step(plan.step_options, terminal, "{script}")
    submit = (*plan_allocation(plan.directives), *step, *literal_argv(escape_colons(plan.command)))
    return replace(plan, submit=submit, script=_with_start(plan.attach, submit))


def plan_allocation(directives: Argv) -> Argv:
    """Return the command that allocates the nodes of a batch job with these options."""
    return ("salloc", *(option for option in directives if option[2:].partition("=")[0] not in BATCH_OPTIONS))


def _with_start(script: str, submit: Argv) -> str:
    """Add to a script how to start it."""
    first, _, rest = script.partition("\n")
    command = render_command((word.replace("{script}", "FILE") for word in submit), width=92)
    start = (f"#     {as_comment(line)}" for line in command.splitlines())
    return "\n".join(
        (
            first,
            "# Save this text as FILE. This command allocates the nodes, and starts FILE on the first one:",
            *start,
            rest,
        )
    )


def render_shell(folder: Path, submission: Submission, options: Argv = ()) -> str:
    """Render the script that enters the container on the first node of an allocation, and records the job's number."""
    before, after = render_submission(replace(submission, job=NUMBER)).split(NUMBER)
    step = join(_plan_step(options, _terminal(), str(folder / ATTACH)))
    lines = [
        "#!/bin/sh",
        "# Run by salloc: start the arguments in the container on the first node of the allocation.",
        "set -eu",
        f'printf %s {quote(before)} "$SLURM_JOB_ID" {quote(after)} > {quote(str(folder / SUBMITTED))}',
        f"echo {quote(RELEASED)} >&2",
        "# With --overlap, steps of argosy launch --in-allocation and argosy attach can run at the same time.",
        f'exec {step} "$@"',
    ]
    return "\n".join(lines) + "\n"
