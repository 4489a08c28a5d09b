"""Check the options of a launch against the site, the runtime and the launcher, and list unused options; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import APPTAINERS, Choice, ChoiceKey, Host, ImageKind, Mark
from argosy.core.records import asdict
from argosy.launch.launchers.launcher import find_launcher, find_python
from argosy.launch.model import LaunchRequest
from argosy.recipes.option_row import option_name
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import StepRuntime
from argosy.sites.load import advise_on_site
from argosy.sites.profile import Site
from argosy.sites.read import NOT_SHIPPED
from argosy.slurm.sbatch import complete_argument

UNUSED = "not used: this site has no queue"
"""Reason for an option that has no effect without a queue."""

SHELL_INSTEAD = {
    "array": "start one launch per task, and set SLURM_ARRAY_TASK_ID with --env",
    "after": "start this launch when those jobs have ended",
    "output": "redirect the output: argosy launch … > FILE",
    "error": "redirect the error stream: argosy launch … 2> FILE",
    "chdir": "change the folder first: cd DIR",
}
"""Option of a batch job -> what to do in a shell instead."""

INSTEAD: Mapping[str, str] = SHELL_INSTEAD | dict.fromkeys(
    ("signal", "resume"), "remove it: this site has no time limit"
)


NOT_BY_SSH = {
    "in_allocation": "log in there, and run the script that --dry-run prints in the allocation: bash job.sh",
    "interactive": "submit '-- sleep 1h', and open a shell in that job: argosy attach JOB",
    "packages": "build an image with the packages there: argosy build requirements.txt --base IMAGE -o NEW.sif",
    "script": "--dry-run prints the script for that machine: redirect its output to a file",
}
"""Argument of an option that works only on this machine -> alternative."""

OPTION_OF_ARGUMENT: Mapping[str, str] = {"packages": "--with"}
"""Argument of Python -> its option, if that has another name."""


def list_unqueued(request: LaunchRequest, site: Site, host: Host) -> tuple[Choice, ...]:
    """Return a choice for each option that is not used at a site without a queue.

    Options of the project file never cause an error: the same job may use them at another site.

    Raises
    ------
    UsageError
        If an option would change the result and cannot be honoured.
    """
    given = dict(given_options(request)) | ({"mpi": request.mpi} if request.mpi else {})
    evidence, advise = f"{site.name} has no queue", partial(advise_on_site, host)
    refuse_options(request, given, INSTEAD, needs="a site with Slurm", evidence=evidence, advise=advise)
    return tuple(unused_rows(given, UNUSED))


def refuse_options(
    request: LaunchRequest,
    given: Iterable[str],
    instead: Mapping[str, str],
    *,
    needs: str,
    evidence: str,
    advise: Callable[[], str] = str,
) -> None:
    """Refuse options that would change the result and cannot be honoured; accept those of the project file.

    Parameters
    ----------
    instead
        Option -> hint.
    advise
        Returns a better hint than those, or nothing.
    """
    for name in given:
        if name in instead and name not in request.sources:
            hint = "; or ".join(filter(None, (advise(), instead[name])))
            raise UsageError(f"{option_name(name)} needs {needs}", evidence=evidence, hint=hint)


def refuse_with_ssh(ssh: str, **flags: bool) -> None:
    """Refuse the options that need Argosy on the other machine, each with its alternative."""
    for name in (name for name, given in flags.items() if given):
        raise UsageError(
            f"{OPTION_OF_ARGUMENT.get(name) or option_name(name)} cannot be used with --ssh",
            evidence=f"--ssh {ssh} submits a job on a machine without Argosy",
            hint=NOT_BY_SSH[name],
        )


def unused_rows(given: Mapping[str, str], why: str) -> Iterator[Choice]:
    """Yield a choice for each option that is not used."""
    yield from (Choice(option_name(name), value, why, "option", mark=Mark.UNUSED) for name, value in given.items())


def plan_notes(choices: tuple[Choice, ...]) -> Iterator[str]:
    """Yield notes about a plan that users read before it starts."""
    yield from replacing_profiles(choices)
    yield from doubtful_choices(choices)
    yield from unused_options(choices)


def replacing_profiles(choices: Iterable[Choice]) -> Iterator[str]:
    """Yield a note about a profile that is from the current folder, or that replaces another one."""
    profiles = (choice for choice in choices if choice.key == ChoiceKey.PROFILE and choice.why != NOT_SHIPPED)
    yield from (f"profile {choice.value}: {choice.why}" for choice in profiles)


def doubtful_choices(choices: Iterable[Choice]) -> Iterator[str]:
    """Yield a line for each command to run first, and for each choice that is probably a mistake of the user."""
    yield from (f"run first: {each.value} ({each.why})" for each in choices if each.mark is Mark.FIRST)
    for each in (choice for choice in choices if choice.mark is Mark.DOUBTFUL):
        equals = " " if each.label.startswith("--") else " = "
        is_of_file = each.source.startswith("/") or re.search(r":\d+$", each.source)
        place = f" ({each.source})" if is_of_file else ""  # a default that the user may not know
        yield f"{each.label}{equals}{each.value}: {each.why}{place}"


def unused_options(choices: Iterable[Choice]) -> Iterator[str]:
    """Yield a line for each reason why options are not used, with the options."""
    unused: dict[str, list[str]] = {}
    for choice in choices:
        if choice.mark is Mark.UNUSED and choice.source != "environment":
            unused.setdefault(choice.why, []).append(choice.label)
    yield from (f"{', '.join(names)}: {why}" for why, names in unused.items())


def given_options(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Yield name and value of each given option that is for Slurm's queue."""
    values = asdict(request.options)
    values |= {"after": values.pop("dependency").removeprefix("afterok:"), "sbatch_arg": " ".join(request.extra)}
    values |= {"resume": request.restarts, "checkpoint": request.checkpoint}
    yield from ((name, "yes" if value is True else str(value)) for name, value in values.items() if value)


def refuse_label(request: LaunchRequest, launcher: str, *, copies: int = 1) -> None:
    """Refuse --label together with --log-dir, and for several copies of a command that no launcher starts.

    Parameters
    ----------
    copies
        Number of copies that the script itself starts.
    """
    if request.label and request.logs:
        raise UsageError(
            "--label and --log-dir cannot be used together",
            evidence="with --log-dir, each rank writes to its own file",
            hint="use one of the two options",
        )
    if request.label and launcher == "none" and copies > 1:
        raise UsageError(
            "--label needs a launcher that reads the output of the ranks",
            evidence="the launcher 'none' only starts copies of the command",
            hint="use --log-dir DIR for a file per rank, or --launcher torchrun for a Python program",
        )


ELASTIC_COST = (
    "rank 0 may run on any node, a lost node restarts all ranks from their last checkpoint, "
    "and the number of ranks may change during the run"
)


def check_launcher_options(
    request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str
) -> tuple[Choice, ...]:
    """Check --elastic, --gpu-type, --stage-to, --label and --mpi of a job, and return their choices.

    Raises
    ------
    UsageError, SiteError
        If the launcher, the runtime or the site does not support one of them.
    """
    if request.elastic and launcher != "torchrun":
        raise UsageError(
            "--elastic needs the torchrun launcher",
            evidence=f"the launcher is {launcher}",
            hint="use --launcher torchrun, or remove --elastic",
        )
    refuse_label(request, launcher)
    _refuse_invalid_gpu_type(request.gpu_type, site)
    rows = (*_check_mpi(request, launcher), *_check_stage(request.stage_to, container, site))
    if request.elastic:
        rows += (Choice(ChoiceKey.ELASTIC, f"{request.elastic} nodes", f"requested; {ELASTIC_COST}", "option"),)
    return rows


def _refuse_invalid_gpu_type(gpu_type: str, site: Site) -> None:
    if gpu_type and not re.fullmatch(r"[\w.-]+", gpu_type):
        raise UsageError(f"invalid GPU type {gpu_type!r}", hint="'sinfo -o %G' lists the types")
    if gpu_type and site.slurm.gpu_option == "none":
        raise UsageError(
            f"--gpu-type cannot be used: jobs of {site.name} do not request GPUs from Slurm",
            hint="use --constraint or --sbatch-arg",
            key="slurm.gpu_option",
        )


def _check_mpi(request: LaunchRequest, launcher: str) -> tuple[Choice, ...]:
    """Refuse --mpi for a launcher that does not use it; list it as not used if it comes from the project file."""
    if not request.mpi:
        return ()
    if launcher == "mpi":
        return ()
    hint = {"mpi": "add --launcher mpi, or remove --mpi"}
    refuse_options(request, ("mpi",), hint, needs="the mpi launcher", evidence=f"the launcher is {launcher}")
    return tuple(unused_rows({"mpi": request.mpi}, f"not used: the launcher is {launcher}"))


def _check_stage(folder: str, container: ContainerPlan, site: Site) -> tuple[Choice, ...]:
    """Check whether the image can be staged to a folder of each node.

    Raises
    ------
    UsageError
        If the folder is not an absolute path, or the runtime does not start from one image file.
    SiteError
        If the folder is in the memory of the nodes.
    """
    if not folder:
        return ()
    if not re.fullmatch(r"/[\w./-]*", folder):
        raise UsageError(
            f"{folder!r} is not a valid folder for --stage-to",
            hint="use an absolute path, for example --stage-to=/local",
        )
    image, runtime = container.entry.image, container.runtime
    if image.kind is not ImageKind.SIF or runtime.program not in APPTAINERS:
        raise UsageError(
            "--stage-to needs a SIF image and Apptainer or SingularityCE",
            evidence=f"the image is of the kind {image.kind.value}, the runtime is {runtime.name}",
            hint="remove --stage-to",
        )
    if site.node.tmp_in_memory and folder.split("/")[1] in {"tmp", "dev", "run"}:
        raise SiteError(
            f"{folder} is in memory on the nodes of {site.name}: a staged image would reduce the memory of the ranks",
            evidence="tmp_in_memory = true in its profile",
            key="node.tmp_in_memory",
            hint="use the node's disk: --stage-to=DIR" if site.node.local_disk else "remove --stage-to",
        )
    disk = "the node's own disk" if site.node.local_disk else "requested; the profile does not describe this disk"
    why = f"{disk}; the image is copied there once and removed at the end"
    return (Choice(ChoiceKey.STAGE_TO, folder, why, "option"),)


NEEDS_MPI = ("mpi4py", "horovod")
"""Packages whose ranks are usually connected by MPI, for which each rank must be a task of Slurm."""

OWN_GPUS = re.compile(r"--(gpus-per-task|gpu-bind|tres-per-task|tres-bind|gpus-per-socket|ntasks-per-gpu)\b")
"""Options of Slurm that give each task its own part of a node."""


def choose_container_per(
    request: LaunchRequest, container: ContainerPlan, srun_options: Iterable[str], launcher: str, ranks_per_node: int
) -> Choice | None:
    """Choose whether the launcher ``srun`` starts a container per node or per rank; None for other launchers.

    Parameters
    ----------
    srun_options
        Options of srun that the site's profile adds for each rank.

    Raises
    ------
    UsageError
        If the launcher or the job does not support the requested value.
    """
    key, asked = ChoiceKey.CONTAINER_PER, request.container_per
    fixed = find_launcher(launcher).container_per
    obstacle = "" if fixed else _why_per_rank(request, container, srun_options)
    possible = fixed or ("rank" if obstacle else "")
    if asked and possible and asked != possible:
        why = obstacle or f"the launcher {launcher} always starts one container per {fixed}"
        hint = {"container_per": "remove it"}
        refuse_options(request, ("container_per",), hint, needs="another launch", evidence=why)
        return Choice(option_name("container_per"), asked, f"not used: {why}", "option", mark=Mark.UNUSED)
    if fixed or ranks_per_node == 1:
        return None
    if obstacle:
        return Choice(key, "rank", obstacle, "default")
    if asked:
        return Choice(key, asked, "requested", "option")
    mpi = next((name for name in NEEDS_MPI if name in container.entry.image.packages), "")
    if mpi:
        why = f"the image has {mpi}, and MPI ranks must be Slurm tasks; without MPI, use --container-per node"
        return Choice(key, "rank", why, "image")
    return Choice(key, "node", "the ranks of a node share one mount and one page cache", "default")


def _why_per_rank(request: LaunchRequest, container: ContainerPlan, srun_options: Iterable[str]) -> str:
    """Return why ranks cannot share the container of their node; empty if they can."""
    asked = (*srun_options, *request.extra)
    own = next((option for option in asked if OWN_GPUS.match(complete_argument(option))), "")
    if own:
        return f"Slurm gives each task its own resources: {own}"
    if container.entry.image.kind is ImageKind.HOST:
        return "there is no container"
    if isinstance(container.runtime, StepRuntime):
        return f"{container.runtime.name} starts a container for srun"
    if request.independent_ranks:
        return "the ranks are independent, so none may end the others"
    if not find_python(request.command, container.entry.image):
        return "the ranks of a node are started by Python, which the image may not contain"
    return ""


def is_per_node(choices: Iterable[Choice]) -> bool:
    """Return whether a program in one container per node starts the ranks of the launcher ``srun``."""
    return any(choice.key == ChoiceKey.CONTAINER_PER and choice.value == "node" for choice in choices)
