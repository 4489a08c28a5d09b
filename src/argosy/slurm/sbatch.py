"""The options of a job: the user's defaults, the ``#SBATCH`` lines, the sbatch command and its reply; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.process import Argv

HETEROGENEOUS_HINT = (
    "launch each component as a job of its own; if all must start together, write the job script yourself, and put "
    "'argosy run IMAGE --' before the program of each component"
)
"""Hint of an error about heterogeneous jobs, whose components have different resources."""


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


USER_DEFAULTS: Mapping[str, str] = {
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
