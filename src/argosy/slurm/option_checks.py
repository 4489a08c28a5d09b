"""Check the options of a job, and refuse those that Slurm would reject or misread; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from argosy.core.errors import SiteError, UsageError
from argosy.core.parse import parse_int
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean
from argosy.slurm.sbatch import DEPENDENCY, HETEROGENEOUS_HINT, SHORT, JobOptions, complete_argument
from argosy.slurm.times import parse_minutes

SIGNALS = frozenset("HUP INT QUIT ABRT KILL ALRM TERM USR1 USR2 URG CONT STOP TSTP TTIN TTOU XCPU PIPE CHLD".split())  # noqa: SIM905
"""Signals that sbatch accepts; PIPE and CHLD since 24.11 (tried on 22.05 and 24.11)."""

LAST_SIGNAL, LONGEST_WARNING = 64, 65535
"""The highest signal number of Linux (signal(7)), and the most seconds of a warning (sbatch(1), --signal)."""

MAILS = frozenset(
    "NONE BEGIN END FAIL REQUEUE ALL INVALID_DEPEND STAGE_OUT ARRAY_TASKS TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50".split()  # noqa: SIM905, E501
)
"""Values of --mail-type in sbatch(1)."""

LEAST_MEGABYTES = 1000
"""Smaller values of ``--mem`` without a unit are refused: Slurm reads ``--mem 60`` as 60 MB, and users mean 60 GB."""

SAME_NAME = frozenset(name.replace("_", "-") for name in JobOptions.__struct_fields__) - {"dependency"}
"""Options of a job that argosy launch names as sbatch does."""

FLAGS = frozenset(name for name in SAME_NAME if isinstance(getattr(JobOptions(), name.replace("-", "_")), bool))
"""Those of them that have no value."""

OUR_OPTIONS: Mapping[str, str] = {
    "nodes": "--nodes",
    "ntasks": "--ranks",
    "ntasks-per-node": "--ranks",
    "tasks-per-node": "--ranks",
    "ntasks-per-gpu": "--ranks",
    "cpus-per-task": "--cpus-per-rank",
    "cpus-per-gpu": "--cpus-per-rank",
    "gpus": "--gpus",
    "gpus-per-node": "--gpus-per-node",
    "gpus-per-task": "--gpus-per-node",
    "gpus-per-socket": "--gpus-per-node",
    "gres=gpu": "--gpus-per-node",
    "tres-per-node=gpu": "--gpus-per-node",
    "tres-per-socket=gpu": "--gpus-per-node",
    "tres-per-task=gpu": "--gpus-per-node",
    "job-name": "--name",
    "dependency=afterok": "--after",
    "wrap": "the command after --",
} | {option: f"--{option}" for option in SAME_NAME}
"""Option of sbatch, or its beginning -> the option of argosy launch for it."""


def refuse_invalid_options(
    options: JobOptions, extra: tuple[str, ...] = (), sources: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> None:
    """Refuse values that sbatch would reject or misread, and ``--sbatch-arg`` for options that Argosy has itself.

    Parameters
    ----------
    sources
        Values that come from a file or a variable, with their source: the error names it.
    """
    if options.mem and options.mem_per_gpu:
        raise UsageError(
            "--mem and --mem-per-gpu cannot be used together",
            evidence=f"--mem {options.mem}, --mem-per-gpu {options.mem_per_gpu}",
            hint="use one of the two options",
        )
    for name, check in CHECKS.items():
        value = getattr(options, name)
        try:
            if value:
                check(f"--{name.replace('_', '-')}", value)
        except UsageError as error:
            if name not in sources:
                raise
            text, source = sources[name]
            raise UsageError(error.what, evidence=f"{source}: {name} = {text}", hint=error.hint) from error
    for word in extra:
        _refuse_other(word)
    _refuse_mixed_dependencies((f"--dependency={options.dependency}",) * bool(options.dependency) + extra)


def parse_warning(text: str) -> tuple[str, int]:
    """Parse sbatch's ``[R][B:]SIGNAL[@SECONDS]`` into the signal and the seconds, which default to 60 (sbatch(1)).

    Raises
    ------
    UsageError
        If the text does not have that form, or the signal does not exist.
    """
    match = re.fullmatch(r"(?:[RB]+:)?(?:SIG)?([A-Z]+[12]?|\d{1,9})(?:@(\d{1,9}))?", text.upper())
    name, seconds = (match[1], int(match[2] or 60)) if match else ("", 0)
    is_signal = 0 < parse_int(name) <= LAST_SIGNAL if name.isdecimal() else name in SIGNALS
    if not is_signal or seconds > LONGEST_WARNING:
        raise UsageError(
            f"invalid warning signal {text!r}",
            evidence=f"known: {', '.join(sorted(SIGNALS))}; at most {LONGEST_WARNING} seconds before the limit",
            hint=did_you_mean(name, SIGNALS, "for example: --signal USR2@120"),
        )
    return name, seconds


def refuse_invalid_mpi(value: str, source: str) -> None:
    """Refuse a value of ``srun --mpi`` that no Slurm has.

    Parameters
    ----------
    source
        File and line, or variable, that sets the value; empty for the command line.
    """
    known = "pmix, pmi2, cray_shasta"
    if not re.fullmatch(r"pmix(_v\d)?|pmi2|cray_shasta", value):
        raise UsageError(
            f"invalid mpi {value!r}",
            evidence=f"{source}: mpi = {value}\nknown: {known}" if source else f"known: {known}",
            hint="'srun --mpi=list' lists the values that the cluster supports",
        )


MEMORY = re.compile(r"(\d{1,18})(?:([KMGT])B?)?")
MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
"""Unit of Slurm's ``--mem`` -> MB of 2**20 bytes (sbatch(1)); without a unit, the value is in MB."""


def parse_megabytes(value: str) -> float:
    """Return an amount such as ``60G`` in Slurm's MB; 0 for text that `refuse_invalid_options` refuses."""
    match = MEMORY.fullmatch(value.upper())
    return int(match[1]) * MEGABYTES[match[2] or "M"] if match else 0


def _refuse_invalid_memory(option: str, value: str) -> None:
    match = MEMORY.fullmatch(value.upper())
    if match is None:
        raise UsageError(
            f"invalid amount of memory {value!r}", evidence=f"{option} {value}", hint=f"for example: {option} 60G"
        )
    if not match[2] and 0 < int(match[1]) < LEAST_MEGABYTES:
        raise UsageError(
            f"{option} {value} means {value} MB in Slurm, too little for a job",
            evidence=f"{option} {value}",
            hint=f"use {option} {value}G for gigabytes; use {option} {value}M if you mean megabytes",
        )


def _refuse_invalid_array(option: str, value: str) -> None:
    numbers, _, most = value.partition("%")
    parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::0*[1-9]\d*)?)?", part) for part in numbers.strip("[]").split(",")]
    good = all(part and int(part[1]) <= int(part[2] or part[1]) for part in parts)
    if not good or ("%" in value and not re.fullmatch(r"0*[1-9]\d*", most)):
        raise UsageError(
            f"invalid list of array tasks {value!r}",
            evidence=f"{option} {value}",
            hint=f"for example: {option} 0-9, {option} 1,3,7, or {option} 0-9%2 to run two at a time",
        )


def _refuse_invalid_mail(option: str, value: str) -> None:
    for word in value.split(","):
        if word.upper() not in MAILS:
            raise UsageError(
                f"invalid mail type {word!r}",
                evidence=f"{option} {value}",
                hint=did_you_mean(word.upper(), MAILS, f"for example: {option} END,FAIL"),
            )


def _refuse_invalid_time(option: str, value: str) -> None:
    try:
        parse_minutes(value)
    except SiteError as error:
        raise UsageError(error.what, evidence=f"{option} {value}", hint=error.hint) from error


def _refuse_invalid_signal(_option: str, value: str) -> None:
    parse_warning(value)


def _refuse_invalid_dependency(_option: str, value: str) -> None:
    for part in value.split(","):
        jobs = part.removeprefix("afterok:")
        if not re.fullmatch(r"\d+(_\d+)?(\+\d+)?(:\d+(_\d+)?(\+\d+)?)*", jobs):
            raise UsageError(
                f"invalid list of jobs {jobs!r}",
                evidence=f"--after {jobs}",
                hint="give the numbers of the jobs, for example --after 123:124; see 'argosy jobs'",
            )


CHECKS: Mapping[str, Callable[[str, str], None]] = {
    "mem": _refuse_invalid_memory,
    "mem_per_gpu": _refuse_invalid_memory,
    "array": _refuse_invalid_array,
    "mail_type": _refuse_invalid_mail,
    "time": _refuse_invalid_time,
    "signal": _refuse_invalid_signal,
    "dependency": _refuse_invalid_dependency,
}
"""Option -> the function that checks its value."""


def _refuse_other(word: str) -> None:
    """Refuse a value of ``--sbatch-arg`` that is not an sbatch option, or that Argosy has an option for."""
    if word == ":":
        raise UsageError(
            "Argosy starts no heterogeneous jobs, and ':' separates their components",
            evidence=f"--sbatch-arg {word}",
            hint=HETEROGENEOUS_HINT,
        )
    if not re.match(r"--?[A-Za-z]", word):
        raise UsageError(
            f"{word!r} is not an sbatch option",
            evidence=f"--sbatch-arg {word}",
            hint=f"write it with its dashes: --sbatch-arg=--{word.lstrip('-')}" if word.strip("-") else "remove it",
        )
    name, value = _named(word)
    if name in CLUSTERS:
        raise UsageError(
            "cannot submit to another cluster with --sbatch-arg: Argosy would not find the job again",
            evidence=f"--sbatch-arg {word}",
            hint=f"set SLURM_CLUSTERS={value or 'NAME'} for argosy launch, and later for argosy jobs, logs and cancel",
        )
    parts = (re.sub(r"^gres[:/]", "", part) for part in value.split(","))
    forms = (name, *(f"{name}={re.split('[:/=]', part)[0]}" for part in parts))
    ours = next((OUR_OPTIONS[form] for form in forms if form in OUR_OPTIONS), "")
    if ours and not (name == "exclusive" and value):  # --exclusive=user and its like have no option here
        raise UsageError(
            f"use argosy's own {ours}" if word.partition("=")[0] == ours else f"use {ours} instead of {word!r}",
            evidence=f"--sbatch-arg {word}: sbatch would use this value, and the plan another one",
            hint=f"replace --sbatch-arg {word} with {_with_value(ours, name, value)}",
        )


def _with_value(ours: str, name: str, value: str) -> str:
    """Return an option of Argosy with its value: that of an option of sbatch with the same name, or a placeholder."""
    if name in FLAGS or not ours.startswith("--"):
        return ours
    return f"{ours} {quote(value) if value and name in SAME_NAME else 'VALUE'}"


def _refuse_mixed_dependencies(words: tuple[str, ...]) -> None:
    """Refuse alternatives (``?``) with another dependency: Slurm knows only all of them, or one of them."""
    found = [match[1] for match in map(DEPENDENCY.fullmatch, words) if match]
    if len(found) > 1 and any("?" in each for each in found):
        raise UsageError(
            "cannot combine dependencies: '?' means any of them, ',' means all of them",
            evidence=" and ".join(found),
            hint="use only one of the two forms",
        )


CLUSTERS = frozenset({"clusters", "cluster"})


def named_cluster(word: str) -> str:
    """Return the cluster that an sbatch option selects; empty for other options."""
    name, value = _named(word) if re.match(r"--?[A-Za-z]", word) else ("", "")
    return value if name in CLUSTERS else ""


def _named(word: str) -> tuple[str, str]:
    """Return the long name and the value of an option in any form: ``--nodes=1``, ``--node 1``, ``-N1``."""
    if word.startswith("--"):
        name, _, value = complete_argument(word)[2:].partition("=")
        return name, value.strip(" =")
    return SHORT.get(word[1], word[1]), word[2:].strip(" =")
