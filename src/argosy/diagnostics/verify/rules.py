"""Judge what a run proved against what its plan and its site promise; pure, over evidence that was read before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from argosy.diagnostics.verify.earlier import Earlier
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.diagnostics.verify.nodes import Trial, find_bad_nodes
from argosy.jobs.ranks import RankFacts, parse_cores
from argosy.sites.profile import Site

OK, BAD, UNKNOWN = "ok", "bad", "not shown"
LEAST_SHARE = 0.7
"""Share of the site's bandwidth below which a run is called slow."""
LEAST_PAYLOAD = 0.25
"""Share of the site's message size: with smaller messages, or an average over sizes, a low bandwidth proves nothing."""


class Expected(msgspec.Struct, frozen=True):
    """What a run should show.

    Attributes
    ----------
    gpus
        GPUs of a node; 0 for none.
    own_gpus
        GPUs that each rank should see; 0 where that is not known.
    cores
        The cores of each local rank, where ranks are bound by a map: ``49-55``.
    hosts
        The names of its nodes, where they were asked for.
    """

    nodes: int = 0
    ranks: int = 0
    gpus: int = 0
    own_gpus: int = 0
    cores: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes
    ----------
    name
        ``ranks``, ``network``, ``GPUs``, ``cores``, ``bandwidth`` or ``nodes``.
    state
        ``ok``, ``bad`` or ``not shown``.
    hint
        What to do where it is bad.
    nodes
        Those to leave out.
    """

    name: str
    state: str
    said: str
    hint: str = ""
    nodes: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """What a run proved."""

    checks: tuple[Check, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is bad."""
        return all(check.state != BAD for check in self.checks)

    @property
    def line(self) -> str:
        """Say it in one line."""
        marks = {OK: "", BAD: "BAD: ", UNKNOWN: ""}
        return " · ".join(f"{check.name}: {marks[check.state]}{check.said}" for check in self.checks)


def judge_run(
    net: NetFacts, ranks: Sequence[RankFacts], expected: Expected, site: Site, earlier: Earlier | None = None
) -> Verdict:
    """Judge a run."""
    checks = (
        judge_ranks(ranks, expected),
        _judge_network(net, expected, site, ranks),
        _judge_gpus(ranks, expected, net),
        _judge_cores(ranks, expected),
        _judge_bandwidth(net, expected, site, earlier),
    )
    return Verdict(tuple(check for check in checks if check))


def judge_trial(trials: Sequence[Trial], ranks: Sequence[RankFacts], expected: Expected) -> Verdict:
    """Judge a run that tried each node alone: it used no network between them."""
    checks = (judge_ranks(ranks, expected), _judge_gpus(ranks, expected, NetFacts()), _judge_nodes(trials, expected))
    return Verdict(tuple(check for check in checks if check))


def judge_ranks(ranks: Sequence[RankFacts], expected: Expected) -> Check | None:
    """Judge whether all ranks started, and where."""
    if not ranks:
        return Check("ranks", UNKNOWN, "none told of itself") if expected.ranks else None
    hosts = {each.host for each in ranks}
    said = f"{len(ranks)} on {len(hosts)} node(s)"
    rank, times = Counter(each.rank for each in ranks).most_common(1)[0]
    if times > 1:
        hint = "each task must take its own number: $SLURM_PROCID is for the task to expand"
        return Check("ranks", BAD, f"{said}; rank {rank} is there {times} times", hint)
    if expected.ranks and len(ranks) < expected.ranks:
        return Check(
            "ranks", BAD, f"{said} of {expected.ranks}", "see the first rank that failed: argosy jobs show JOB"
        )
    return Check("ranks", OK, said)


def _judge_network(net: NetFacts, expected: Expected, site: Site, ranks: Sequence[RankFacts]) -> Check | None:
    """Judge whether the data between nodes went over the fast network.

    Where the profile has proof lines, one must have matched; elsewhere TCP sockets between GPUs of several nodes are
    bad, and all else is said as it is.
    """
    several_nodes = max(expected.nodes, len(net.hosts), len({each.host for each in ranks})) > 1
    if net.told:
        return _judge_told_network(net, site) if several_nodes else Check("network", OK, _describe_network(net))
    if not several_nodes:
        return None
    if not expected.gpus and not any(each.gpus for each in ranks):
        return Check("network", UNKNOWN, "TCP: no GPU, so no NCCL or RCCL was used (gloo or MPI say nothing)")
    said, hint = "no line of NCCL or RCCL tells it", "run it with --debug net"
    if expected.gpus and site.network.proof_lines:
        return Check("network", BAD, f"{said}, and {site.name} has lines that prove it", hint)
    return Check("network", UNKNOWN, said, hint)


def _judge_told_network(net: NetFacts, site: Site) -> Check:
    """Judge the network between several nodes by what its library told."""
    said, proof_lines = _describe_network(net), site.network.proof_lines
    if net.slow or (proof_lines and not proves(net, site)):
        complaint = f" ({net.complaints[0]})" if net.complaints else ""
        hint = "bind the host's network libraries as the site's profile does, or take a base that has the plugin"
        line = f"; {site.name} shows it by a line like: {proof_lines[0]}" if proof_lines else ""
        return Check("network", BAD, said + complaint, hint + line)
    if 0 < net.nics < site.node.nics:
        few = f"; {net.nics} of the node's {site.node.nics} cards"
        return Check("network", BAD, said + few, "each rank must see all network cards")
    return Check("network", OK, said)


def _describe_network(net: NetFacts) -> str:
    """Say the network in a few words: ``AWS Libfabric (cxi, 4 cards, GPUDirect), RCCL 2.20.5``."""
    if not net.told:
        return "not told"
    more = [net.provider, f"{net.nics} cards" if net.nics else "", "GPUDirect" if net.direct else ""]
    if net.interfaces and (net.slow or "oneCCL" in net.networks):
        more.append(net.interfaces.split("<")[0].removeprefix("[0]"))
    inner = ", ".join(filter(None, more))
    name = " and ".join("TCP sockets" if name.lower() == "socket" else name for name in net.networks)
    return name + (f" ({inner})" if inner else "") + (f", {net.library}" if net.library else "")


def proves(net: NetFacts, site: Site) -> bool:
    """Tell whether what the logs say matches one of the profile's proof lines."""
    lines = [f"NET/OFI Selected Provider is {net.provider}"] if net.provider else []
    lines += [f"Using network {name}" for name in net.networks]
    lines += [f"NET/IB : Using {net.interfaces}"] if "IB" in net.networks else []
    return any(re.search(pattern, line) for pattern in site.network.proof_lines for line in lines)


def _judge_gpus(ranks: Sequence[RankFacts], expected: Expected, net: NetFacts) -> Check | None:
    """Judge the GPUs of each rank: device files show that GPUs are there, only NCCL's lines that they were used."""
    if not expected.gpus and not any(each.gpus for each in ranks):
        return None
    if not ranks:
        return Check("GPUs", UNKNOWN, "no rank told what it saw")
    seen = sorted({each.gpus for each in ranks})
    files = f"device files: {' or '.join(map(str, seen))} for each rank"
    said = f"{len(net.devices)} used by {net.library.split()[0] if net.library else 'NCCL'}, {files}"
    said = said if net.devices else f"use not shown, {files}"
    blind = next((each for each in ranks if expected.gpus and each.gpus == 0), None)
    if blind:
        hint = "the runtime did not bring them in, or the job did not ask for them"
        return Check("GPUs", BAD, f"{said}: none by rank {blind.rank} on {blind.host}", hint)
    few = next((each for each in ranks if each.gpus < expected.own_gpus), None)
    if few:
        return Check(
            "GPUs", BAD, f"{said}, {expected.own_gpus} expected: rank {few.rank} on {few.host}", "see the GPU options"
        )
    return Check("GPUs", OK if net.devices else UNKNOWN, said)


def _judge_cores(ranks: Sequence[RankFacts], expected: Expected) -> Check | None:
    """Judge the cores that ranks read back: by the map; without one, whether ranks of a node share a single core."""
    told = [each for each in ranks if each.cores]
    if not told:
        return Check("cores", UNKNOWN, "no rank told its own") if expected.cores else None
    wrong = [
        each
        for each in told
        if each.local < len(expected.cores) and parse_cores(each.cores) != parse_cores(expected.cores[each.local])
    ]
    if wrong:
        first = wrong[0]
        said = f"rank {first.rank} on {first.host} has {first.cores}, planned {expected.cores[first.local]}"
        hint = "masks hold on whole nodes only; taskset must be in the image for workers of torchrun"
        return Check("cores", BAD, f"{len(wrong)} of {len(told)} not as planned: {said}", hint)
    if expected.cores:
        return Check("cores", OK, f"{len(told)} of {len(told)} ranks bound as planned")
    sizes = sorted({len(parse_cores(each.cores)) for each in told})
    shared = _shared(told)
    said = f"{' or '.join(map(str, sizes))} for each rank" + (f", shared by ranks of {shared}" if shared else "")
    lonely = shared and sizes == [1]
    hint = "several ranks compute on one core: ask for --cpus-per-rank" if lonely else ""
    return Check("cores", BAD if lonely else OK, said, hint)


def _shared(ranks: Sequence[RankFacts]) -> str:
    """Name a host on which two ranks have the same cores."""
    seen: set[tuple[str, frozenset[int]]] = set()
    for each in ranks:
        key = (each.host, parse_cores(each.cores))
        if key in seen:
            return each.host
        seen.add(key)
    return ""


def _judge_bandwidth(net: NetFacts, expected: Expected, site: Site, earlier: Earlier | None) -> Check | None:
    """Judge a bus bandwidth against what was measured at the site; that of an earlier job is told beside it."""
    measured = net.measured
    if measured is None:
        return None
    said = f"{measured.gigabytes:g} GB/s bus bandwidth"
    said += f"; {earlier.measured.gigabytes:g} in job {earlier.job} of {earlier.date}" if earlier else ""
    shape = (expected.nodes, expected.gpus)
    known = [row for row in site.network.expected if (row.nodes, row.gpus_per_node) == shape]
    if not known or measured.operation not in {"", "all_reduce"}:
        return Check("bandwidth", OK, said)
    row = known[0]
    said += f"; {row.gigabytes:g} were measured on {row.nodes} node(s) ({row.source})"
    if measured.gigabytes >= LEAST_SHARE * row.gigabytes:
        return Check("bandwidth", OK, said)
    if measured.size < LEAST_PAYLOAD * row.payload_gb * 1e9:
        said += f" with messages of {row.payload_gb:g} GB"
        return Check("bandwidth", UNKNOWN, said, f"measure with such messages: --max-size {row.payload_gb:g}G")
    return Check("bandwidth", BAD, said, "see the network above, and the cores")


def _judge_nodes(trials: Sequence[Trial], expected: Expected) -> Check:
    """Judge nodes that were tried each alone; where none answered, it is the program that failed, and no node."""
    if not trials:
        hint = "see why the program failed: argosy why JOB"
        return Check("nodes", BAD, "none answered, which tells nothing of any", hint)
    bad = find_bad_nodes(trials, expected.hosts, expected.gpus)
    hosts = {trial.host for trial in trials}
    devices = len(trials)
    if not bad:
        return Check("nodes", OK, f"{len(hosts)} answered with {devices} device(s), none slow or wrong")
    said = "; ".join(f"{node.host} {node.why}" for node in bad)
    names = tuple(node.host for node in bad)
    return Check("nodes", BAD, said, f"leave out, and tell the support team: --exclude {','.join(names)}", names)
