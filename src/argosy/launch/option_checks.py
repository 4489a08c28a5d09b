"""Judge what a user wishes beside the shape, and tell its price: elastic, staged, labelled, a kind of GPU; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey
from argosy.core.records import replace
from argosy.jobs.launch_plan import Shape
from argosy.launch.model import LaunchRequest
from argosy.launch.names import option
from argosy.launch.script.staging import check_stage
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Site
from argosy.slurm.option_checks import check_options

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

FOR_SLURM = ("elastic", "gpu_type", "stage_to", "mode")
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


def plan_notes(choices: tuple[Choice, ...]) -> Iterator[str]:
    """Say in lines what users should know of a plan before it is carried out."""
    yield from (f"profile {choice.value}: {choice.why}" for choice in choices if choice.key == ChoiceKey.PROFILE)
    yield from unused_options(choices)


def unused_options(choices: Iterable[Choice]) -> Iterator[str]:
    """Say in lines which options a plan does not use, those of one reason in one; nothing where it uses all."""
    unused: dict[str, list[str]] = {}
    for choice in choices:
        if choice.why.startswith(NOT_USED):
            unused.setdefault(choice.why, []).append(choice.label)
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


PRICE = (
    "its price: rank 0 may be on any node, a lost node starts all ranks again from their last checkpoint, "
    "and the number of ranks changes under the program"
)


def _parse_elastic(text: str) -> tuple[int, int]:
    """Read ``MIN:MAX`` nodes.

    Raises
    ------
    UsageError
        When it is not of that form.
    """
    match = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"{text!r} is no range of nodes", hint="write --elastic 2:4 for 2 to 4 nodes")
    return int(match[1]), int(match[2])


def with_elastic_nodes(request: LaunchRequest) -> LaunchRequest:
    """Give an elastic request with the most nodes as its shape.

    Raises
    ------
    UsageError
        When the range is none, or ``--nodes`` says something else.
    """
    if not request.elastic:
        return request
    _, most = _parse_elastic(request.elastic)
    if request.wanted.nodes not in {0, most}:
        raise UsageError(
            "the numbers of nodes contradict each other",
            evidence=f"--nodes {request.wanted.nodes}, --elastic {request.elastic}",
            hint="leave --nodes out: --elastic says both ends",
        )
    return replace(request, wanted=replace(request.wanted, nodes=most))


def check_launcher_options(
    request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str
) -> tuple[Choice, ...]:
    """Judge these wishes, and give the rows of a plan that tell them.

    Raises
    ------
    UsageError, SiteError
        When the launcher, the runtime or the site does not have one of them.
    """
    _refuse_by_launcher(request, launcher)
    _refuse_by_site(request, site)
    rows = (*_judge_mpi(request, site, launcher), *check_stage(request.stage_to, container, site))
    if request.elastic:
        rows += (Choice(ChoiceKey.ELASTIC, f"{request.elastic} nodes", f"asked for; {PRICE}", "option"),)
    return rows


def _judge_mpi(request: LaunchRequest, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Judge --mpi: with a launcher that does not use it the option is refused; from the project file it is noted."""
    if not request.mpi or not site.has_slurm:
        return ()
    if not re.fullmatch(r"pmix(_v\d)?|pmi2|cray_shasta", request.mpi):
        raise UsageError(
            f"{request.mpi!r} is no wire-up of MPI",
            evidence="known: pmix, pmi2, cray_shasta",
            hint="'srun --mpi=list' tells what the cluster has",
        )
    if launcher == "mpi":
        return ()
    refuse_options(
        request,
        ("mpi",),
        {"mpi": "add --launcher mpi, or leave --mpi out"},
        needs="the launcher mpi",
        evidence=f"the launcher is {launcher}",
    )
    return tuple(unused_rows({"mpi": request.mpi}, f"{NOT_USED}the launcher is {launcher}"))


def _refuse_by_launcher(request: LaunchRequest, launcher: str) -> None:
    if request.elastic and launcher != "torchrun":
        raise UsageError(
            "--elastic needs the launcher torchrun",
            evidence=f"the launcher is {launcher}",
            hint="use --launcher torchrun, or leave --elastic out",
        )
    if request.label and request.logs:
        raise UsageError(
            "--label and --log-dir exclude each other",
            evidence="a rank's own file needs no label",
            hint="say one of the two",
        )


def _refuse_by_site(request: LaunchRequest, site: Site) -> None:
    is_slurm = site.has_slurm
    if (request.gpu_type or request.elastic) and not is_slurm:
        option = "--gpu-type" if request.gpu_type else "--elastic"
        raise UsageError(f"{option} needs a site with Slurm", hint="leave it out here")
    if request.gpu_type and not re.fullmatch(r"[\w.-]+", request.gpu_type):
        raise UsageError(f"{request.gpu_type!r} is no type of GPU", hint="'sinfo -o %G' tells the types")
    if request.gpu_type and site.slurm.gpu_option == "none":
        raise UsageError(
            f"jobs for {site.name} name no GPUs, so no type of them either",
            hint="use --constraint or --sbatch-arg",
            key="slurm.gpu_option",
        )
