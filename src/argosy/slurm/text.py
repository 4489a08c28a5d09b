"""Render Slurm's directives and commands, and parse its replies; pure.

The parsable forms of squeue, scontrol and sacct are read on every release: their JSON changed between 22.05
(``"COMPLETED"``) and 24.11 (``["COMPLETED"]``), the columns did not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.process import Argv

WAITING, RUNNING, ENDED = "waiting", "running", "ended"

STATES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "PENDING": (WAITING, "waits in the queue"),
        "REQUEUED": (WAITING, "goes back into the queue"),
        "REQUEUE_HOLD": (WAITING, "was requeued and is held: scontrol release"),
        "REQUEUE_FED": (WAITING, "goes back into the queue of the federation"),
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
        "TIMEOUT": (ENDED, "was ended by its time limit: ask for more with --time"),
        "OUT_OF_MEMORY": (ENDED, "ran out of memory: ask for more with --mem"),
        "NODE_FAIL": (ENDED, "lost a node: launch it again; with --resume it goes on by itself"),
        "BOOT_FAIL": (ENDED, "a node did not boot"),
        "DEADLINE": (ENDED, "was ended by its deadline"),
        "PREEMPTED": (ENDED, "was preempted by another job"),
        "LAUNCH_FAILED": (ENDED, "could not be started on its nodes"),
        "RECONFIG_FAIL": (ENDED, "its nodes could not be reconfigured"),
        "REVOKED": (ENDED, "runs on another cluster of the federation"),
    }
)
"""State of Slurm 22.05 to 25.05 (squeue(1)) -> its kind, and its meaning for users."""


def judge_state(state: str) -> tuple[str, str]:
    """Return kind and meaning of a state; a state that is not in the table counts as running."""
    # "CANCELLED by 2001", "CANCELLED+": what follows the state's own word is for people.
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


def judge_code(state: str, code: int) -> int:
    """Return the exit code of an ended job: never 0 where it did not end well, whatever Slurm's ExitCode says."""
    name = state.split(maxsplit=1)[0] if state else ""
    if code == 128 + OUT_OF_MEMORY_SIGNAL and name == "OUT_OF_MEMORY":
        return 137  # what the kernel did: SIGKILL
    if code or name == "COMPLETED":
        return code
    return 143 if name in FROM_OUTSIDE else 1


def says_no_answer(text: str) -> bool:
    """Return whether a program of Slurm complains that the controller does not answer."""
    return bool(NOT_REACHED.search(text) or ANSWER_LOST.search(text))


def may_be_done(text: str) -> bool:
    """Return whether the controller may have carried out a request that failed without its answer."""
    return bool(ANSWER_LOST.search(text))


class JobOptions(msgspec.Struct, frozen=True):
    """Options of sbatch that users set; an empty one is left to Slurm."""

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
"""Options that a user may have set for good (sbatch(1), input environment variables).  To sbatch they weigh more than
the lines of a script, so a plan reads them and submits without them."""


def choose_defaults(options: JobOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's SBATCH_* defaults for options not given now; --mem and --mem-per-gpu exclude each other."""
    said = {"mem", "mem_per_gpu"} if options.mem or options.mem_per_gpu else set()
    return {
        name: environment[variable]
        for name, variable in USER_DEFAULTS.items()
        if name not in said and not getattr(options, name) and environment.get(variable)
    }


def unread_defaults(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Name the user's SBATCH_* variables that plans do not read: the job is submitted without them."""
    return tuple(
        sorted(name for name in environment if name.startswith("SBATCH_") and name not in USER_DEFAULTS.values())
    )


def plan_sbatch(directives: Argv) -> Argv:
    """Plan the command that submits a script with these directives; ``{script}`` is replaced by the script's path.

    A job that Slurm starts again, after a lost node or a preemption, truncates its output.  It appends instead if the
    file names hold the job's number, so that no other job can have written them.
    """
    files = [option for option in directives if option.startswith(("--output=", "--error="))]
    is_own = files and all(re.search(r"%\d*[jJA]", option) for option in files)
    has_mode = any(option.startswith("--open-mode") for option in directives)
    append = ("--open-mode=append",) if is_own and not has_mode else ()
    return ("sbatch", "--parsable", *append, "{script}")


def render_directive(option: str) -> str:
    r"""Render one ``#SBATCH`` line; sbatch reads it as a shell would, in double quotes where it needs them.

    A ``#`` begins a comment there; it is written as ``\#`` (https://github.com/NVIDIA/pyxis, README.md), as references
    to images need it.

    Raises
    ------
    UsageError
        When the value holds a line break: no directive can.
    """
    if "\n" in option:
        said = option.partition("=")[0]
        raise UsageError(
            "an option of Slurm cannot contain a line break",
            evidence=repr(option),
            hint=f"say another {said.replace('job-name', 'name')}, or start from a folder whose name has none",
        )
    name, equals, value = option.partition("=")
    if re.fullmatch(r"[\w.,:%@/+=*\[\]#-]*", value):
        return f"#SBATCH {name}{equals}" + value.replace("#", "\\#")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'#SBATCH {name}{equals}"{escaped}"'


def is_job_id(text: str) -> bool:
    """Return whether a word is the number of a job, of an array's task or of a component: ``7``, ``7_2``, ``7+1``."""
    return bool(re.fullmatch(r"[1-9]\d*([_+]\d+)?", text))


def parse_job_id(text: str) -> str:
    """Read what ``sbatch --parsable`` prints: ``123`` or ``123;cluster``.

    Raises
    ------
    ToolFailed
        When it is neither.
    """
    match = re.search(r"^(\d+)(;\S+)?$", text.strip(), re.MULTILINE)
    if match is None:
        raise ToolFailed("sbatch gave no job id", evidence=text.strip()[-400:])
    return match[1]


class JobRow(msgspec.Struct, frozen=True):
    """A job as squeue tells it; times as Slurm writes them."""

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
"""The name is last: it alone may hold a bar."""


def plan_squeue(user: str) -> Argv:
    """Return the words that list the jobs of a user which wait or run."""
    return ("squeue", "--noheader", "--format", SQUEUE_FORMAT, "--user", user)


def parse_squeue(text: str) -> tuple[JobRow, ...]:
    """Read squeue's rows."""
    width = SQUEUE_FORMAT.count("|")
    rows = (line.split("|", width) for line in text.splitlines() if line.count("|") >= width)
    return tuple(JobRow(*(cell.strip() for cell in row)) for row in rows)


def parse_scontrol_jobs(text: str) -> tuple[dict[str, str], ...]:
    """Read ``scontrol show job --oneliner``: a job a line, whose name or comment may hold line breaks."""
    return tuple(map(parse_scontrol_job, re.findall(r"^JobId=.*?(?=\nJobId=|\Z)", text, re.MULTILINE | re.DOTALL)))


def parse_scontrol_job(text: str) -> dict[str, str]:
    """Read one row of ``scontrol show --oneliner``: ``Key=Value`` words; a value may hold blanks.

    A program's own words (``lr=0.1``), the line it was submitted by (25.05) and comments follow after its command, and
    change nothing that was told before.
    """
    head, command, rest = text.strip().partition(" Command=")
    form = re.compile(r"(?:^| )([A-Za-z][\w:/]*)=(.*?)(?= [A-Za-z][\w:/]*=|\Z)", re.DOTALL)
    return dict(form.findall((command + rest).rstrip())) | dict(form.findall(head))


SACCT_FIELDS = {"JobState": "State", "ExitCode": "ExitCode", "NodeList": "NodeList", "JobId": "JobIDRaw"}
"""What is asked of the accounting, by the names that scontrol has for it."""


def plan_sacct(job: str) -> Argv:
    """Ask the accounting about a job that the controller has forgotten; of its runs, the last one."""
    columns = ",".join(("JobID", *SACCT_FIELDS.values()))
    return ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", f"--format={columns}")


def parse_sacct(text: str, job: str) -> dict[str, str]:
    """Read the reply to `plan_sacct` by scontrol's names; empty where the accounting knows no such job.

    Of an array, whose tasks have rows of their own, one that did not end well tells most.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == len(SACCT_FIELDS)]
    whole = [row for row in rows if job in (row[0], row[-1]) and not row[0].startswith(f"{job}_")]
    tasks = [row for row in rows if row[0].startswith(f"{job}_")]
    told = [*whole[-1:], *(row for row in tasks if row[1] != "COMPLETED"), *tasks]
    if not told:
        return {}
    array, _, task = told[0][0].partition("_")
    number = {"ArrayJobId": array, "ArrayTaskId": task} if task else {}
    return dict(zip(SACCT_FIELDS, told[0][1:], strict=True)) | number


def parse_exit_code(text: str) -> int:
    """Read Slurm's ``code:signal`` as a shell's exit code: 128 + signal where a signal ended it."""
    code, _, number = text.partition(":")
    if not code.isdigit():
        return 1
    return 128 + int(number) if number.isdigit() and int(number) else int(code)


CLOSED = "the partition is closed: wait for the centre, or name another by --partition"
NOT_TAKEN = "its account or QOS is not taken there: 'argosy queues' shows yours"

STUCK = (
    (r"DependencyNeverSatisfied", "it will never start: the job that it waits for ended badly; argosy cancel {job}"),
    (r"JobHeldUser", "it is held: scontrol release {job}"),
    (r"JobHeldAdmin", "the centre holds it: ask its support team"),
    (r"launch.failed.requeued.held", "its start failed on a node, and it is held: scontrol release {job}"),
    (r"BadConstraints", "no node has what it asks for: cancel it, and ask for less"),
    (r"PartitionTimeLimit", "its --time is more than the partition gives: argosy cancel {job}, and ask for less"),
    (r"PartitionNodeLimit", "its --nodes are more than the partition gives: argosy cancel {job}, and ask for fewer"),
    (r"Partition(Down|Inactive)", CLOSED),
    (
        r"uid[ _]\d+[ _]not[ _]in[ _]group[ _].*",
        "you may not use that partition: argosy cancel {job}, and name another",
    ),
    (r"Invalid(Account|QOS)|(Account|QOS)NotAllowed", NOT_TAKEN),
    (r"(QOS|Assoc)Max\w+Per(Job|Node)\w*", "its QOS or account gives one job less than it asks for: 'argosy queues'"),
    (r"(QOS|Assoc)Grp(?!\w*Run)\w*Minutes\w*", "the account's budget is used up: ask its owner, or name another"),
)
"""Reasons that do not pass by themselves (squeue(1), JOB REASON CODES): pattern, what to do."""


def advise_waiting(reason: str, job: str) -> str:
    """Say what to do where a job waits for a reason that does not pass by itself; empty else."""
    word = reason.partition(",")[0]
    advice = next((text for pattern, text in STUCK if re.fullmatch(pattern, word)), "")
    return advice.replace("{job}", job)


SHORT_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s)?", re.IGNORECASE)
"""Days, hours, minutes and seconds, for example ``1d12h`` or ``90m``."""


def slurm_time(text: str) -> str:
    """Return a time limit in a form that sbatch(1) reads; a text in any other form is returned unchanged.

    ``1h`` becomes ``1:00:00``, ``90m`` becomes ``1:30:00`` and ``2d`` becomes ``2-00:00:00``.
    """
    match = SHORT_TIME.fullmatch(text.strip())
    if not text or match is None:
        return text
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, rest = divmod(total, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{hours // 24}-{hours % 24:02}:{clock}" if hours >= 24 else f"{hours}:{clock}"  # noqa: PLR2004 - hours
