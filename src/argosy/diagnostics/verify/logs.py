"""Parse the logs of a run: the network in those of NCCL, RCCL and oneCCL, and bad nodes in `argosy bench nodes`; pure.

The wording of network logs (NCCL_DEBUG=INFO, CCL_LOG_LEVEL=info) differs between releases and plugins;
``tests/corpus/nccl`` contains the known forms. The line ``Bootstrap : Using …`` is ignored: it names the interface of
the first handshake, not that of the data. A node is bad if it gives no answer or wrong results, or is slow.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median_high

import msgspec

from argosy.bench.collectives_output import Measured, parse_bandwidth

LINE = re.compile(r"^.*?(?<![\w.-])(?P<host>[\w.-]+):\d+:\d+ \[\d+\] .*?(?P<what>NCCL (?:INFO|WARN) .*)$", re.MULTILINE)

LIBRARY = re.compile(r"\b(RCCL|NCCL) version\s*:?\s*(\d[\w.]*(?:\+[\w.]+)?)")
PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) (aws-ofi-[nr]ccl [\w.-]+)")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")
NICS = re.compile(r"\(found (\d{1,9}) nics?\)")
NETWORK = re.compile(r"NCCL INFO (?:\S+: )?Using network (.+?)\s*$", re.MULTILINE)
IB = re.compile(r"NET/IB : Using (\[\d.+)$", re.MULTILINE)
"""Does not match the form without a card: ``NET/IB : Using [RO]; OOB eth0:…``."""
CARD = re.compile(r"\[\d+\]([\w-]+):\d+/")
SOCKET = re.compile(r"NET/Socket : Using (.+)$", re.MULTILINE)
CCL_PROVIDER = re.compile(r"\|CCL_INFO\| +provider: (\S+)")
CCL_NIC = re.compile(r"\|CCL_INFO\| +nic: \{ name (?:[\w-]+:)?([^\s,}]+)")
VIA_NET = re.compile(r"via NET/([^/\n]+(?:/[^/\s]+)?)/\d+(\S*)")
VIA_NODE = re.compile(r"via (P2P|SHM)\b")
GDR = re.compile(r"GPU Direct RDMA Enabled|via NET/[^/\n]*/\S*GDRDMA")
NO_GDR = re.compile(r"GPU Direct RDMA Disabled|via NET/(?!Socket)[^/\n]+/\d+")
OLD_IB = re.compile(r"NET/IB ?: Using \[0\]|NCCL WARN NET/IB ?:[^\n]*Got completion")
"""Lines that only a run over InfiniBand writes. NCCL before 2.5 and logs of NCCL_DEBUG=WARN name no network."""
FAILURE = re.compile(
    r"NCCL WARN (?:Call to ibv_\w+ failed.*|NET/IB ?:.*Got completion.*|NET/OFI .*completed with error.*"
    r"|NET/OFI .*(?:Unable to complete|retries exceeded).*)"
)
"""A network that was chosen and then failed."""
DEVICE = re.compile(
    r"^.*?(?<![\w.-])([\w.-]+):\d+:\d+ \[\d+\] NCCL INFO .*\bcudaDev \d+ .*\bbusId ([0-9a-f]+)", re.MULTILINE
)
"""Matches a GPU that the library has opened. Unlike a device file, this shows that the program used the GPU."""
LIGHTNING = re.compile(r"GPU available: (?:True|False)(?: \([\w, ]+\))?, used: (?:True|False)\b")
"""Lightning's Trainer prints once which GPUs the program uses (rank_zero_info in its setup)."""
OF_JAX = "a CUDA-enabled jaxlib is not installed"
"""Part of the warning that JAX writes once in each process if it finds an NVIDIA GPU that it cannot use."""
NO_GPU_IN_PROGRAM = re.compile(
    r"'pin_memory' argument is set as true but no accelerator is found|GradScaler is enabled, but CUDA is not available"
    r"|User provided device_type of 'cuda', but CUDA is not available|(?<=UserWarning: )CUDA initialization: [^\n(]*\w"
    rf"|{OF_JAX}"
)
"""Warnings of PyTorch in a process in which torch.cuda.is_available() is false, and of JAX."""
RANKS = re.compile(r"\bnranks (\d{1,9})\b|\bnRanks (\d{1,9})\b")
COMPLAINT = re.compile(
    r"NCCL WARN .*|NET/IB : No device found.*"
    r"|NET/Plugin ?: ?(?:dlerror=.*|.*(?:Could not find: ofi|Failed to initialize).*)"
)
SETTING = re.compile(r"\b((?:NCCL|RCCL)_\w+) set (?:by environment )?to (\S*[^\s.])")
"""A variable that the library read, for example ``NCCL_IB_HCA set to mlx5_0``."""
OWN_SETTINGS = "NCCL_DEBUG"
"""Argosy sets the variables with this prefix itself."""
OF_RAS = re.compile(r"^.* ras/.*$", re.MULTILINE)
"""NCCL's RAS service (since 2.24). Two jobs on a node compete for its port; the failure is harmless."""
MOST_COMPLAINTS = 8
LONG_LINE = re.compile(r"^(.{4000}).+$", re.MULTILINE)
"""Matches a line that is longer than any line of NCCL, for example a dump: searching it would take minutes."""

NODE_LINE = re.compile(
    r"^# node (?P<host>\S+) (?P<device>cpu|gpu \d+) \((?P<kind>.*?)\): (?P<results>.*)$", re.MULTILINE
)
FIGURE = re.compile(r"(?P<name>[a-z ]+) (?P<value>\d{1,15}\.\d{1,15}) (?P<unit>[TG]\S+/s)")
LEAST_SHARE = {"gpu": 0.75, "cpu": 0.5}
"""Share of the median of a model below which a device counts as slow. GPUs of one model differ by up to 22 % on healthy
clusters (Sinha et al., SC22, https://arxiv.org/abs/2208.11035). A node's CPU may also serve other jobs."""


class NetFacts(msgspec.Struct, frozen=True):
    """The network of a run, as its logs show it."""

    library: str = ""
    """For example ``RCCL 2.20.5``; empty if no line names it."""
    plugin: str = ""
    networks: tuple[str, ...] = ()
    """Networks that ranks used, each once: ``AWS Libfabric``, ``IB``, ``Socket`` or ``oneCCL``."""
    provider: str = ""
    """libfabric's provider, for example ``cxi``."""
    nics: int = 0
    """Network cards that the plugin found; 0 if the log does not contain it."""
    interfaces: str = ""
    """Text after the first ``NET/IB : Using`` or ``NET/Socket : Using``, or oneCCL's card."""
    direct: bool = False
    """Whether data goes from the GPU to the card without a copy in host memory (GPUDirect RDMA)."""
    within: tuple[str, ...] = ()
    """Transports between GPUs of a node: ``P2P``, ``SHM``."""
    hosts: tuple[str, ...] = ()
    """Hosts that wrote lines."""
    devices: tuple[tuple[str, str], ...] = ()
    """GPUs that the library opened, each as host and bus id. In a large job only one rank per node writes a log."""
    ranks: int = 0
    """Size of the largest communicator; 0 if the log does not contain it."""
    complaints: tuple[str, ...] = ()
    staged: bool = False
    """Whether the logs show that data goes through host memory on its way to the card."""
    failure: str = ""
    """First line about a failure of the network after it was chosen; empty if there is none."""
    measured: Measured | None = None
    """Bandwidth that a benchmark printed; None for other programs."""
    settings: tuple[tuple[str, str], ...] = ()
    """Variables that the library read, by its log: name and value."""
    unused: str = ""
    """Text of Lightning that the program uses no GPU; empty without it, or if a part of the program uses one."""
    blind: tuple[str, int] = ("", 0)
    """Text of PyTorch or JAX that a process finds no GPU, and how often the logs contain it."""

    @property
    def cards(self) -> tuple[str, ...]:
        """The InfiniBand cards that the logs name; several ports of a card are one card."""
        return _once(CARD.findall(self.interfaces)) if "IB" in self.networks else ()

    @property
    def interface(self) -> str:
        """The first interface of TCP sockets, or oneCCL's card, for example ``eth0``; empty if the log has none."""
        return self.interfaces.removeprefix("[0]").partition(":")[0] if self.slow or "oneCCL" in self.networks else ""

    @property
    def slow(self) -> bool:
        """Whether any rank used TCP sockets."""
        return any(name.lower() == "socket" for name in self.networks)


def parse_netlog(text: str) -> NetFacts:
    """Parse the text of one or several logs."""
    text = LONG_LINE.sub(r"\1", text)
    networks = (
        _once(NETWORK.findall(text)) or _from_channels(text) or (("oneCCL",) if CCL_PROVIDER.search(text) else ())
    )
    library = LIBRARY.search(text)
    ranks = [int(first or second) for first, second in RANKS.findall(text)]
    interfaces = IB.search(text) or SOCKET.search(text) or CCL_NIC.search(text)
    return NetFacts(
        library=" ".join(library.groups()) if library else "",
        plugin=_first(PLUGIN, text),
        networks=networks,
        provider=_first(PROVIDER, text) or _first(CCL_PROVIDER, text),
        nics=max(map(int, NICS.findall(text)), default=0),
        interfaces=interfaces[1].strip() if interfaces else "",
        direct=bool(GDR.search(text)),
        within=_once(VIA_NODE.findall(text)),
        hosts=_once(match["host"] for match in LINE.finditer(text)),
        devices=tuple(dict.fromkeys(DEVICE.findall(text))),
        ranks=max(ranks, default=0),
        complaints=_once(COMPLAINT.findall(OF_RAS.sub("", text)))[:MOST_COMPLAINTS],
        staged=bool(NO_GDR.search(text)) and not GDR.search(text),
        failure=next(iter(FAILURE.findall(text)), ""),
        measured=parse_bandwidth(text),
        settings=_parse_settings(text),
        unused=_parse_unused(text),
        blind=next(iter(Counter(NO_GPU_IN_PROGRAM.findall(text)).most_common(1)), ("", 0)),
    )


def _parse_unused(text: str) -> str:
    """Return the line of Lightning about unused GPUs; empty if a part of the program uses them."""
    lines: list[str] = LIGHTNING.findall(text)
    return "" if any(line.endswith("True") for line in lines) else next(iter(lines), "")


def _parse_settings(text: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that the library read, each once, without those of its log."""
    found = dict(SETTING.findall(text))
    return tuple((name, value) for name, value in sorted(found.items()) if not name.startswith(OWN_SETTINGS))


def parse_by_host(text: str) -> dict[str, NetFacts]:
    """Parse the lines of each host apart; lines without the name of a host are skipped."""
    lines: dict[str, list[str]] = {}
    for match in LINE.finditer(LONG_LINE.sub(r"\1", text)):
        lines.setdefault(match["host"], []).append(match[0])
    return {host: parse_netlog("\n".join(own)) for host, own in lines.items()}


def _from_channels(text: str) -> tuple[str, ...]:
    """Return the networks of the channels, for logs without a ``Using network`` line."""
    return _once(name for name, _ in VIA_NET.findall(text)) or (("IB",) if OLD_IB.search(text) else ())


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


class DeviceTest(msgspec.Struct, frozen=True):
    """The test results of one device of a node."""

    host: str
    device: str
    """``gpu 3`` or ``cpu``."""
    kind: str
    """Its model. Only devices of the same model are compared."""
    figures: Mapping[str, tuple[float, str]]
    """Measurement -> value and unit: ``matmul`` in TFLOP/s; ``memory``, ``from host`` and ``to the next`` in GB/s."""
    faults: tuple[str, ...] = ()
    """Failures and wrong results, as the test program prints them."""


class BadNode(msgspec.Struct, frozen=True):
    """A node to exclude, with the reason."""

    host: str
    why: str


def parse_node_tests(text: str) -> tuple[DeviceTest, ...]:
    """Parse the output of a job; if a job ran twice, the last line of each device counts."""
    found = {(match["host"], match["device"]): _parse_test(match) for match in NODE_LINE.finditer(text)}
    return tuple(found.values())


def _parse_test(match: re.Match[str]) -> DeviceTest:
    measured, *faults = match["results"].split(" | ")
    figures = {each["name"].strip(): (float(each["value"]), each["unit"]) for each in FIGURE.finditer(measured)}
    return DeviceTest(match["host"], match["device"], match["kind"], figures, tuple(faults))


def find_bad_nodes(tests: Sequence[DeviceTest], hosts: Sequence[str], gpus: int) -> tuple[BadNode, ...]:
    """Find the nodes to exclude, each with its first reason.

    Parameters
    ----------
    hosts
        The nodes of the job. A node without a line did not answer.
    gpus
        GPUs that each node should have; 0 if the job requested none.
    """
    medians = _medians(tests)
    by_host: dict[str, list[DeviceTest]] = {host: [] for host in hosts}
    for test in tests:
        by_host.setdefault(test.host, []).append(test)
    reasons = ((host, next(_reasons(own, medians, gpus), "")) for host, own in by_host.items())
    return tuple(BadNode(host, why) for host, why in reasons if why)


def _medians(tests: Sequence[DeviceTest]) -> Mapping[tuple[str, str], float]:
    """Return the median of each figure of each model; the higher value of two."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for test in tests:
        for name, (value, _) in test.figures.items():
            values[test.kind, name].append(value)
    return {key: median_high(each) for key, each in values.items()}


def _reasons(own: Sequence[DeviceTest], medians: Mapping[tuple[str, str], float], gpus: int) -> Iterator[str]:
    if not own:
        yield "did not answer"
    for test in own:
        yield from (f"{test.device}: {fault}" for fault in test.faults)
    seen = sum(test.device != "cpu" for test in own)
    if seen < gpus:
        yield f"shows {seen} of {gpus} GPUs"
    for test in own:
        for name, (value, unit) in test.figures.items():
            usual = medians[test.kind, name]
            if value < LEAST_SHARE[test.device[:3]] * usual:
                yield f"{test.device} is slow: {name} {value:g} of {usual:g} {unit}, the median"
