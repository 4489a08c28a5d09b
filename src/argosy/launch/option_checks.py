"""Check the options of a launch against the site, the runtime and the launcher; list those that are not used; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import Choice, ChoiceKey, ImageKind, Mark
from argosy.core.records import replace
from argosy.jobs.launch_plan import Shape
from argosy.launch.model import LaunchRequest, option
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Site
from argosy.slurm.option_checks import check_options

UNUSED = "not used: this site has no queue"
"""Reason for an option that has no effect without a queue."""

QUEUES = (
    *("account", "partition", "qos", "time", "mem", "mem_per_gpu", "constraint", "reservation", "nodelist"),
    *("exclude", "mail_type", "exclusive", "requeue"),
)
"""Options that set when, where and for how long a job runs."""

SHELL_INSTEAD = MappingProxyType(
    {
        "array": "start each task by itself, with what it takes from SLURM_ARRAY_TASK_ID set by --env",
        "after": "start it when those jobs have ended",
        "output": "let the shell write it: argosy launch … > FILE",
        "error": "let the shell write it: argosy launch … 2> FILE",
        "chdir": "go there first: cd DIR",
    }
)
"""Options that change what the program does -> the replacement if a shell waits for it."""

INSTEAD: Mapping[str, str] = SHELL_INSTEAD | MappingProxyType(
    dict.fromkeys(("signal", "resume"), "leave it out: no time limit ends it here")
)

FOR_SLURM = ("elastic", "gpu_type", "stage_to", "mode")
"""More options that need a site with Slurm."""


def judge_unqueued(request: LaunchRequest, site: Site) -> tuple[Choice, ...]:
    """Return a choice for each option that is not used at a site without a queue.

    Options of the project file are never an error: the same job may use them at another site.

    Raises
    ------
    UsageError
        When an option is not valid, or the program would not do what the option asks for.
    """
    check_options(request.options, request.extra)
    given = dict(given_options(request)) | ({"mpi": request.mpi} if request.mpi else {})
    refuse_options(request, given, INSTEAD, needs="a site with Slurm", evidence=f"{site.name} has no queue")
    return tuple(unused_rows(given, UNUSED))


def without_slurm(request: LaunchRequest) -> LaunchRequest:
    """Remove the options of the project file that need Slurm, and list each as not used."""
    given = {name: getattr(request, name) for name in FOR_SLURM if name in request.given}
    told = tuple(unused_rows({name: value for name, value in given.items() if value}, UNUSED))
    return replace(request, choices=(*request.choices, *told), **dict.fromkeys(given, ""))  # type: ignore[arg-type]  # the names are those of text fields


def refuse_options(
    request: LaunchRequest, given: Iterable[str], instead: Mapping[str, str], *, needs: str, evidence: str
) -> None:
    """Refuse options that cannot be honoured and would change the result; options of the project file pass.

    Raises
    ------
    UsageError
        With the option and its replacement.
    """
    for name in given:
        if name in instead and name not in request.given:
            raise UsageError(f"{option(name)} needs {needs}", evidence=evidence, hint=instead[name])


def unused_rows(given: Mapping[str, str], why: str) -> Iterator[Choice]:
    """Yield a choice for each option that is not used."""
    yield from (Choice(option(name), value, why, "option", mark=Mark.UNUSED) for name, value in given.items())


def plan_notes(choices: tuple[Choice, ...]) -> Iterator[str]:
    """Yield notes about a plan that users read before it starts."""
    yield from (f"profile {choice.value}: {choice.why}" for choice in choices if choice.key == ChoiceKey.PROFILE)
    yield from unused_options(choices)


def unused_options(choices: Iterable[Choice]) -> Iterator[str]:
    """Yield a line for each reason why options are not used, with the options."""
    unused: dict[str, list[str]] = {}
    for choice in choices:
        if choice.mark is Mark.UNUSED and choice.source != "environment":
            unused.setdefault(choice.why, []).append(choice.label)
    yield from (f"{', '.join(names)}: {why}" for why, names in unused.items())


def given_options(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Yield name and value of each given option that is for Slurm's queue."""
    options = request.options
    values = {name: getattr(options, name) for name in (*QUEUES, "array", "output", "error", "chdir", "signal")}
    values |= {"after": options.dependency.removeprefix("afterok:"), "sbatch_arg": " ".join(request.extra)}
    values |= {"resume": request.restarts, "checkpoint": request.checkpoint}
    yield from ((name, "yes" if value is True else str(value)) for name, value in values.items() if value)


def refuse_label(launcher: str, shape: Shape) -> None:
    """Refuse --label for copies of a command that no launcher starts.

    Raises
    ------
    UsageError
        With the alternatives.
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


def check_launcher_options(
    request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str
) -> tuple[Choice, ...]:
    """Check --elastic, --gpu-type, --stage-to, --label and --mpi, and return the choices of a plan for them.

    Raises
    ------
    UsageError, SiteError
        When the launcher, the runtime or the site does not support one of them.
    """
    _refuse_by_launcher(request, launcher)
    _refuse_by_site(request, site)
    rows = (*_judge_mpi(request, site, launcher), *_check_stage(request.stage_to, container, site))
    if request.elastic:
        rows += (Choice(ChoiceKey.ELASTIC, f"{request.elastic} nodes", f"asked for; {PRICE}", "option"),)
    return rows


def _judge_mpi(request: LaunchRequest, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Refuse --mpi for a launcher that does not use it; list it as not used if it comes from the project file."""
    if not request.mpi or not site.has_slurm:
        return ()
    if not re.fullmatch(r"pmix(_v\d)?|pmi2|cray_shasta", request.mpi):
        raise UsageError(
            f"invalid value of --mpi: {request.mpi!r}",
            evidence="known: pmix, pmi2, cray_shasta",
            hint="'srun --mpi=list' lists the values that the cluster supports",
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
    return tuple(unused_rows({"mpi": request.mpi}, f"not used: the launcher is {launcher}"))


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
            hint="use one of them",
        )


def _refuse_by_site(request: LaunchRequest, site: Site) -> None:
    is_slurm = site.has_slurm
    if (request.gpu_type or request.elastic) and not is_slurm:
        option = "--gpu-type" if request.gpu_type else "--elastic"
        raise UsageError(f"{option} needs a site with Slurm", hint="leave it out here")
    if request.gpu_type and not re.fullmatch(r"[\w.-]+", request.gpu_type):
        raise UsageError(f"invalid type of GPU {request.gpu_type!r}", hint="'sinfo -o %G' lists the types")
    if request.gpu_type and site.slurm.gpu_option == "none":
        raise UsageError(
            f"jobs for {site.name} name no GPUs, so no type of them either",
            hint="use --constraint or --sbatch-arg",
            key="slurm.gpu_option",
        )


def _check_stage(folder: str, container: ContainerPlan, site: Site) -> tuple[Choice, ...]:
    """Judge whether the image can be staged there, and say so.

    Raises
    ------
    UsageError
        When the folder is none, or the runtime does not start out of one image file.
    SiteError
        When a node's own file system is memory.
    """
    if not folder:
        return ()
    if not site.has_slurm:
        raise UsageError("--stage-to needs a site with Slurm", hint="leave it out: the image is on this machine")
    if not re.fullmatch(r"/[\w./-]*", folder):
        raise UsageError(
            f"{folder!r} is not a valid folder for --stage-to", hint="write an absolute path, as --stage-to=/local"
        )
    image, runtime = container.entry.image, container.runtime
    if image.kind is not ImageKind.SIF or runtime.program not in {"apptainer", "singularity"}:
        raise UsageError(
            "--stage-to needs a SIF image and Apptainer or SingularityCE",
            evidence=f"the image is of the kind {image.kind.value}, the runtime is {runtime.name}",
            hint="leave --stage-to out",
        )
    if site.node.tmp_in_memory and folder.split("/")[1] in {"tmp", "dev", "run"}:
        raise SiteError(
            f"{folder} is in memory on the nodes of {site.name}: a staged image would take it from the ranks",
            evidence="tmp_in_memory = true in its profile",
            key="node.tmp_in_memory",
            hint="leave --stage-to out" if not site.node.local_disk else "name the node's disk: --stage-to=DIR",
        )
    known = "the node's own disk" if site.node.local_disk else "asked for; the profile does not tell what disk that is"
    return (
        Choice(ChoiceKey.STAGE_TO, folder, f"{known}; the image is copied there once and removed at the end", "option"),
    )
