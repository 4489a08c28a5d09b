"""Judge options of a job where nothing queues: what only a queue heeds is told as not used, or refused; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from argosy.errors import UsageError
from argosy.launchers import Shape
from argosy.model import Choice
from argosy.schedulers.slurm_options import check_options
from argosy.sites import Site

if TYPE_CHECKING:
    from argosy.launch.plan import LaunchRequest

UNUSED = "not used: nothing queues here"
"""The reason in the row of an option that has no meaning."""

QUEUES = (
    *("account", "partition", "qos", "time", "mem", "mem_per_gpu", "constraint", "reservation", "nodelist"),
    *("exclude", "mail_type", "exclusive", "requeue"),
)
"""Options that say when, where and for how long a job runs, and not what it does."""

INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "array": "start each task by itself, with what it takes from SLURM_ARRAY_TASK_ID set by --env",
        "after": "start it when those jobs have ended",
        "output": "let the shell write it: argosy launch … > FILE",
        "error": "let the shell write it: argosy launch … 2> FILE",
        "chdir": "go there first: cd DIR",
        "signal": "leave it out: no time limit ends it here",
        "resume": "leave it out: no time limit ends it here",
    }
)
"""Options without which a program would not do what was asked for -> what does it here."""


def judge_unqueued(request: LaunchRequest, site: Site) -> tuple[Choice, ...]:
    """Give a row for each option that means nothing at a site without a queue.

    One that stands in the project file is told, since the same job is launched elsewhere with it.

    Raises
    ------
    UsageError
        When an option is none that Slurm takes, or the program would not do what one says.
    """
    check_options(request.options, request.extra)
    given = dict(_given(request))
    for name, hint in INSTEAD.items():
        if name in given and name not in request.given:
            raise UsageError(f"--{name} needs a site with Slurm", evidence=f"{site.name} has no queue", hint=hint)
    return tuple(
        Choice(f"--{name.replace('_', '-')}", value, UNUSED, f"site {site.name}") for name, value in given.items()
    )


def unused_options(choices: Iterable[Choice]) -> Iterator[str]:
    """Say in a line which options a plan does not use; nothing where it uses all."""
    if names := [choice.what for choice in choices if choice.why == UNUSED]:
        yield f"{', '.join(names)}: {UNUSED}"


def _given(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Give name and value of each option that only a queue heeds."""
    options = request.options
    values = {name: getattr(options, name) for name in (*QUEUES, "array", "output", "error", "chdir", "signal")}
    values |= {"after": options.dependency.removeprefix("afterok:"), "sbatch_arg": " ".join(request.extra)}
    values |= {"resume": request.restarts, "checkpoint": request.checkpoint, "mpi": request.mpi}
    yield from ((name, "yes" if value is True else str(value)) for name, value in values.items() if value)


def refuse_unranked(request: LaunchRequest, launcher: str, shape: Shape) -> None:
    """Refuse to tell ranks apart where nothing numbers them: copies of a command that no launcher starts.

    Raises
    ------
    UsageError
        Naming the option.
    """
    if launcher == "none" and shape.ranks > 1 and (request.label or request.logs):
        option = "--label" if request.label else "--log-dir"
        raise UsageError(
            f"{option} needs ranks, and the launcher none numbers no copies here",
            hint=f"leave {option} out, or use --launcher torchrun for a Python program",
        )
