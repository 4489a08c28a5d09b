"""Judge options that mean nothing at a site without a queue, or inside an allocation: noted or refused; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from argosy.errors import UsageError
from argosy.launch.naming import option
from argosy.launch.records import LaunchRequest
from argosy.launchers import Shape
from argosy.model import PROFILE, Choice
from argosy.records import replace
from argosy.schedulers.slurm_options import check_options
from argosy.sites import Site

NOT_USED = "not used: "
UNUSED = f"{NOT_USED}nothing queues here"
"""The reason in the row of an option that has no meaning."""

QUEUES = (
    *("account", "partition", "qos", "time", "mem", "mem_per_gpu", "constraint", "reservation", "nodelist"),
    *("exclude", "mail_type", "exclusive", "requeue"),
)
"""Options that say when, where and for how long a job runs, and not what it does."""

SHELL_INSTEAD = MappingProxyType(
    {
        "array": "start each task by itself, with what it takes from SLURM_ARRAY_TASK_ID set by --env",
        "after": "start it when those jobs have ended",
        "output": "let the shell write it: argosy launch … > FILE",
        "error": "let the shell write it: argosy launch … 2> FILE",
        "chdir": "go there first: cd DIR",
    }
)
"""Options without which a program would not do what was asked for -> what does it where a shell waits for its end."""

INSTEAD: Mapping[str, str] = SHELL_INSTEAD | MappingProxyType(
    dict.fromkeys(("signal", "resume"), "leave it out: no time limit ends it here")
)

FOR_SLURM = ("elastic", "gpu_type", "stage", "mode")
"""Options beside these that only a site with Slurm has."""


def judge_unqueued(request: LaunchRequest, site: Site) -> tuple[Choice, ...]:
    """Give a row for each option that means nothing at a site without a queue.

    Options of the project file are never an error: the same job is launched elsewhere with them.

    Raises
    ------
    UsageError
        When an option is none that Slurm takes, or the program would not do what one says.
    """
    check_options(request.options, request.extra)
    given = dict(given_options(request)) | ({"mpi": request.mpi} if request.mpi else {})
    refuse_options(request, given, INSTEAD, needs="a site with Slurm", evidence=f"{site.name} has no queue")
    return tuple(unused_rows(given, UNUSED))


def without_slurm(request: LaunchRequest) -> LaunchRequest:
    """Give a request without what its project file says for sites with Slurm only; each is told as not used."""
    given = {name: getattr(request, name) for name in FOR_SLURM if name in request.given}
    told = tuple(unused_rows({name: value for name, value in given.items() if value}, UNUSED))
    return replace(request, choices=(*request.choices, *told), **dict.fromkeys(given, ""))  # type: ignore[arg-type]  # the names are those of text fields


def refuse_options(
    request: LaunchRequest, given: Iterable[str], instead: Mapping[str, str], *, needs: str, evidence: str
) -> None:
    """Refuse options that the program would need to do what was asked; those of the project file are let pass.

    Raises
    ------
    UsageError
        Naming the option, and what does it instead.
    """
    for name in given:
        if name in instead and name not in request.given:
            raise UsageError(f"{option(name)} needs {needs}", evidence=evidence, hint=instead[name])


def unused_rows(given: Mapping[str, str], why: str) -> Iterator[Choice]:
    """Give a row of a plan for each option that is not used."""
    yield from (Choice(option(name), value, why, "option") for name, value in given.items())


def noted_choices(choices: tuple[Choice, ...]) -> Iterator[str]:
    """Say in lines what users should know of a plan before it is carried out."""
    yield from (f"profile {choice.value}: {choice.why}" for choice in choices if choice.what == PROFILE)
    yield from unused_options(choices)


def unused_options(choices: Iterable[Choice]) -> Iterator[str]:
    """Say in lines which options a plan does not use, those of one reason in one; nothing where it uses all."""
    unused: dict[str, list[str]] = {}
    for choice in choices:
        if choice.why.startswith(NOT_USED):
            unused.setdefault(choice.why, []).append(choice.what)
    yield from (f"{', '.join(names)}: {why}" for why, names in unused.items())


def given_options(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Give name and value of each option that is for Slurm's queue, or for a job that Slurm starts from it."""
    options = request.options
    values = {name: getattr(options, name) for name in (*QUEUES, "array", "output", "error", "chdir", "signal")}
    values |= {"after": options.dependency.removeprefix("afterok:"), "sbatch_arg": " ".join(request.extra)}
    values |= {"resume": request.restarts, "checkpoint": request.checkpoint}
    yield from ((name, "yes" if value is True else str(value)) for name, value in values.items() if value)


def refuse_label(launcher: str, shape: Shape) -> None:
    """Refuse to label the lines of copies that no launcher starts.

    Raises
    ------
    UsageError
        With what tells them apart.
    """
    if launcher == "none" and shape.ranks > 1:
        raise UsageError(
            "--label needs a launcher that reads what ranks print, and none starts copies of the command alone",
            hint="use --log-dir DIR, a file for each, or --launcher torchrun for a Python program",
        )
