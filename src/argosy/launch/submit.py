"""Plan a launch, write its record, and start its script here or submit it to Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, Interrupted, Stopped, ToolMissing, UsageError
from argosy.core.locks import this_owner
from argosy.core.os_errors import is_full, refuse_unwritable_folder, translate_os_errors
from argosy.core.process import Command
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import join, quote
from argosy.core.store import write_text
from argosy.jobs.command_files import write_command_files
from argosy.jobs.first_failure import RankEnd, find_first_failure
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import LAST_BYTES
from argosy.jobs.record import (
    ATTACH,
    COMMAND_LINE,
    END,
    PLAN,
    SCRIPT,
    STARTED,
    STATE_OPTION,
    Submission,
    discard_record,
    make_private_folder,
    new_record_folder,
    new_submission,
    record_job,
    recording_command,
    write_first,
    write_submission,
)
from argosy.launch.chains import refuse_shared_checkpoint
from argosy.launch.model import LaunchRequest
from argosy.launch.notes import answering_site, missing_paths, note_target, warn_before_submission
from argosy.launch.option_checks import plan_notes
from argosy.launch.resolve import prepare_launch
from argosy.launch.script.parts import END_FILE, OUTPUT_FILE, RANK_FILE, render_end, render_output, render_rank
from argosy.slurm.calls import explain_sbatch, run_slurm, without_filters
from argosy.slurm.queries import parse_squeue_scripts, plan_squeue_scripts
from argosy.slurm.sbatch import option_value, parse_job_id

KEPT_OF_SLURM = frozenset({"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"})
OUTER_JOB = re.compile(r"(SBATCH|SALLOC|SLURM|SLURMD|SRUN|PMI|PMIX)_")
"""Variables of an outer job, and the user's defaults, which the plan has applied; sbatch would apply them again."""

INTERRUPTED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
"""Exit codes of a script that the user ended."""

AUTHOR, HEAD_BYTES = b"Written by Argosy", 1 << 16
"""Words in the head of each script, and the bytes in which they are."""

OUTPUT_PATTERN = re.compile(r"%([\w%])")
"""A pattern that Slurm replaces (sbatch(1), filename pattern)."""


class Launched(msgspec.Struct, frozen=True):
    """A launch that was started."""

    code: int
    """Exit code of the program if the command waited for it, else 0."""
    job: str
    """Slurm's job id; empty without a job."""
    record: str
    """Folder with the script and the facts of the run."""
    polling_seconds: float = 5.0
    """How often Slurm may be asked about the job."""


def launch(request: LaunchRequest, session: Session) -> Launched:
    """Plan a launch, write its record, and start it on this machine or submit it."""
    folder = new_record_folder(session)
    plan = prepare_launch(request, session, record=str(folder))
    if plan.is_job and not request.in_allocation and not request.no_check:
        refuse_shared_checkpoint(plan, session)
    if request.logs:
        with translate_os_errors(Path(request.logs), "--log-dir"):
            Path(request.logs).mkdir(parents=True, exist_ok=True)
    note_target(session, plan, in_allocation=request.in_allocation)
    missing = missing_paths(request, session.host) if plan.is_job and not request.in_allocation else ()
    for line in (*plan_notes(plan.choices), *missing):
        session.reporter.note(line)
    write_record(plan, folder, session)
    with _whole_record(folder):
        write_command_files(folder, plan.command, option_value(plan.directives, "--chdir") or session.host.cwd)
    return start_launch(plan, folder, session, request)


def start_launch(plan: LaunchPlan, folder: Path, session: Session, request: LaunchRequest) -> Launched:
    """Start the script of a record on this machine, or submit it as a job."""
    if plan.is_job and not request.in_allocation:
        return submit(plan, folder, session, profile=request.site)
    with _whole_record(folder):
        if request.in_allocation:
            submission = new_submission(session.host, site=plan.site, profile=request.site, output="")
            job = session.host.environment["SLURM_JOB_ID"]
            write_submission(folder, replace(submission, job=job, in_allocation=True))
        else:
            # By the process of a run on this machine, `argosy top` finds its ranks.
            write_text(folder / STARTED, json.dumps(asdict(this_owner("launch"))) + "\n")
    command = Command(("bash" if plan.is_job else "sh", str(folder / SCRIPT)), env=dict(session.host.environment))
    code, first = _run_script(command, session, reads_errors=plan.is_job or bool(plan.logs))
    if first and plan.is_job:  # srun's own code is the highest of all ranks, often the 143 of a rank that it ended
        session.reporter.note(first.text)
        code = first.code
    _write_end(folder, session, code, None if plan.is_job else first)
    if code and plan.logs and is_full(Path(plan.logs)):
        session.reporter.note(f"the disk of {plan.logs} is full: the logs are incomplete; free some space")
    if code and code not in INTERRUPTED and not plan.is_job and plan.shape.ranks_per_node > 1:
        advice = "type: argosy why last" if plan.logs else f"record the output: {recording_command(folder)}"
        session.reporter.note(f"to explain the failure, {advice}")
    return Launched(code, "", str(folder))


def _run_script(command: Command, session: Session, *, reads_errors: bool) -> tuple[int, RankEnd | None]:
    """Run a script on this machine; return its exit code, and the rank that failed first if its messages name it.

    Parameters
    ----------
    reads_errors
        Whether the standard error may be a pipe, in which the messages of the launcher are found.  Without --log-dir,
        the ranks of a run on this machine write to it, and a program may look for a terminal there.
    """
    if not reads_errors:
        return session.runner.run_foreground(command), None
    last = bytearray()

    def store(block: bytes) -> None:
        last.extend(block)
        del last[:-LAST_BYTES]

    code = session.runner.run_foreground(command, store)
    return code, find_first_failure(last.decode(errors="replace")) if code else None


def _write_end(folder: Path, session: Session, code: int, first: RankEnd | None) -> None:
    """Write the exit code of a run into its record, and the rank that failed first if it is known."""
    try:
        if first:
            write_first(folder, replace(first, host=session.host.hostname))
        write_text(folder / END, json.dumps({"code": code}) + "\n")
    except (OSError, ArgosyError) as error:  # the program's own code counts, even on a full disk
        session.reporter.note(f"the end of the run cannot be written to its record: {error}")


def submit(plan: LaunchPlan, folder: Path, session: Session, *, profile: str) -> Launched:
    """Submit the script in the record of a plan.

    Parameters
    ----------
    profile
        Name or path of the site's profile, as typed.

    Raises
    ------
    ArgosyError
        With Slurm's message if it refuses the job.
    """
    argv = tuple(argument.replace("{script}", str(folder / SCRIPT)) for argument in plan.submit)
    command = Command(argv, env=submission_environment(session))
    submission = new_submission(session.host, site=plan.site, profile=profile, output=plan.output)
    try:
        _refuse_missing_chdir(plan)  # before it is made as the folder of the output
        make_output_folders(plan, session.host.person.name)
        for line in warn_before_submission(plan, session.host.cwd):
            session.reporter.note(line)
        write_submission(folder, submission)
        reply = run_slurm(session, command)
    except Interrupted as stopped:
        raise _explain_stop(session, folder, submission, stopped) from stopped
    except ArgosyError:
        discard_record(folder)
        raise
    if reply.code != 0:
        discard_record(folder, reply)
        raise explain_sbatch(command, reply, answering_site(plan.site, session.host), plan.choices)
    job = parse_job_id(reply.stdout)
    for line in reply.stderr.splitlines():
        session.reporter.note(line)
    record_job(session, folder, replace(submission, job=job))
    return Launched(0, job, str(folder), plan.polling_seconds)


def submission_environment(session: Session) -> dict[str, str]:
    """Return the caller's environment without the variables of an outer job and the user's SBATCH_* defaults."""
    return {
        name: value
        for name, value in session.host.environment.items()
        if name in KEPT_OF_SLURM or not OUTER_JOB.match(name)
    }


def _explain_stop(session: Session, folder: Path, submission: Submission, stopped: Interrupted) -> Stopped:
    """Ask whether Slurm has the job already, write its number into the record, and return the error to raise."""
    job = _find_job(session, folder)
    if not job:
        return Stopped(
            stopped.signal_number,
            "stopped while the job was submitted; Slurm lists no such job",
            hint="check with 'argosy jobs' before you launch it again",
        )
    record_job(session, folder, replace(submission, job=job))
    return Stopped(
        stopped.signal_number,
        f"stopped; job {job} is submitted and continues",
        hint=f"to cancel it: argosy cancel {job}",
    )


def _find_job(session: Session, folder: Path) -> str:
    """Return the number of the job that runs the script of a record; empty if there is none."""
    try:
        reply = session.runner.run(
            without_filters(session, Command(plan_squeue_scripts(session.host.person.name, ended=True)))
        )
    except ToolMissing:
        return ""
    return parse_squeue_scripts(reply.stdout, str(folder / SCRIPT))


def _refuse_missing_chdir(plan: LaunchPlan) -> None:
    """Refuse a missing --chdir folder: Slurm would run the job in /tmp instead, and only log it."""
    folder = option_value(plan.directives, "--chdir")
    if folder and not Path(folder).is_dir():
        raise UsageError(f"there is no folder {folder} to run in", evidence=f"--chdir {folder}", hint="create it first")


@contextlib.contextmanager
def _whole_record(folder: Path) -> Iterator[None]:
    """Remove the record of a launch before its start if one of its files cannot be written."""
    try:
        with translate_os_errors(folder, STATE_OPTION):
            yield
    except ArgosyError:
        discard_record(folder)
        raise


def write_record(plan: LaunchPlan, folder: Path, session: Session) -> Path:
    """Write the record of a plan before it starts, with the command line that made it, and return its script.

    If a file cannot be written, for example on a full disk, nothing of the record stays.
    """
    with _whole_record(folder):
        make_private_folder(folder)
        script = folder / SCRIPT
        write_text(script, plan.script)
        facts = asdict(replace(plan, script="", attach="", versions=dict(plan.versions)))  # files of their own
        write_text(folder / PLAN, json.dumps(facts, indent=1, sort_keys=True) + "\n")
        # Calls from Python have no command line.
        typed = f"cd {quote(session.host.cwd)} && {join(session.typed)}\n" if session.typed else ""
        texts = {ATTACH: plan.attach, COMMAND_LINE: typed}
        if plan.is_job:
            texts |= {
                END_FILE: render_end(plan.cores, gpus=plan.shape.gpus_per_node),
                RANK_FILE: render_rank(plan.image),
                OUTPUT_FILE: render_output(),
            }
        for name, text in texts.items():
            if text:
                write_text(folder / name, text)
    return script


def make_output_folders(plan: LaunchPlan, user: str) -> None:
    """Create the folders of the job's output files: Slurm ends a job without a message if it cannot write them.

    Raises
    ------
    UsageError, CheckFailed
        When nothing can be written there.
    """
    for name, path in _outputs(plan).items():
        if os.path.isdir(path):  # noqa: PTH112 - Path's raises where it is closed
            hint = f"write --{name} {path.rstrip('/')}/%x-%j.out"
            raise UsageError(f"{path} is a folder, not a file", evidence=f"--{name} {path}", hint=hint)
    for folder in output_folders(plan, user):
        with translate_os_errors(folder, "--output or --error"):
            folder.mkdir(parents=True, exist_ok=True)
        refuse_unwritable_folder(folder)


def _outputs(plan: LaunchPlan) -> dict[str, str]:
    """Return the files that a job writes to, with Slurm's patterns in them, by the option that names them."""
    options = dict(option[2:].partition("=")[::2] for option in plan.directives)
    return {name: options[name] for name in ("output", "error") if options.get(name)}


def output_folders(plan: LaunchPlan, user: str) -> tuple[Path, ...]:
    """Return the folders of the job's output files, which must exist when the job starts.

    Raises
    ------
    UsageError
        When the folder's name depends on the job's number.
    """
    out: list[Path] = []
    known = {"%": "%", "x": plan.name, "u": user}
    for name, path in _outputs(plan).items():
        if path == os.devnull:
            continue
        if "\\" in path:
            raise UsageError(
                "the path of an output cannot contain a backslash: Slurm removes it, and then does not replace %j",
                evidence=f"--{name} {path}",
                hint=f"use another --{name}, or start from a folder without a backslash in its path",
            )
        folder = str(Path(path).parent)
        if any(letter not in known for letter in OUTPUT_PATTERN.findall(folder)):
            raise UsageError(
                "the folder of the output depends on the job's number, and Slurm creates no folders",
                evidence=f"--{name} {path}",
                hint="use %j in the name of the file only; write %% for a percent sign",
            )
        out.append(Path(OUTPUT_PATTERN.sub(lambda match: known[match[1]], folder)))
    return tuple(out)


def write_script(path: Path, text: str, *, private: bool) -> None:
    """Write an executable script to a file of the user; only its owner can read a private one.

    Raises
    ------
    UsageError
        If the file exists and was not written by Argosy, for example if it is the user's program.
    """
    refuse_unwritable_folder(path.parent)
    with translate_os_errors(path.parent, "--script"):
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                is_ours = AUTHOR in file.read(HEAD_BYTES)
            if not is_ours:
                hint = "choose another name, or remove it"
                raise UsageError(f"{path} exists and was not written by Argosy", hint=hint)
        write_text(path, text, mode=0o700 if private else 0o755)
