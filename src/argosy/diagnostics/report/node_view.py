"""Draw a node of a job as SVG: what its ranks, GPUs and network cards did, against what was planned; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from argosy.core.parse import parse_cpulist
from argosy.core.records import replace
from argosy.core.render import count
from argosy.diagnostics.report.model import RankRow
from argosy.diagnostics.verify.logs import NetFacts
from argosy.diagnostics.verify.rules import name_network
from argosy.sites.node_drawing import Box, NodeParts, draw_node
from argosy.sites.profile import Node

MOST_NODES = 8
"""Nodes that are drawn; the table has all ranks."""

CLASSES = re.compile(r'<rect[^>]* class="([^"]+)"')


HUES = (0, 2, 4, 3, 7, 5, 6)
"""Colours of the ranks of a node: all of the style sheet but red, which marks faults."""

MARKS = (
    ("free", "a grey core belongs to no rank"),
    ("failed", "a red border marks the cores of the rank that failed first"),
    ("missed", "a red dashed border marks a core that was planned for another rank"),
    ("absent", "a red dashed box is a GPU or network card that was not used"),
    ("open", "a dotted box is a GPU or network card whose use no log shows"),
)
"""Classes of the pictures, and what they mean."""


def describe_marks(pictures: Sequence[str]) -> str:
    """Explain the marks that pictures contain."""
    used = {name for picture in pictures for names in CLASSES.findall(picture) for name in names.split()}
    marks = (meaning for name, meaning in MARKS if name in used)
    square = (
        "A rank is one process of the job. A small square is a core with the number of the rank that could use it; "
        "each rank has a colour. The wide boxes are network cards and GPUs"
    )
    return "; ".join((square, *marks)) + "."


def draw_job_node(host: str, ranks: Sequence[RankRow], node: Node, net: NetFacts, expected: Sequence[str] = ()) -> str:
    """Draw a node of a job.

    Parameters
    ----------
    ranks
        Ranks of the node.
    node
        The node as the profile describes it, with the GPUs of the job. Cores that it lacks are added.
    net
        The network that the logs of this node show.
    expected
        Names of the network cards that an earlier job on the same nodes used.
    """
    numbers = [core for each in ranks for core in (*parse_cpulist(each.cores), *parse_cpulist(each.planned))]
    least = max(numbers, default=0) + 1
    node = node if node.cores >= least else Node(cores=least, gpus=node.gpus, nics=node.nics, nic=node.nic)
    notes = tuple(filter(None, (_network_note(node, net), _gpu_note(node, ranks, net))))
    return draw_node(
        node,
        NodeParts(
            title=host,
            label=f"Node {host}",
            facts=" · ".join(f"rank {each.rank}: {_cores_note(each)}" for each in ranks[:4])
            + (f" · and {len(ranks) - 4} more" if len(ranks) > 4 else ""),  # noqa: PLR2004 - what fits in a line
            description="; ".join((*(f"rank {each.rank}: {_cores_note(each)}" for each in ranks), *notes)),
            cores=dict(_cores(node, ranks)),
            gpus=tuple(_gpus(node, ranks, net)),
            cards=_cards(node, net, expected),
            notes=notes,
        ),
    )


def _cores_note(rank: RankRow) -> str:
    wrong = rank.planned and parse_cpulist(rank.planned) != parse_cpulist(rank.cores)
    noun = "core" if rank.cores.isdigit() else "cores"
    cores = f"{noun} {rank.cores}" if rank.cores else "cores unknown"
    return cores + (f", planned {rank.planned}" if wrong else "") + (", failed first" if rank.end else "")


def _cores(node: Node, ranks: Sequence[RankRow]) -> Iterator[tuple[int, Box]]:
    """Yield each core with the rank that could use it."""
    seen = {core: each for each in ranks for core in parse_cpulist(each.cores)}
    planned = {core: each for each in ranks for core in parse_cpulist(each.planned)}
    for core in range(node.cores):
        rank, plan = seen.get(core), planned.get(core)
        kind = f"c{HUES[rank.local % len(HUES)]}" if rank else "free"
        title = f"core {core}: " + (f"rank {rank.rank}" if rank else "no rank")
        if rank and rank.end:
            kind, title = f"{kind} failed", f"{title}, which failed first"
        if plan and (rank is None or rank.rank != plan.rank):
            kind, title = f"{kind} missed", f"{title}, planned for rank {plan.rank}"
        yield core, Box(kind, str(rank.rank) if rank else "", title, on_color=rank is not None)


def _gpus(node: Node, ranks: Sequence[RankRow], net: NetFacts) -> Iterator[Box]:
    """Yield the GPUs. A device file shows that a rank could see a GPU; only the network library's log that it was used.

    If the log has fewer GPUs than the node, it is unknown which of them were used.
    """
    seen = max((each.gpus for each in ranks), default=0)
    used = len(net.devices)
    for gpu in range(node.gpus):
        name = f"GPU {gpu}"
        if used >= node.gpus:
            yield Box("plain", name, f"{name}: used", "used", on_color=True)
        elif gpu >= seen:
            yield Box("absent", name, f"{name}: no rank saw its device file", "not seen")
        else:
            yield Box("open", name, f"{name}: visible, but no log shows whether it was used", "use not shown")


def _cards(node: Node, net: NetFacts, expected: Sequence[str]) -> tuple[Box, ...]:
    if net.slow:
        texts = expected if len(expected) == node.nics else ("card unused",) * node.nics
        return tuple(Box("absent", text, "network card: the ranks used TCP instead") for text in texts)
    names = net.cards
    if max(net.nics, len(names)) < node.nics or not net.networks:
        return (Box("open", "card ?", "network card: no log shows whether it was used"),) * node.nics
    labels = names if len(names) == node.nics else ("card",) * node.nics
    return tuple(Box("plain", name, "network card: used, as the log shows", on_color=True) for name in labels)


def _network_note(node: Node, net: NetFacts) -> str:
    expected = f"{node.nics} x {node.nic or 'network card'}" if node.nics else ""
    if not net.networks:
        return f"Network: {expected} expected; the logs of this node name no network" if expected else ""
    if net.slow:
        over = f"Network: TCP over {net.interface or 'an unknown interface'}"
        return over + (f" instead of {expected}" if expected else "")
    number = max(net.nics, len(net.cards))
    cards = f", {number} of {count(node.nics, 'card')}" if node.nics else f", {count(number, 'card')}"
    names = f": {', '.join(net.cards)}" if net.cards else ""
    network = " and ".join(map(name_network, net.networks))
    provider = f" ({net.provider})" if net.provider else ""
    return f"Network: {network}{provider}{cards if number else ''}{names}"


def _gpu_note(node: Node, ranks: Sequence[RankRow], net: NetFacts) -> str:
    if not node.gpus:
        return ""
    seen = min(node.gpus, max((each.gpus for each in ranks), default=0))
    used = f"{len(net.devices)} of {node.gpus} used" if net.devices else "no log shows their use"
    return f"GPUs: {seen} of {node.gpus} visible to the ranks; {used}"


def job_node(node: Node, gpus: int) -> Node:
    """Return the profile's node for a job that got this many GPUs of it.

    With fewer GPUs than the node has, the numbers of the GPUs in the job are not those of the profile.
    """
    if gpus == node.gpus:
        return node
    return replace(node, gpus=gpus, gpu_cpus=(), gpu_numa=(), gpu_pci=(), gpu_nics=())
