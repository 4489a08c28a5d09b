"""Render Slurm's directives and commands, and parse its replies; pure.

The parsable forms of squeue, scontrol and sacct are read on every release: their JSON changed between 22.05
(``"COMPLETED"``) and 24.11 (``["COMPLETED"]``), the columns did not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.parse import parse_int
from argosy.core.process import Argv

HETEROGENEOUS_HINT = (
    "launch each component as a job of its own; if all must start together, write the job script yourself, and put "
    "'argosy run IMAGE --' before the program of each component"
)
"""Hint of an error about heterogeneous jobs, whose components have different resources."""

WAITING, RUNNING, ENDED = "waiting", "running", "ended"

STATES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "PENDING": (WAITING, "waits in the queue"),
        "REQUEUED": (WAITING, "was requeued"),
        "REQUEUE_HOLD": (WAITING, "was requeued and is held: scontrol release"),
        "REQUEUE_FED": (WAITING, "was requeued in the federation"),
        "SPECIAL_EXIT": (WAITING, "was requeued with a special exit code, and is held"),
        "RESV_DEL_HOLD": (WAITING, "is held: its reservation was deleted"),
        "CONFIGURING": (RUNNING, "its nodes are getting ready"),
        "RUNNING": (RUNNING, "runs"),
        "COMPLETING": (RUNNING, "is ending"),
        "STAGE_OUT": (RUNNING, "copies its files out"),
        "SIGNALING": (RUNNING, "is being signalled"),
        "STOPPED": (RUNNING, "is stopped, and keeps its nodes"),
        "SUSPENDED": (RUNNING, "is suspended"),
        "RESIZING": (RUNNING, "changes its size"),
        "COMPLETED": (ENDED, "ended well"),
        "FAILED": (ENDED, "ended with an error"),
        "CANCELLED": (ENDED, "was cancelled"),
        "TIMEOUT": (ENDED, "reached its time limit: request more with --time"),
        "OUT_OF_MEMORY": (ENDED, "ran out of memory: request more with --mem"),
        "NODE_FAIL": (ENDED, "lost a node: launch it again; with --resume it continues automatically"),
        "BOOT_FAIL": (ENDED, "a node did not boot"),
        "DEADLINE": (ENDED, "reached its deadline"),
        "PREEMPTED": (ENDED, "was preempted by another job"),
        "LAUNCH_FAILED": (ENDED, "could not be started on its nodes"),
        "RECONFIG_FAIL": (ENDED, "its nodes could not be reconfigured"),
        "REVOKED": (ENDED, "runs on another cluster of the federation"),
    }
)
"""State of Slurm 22.05 to 25.05 (squeue(1)) -> its kind, and its meaning for users."""


def describe_state(state: str) -> tuple[str, str]:
    """Return kind and meaning of a state; a state that is not in the table counts as running."""
    # For example "CANCELLED by 2001" or "CANCELLED+".
    word = next(iter(state.split(maxsplit=1)), "").rstrip("+")
    return STATES.get(word, (RUNNING, f"is {state}"))


FROM_OUTSIDE = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED", "TIMEOUT"})
NOT_REACHED = re.compile(r"\(connect failure\)|Connection refused|Communication connection failure", re.IGNORECASE)
"""Messages of a command that could not send its request (slurm_errno.c)."""

ANSWER_LOST = re.compile(
    r"timed out|Zero Bytes|Unable to contact slurm controller(?! \(connect)|Unexpected message received|"
    r"Message (send|receive) failure|Communication shutdown failure",
    re.IGNORECASE,
)
"""Messages of a command that lost the answer: the controller may have carried out the request."""


OUT_OF_MEMORY_SIGNAL = 125
"""The signal number that Slurm invents for a job that ran out of memory: ``0:125`` (SIG_OOM in its slurm.h)."""


def exit_code_of_state(state: str, code: int) -> int:
    """Return the exit code of an ended job, which is never 0 for a failed one, unlike Slurm's ExitCode."""
    name = state.partition(" ")[0]
    if code == 128 + OUT_OF_MEMORY_SIGNAL and name == "OUT_OF_MEMORY":
        return 137  # the kernel sent SIGKILL
    if code or name == "COMPLETED":
        return code
    return 143 if name in FROM_OUTSIDE else 1


def says_no_answer(text: str) -> bool:
    """Return whether a Slurm command reports that the controller does not answer."""
    return bool(NOT_REACHED.search(text) or ANSWER_LOST.search(text))


def may_be_done(text: str) -> bool:
    """Return whether the controller may have carried out a request that failed without its answer."""
    return bool(ANSWER_LOST.search(text))


class JobOptions(msgspec.Struct, frozen=True):
    """Options of sbatch that users set; Slurm decides about empty ones."""

    account: str = ""
    partition: str = ""
    qos: str = ""
    time: str = ""
    mem: str = ""
    mem_per_gpu: str = ""
    constraint: str = ""
    reservation: str = ""
    nodelist: str = ""
    exclude: str = ""
    mail_type: str = ""
    output: str = ""
    error: str = ""
    chdir: str = ""
    array: str = ""
    dependency: str = ""
    signal: str = ""
    exclusive: bool = False
    requeue: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the options that are set, in the form that sbatch reads."""
        for name in self.__struct_fields__:
            value, option = getattr(self, name), name.replace("_", "-")
            if value is True:
                yield f"--{option}"
            elif value:
                yield f"--{option}={value}"


USER_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "account": "SBATCH_ACCOUNT",
        "partition": "SBATCH_PARTITION",
        "qos": "SBATCH_QOS",
        "time": "SBATCH_TIMELIMIT",
        "mem": "SBATCH_MEM_PER_NODE",
        "mem_per_gpu": "SBATCH_MEM_PER_GPU",
        "constraint": "SBATCH_CONSTRAINT",
        "reservation": "SBATCH_RESERVATION",
        "signal": "SBATCH_SIGNAL",
    }
)
"""Option -> the variable with the user's default (sbatch(1), input environment variables).

For sbatch, these override the lines of a script, so the plan applies them and submits without them."""


def choose_defaults(options: JobOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's SBATCH_* defaults for options not given now; --mem excludes --mem-per-gpu."""
    given = {"mem", "mem_per_gpu"} if options.mem or options.mem_per_gpu else set()
    return {
        name: environment[variable]
        for name, variable in USER_DEFAULTS.items()
        if name not in given and not getattr(options, name) and environment.get(variable)
    }


def unread_defaults(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's SBATCH_* variables that plans do not apply; the job is submitted without them."""
    return tuple(
        sorted(name for name in environment if name.startswith("SBATCH_") and name not in USER_DEFAULTS.values())
    )


def plan_sbatch(directives: Argv) -> Argv:
    """Plan the command that submits a script with these directives; ``{script}`` is replaced by the script's path.

    A job that Slurm restarts after a lost node or a preemption truncates its output.  It appends instead if the file
    names contain the job's number, so that they belong to this job.
    """
    files = [option for option in directives if option.startswith(("--output=", "--error="))]
    is_own = files and all(re.search(r"%\d*[jJA]", option) for option in files)
    has_mode = any(option.startswith("--open-mode") for option in directives)
    append = ("--open-mode=append",) if is_own and not has_mode else ()
    return ("sbatch", "--parsable", *append, "{script}")


def render_directive(option: str) -> str:
    r"""Render one ``#SBATCH`` line; sbatch parses it like a shell, so the value may need double quotes.

    A ``#`` begins a comment there, so it is written as ``\#`` (https://github.com/NVIDIA/pyxis, README.md); references
    to images contain it.

    Raises
    ------
    UsageError
        If the value contains a line break, which no directive can.
    """
    if "\n" in option:
        name = option.partition("=")[0].replace("job-name", "name")
        raise UsageError(
            "a Slurm option cannot contain a line break",
            evidence=repr(option),
            hint=f"use another {name}, or launch from a folder without a line break in its name",
        )
    name, equals, value = option.partition("=")
    if re.fullmatch(r"[\w.,:%@/+=*\[\]#-]*", value):
        return f"#SBATCH {name}{equals}" + value.replace("#", "\\#")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'#SBATCH {name}{equals}"{escaped}"'


def option_value(directives: Iterable[str], option: str) -> str:
    """Return the value of an option of sbatch, for example of ``--time``; empty if the job does not have it."""
    return next((each.partition("=")[2] for each in directives if each.startswith(f"{option}=")), "")


def known_value(text: str) -> str:
    """Return a value that Slurm shows; empty for its words for no value."""
    return "" if text in {"(null)", "None", "N/A"} else text


def is_job_id(text: str) -> bool:
    """Return whether a text is the number of a job, a task of an array or a component: ``7``, ``7_2``, ``7+1``."""
    return bool(re.fullmatch(r"[1-9]\d*([_+]\d+)?", text))


def base_number(job: str) -> str:
    """Return the number of a job that a task of an array or a component belongs to; its own number for other jobs."""
    return re.split("[_+]", job)[0]


def parse_job_id(text: str) -> str:
    """Parse the output of ``sbatch --parsable``: ``123`` or ``123;cluster``.

    Raises
    ------
    ToolFailed
        If the output has another form.
    """
    match = re.search(r"^(\d+)(;\S+)?$", text.strip(), re.MULTILINE)
    if match is None:
        raise ToolFailed(
            "sbatch did not print a job id",
            evidence=text.strip()[-400:],
            hint="check with 'argosy jobs' whether the job was submitted",
        )
    return match[1]


class JobRow(msgspec.Struct, frozen=True):
    """A job as squeue lists it; times are in Slurm's notation."""

    id: str
    state: str
    reason: str
    start: str
    nodes: str
    elapsed: str
    limit: str
    partition: str
    node_list: str
    name: str


SQUEUE_FORMAT = "%i|%T|%r|%S|%D|%M|%l|%P|%N|%j"
"""The name is last, because it may contain a bar."""


def plan_squeue(user: str = "") -> Argv:
    """Return the command that lists the waiting and running jobs of a user; by default, of the user who starts it.

    Without ``--all``, squeue omits jobs in hidden partitions, and in those that the user may not use (squeue(1)).
    """
    return ("squeue", "--all", "--noheader", "--format", SQUEUE_FORMAT, *(("--user", user) if user else ("--me",)))


def parse_squeue(text: str) -> tuple[JobRow, ...]:
    """Parse the rows of squeue."""
    width = SQUEUE_FORMAT.count("|")
    rows = (line.split("|", width) for line in text.splitlines() if line.count("|") >= width)
    return tuple(JobRow(*(cell.strip() for cell in row)) for row in rows)


PATIENCE_S = "10"
"""Time limit of a query about scripts, in seconds: a user who stopped a command waits for the answer."""


def plan_squeue_scripts(user: str, *, ended: bool = False) -> Argv:
    """Return the command that lists the scripts of a user's jobs; with `ended`, also of those that just ended."""
    states = ("--states=all",) if ended else ()
    return ("timeout", PATIENCE_S, "squeue", "--all", "--noheader", *states, "--format=%F|%o", "--user", user)


def parse_squeue_scripts(text: str, script: str) -> str:
    """Return the number of the job that runs a script, from the reply to `plan_squeue_scripts`; empty without one."""
    rows = (line.partition("|") for line in text.splitlines())
    return next((number for number, _, command in rows if command.strip() == script), "")


def parse_scontrol_jobs(text: str) -> tuple[dict[str, str], ...]:
    """Parse ``scontrol show job --oneliner``: one job per line; its name or comment may contain line breaks."""
    return tuple(map(parse_scontrol_job, re.findall(r"^JobId=.*?(?=\nJobId=|\Z)", text, re.MULTILINE | re.DOTALL)))


def parse_scontrol_job(text: str) -> dict[str, str]:
    """Parse one row of ``scontrol show --oneliner``: ``Key=Value`` pairs; a value may contain blanks.

    Arguments of the program (``lr=0.1``), the submit line (25.05) and comments follow after the command.  They do not
    replace earlier values.
    """
    head, command, rest = text.strip().partition(" Command=")
    form = re.compile(r"(?:^| )([A-Za-z][\w:/]*)=(.*?)(?= [A-Za-z][\w:/]*=|\Z)", re.DOTALL)
    return dict(form.findall((command + rest).rstrip())) | dict(form.findall(head))


SACCT_FIELDS = {"JobState": "State", "ExitCode": "ExitCode", "NodeList": "NodeList", "JobId": "JobIDRaw"}
"""Key of scontrol -> field of sacct."""


def plan_sacct(job: str) -> Argv:
    """Return the command that asks the accounting about the last run of a job."""
    columns = ",".join(("JobID", *SACCT_FIELDS.values()))
    return ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", f"--format={columns}")


def parse_sacct(text: str, job: str) -> dict[str, str]:
    """Parse the reply to `plan_sacct` into scontrol's keys; empty for an unknown job.

    The tasks of an array have rows of their own; the row of a failed task is preferred.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == len(SACCT_FIELDS)]
    whole = [row for row in rows if job in (row[0], row[-1]) and not row[0].startswith(f"{job}_")]
    tasks = [row for row in rows if row[0].startswith(f"{job}_")]
    preferred = [*whole[-1:], *(row for row in tasks if row[1] != "COMPLETED"), *tasks]
    if not preferred:
        return {}
    array, _, task = preferred[0][0].partition("_")
    number = {"ArrayJobId": array, "ArrayTaskId": task} if task else {}
    return dict(zip(SACCT_FIELDS, preferred[0][1:], strict=True)) | number


def parse_exit_code(text: str) -> int:
    """Parse Slurm's ``code:signal`` into a shell's exit code: 128 + signal if a signal ended the job."""
    code, _, number = text.partition(":")
    ended_by = parse_int(number)
    return 128 + ended_by if ended_by else parse_int(code, 1)


CLOSED = "the partition is closed: wait, or use another --partition"
NOT_TAKEN = "the partition does not accept its account or QOS: 'argosy queues' shows yours"

STUCK = (
    (r"DependencyNeverSatisfied", "it will never start: the job that it waits for failed; argosy cancel {job}"),
    (r"JobHeldUser", "it is held: scontrol release {job}"),
    (r"JobHeldAdmin", "an administrator holds it: ask the support team"),
    (r"launch.failed.requeued.held", "its start failed on a node, and it is held: scontrol release {job}"),
    (r"BadConstraints", "no node has the requested resources: cancel it, and request less"),
    (r"PartitionTimeLimit", "its --time is above the limit of the partition: argosy cancel {job}, and request less"),
    (r"PartitionNodeLimit", "its --nodes are above the limit of the partition: argosy cancel {job}, and request fewer"),
    (r"Partition(Down|Inactive)", CLOSED),
    (
        r"uid[ _]\d+[ _]not[ _]in[ _]group[ _].*",
        "you may not use that partition: argosy cancel {job}, and use another",
    ),
    (r"Invalid(Account|QOS)|(Account|QOS)NotAllowed", NOT_TAKEN),
    (
        r"(QOS|Assoc)Max\w+Per(Job|Node)\w*",
        "it requests more than its QOS or account allows for one job: 'argosy queues'",
    ),
    (
        r"(QOS|Assoc)Grp(?!\w*Run)\w*Minutes\w*",
        "the account's budget is used up: ask its owner, or use another account",
    ),
)
"""Pattern of a reason that does not resolve itself (squeue(1), JOB REASON CODES) -> hint."""


def advise_waiting(reason: str, job: str) -> str:
    """Return the hint for a waiting job whose reason does not resolve itself; empty for other reasons."""
    word = reason.partition(",")[0]
    advice = next((text for pattern, text in STUCK if re.fullmatch(pattern, word)), "")
    return advice.replace("{job}", job)


SHORT_TIME = re.compile(
    r"(?:(\d+)\s*d(?:ays?)?)?\s*(?:(\d+)\s*h(?:ours?)?)?\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?\s*(?:(\d+)\s*s)?",
    re.IGNORECASE,
)
"""Days, hours, minutes and seconds, for example ``1d12h``, ``90m`` or ``1 hour``."""


def slurm_time(text: str) -> str:
    """Return a time limit in a form that sbatch(1) reads; a text in any other form is returned unchanged.

    ``1h`` and ``1 hour`` become ``1:00:00``, ``90m`` becomes ``1:30:00`` and ``2d`` becomes ``2-00:00:00``.
    """
    match = SHORT_TIME.fullmatch(text.strip())
    if not text.strip() or match is None:
        return text
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, rest = divmod(total, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{hours // 24}-{hours % 24:02}:{clock}" if hours >= 24 else f"{hours}:{clock}"  # noqa: PLR2004 - hours
