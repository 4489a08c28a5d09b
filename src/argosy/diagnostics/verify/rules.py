"""Compare the evidence of a run with its plan and its site; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from argosy.core.findings import Finding, State, has_failed
from argosy.core.parse import parse_cpulist
from argosy.core.render import count
from argosy.diagnostics.verify.logs import OF_JAX, DeviceTest, NetFacts, find_bad_nodes
from argosy.jobs.history import PastJob
from argosy.jobs.record import RankFacts
from argosy.sites.profile import Site

LEAST_SHARE = 0.7
"""Share of the site's bandwidth below which a run fails."""
LEAST_PAYLOAD = 0.25
"""Share of the site's message size below which a low bandwidth says nothing about the network."""


class Expected(msgspec.Struct, frozen=True):
    """The values that a run should have."""

    nodes: int = 0
    ranks: int = 0
    gpus: int = 0
    """GPUs of a node; 0 for none."""
    own_gpus: int = 0
    """GPUs that each rank should see; 0 if that is unknown."""
    cores: tuple[str, ...] = ()
    """The cores of each local rank, for example ``49-55``; empty if ranks are not bound by a map."""
    hosts: tuple[str, ...] = ()
    """The names of the job's nodes; empty if they are unknown."""
    had_debug_net: bool = False
    """Whether it was launched with ``--debug net``."""


class PassedRun(msgspec.Struct, frozen=True):
    """An earlier run that ended well and passed its checks, and the network that its logs show."""

    job: PastJob
    net: NetFacts


class Verdict(msgspec.Struct, frozen=True):
    """The result of verifying a run."""

    findings: tuple[Finding, ...]
    """In the order ``ranks``, ``network``, ``GPUs``, ``cores``, ``bandwidth``, ``nodes``; only those that apply."""
    bad_nodes: tuple[str, ...] = ()
    """Nodes to exclude from the next job."""

    @property
    def ok(self) -> bool:
        """Return whether no check failed."""
        return not has_failed(self.findings)

    @property
    def line(self) -> str:
        """Return the verdict in one line."""
        marks = {State.FAIL: "FAIL: ", State.WARN: "WARN: "}
        return " · ".join(f"{each.what}: {marks.get(each.state, '')}{each.evidence}" for each in self.findings)


def check_run(
    net: NetFacts, ranks: Sequence[RankFacts], expected: Expected, site: Site, passed: PassedRun | None = None
) -> Verdict:
    """Compare a run with its plan and its site."""
    network = _check_network(net, expected, site, ranks)
    findings = (
        _check_ranks(ranks, expected),
        network,
        _check_gpus(ranks, expected, net),
        _check_cores(ranks, expected),
        _check_bandwidth(net, expected, site, passed, has_network=network is None or network.state is not State.FAIL),
    )
    return Verdict(tuple(finding for finding in findings if finding))


def check_node_tests(tests: Sequence[DeviceTest], ranks: Sequence[RankFacts], expected: Expected) -> Verdict:
    """Check a run of `argosy bench nodes`, which tests each node alone and uses no network between nodes."""
    nodes, bad_nodes = _check_nodes(tests, expected)
    findings = (_check_ranks(ranks, expected), _check_gpus(ranks, expected, NetFacts()), nodes)
    return Verdict(tuple(finding for finding in findings if finding), bad_nodes)


def _check_ranks(ranks: Sequence[RankFacts], expected: Expected) -> Finding | None:
    if not ranks:
        return Finding("ranks", State.UNKNOWN, "no rank wrote a record") if expected.ranks else None
    hosts = {each.host for each in ranks}
    evidence = f"{len(ranks)} on {count(len(hosts), 'node')}"
    rank, times = Counter(each.rank for each in ranks).most_common(1)[0]
    if times > 1:
        hint = "expand $SLURM_PROCID in each task, not in the batch script"
        return Finding("ranks", State.FAIL, f"{evidence}; rank {rank} started {times} times", hint)
    if expected.ranks and len(ranks) < expected.ranks:
        hint = "find the first rank that failed: argosy jobs show JOB"
        return Finding("ranks", State.FAIL, f"{evidence} of {expected.ranks}", hint)
    return Finding("ranks", State.OK, evidence)


def _check_network(net: NetFacts, expected: Expected, site: Site, ranks: Sequence[RankFacts]) -> Finding | None:
    """Check that data between nodes used the fast network.

    If the profile has proof lines, one of them must match. Otherwise only TCP sockets between GPUs of several nodes
    fail.
    """
    several_nodes = max(expected.nodes, len(net.hosts), len({each.host for each in ranks})) > 1
    if net.failure:
        return Finding("network", State.FAIL, f"{_describe_network(net)} failed ({net.failure})", "argosy why LOG")
    if net.networks:
        return _check_logged_network(net, site) if several_nodes else _ok_network(net)
    return _check_silent_network(net, expected, site, ranks) if several_nodes else None


def _ok_network(net: NetFacts) -> Finding:
    return Finding("network", State.OK, _describe_network(net))


def _check_silent_network(net: NetFacts, expected: Expected, site: Site, ranks: Sequence[RankFacts]) -> Finding:
    """Check a run on several nodes whose logs name no network."""
    if ranks and _used_no_gpu(ranks, expected, net):
        evidence = "the run used no GPU, so NCCL and RCCL wrote nothing; gloo and MPI do not log their network"
        return Finding("network", State.UNKNOWN, evidence)
    evidence, hint = "no line of NCCL or RCCL shows it", "" if expected.had_debug_net else "run it with --debug net"
    if expected.gpus and site.network.proof_lines:
        return Finding("network", State.FAIL, f"{evidence}, and the profile of {site.name} expects one", hint)
    return Finding("network", State.UNKNOWN, evidence, hint)


def _check_logged_network(net: NetFacts, site: Site) -> Finding:
    """Check the network between several nodes by the log of its library."""
    evidence, proof_lines = _describe_network(net), site.network.proof_lines
    if net.slow or (proof_lines and not _matches_proof_line(net, site)):
        if net.slow:
            evidence = f"TCP over {net.interface or 'an unknown interface'}, not {site.node.nic or 'the fast network'}"
        wrote = f"{net.library or 'the log'} says '{net.complaints[0].rstrip('.')}'" if net.complaints else net.library
        complaint = f"; {wrote}" if wrote else ""
        if proof_lines and not net.slow:
            complaint += f"; no network that was used matches '{proof_lines[0]}' in the profile of {site.name}"
        return Finding("network", State.FAIL, evidence + complaint, _advise_on_network(net))
    if 0 < net.nics < site.node.nics:
        few = f"; {net.nics} of the node's {site.node.nics} network cards"
        return Finding("network", State.FAIL, evidence + few, "let each rank see all network cards")
    if net.staged:
        hint = "GPUDirect RDMA needs nvidia-peermem or DMA-BUF on the node, and a card near the GPU"
        return Finding("network", State.WARN, f"{evidence}; no GPUDirect, so data is copied through host memory", hint)
    return _ok_network(net)


def _advise_on_network(net: NetFacts) -> str:
    """Say what to check if the fast network was not used."""
    if any("No device found" in complaint for complaint in net.complaints):
        return (
            "check that the container has the network cards (ls /dev/infiniband) and their libraries (argosy check), "
            "and that NCCL_IB_HCA, NCCL_IB_DISABLE and NCCL_NET do not select another network"
        )
    return "check that the image or the bind mounts have the plugin of the network and its libraries (argosy check)"


def _describe_network(net: NetFacts) -> str:
    """Describe the network briefly: ``AWS Libfabric (cxi, 4 cards, GPUDirect), RCCL 2.20.5``."""
    if not net.networks:
        return "unknown"
    more = [net.provider, f"{net.nics} cards" if net.nics else "", "GPUDirect" if net.direct else ""]
    inner = ", ".join(filter(None, (*more, net.interface)))
    name = " and ".join(name_network(each) for each in net.networks)
    return name + (f" ({inner})" if inner else "") + (f", {net.library}" if net.library else "")


def name_network(name: str) -> str:
    """Return the usual name of a network of NCCL's log, for example ``InfiniBand`` for ``IB``."""
    return {"ib": "InfiniBand", "socket": "TCP"}.get(name.lower(), name)


def _matches_proof_line(net: NetFacts, site: Site) -> bool:
    lines = [f"NET/OFI Selected Provider is {net.provider}"] if net.provider else []
    lines += [f"Using network {name}" for name in net.networks]
    lines += [f"NET/IB : Using {net.interfaces}"] if "IB" in net.networks else []
    return any(re.search(pattern, line) for pattern in site.network.proof_lines for line in lines)


def _used_no_gpu(ranks: Sequence[RankFacts], expected: Expected, net: NetFacts) -> bool:
    """Return whether a run used no GPU: none was planned, or without a plan, no rank saw one; and NCCL wrote nothing.

    The device files of a node may also be in a container without GPUs.
    """
    return not expected.gpus and not net.hosts and (expected.ranks > 0 or not any(each.gpus for each in ranks))


def _check_gpus(ranks: Sequence[RankFacts], expected: Expected, net: NetFacts) -> Finding | None:
    """Check the GPUs of each rank.

    Device files show that a rank could see its GPUs. Only lines of NCCL or RCCL show that it used them, and only lines
    of Lightning or PyTorch that it did not.
    """
    if _used_no_gpu(ranks, expected, net):
        return None
    if not ranks:
        return _check_unused(ranks, expected, net) or Finding("GPUs", State.UNKNOWN, "no rank recorded its GPUs")
    seen = sorted({each.gpus for each in ranks})
    visible = f"each rank can see {' or '.join(map(str, seen))}"
    used = f"{len(net.devices)} used by {net.library.split()[0] if net.library else 'NCCL'}; {visible}"
    evidence = used if net.devices else f"use not shown; {visible}"
    blind = next((each for each in ranks if expected.gpus and each.gpus == 0), None)
    if blind:
        hint = "check that the job requests GPUs and that the runtime brings them into the container"
        return Finding("GPUs", State.FAIL, f"{evidence}: rank {blind.rank} on {blind.host} saw none", hint)
    few = next((each for each in ranks if each.gpus < expected.own_gpus), None)
    if few:
        evidence += f", {expected.own_gpus} expected: rank {few.rank} on {few.host}"
        return Finding("GPUs", State.FAIL, evidence, "check the GPU options of the job")
    return _check_unused(ranks, expected, net, f"; {visible}") or Finding(
        "GPUs", State.OK if net.devices else State.UNKNOWN, evidence
    )


def _check_unused(ranks: Sequence[RankFacts], expected: Expected, net: NetFacts, more: str = "") -> Finding | None:
    """Check for GPUs that were requested and not used; None without evidence. `more` is appended to the evidence.

    PyTorch and JAX warn about the GPUs of one process, so each rank must have printed the warning.  A program may still
    use GPUs by other means, for example by CuPy.
    """
    requested = expected.gpus * max(expected.nodes, 1)
    if not requested or net.devices:
        return None
    if net.unused:
        evidence = f'{requested} requested, used by the program: 0 (Lightning says "{net.unused}"){more}'
        return Finding("GPUs", State.FAIL, evidence, "set accelerator='gpu' or 'auto' in the Trainer of the program")
    text, times = net.blind
    least = max(len(ranks), expected.ranks, 1)
    if times < least:
        return None
    says = "each rank says" if least > 1 else "it says"
    evidence = f'{requested} requested, used by {"JAX" if text == OF_JAX else "torch"}: 0 ({says} "{text}"){more}'
    hint = "compare the image with the GPUs and the driver: argosy check IMAGE --site NAME"
    return Finding("GPUs", State.WARN, evidence, hint)


def _check_cores(ranks: Sequence[RankFacts], expected: Expected) -> Finding | None:
    """Check the cores that ranks read back: against their map, else that ranks of a node do not share a single one."""
    bound = [each for each in ranks if each.cores]
    if not bound:
        return Finding("cores", State.UNKNOWN, "no rank recorded its cores") if expected.cores else None
    wrong = [
        each
        for each in bound
        if each.local < len(expected.cores) and parse_cpulist(each.cores) != parse_cpulist(expected.cores[each.local])
    ]
    if wrong:
        first = wrong[0]
        evidence = f"rank {first.rank} on {first.host} has {first.cores}, planned {expected.cores[first.local]}"
        hint = "use whole nodes, since masks need them; for torchrun's workers the image needs taskset"
        return Finding("cores", State.FAIL, f"{len(wrong)} of {len(bound)} not as planned: {evidence}", hint)
    if expected.cores:
        return Finding("cores", State.OK, f"{len(bound)} of {len(bound)} ranks bound as planned")
    sizes = sorted({len(parse_cpulist(each.cores)) for each in bound})
    shared = _find_shared_host(bound)
    evidence = f"{' or '.join(map(str, sizes))} for each rank" + (f", shared by ranks of {shared}" if shared else "")
    if shared and sizes == [1]:
        return Finding("cores", State.FAIL, evidence, "give each rank its own cores with --cpus-per-rank")
    return Finding("cores", State.OK, evidence)


def _find_shared_host(ranks: Sequence[RankFacts]) -> str:
    """Find a host on which two ranks have the same cores."""
    seen: set[tuple[str, frozenset[int]]] = set()
    for each in ranks:
        key = (each.host, parse_cpulist(each.cores))
        if key in seen:
            return each.host
        seen.add(key)
    return ""


def _check_bandwidth(
    net: NetFacts, expected: Expected, site: Site, passed: PassedRun | None, *, has_network: bool
) -> Finding | None:
    """Compare a bus bandwidth with the one measured at the site, and show that of the last run that passed."""
    measured = net.measured
    if measured is None:
        return None
    evidence = f"{measured.gigabytes:g} GB/s bus bandwidth"
    before = ""
    earlier = passed.net.measured if passed else None
    if passed and earlier and earlier.operation == measured.operation:
        run = f"job {passed.job.id} of {passed.job.submitted[:10]}, the last run that passed"
        before = f"; {earlier.gigabytes:g} GB/s in {run}"
    shape = (expected.nodes, expected.gpus)
    known = [row for row in site.network.expected if (row.nodes, row.gpus_per_node) == shape]
    if not known or measured.operation not in {"", "all_reduce"}:
        return Finding("bandwidth", State.OK, evidence + before)
    row = known[0]
    least = LEAST_SHARE * row.gigabytes
    evidence += (
        f"; {row.gigabytes:g} GB/s expected on {count(row.nodes, 'node')}, "
        f"at least {least:g} GB/s ({LEAST_SHARE:.0%}) to pass"
    )
    evidence += f" ({row.source})" if row.source else ""
    if measured.gigabytes >= least:
        return Finding("bandwidth", State.OK, evidence + before)
    if measured.size < LEAST_PAYLOAD * row.payload_gb * 1e9:
        evidence += f" with messages of {row.payload_gb:g} GB"
        hint = f"measure with messages of that size: --max-size {row.payload_gb:g}G"
        return Finding("bandwidth", State.UNKNOWN, evidence + before, hint)
    hint = "check the cores above, and the load of the network" if has_network else "fix the network first"
    return Finding("bandwidth", State.FAIL, evidence + before, hint)


def _check_nodes(tests: Sequence[DeviceTest], expected: Expected) -> tuple[Finding, tuple[str, ...]]:
    """Check nodes that were tested each alone, and name the bad ones.

    If no node answered, the test program failed, which says nothing about the nodes.
    """
    if not tests:
        hint = "find out why the test program failed: argosy why JOB"
        return Finding("nodes", State.FAIL, "no node answered, so the test program itself failed", hint), ()
    bad = find_bad_nodes(tests, expected.hosts, expected.gpus)
    if not bad:
        hosts = {test.host for test in tests}
        evidence = f"{len(hosts)} answered with {count(len(tests), 'device')}, none slow or wrong"
        return Finding("nodes", State.OK, evidence), ()
    names = tuple(node.host for node in bad)
    hint = f"exclude them with --exclude {','.join(names)}, and report them to the site's support"
    return Finding("nodes", State.FAIL, "; ".join(f"{node.host} {node.why}" for node in bad), hint), names
