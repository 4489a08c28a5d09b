"""Draft the values of a compute node: NUMA nodes, GPUs and the cores close to them, /tmp, the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from argosy.core.mounts import IN_MEMORY, parse_file_system
from argosy.core.parse import render_cpulist
from argosy.diagnostics.discover.questions import asked
from argosy.diagnostics.discover.replies import (
    DISK_KINDS,
    Cores,
    Gpus,
    NodeShape,
    guess_vendor,
    parse_cuda_version,
    parse_intel,
    parse_links,
    parse_lscpu,
    parse_nvidia,
    parse_rocm,
    parse_rocm_version,
)

Value = str | int | bool | list[str] | list[int]


class Fact(msgspec.Struct, frozen=True):
    """One value of a profile."""

    section: str
    key: str
    """Section and key: ``node``, ``cores``."""
    value: Value
    source: str
    """The command that printed it, and the machine."""
    why: str = ""
    """How the value was derived, if that is not obvious."""


class Draft(msgspec.Struct, frozen=True):
    """The draft of a profile."""

    facts: tuple[Fact, ...] = ()
    options: tuple[Fact, ...] = ()
    """Arguments for every job: the section is ``options``, the key the program (``sbatch``)."""
    partitions: tuple[Mapping[str, str | int | bool], ...] = ()
    questions: tuple[str, ...] = ()

    def __add__(self, more: Draft) -> Draft:
        """Return this draft with what another one adds."""
        return Draft(
            self.facts + more.facts, self.options + more.options, self.partitions + more.partitions,
            self.questions + more.questions,
        )  # fmt: skip


def draft_machine(answers: Mapping[str, str], shape: NodeShape) -> Draft:
    """Draft the values of a compute node from its answers."""
    if not answers:
        return Draft()
    host = answers.get("host", "")
    draft = _draft_cpus(answers, host, shape)
    if shape.gpus:
        draft += _draft_gpus(answers, host, shape) + _draft_driver(answers, host)
    return draft + _draft_folders(answers, host) + _draft_network(answers, host)


def _facts(host: str, *rows: tuple[str, Value, str]) -> tuple[Fact, ...]:
    """Return facts of a node from key, value and question; those without a value are left out."""
    return tuple(Fact("node", key, value, asked(question, host)) for key, value, question in rows if value)


def _draft_cpus(answers: Mapping[str, str], host: str, shape: NodeShape) -> Draft:
    cores = parse_lscpu(answers.get("cpus", ""))
    names = (line.partition(":") for line in answers.get("lscpu", "").splitlines())
    facts = _facts(
        host,
        ("numa", len(set(cores.numa.values())), "cpus"),
        ("cpu_model", next((value.strip() for name, _, value in names if name == "Model name"), ""), "lscpu"),
        ("arch", answers.get("arch", ""), "arch"),
    )
    found = len(cores.first_cpus)
    differs = f"cores of a node: Slurm has {shape.cores}, {host} has {found}"
    return Draft(facts, questions=(differs,) if found not in {0, shape.cores} else ())


def _draft_gpus(answers: Mapping[str, str], host: str, shape: NodeShape) -> Draft:
    source, gpus = _read_gpus(answers)
    vendor, device = guess_vendor(answers.get("devices", ""))
    if not (gpus.vendor or vendor):
        return Draft(questions=("the vendor of the GPUs: no vendor's program and no device file shows it",))
    facts = _facts(host, ("gpu_vendor", gpus.vendor or vendor, source or "devices"))
    if vendor == "nvidia" and device != "/dev/nvidiactl":
        facts += (Fact("node", "gpu_device", device, asked("devices", host), "/dev/nvidiactl does not exist"),)
    all_numa = list(gpus.numa) if len(gpus.numa) == shape.gpus else []
    facts += _facts(
        host,
        ("gpu_model", gpus.model, source),
        ("gpu_memory_gb", gpus.memory_gb, source),
        ("gpu_pci", list(gpus.pci) if len(gpus.pci) == shape.gpus else [], source),
        ("gpu_numa", all_numa, "nvidia-topo" if gpus.vendor == "nvidia" else source),
    )
    if not all_numa:
        unknown = "GPU -> CPU map: the NUMA node of each GPU is unknown; without a map no CPU mask is planned"
        return Draft(facts, questions=(unknown,))
    return Draft(facts) + _draft_map(answers, gpus, shape, host)


def _draft_driver(answers: Mapping[str, str], host: str) -> Draft:
    """Draft the CUDA or ROCm version that the GPU driver supports, by which builds choose packages."""
    vendor = _read_gpus(answers)[1].vendor or guess_vendor(answers.get("devices", ""))[0]
    if vendor not in {"nvidia", "amd"}:
        return Draft()
    key, parse = ("cuda", parse_cuda_version) if vendor == "nvidia" else ("rocm", parse_rocm_version)
    version = parse(answers.get(key, ""))
    if not version:
        name = "CUDA" if key == "cuda" else "ROCm"
        return Draft(questions=(f"the {name} version that the driver supports: add node.{key}",))
    why = "" if key == "cuda" else "the driver may support a newer version, too"
    return Draft((Fact("node", key, version, asked(key, host), why),))


def _draft_map(answers: Mapping[str, str], gpus: Gpus, shape: NodeShape, host: str) -> Draft:
    shares = _share_cores(parse_lscpu(answers.get("cpus", "")), gpus.numa, shape)
    if not shares:
        return Draft(questions=("GPU -> CPU map: it cannot be derived from the core numbers",))
    why = "an even share of the NUMA node's cores, without the reserved ones; compare it with the site's documentation"
    whole = "a CPU mask may contain cores that a job on a part of a node does not have"
    source = asked("cpus", host)
    return Draft(
        (
            Fact("node", "gpu_cpus", list(shares), source, why),
            Fact("slurm", "mask_needs_whole_nodes", True, source, whole),
            Fact("slurm", "cpus_with_mask", False, source, "the two may contradict each other"),
        )
    )


def _share_cores(cores: Cores, gpu_numa: tuple[int, ...], shape: NodeShape) -> tuple[str, ...]:
    """Return an even share of the NUMA node's cores for each GPU; empty if no valid map is possible."""
    if not cores.plain or len(cores.first_cpus) != shape.cores or shape.reserved is None:
        return ()
    free: dict[int, list[int]] = defaultdict(list)
    for core in cores.first_cpus:
        if core not in shape.reserved:
            free[cores.numa[core]].append(core)
    sharers = [gpu_numa.count(node) for node in gpu_numa]
    size = min(len(free[node]) // count for node, count in zip(gpu_numa, sharers, strict=True))
    if not size:
        return ()
    taken = [free[node][gpu_numa[:i].count(node) * size :][:size] for i, node in enumerate(gpu_numa)]
    return tuple(render_cpulist(each) for each in taken)


def _read_gpus(answers: Mapping[str, str]) -> tuple[str, Gpus]:
    readings = (
        ("nvidia-smi", parse_nvidia(answers.get("nvidia-smi", ""), answers.get("nvidia-topo", ""))),
        ("rocm-smi", parse_rocm(answers.get("rocm-smi", ""))),
        ("drm", parse_intel(answers.get("drm", ""), answers.get("xpu-smi", ""))),
    )
    return next(((name, gpus) for name, gpus in readings if gpus.vendor), ("", Gpus()))


def _draft_folders(answers: Mapping[str, str], host: str) -> Draft:
    kind = parse_file_system(answers.get("mounts", ""), "/tmp")  # noqa: S108 - only a name
    if kind not in IN_MEMORY | DISK_KINDS:
        unknown = f"whether /tmp of compute nodes is in memory: its file system is {kind or 'unknown'}"
        return Draft(questions=(unknown,))
    tmp = Fact("node", "tmp_in_memory", kind in IN_MEMORY, asked("mounts", host), f"/tmp is {kind}")  # noqa: S108
    return Draft((tmp, *_facts(host, ("local_disk", kind in DISK_KINDS, "mounts"))))


def _draft_network(answers: Mapping[str, str], host: str) -> Draft:
    interfaces = answers.get("net", "").split()
    count, link, rate = parse_links(answers.get("infiniband", ""))
    high_speed = [name for name in interfaces if name.startswith("hsn")]
    facts: tuple[Fact, ...] = ()
    questions: list[str] = []
    if count:
        facts = _facts(
            host, ("nics", count, "infiniband"), ("nic", link, "infiniband"), ("nic_gbit", rate, "infiniband")
        )
    elif high_speed:
        nic = Fact("node", "nic", "Slingshot", asked("net", host), "interfaces named hsn are HPE Slingshot")
        facts = (*_facts(host, ("nics", len(high_speed), "net")), nic)
    if high_speed:
        questions.append('the fragment for this network, slingshot-amd or slingshot-nvidia: add use = ["…"]')
    elif not count:
        questions.append(f"the network between nodes: {host} has {', '.join(interfaces)}; no InfiniBand")
    return Draft(facts, questions=tuple(questions))
