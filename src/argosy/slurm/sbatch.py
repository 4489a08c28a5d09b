"""Know sbatch: its options and their short forms, the user's defaults, ``#SBATCH`` lines, command and reply; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.process import Argv

HETEROGENEOUS_HINT = (
    "launch each component as a job of its own; if all must start together, write the job script yourself, and put "
    "'argosy run IMAGE --' before the program of each component"
)
"""Hint of an error about heterogeneous jobs, whose components have different resources."""

_OPTIONS = """
    account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment consolidate-segments
    constraint container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task
    deadline delay-boot dependency distribution error exclude exclusive export export-file extra extra-node-info
    get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold
    ignore-pbs input job-name jobid kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
    mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket oom-kill-step open-mode output overcommit oversubscribe parsable partition power
    prefer priority profile propagate qos quiet reboot requeue reservation resources resv-ports segment signal
    sockets-per-node spread-job spread-segments stepmgr switches tasks-per-node test-only thread-spec threads-per-core
    time time-min tmp tres-bind tres-per-task uid umask usage use-min-nodes verbose version wait wait-all-nodes wckey
    wrap x11
"""

_PLUGIN_OPTIONS = """
    container-image container-mounts container-workdir container-name container-save container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint no-container-entrypoint
    container-writable container-readonly container-env container-unshare environment uenv view image volume module
"""

NATIVE_OPTIONS = frozenset(_OPTIONS.split())
"""Long options of sbatch itself (sbatch(1) and slurm_opt.c, Slurm 25.05)."""

SBATCH_OPTIONS = NATIVE_OPTIONS | frozenset(_PLUGIN_OPTIONS.split())
"""Long options of sbatch, and of the plug-ins pyxis, uenv, shifter and Container Engine."""

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
"""Dashes of web pages and text editors, which look like ``-``."""

SBATCH_LETTERS = frozenset("AaBbCcDdeFGHhIiJkLMmNnOopPQqRSstuUvVwWx")
"""Short options of sbatch (slurm_opt.c)."""

SHORT: Mapping[str, str] = {
        "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "J": "job-name", "A": "account",
        "p": "partition", "q": "qos", "t": "time", "C": "constraint", "w": "nodelist", "x": "exclude",
        "o": "output", "e": "error", "D": "chdir", "a": "array", "d": "dependency", "M": "clusters",
    }  # fmt: skip
"""The usual short options of sbatch(1) -> their long names."""

_FLAGS = """
    exclusive requeue no-requeue hold oversubscribe overcommit contiguous spread-job quiet verbose parsable wait
    no-kill reboot ignore-pbs kill-on-invalid-dep get-user-env propagate H O s v Q k W
"""
SBATCH_FLAGS = frozenset(_FLAGS.split())
"""Options of sbatch that work without a value (sbatch(1))."""


SRUN_SHORT: Mapping[str, str] = {
        **SHORT, "m": "distribution", "l": "label", "u": "unbuffered", "O": "overcommit", "K": "kill-on-bad-exit",
        "v": "verbose", "Q": "quiet", "k": "no-kill", "E": "preserve-env", "W": "wait", "I": "immediate",
        "s": "oversubscribe", "r": "relative", "B": "extra-node-info", "i": "input", "T": "threads",
        "X": "disable-status", "L": "licenses", "Z": "no-allocate", "H": "hold", "b": "begin", "S": "core-spec",
    }  # fmt: skip
"""Short options of srun(1) -> their long names."""

_SRUN_FLAGS = """
    label unbuffered preserve-env disable-status no-allocate kill-on-bad-exit immediate exact overlap pty multi-prog
    quit-on-interrupt x11 resv-ports whole interactive use-min-nodes nvmps test-only stepmgr send-libs
    container-writable container-readonly container-mount-home no-container-mount-home container-remap-root
    no-container-remap-root container-entrypoint no-container-entrypoint
"""
SRUN_FLAGS = (SBATCH_FLAGS - {"wait", "W"}) | frozenset(_SRUN_FLAGS.split())
"""Options of srun and of pyxis that work without a value (srun(1))."""


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


def complete_option(name: str) -> str:
    """Complete a shortened long option as getopt_long does: ``out`` is ``output``.

    A name that is ambiguous or unknown is returned unchanged.
    """
    if name in SBATCH_OPTIONS:
        return name
    matches = [each for each in NATIVE_OPTIONS if each.startswith(name)]
    return matches[0] if len(matches) == 1 and len(name) > 1 else name


LONG = re.compile(r"--([A-Za-z][\w-]*)(?:(?:=|\s+)(.*))?", re.DOTALL)


def complete_argument(word: str) -> str:
    """Return an argument for sbatch with the whole name of its option: ``--dep 7`` is ``--dependency=7``.

    Short options, and words that are not options, are returned unchanged.
    """
    found = LONG.fullmatch(word)
    if found is None:
        return word
    value = "" if found[2] is None else f"={found[2]}"
    return f"--{complete_option(found[1])}{value}"


class Option(msgspec.Struct, frozen=True):
    """An option of a ``#SBATCH`` line or of srun: its line, its long name without dashes, and its value."""

    line: int
    name: str
    value: str = ""

    def __str__(self) -> str:
        """Return the option as sbatch takes it."""
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


def split_options(
    words: Sequence[str],
    *,
    flags: frozenset[str],
    short: Mapping[str, str] = SHORT,
    line: int = 0,
    complete: Callable[[str], str] = str,
) -> tuple[tuple[Option, ...], int]:
    """Split the options at the beginning of an argument list from the arguments that follow.

    Parameters
    ----------
    flags
        Long names of options without a value: they never take the next argument.
    short
        Short options and their long names.
    complete
        Returns the whole name of a shortened long option.

    Returns
    -------
    tuple
        The options, and the index of the first argument that belongs to no option.
    """
    found: list[Option] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            name = complete(name)
        else:
            name, value = short.get(word[1], word[1]), word[2:].removeprefix("=")
            given = value
        if not given and name not in flags and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        found.append(Option(line, name, value))
    return tuple(found), at


def join_gres(options: Iterable[str]) -> Iterator[str]:
    """Join the resources of all --gres options, because sbatch uses the last option only.

    If an option requests a resource again, for example other GPUs, it replaces the earlier request.
    """
    others, resources = [], dict[str, tuple[str, ...]]()
    for option in options:
        if not option.startswith("--gres="):
            others.append(option)
            continue
        if not resources:
            others.append("--gres=")
        asked = option.removeprefix("--gres=").split(",")
        names = [each.partition(":")[0] for each in asked]
        resources |= {name: tuple(each for each in asked if each.partition(":")[0] == name) for name in names}
    joined = ",".join(each for several in resources.values() for each in several)
    return (f"{option}{joined}" if option == "--gres=" else option for option in others)


DEPENDENCY = re.compile(r"(?:--dependency[=\s]\s*|-d\s*)(.+)")


def join_dependencies(options: Iterable[str]) -> Iterator[str]:
    """Join all --dependency options, because sbatch uses the last one only: the job waits for all of them."""
    options = tuple(options)
    asked = [found[1] for found in map(DEPENDENCY.fullmatch, options) if found]
    if len(asked) < 2:  # noqa: PLR2004 - one option needs no other
        return iter(options)
    others = (option for option in options if not DEPENDENCY.fullmatch(option))
    return chain(others, (f"--dependency={','.join(asked)}",))
