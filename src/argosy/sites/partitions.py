"""Choose the partition of a job, and check a job against its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import Choice, ChoiceKey, Mark
from argosy.core.render import count
from argosy.core.suggest import suggest_word
from argosy.sites.binding import usable_cores
from argosy.sites.job_settings import at_partition, evident_choice, gpus_of
from argosy.sites.profile import Partition, Site
from argosy.slurm.times import parse_minutes


class PartitionNeeds(msgspec.Struct, frozen=True):
    """The resources that a job requests of a partition."""

    nodes: int
    gpus_per_node: int = 0
    time: str = ""
    """As given to ``--time``; empty if not given."""
    exclusive: bool = False
    cores_per_node: int = 0
    """Cores of all ranks of a node; 0 if they were not given."""


def choose_partition(site: Site, asked: str, needs: PartitionNeeds) -> tuple[Partition | None, tuple[Choice, ...]]:
    """Choose the partition: the requested one, else the first with ``choose`` that allows the job.

    Raises
    ------
    SiteError
        When the requested partition, or none of the others, allows the job. The evidence has both numbers.
    """
    if asked:
        partition = _asked_partition(site, asked, needs)
        return partition, (*_unknown(site, asked), *_billing(site, partition, needs))
    candidates = [p for p in site.partitions if p.choose]
    if not candidates:
        return None, tuple(_billing(site, None, needs))
    allowed = _allowed_partitions(site, candidates, needs)
    chosen = _best_partition(site, allowed, needs)
    why = _explain_partition(site, chosen, needs, was_another_refused=len(allowed) < len(candidates))
    row = evident_choice(site, chosen, ChoiceKey.PARTITION, chosen.name, why=f"{why}; no partition was given")
    return chosen, (row, *_billing(site, chosen, needs))


def _allowed_partitions(site: Site, candidates: Sequence[Partition], needs: PartitionNeeds) -> list[Partition]:
    """Return the partitions that allow a job, in the order of the profile; the error has the limits of all."""
    allowed = [p for p in candidates if not partition_refusal(p, needs)]
    if not allowed:
        raise SiteError(
            f"no partition of {site.name} allows this job",
            evidence="\n".join(f"{p.name}: {partition_refusal(p, needs)}" for p in candidates),
            hint=_other_partition(site, needs),
            key=f"partitions.{candidates[-1].name}",
        )
    return allowed


def _best_partition(site: Site, allowed: Sequence[Partition], needs: PartitionNeeds) -> Partition:
    """Return the first partition that has the GPUs of a job and allocates what it uses: whole nodes or parts."""
    # If no nodes have as many GPUs, a later check of the launch reports it, with the number that they have.
    with_gpus = [p for p in allowed if needs.gpus_per_node <= gpus_of(site, p)] or allowed
    # Part of a node in a partition of whole nodes is billed as a whole node, and all of a node in a shared partition
    # may wait until all other jobs have left the node.
    uses_whole_nodes = is_whole(site, None, needs)
    return next((p for p in with_gpus if p.whole_nodes == uses_whole_nodes), with_gpus[0])


def _explain_partition(site: Site, chosen: Partition, needs: PartitionNeeds, *, was_another_refused: bool) -> str:
    uses_whole_nodes = is_whole(site, None, needs)
    if chosen.whole_nodes != uses_whole_nodes and was_another_refused:
        return "the first one that allows this job"
    return "the job uses whole nodes" if uses_whole_nodes else "the job uses parts of nodes"


def _asked_partition(site: Site, asked: str, needs: PartitionNeeds) -> Partition | None:
    """Return the requested partition if it allows the job; None if the profile does not contain it."""
    partition = site.partition(asked)
    refusal = partition_refusal(partition, needs) if partition else ""
    if not refusal:
        return partition
    raise SiteError(
        f"the partition {asked} of {site.name} does not allow this job",
        evidence=refusal,
        hint=_other_partition(site, needs),
        key=f"partitions.{asked}",
    )


def _other_partition(site: Site, needs: PartitionNeeds) -> str:
    """Return the hint for a job that a partition does not allow."""
    fitting = [p.name for p in site.partitions if not partition_refusal(p, needs)]
    return f"use --partition {fitting[0]}" if fitting else "request less, or submit several jobs"


def _unknown(site: Site, asked: str) -> Iterator[Choice]:
    """Return a doubtful choice if a partition is not in the profile: it may be new, or misspelt.

    Only sbatch knows all partitions, and a script may be written on a machine without it.
    """
    known = [p.name for p in site.partitions]
    for name in asked.split(",") if known else ():  # Slurm chooses one of several
        if name in known:
            continue
        near = suggest_word(name, known)
        meant = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
        why = f"not in the profile of {site.name}; {meant}"
        yield Choice(ChoiceKey.PARTITION, name, why, "option", mark=Mark.DOUBTFUL)


def partition_refusal(partition: Partition, needs: PartitionNeeds) -> str:
    """Return why a partition does not allow a job; empty if no known limit forbids it."""
    limits = (
        (partition.max_nodes and needs.nodes > partition.max_nodes, "at most", partition.max_nodes),
        (partition.min_nodes and needs.nodes < partition.min_nodes, "at least", partition.min_nodes),
    )
    for broken, words, number in limits:
        if broken:
            return f"{needs.nodes} nodes requested, {words} {number} allowed"
    limit = time_limit(partition, needs.nodes)
    if needs.time and limit and parse_minutes(needs.time) > parse_minutes(limit):
        return f"{needs.time} requested, the limit for {count(needs.nodes, 'node')} is {limit}"
    if partition.gpus is not None and needs.gpus_per_node > partition.gpus:
        return f"{needs.gpus_per_node} GPUs per node requested, its nodes have {partition.gpus}"
    return ""


def time_limit(partition: Partition, nodes: int) -> str:
    """Return the time limit of a job with this number of nodes; empty if unknown."""
    steps = sorted((int(most), time) for most, time in partition.time_by_nodes.items())
    return next((time for most, time in steps if nodes <= most), partition.max_time)


def is_whole(site: Site, partition: Partition | None, needs: PartitionNeeds) -> bool:
    """Return whether a job uses or gets whole nodes, as far as the profile knows."""
    if needs.exclusive or site.slurm.whole_nodes or (partition is not None and partition.whole_nodes):
        return True
    if partition is not None:
        return False
    if site.node.gpus:
        return needs.gpus_per_node == site.node.gpus
    return 0 < len(usable_cores(site.node)) <= needs.cores_per_node


def _billing(site: Site, partition: Partition | None, needs: PartitionNeeds) -> Iterator[Choice]:
    """Yield a choice if a job is billed for more GPUs than it uses."""
    by_partition = partition is not None and partition.whole_nodes
    gpus = gpus_of(site, partition)
    if not (by_partition or site.slurm.whole_nodes or needs.exclusive) or needs.gpus_per_node >= gpus:
        return
    billed, used = f"{gpus} GPUs per node", f"{needs.gpus_per_node} of {gpus} GPUs are used"
    if site.slurm.whole_nodes:
        why = f"every job there gets whole nodes, and {used}"
        yield evident_choice(site, site.slurm, ChoiceKey.BILLED, billed, field="whole_nodes", why=why)
        return
    if partition is None or not by_partition:
        yield Choice(ChoiceKey.BILLED, billed, f"--exclusive takes whole nodes, and {used}", "option")
        return
    shared = [p for p in site.partitions if not (p.whole_nodes or p.debug or partition_refusal(p, needs))]
    cheaper = [p.name for p in shared if at_partition(site, p).node == at_partition(site, partition).node]
    hint = f"; --partition {cheaper[0]} bills only what is used" if cheaper else ""
    why = f"{partition.name} allocates whole nodes, and {used}{hint}"
    yield evident_choice(site, partition, ChoiceKey.BILLED, billed, why=why)
