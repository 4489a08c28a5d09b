"""Judge what a user wishes beside the shape, and tell its price: elastic, staged, labelled, a kind of GPU; pure."""

from __future__ import annotations

import re

from argosy.containers import ContainerPlan
from argosy.errors import UsageError
from argosy.launch.records import LaunchRequest
from argosy.launch.staging import check_stage
from argosy.launch.unused import NOT_USED, refuse_options, unused_rows
from argosy.model import Choice
from argosy.records import replace
from argosy.sites import Site

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


def check_wishes(request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Judge these wishes, and give the rows of a plan that tell them.

    Raises
    ------
    UsageError, SiteError
        When the launcher, the runtime or the site does not have one of them.
    """
    _refuse_by_launcher(request, launcher)
    _refuse_by_site(request, site)
    rows = (*_judge_mpi(request, site, launcher), *check_stage(request.stage, container, site))
    if request.elastic:
        rows += (Choice("elastic", f"{request.elastic} nodes", f"asked for; {PRICE}", "option"),)
    return rows


def _judge_mpi(request: LaunchRequest, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Judge --mpi: with a launcher that does not use it the option is refused; from the project file it is noted."""
    if not request.mpi or site.scheduler != "slurm":
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
    is_slurm = site.scheduler == "slurm"
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
