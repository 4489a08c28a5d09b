"""Choose the shape of a launch: nodes, ranks, GPUs and cores; refuse contradictions; pure."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark
from argosy.core.records import replace
from argosy.jobs.launch_plan import SHARE, Shape
from argosy.launch.names import option
from argosy.sites.profile import Site

THREADS, FEWER_THREADS = 8, MappingProxyType({"x86_64": 2, "aarch64": 2})
"""Most hardware threads of a core: eight on POWER, and so where the architecture is not known."""


class Wanted(msgspec.Struct, frozen=True):
    """The shape that the user asks for; 0 leaves a number open.

    Attributes
    ----------
    ranks
        In all.
    gpus
        In all; an alternative to `gpus_per_node`.
    """

    nodes: int = 0
    ranks: int = 0
    gpus: int = 0
    gpus_per_node: int = 0
    cpus_per_rank: int = 0


def one_rank_per_node(wanted: Wanted) -> Wanted:
    """Return the same shape with one rank on each node, which has all of it.

    Raises
    ------
    UsageError
        For another number of ranks.
    """
    nodes = wanted.nodes or 1
    if wanted.ranks not in {0, nodes}:
        raise UsageError(
            "the launcher ray starts one rank on each node, and distributes the node's cores and GPUs itself",
            evidence=f"--ranks {wanted.ranks} on {nodes} node(s)",
            hint="remove --ranks; --cpus-per-rank sets the cores that Ray gets on each node",
        )
    return replace(wanted, ranks=nodes)


def choose_shape(wanted: Wanted, site: Site, host: Host, why_gpus: str = "") -> tuple[Shape, tuple[Choice, ...]]:
    """Choose the shape: the numbers asked for, else a rank per GPU, else one rank per node.

    Parameters
    ----------
    why_gpus
        Why the job has GPUs, if the user named no number.

    Raises
    ------
    UsageError
        When the numbers contradict each other, leave a remainder, or are negative.
    """
    for name in ("nodes", "ranks", "gpus", "gpus_per_node", "cpus_per_rank"):
        if getattr(wanted, name) < 0:
            raise UsageError(f"{option(name)} cannot be negative", evidence=f"{option(name)} {getattr(wanted, name)}")
    nodes = wanted.nodes or 1
    if not site.has_slurm:
        return _local_shape(wanted, host, nodes)
    gpus = _gpus_per_node(wanted, site, nodes)
    ranks, why = _ranks_per_node(wanted, site, nodes, gpus)
    cpus, why_cpus = _cpus_per_rank(wanted, site, ranks, gpus)
    why_cpus += _too_many_cores(site, ranks, cpus) if wanted.cpus_per_rank or wanted.ranks else ""
    why_nodes = "asked for" if wanted.nodes else "nothing else was asked for"
    rows = (
        Choice(ChoiceKey.NODES, str(nodes), why_nodes, _source(wanted.nodes)),
        _gpus_choice(gpus, why_gpus, site),
        Choice(ChoiceKey.RANKS_PER_NODE, str(ranks), why, _source(wanted.ranks)),
        _cores_choice(cpus, why_cpus, wanted, site),
    )
    return Shape(nodes, ranks, gpus, cpus), rows


def _gpus_choice(gpus: int, why: str, site: Site) -> Choice:
    if why and gpus:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), why, "default")
    if gpus:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), "asked for", "option")
    there = site.node.gpus
    why = "no GPU was asked for" + (f"; a node has {there}: --gpus-per-node {there}" if there else "")
    return Choice(ChoiceKey.GPUS_PER_NODE, "0", why, "default", mark=Mark.DOUBTFUL if there else Mark.NONE)


def _cores_choice(cpus: int, why: str, wanted: Wanted, site: Site) -> Choice:
    source = _source(wanted.cpus_per_rank) if cpus or site.slurm.cpus_option else f"site {site.name}"
    return Choice(ChoiceKey.CORES_PER_RANK, str(cpus) if cpus else SHARE, why, source)


def _too_many_cores(site: Site, ranks: int, cpus: int) -> str:
    """Refuse more cores than a node has; return a note if its hardware threads are enough."""
    cores, asked = site.node.cores, ranks * cpus
    if not cores or asked <= cores:
        return ""
    threads = FEWER_THREADS.get(site.node.arch, THREADS)
    if asked > cores * threads:
        raise UsageError(
            f"a node of {site.name} has {cores} cores, and {ranks} rank(s) with {cpus} each were asked for",
            evidence=f"{asked} in all; as hardware threads it has {cores * threads} at most",
            hint="ask for fewer with --cpus-per-rank, for fewer ranks, or for more nodes",
            key="node.cores",
        )
    return f"; {asked} on a node are more than its {cores} cores: enough only where Slurm counts hardware threads"


def _source(number: int) -> str:
    return "option" if number else "default"


def _local_shape(wanted: Wanted, host: Host, nodes: int) -> tuple[Shape, tuple[Choice, ...]]:
    if nodes > 1:
        raise UsageError(
            f"--nodes {nodes} needs a site with Slurm: this machine is one node",
            evidence=f"--nodes {nodes} with a site that has no scheduler",
            hint="use --site with a site that has Slurm, or remove --nodes",
        )
    gpus = wanted.gpus_per_node or wanted.gpus
    if gpus > len(host.gpus):
        raise UsageError(
            f"{gpus} GPUs were asked for, and {len(host.gpus)} are seen here",
            hint="ask for fewer, or launch on a cluster with --site",
        )
    cpus = wanted.cpus_per_rank
    if wanted.ranks:
        return Shape(1, wanted.ranks, gpus, cpus), (Choice(ChoiceKey.RANKS, str(wanted.ranks), "asked for", "option"),)
    count = gpus or len(host.gpus)
    if count:
        return Shape(1, count, gpus, cpus), (Choice(ChoiceKey.RANKS, str(count), "one per GPU", "machine"),)
    why = "no GPU is visible here, and no number was asked for"
    return Shape(1, 1, 0, cpus), (Choice(ChoiceKey.RANKS, "1", why, "machine"),)


def _gpus_per_node(wanted: Wanted, site: Site, nodes: int) -> int:
    if wanted.gpus and wanted.gpus_per_node and wanted.gpus != wanted.gpus_per_node * nodes:
        raise UsageError(
            "the numbers of GPUs contradict each other",
            evidence=f"--gpus {wanted.gpus}, --gpus-per-node {wanted.gpus_per_node}, {nodes} node(s)",
            hint="use one of them",
        )
    if wanted.gpus % nodes:
        raise UsageError(
            f"{wanted.gpus} GPUs cannot be shared out evenly",
            evidence=f"--gpus {wanted.gpus} on {nodes} nodes leaves {wanted.gpus % nodes} over",
            hint="ask for a multiple of the nodes",
        )
    gpus = wanted.gpus_per_node or wanted.gpus // nodes
    if site.node.gpus and gpus > site.node.gpus:
        raise UsageError(
            f"a node of {site.name} has {site.node.gpus} GPUs, and {gpus} were asked for on each",
            hint=f"use more nodes: --nodes {-(-gpus * nodes // site.node.gpus)} --gpus-per-node {site.node.gpus}",
            key="node.gpus",
        )
    return gpus


def _ranks_per_node(wanted: Wanted, site: Site, nodes: int, gpus: int) -> tuple[int, str]:
    if wanted.ranks % nodes:
        raise UsageError(
            f"{wanted.ranks} ranks cannot be shared out evenly",
            evidence=f"--ranks {wanted.ranks} on {nodes} nodes leaves {wanted.ranks % nodes} over",
            hint="ask for a multiple of the nodes",
        )
    if wanted.ranks:
        return wanted.ranks // nodes, "asked for"
    devices = site.node.devices_per_gpu
    if gpus and devices > 1:
        return gpus * devices, f"{devices} per GPU: a GPU has so many root devices"
    return (gpus, "one per GPU") if gpus else (1, "no GPU was asked for, and no number of ranks")


def _cpus_per_rank(wanted: Wanted, site: Site, ranks: int, gpus: int) -> tuple[int, str]:
    if wanted.cpus_per_rank:
        return wanted.cpus_per_rank, "asked for"
    from argosy.sites.binding import parse_ranges, plan_masks  # noqa: PLC0415 - Slurm's sites only

    masks = plan_masks(site.node) if gpus == ranks == site.node.gpus else ()
    if masks:
        return min(mask.bit_count() for mask in masks), "those nearest to a GPU, by the site's map"
    if not site.slurm.cpus_option:
        return 0, "counted when the job starts: the site's jobs ask Slurm for no number of cores"
    if gpus and site.slurm.cpus_per_gpu:
        share = max(1, site.slurm.cpus_per_gpu * gpus // ranks)
        return share, f"the site's {site.slurm.cpus_per_gpu} cores per GPU"
    usable = site.node.cores - len(parse_ranges(site.node.reserved, "node.reserved"))
    if gpus and site.node.gpus and usable >= site.node.gpus:
        return max(1, usable // site.node.gpus * gpus // ranks), f"an equal share of a node's {usable} cores"
    return _unknown_cores(gpus)


def _unknown_cores(gpus: int) -> tuple[int, str]:
    """Leave cores that go with GPUs to Slurm, which knows them (DefCpuPerGPU, or whole nodes): any guess is wrong."""
    if gpus:
        return 0, "the profile does not say how many cores go with a GPU: Slurm decides; --cpus-per-rank asks for more"
    return 1, "Slurm's own default; ask for more with --cpus-per-rank"
