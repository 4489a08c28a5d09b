"""Draft the values of a compute node: NUMA nodes, GPUs and the cores close to them, /tmp, the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from argosy.core.mounts import IN_MEMORY
from argosy.core.parse import render_cpulist
from argosy.diagnostics.discover.questions import asked
from argosy.diagnostics.discover.replies import (
    DISK_KINDS,
    Cores,
    Gpus,
    NodeShape,
    guess_vendor,
    parse_cuda_version,
    parse_filesystem,
    parse_intel,
    parse_links,
    parse_lscpu,
    parse_nvidia,
    parse_rocm,
    parse_rocm_version,
)

Value = str | int | bool | list[str] | list[int]


class Fact(msgspec.Struct, frozen=True):
    """One value of a profile.

    Attributes
    ----------
    section, key
        Section and key: ``node``, ``cores``.
    source
        The command that printed it, and the machine.
    why
        How the value was derived, if that is not obvious.
    """

    section: str
    key: str
    value: Value
    source: str
    why: str = ""


class Draft(msgspec.Struct, frozen=True):
    """The draft of a profile.

    Attributes
    ----------
    options
        Arguments for every job: the section is ``options``, the key the program (``sbatch``).
    """

    facts: tuple[Fact, ...] = ()
    options: tuple[Fact, ...] = ()
    partitions: tuple[Mapping[str, str | int | bool], ...] = ()
    questions: tuple[str, ...] = ()


def draft_machine(answers: Mapping[str, str], shape: NodeShape) -> Draft:
    """Draft the values of a compute node from its answers."""
    if not answers:
        return Draft()
    host = answers.get("host", "")
    parts = (
        _draft_cpus(answers, host, shape),
        _draft_gpus(answers, host, shape),
        _draft_driver(answers, host, shape),
        _draft_folders_and_network(answers, host),
    )
    return Draft(
        tuple(fact for part in parts for fact in part.facts),
        questions=tuple(question for part in parts for question in part.questions),
    )


def _draft_cpus(answers: Mapping[str, str], host: str, shape: NodeShape) -> Draft:
    cores = parse_lscpu(answers.get("cpus", ""))
    model = next(
        (
            line.partition(":")[2].strip()
            for line in answers.get("lscpu", "").splitlines()
            if line.startswith("Model name:")
        ),
        "",
    )
    facts = []
    if cores.numa:
        facts.append(Fact("node", "numa", len(set(cores.numa.values())), asked("cpus", host)))
    if model:
        facts.append(Fact("node", "cpu_model", model, asked("lscpu", host)))
    if answers.get("arch"):
        facts.append(Fact("node", "arch", answers["arch"], asked("arch", host)))
    questions = []
    if cores.first_cpus and len(cores.first_cpus) != shape.cores:
        questions.append(f"cores of a node: Slurm has {shape.cores}, {host} has {len(cores.first_cpus)}")
    return Draft(tuple(facts), questions=tuple(questions))


def _draft_gpus(answers: Mapping[str, str], host: str, shape: NodeShape) -> Draft:
    if not shape.gpus:
        return Draft()
    source, gpus = _read_gpus(answers)
    vendor, device = guess_vendor(answers.get("devices", ""))
    facts = [Fact("node", "gpu_vendor", gpus.vendor or vendor, asked(source or "devices", host))]
    if not (gpus.vendor or vendor):
        return Draft(questions=("the vendor of the GPUs: no vendor's program and no device file shows it",))
    if vendor == "nvidia" and device != "/dev/nvidiactl":
        facts.append(Fact("node", "gpu_device", device, asked("devices", host), "/dev/nvidiactl does not exist"))
    if gpus.model:
        facts.append(Fact("node", "gpu_model", gpus.model, asked(source, host)))
    if gpus.memory_gb:
        facts.append(Fact("node", "gpu_memory_gb", gpus.memory_gb, asked(source, host)))
    if len(gpus.pci) == shape.gpus:
        facts.append(Fact("node", "gpu_pci", list(gpus.pci), asked(source, host)))
    if len(gpus.numa) != shape.gpus:
        return Draft(
            tuple(facts),
            questions=("GPU -> CPU map: the NUMA node of each GPU is unknown; without a map no CPU mask is planned",),
        )
    facts.append(
        Fact("node", "gpu_numa", list(gpus.numa), asked("nvidia-topo" if gpus.vendor == "nvidia" else source, host))
    )
    return _with_map(tuple(facts), answers, gpus, shape, host)


def _draft_driver(answers: Mapping[str, str], host: str, shape: NodeShape) -> Draft:
    """Draft the CUDA or ROCm version that the GPU driver supports, by which builds choose packages."""
    vendor = _read_gpus(answers)[1].vendor or guess_vendor(answers.get("devices", ""))[0]
    if not shape.gpus or vendor not in {"nvidia", "amd"}:
        return Draft()
    key, parse = ("cuda", parse_cuda_version) if vendor == "nvidia" else ("rocm", parse_rocm_version)
    version = parse(answers.get(key, ""))
    if not version:
        return Draft(
            questions=(f"the {key.upper().replace('ROCM', 'ROCm')} version that the driver supports: add node.{key}",)
        )
    why = "" if key == "cuda" else "the driver may support a newer version, too"
    return Draft((Fact("node", key, version, asked(key, host), why),))


def _with_map(facts: tuple[Fact, ...], answers: Mapping[str, str], gpus: Gpus, shape: NodeShape, host: str) -> Draft:
    cores = parse_lscpu(answers.get("cpus", ""))
    shares = _share_cores(cores, gpus.numa, shape)
    if not shares:
        return Draft(facts, questions=("GPU -> CPU map: it cannot be derived from the core numbers",))
    why = "an even share of the NUMA node's cores, without the reserved ones; compare it with the site's documentation"
    whole = "a CPU mask may contain cores that a job on a part of a node does not have"
    source = asked("cpus", host)
    return Draft(
        (
            *facts,
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


def _draft_folders_and_network(answers: Mapping[str, str], host: str) -> Draft:
    kind = parse_filesystem(answers.get("mounts", ""), "/tmp")  # noqa: S108 - only a name
    facts = []
    if kind in IN_MEMORY | DISK_KINDS:
        why = f"/tmp is {kind}"  # noqa: S108 - only a text
        facts.append(Fact("node", "tmp_in_memory", kind in IN_MEMORY, asked("mounts", host), why))
        if kind in DISK_KINDS:
            facts.append(Fact("node", "local_disk", value=True, source=asked("mounts", host)))
    count, link, rate = parse_links(answers.get("infiniband", ""))
    high_speed = [word for word in answers.get("net", "").split() if word.startswith("hsn")]
    if count:
        pairs: tuple[tuple[str, str | int], ...] = (("nics", count), ("nic", link), ("nic_gbit", rate))
        facts += [Fact("node", key, value, asked("infiniband", host)) for key, value in pairs]
    elif high_speed:
        facts += [
            Fact("node", "nics", len(high_speed), asked("net", host)),
            Fact("node", "nic", "Slingshot", asked("net", host), "interfaces named hsn are HPE Slingshot"),
        ]
    questions = []
    if high_speed:
        questions.append('the fragment for this network, slingshot-amd or slingshot-nvidia: add use = ["…"]')
    if not count and not high_speed:
        questions.append(
            f"the network between nodes: {host} has {', '.join(answers.get('net', '').split())}; no InfiniBand"
        )
    if kind not in IN_MEMORY | DISK_KINDS:
        questions.append(f"whether /tmp of compute nodes is in memory: its file system is {kind or 'unknown'}")
    return Draft(tuple(facts), questions=tuple(questions))
