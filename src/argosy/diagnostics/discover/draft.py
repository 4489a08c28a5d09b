"""Draft a profile from the replies of a cluster: values with their sources, and open questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from argosy.core.model import APPTAINERS
from argosy.core.mounts import IN_MEMORY, parse_file_system
from argosy.core.parse import render_cpulist
from argosy.core.records import replace
from argosy.diagnostics.discover.replies import (
    DISK_KINDS,
    GPU_STEPS,
    NUMBER,
    Cores,
    Gpus,
    NodeShape,
    SlurmNode,
    SlurmPartition,
    asked,
    gives_whole_nodes,
    gpu_option,
    guess_vendor,
    name_pattern,
    parse_config,
    parse_cuda_version,
    parse_gpu_types,
    parse_intel,
    parse_links,
    parse_lscpu,
    parse_module,
    parse_mpi,
    parse_nodes,
    parse_nvidia,
    parse_partitions,
    parse_rocm,
    parse_rocm_version,
    parse_runtimes,
)

TOO_MANY_PATTERNS = 8

Value = str | int | bool | list[str] | list[int]
PartitionRow = Mapping[str, str | int | bool | None]
"""Keys and values of ``[[partitions]]``; an empty value or 0 is left out, except for the GPUs of nodes without any."""


class DraftFact(msgspec.Struct, frozen=True):
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

    facts: tuple[DraftFact, ...] = ()
    options: tuple[DraftFact, ...] = ()
    """Arguments for every job: the section is ``options``, the key the program (``sbatch``)."""
    partitions: tuple[PartitionRow, ...] = ()
    questions: tuple[str, ...] = ()

    def __add__(self, more: Draft) -> Draft:
        """Return this draft with what another one adds."""
        return Draft(
            self.facts + more.facts, self.options + more.options, self.partitions + more.partitions,
            self.questions + more.questions,
        )  # fmt: skip


class Replies(msgspec.Struct, frozen=True):
    """The replies of a cluster."""

    host: str
    """Name of the login node."""
    slurm: Mapping[str, str]
    """Replies of Slurm on the login node."""
    here: Mapping[str, str]
    """Answers of the login node about itself."""
    node: Mapping[str, str]
    """Answers of a compute node; empty without --on-node."""


def choose_shape(
    nodes: tuple[SlurmNode, ...], partitions: tuple[SlurmPartition, ...], wanted: str
) -> tuple[str, NodeShape]:
    """Choose the partition whose most frequent node the profile describes.

    It is the requested partition, else Slurm's default partition, unless that has no GPUs and others have some.
    Partitions that start no jobs are chosen only on request.
    """
    shapes = {each.name: shape_of(nodes, each.name) for each in partitions if each.up or each.name == wanted}
    known = {name: shape for name, shape in shapes.items() if shape}
    default = next((each.name for each in partitions if each.default and each.name in known), "")
    with_gpus = [name for name, shape in known.items() if shape.gpus]
    name = wanted or default or next(iter(known), "")
    if not wanted and with_gpus and name not in with_gpus:
        name = max(with_gpus, key=lambda each: sum(each in node.partitions for node in nodes))
    return name, known.get(name, NodeShape())


def shape_of(nodes: tuple[SlurmNode, ...], partition: str) -> NodeShape | None:
    """Return the most frequent shape of a partition's nodes."""
    counted = Counter(node.shape for node in nodes if partition in node.partitions)
    return counted.most_common(1)[0][0] if counted else None


def draft_profile(replies: Replies, wanted: str) -> Draft:
    """Draft the profile of a cluster."""
    nodes, partitions = parse_nodes(replies.slurm["nodes"]), parse_partitions(replies.slurm["partitions"])
    chosen, shape = choose_shape(nodes, partitions, wanted)
    config = parse_config(replies.slurm["config"])
    draft = (
        _draft_identity(replies, config, nodes)
        + _draft_shape(shape, replies.host)
        + _draft_machine(replies.node, shape)
        + _draft_slurm(replies, config, shape)
        + _draft_runtime(replies)
        + _draft_partitions(nodes, partitions, chosen, shape)
    )
    node = "facts of compute nodes, such as NUMA nodes, GPU vendor and /tmp: query them with --on-node"
    return replace(
        draft,
        # Of two facts with one key, the later one counts: the answer of a node, not that of Slurm about it.
        facts=tuple({(fact.section, fact.key): fact for fact in draft.facts}.values()),
        options=(*_one_thread(shape, replies.host), *_no_gpu_steps(replies)),
        questions=draft.questions if replies.node else (node, *draft.questions),
    )


def _one_thread(shape: NodeShape, host: str) -> Iterator[DraftFact]:
    """Yield the option that makes Slurm count cores instead of hardware threads, as plans do (sbatch(1))."""
    if shape.threads > 1:
        why = f"a core has {shape.threads} threads, which Slurm would allocate as cores"
        yield DraftFact("options", "sbatch", "--threads-per-core=1", asked("nodes", host), why)


def _no_gpu_steps(replies: Replies) -> Iterator[DraftFact]:
    """Yield the option with which steps request no GPUs, if Slurm rejected a step with GPUs on a whole node."""
    if replies.node.get(GPU_STEPS) == "no":
        source = f"asked: srun --gres=gpu on {replies.host}"
        yield DraftFact("options", "srun-always", "--gres=none", source, "select/linear does not give GPUs to steps")


def _draft_identity(replies: Replies, config: Mapping[str, str], nodes: tuple[SlurmNode, ...]) -> Draft:
    patterns = sorted({name_pattern(node.name) for node in nodes} | {name_pattern(replies.host)} - {NUMBER})
    name = config.get("clustername", "")
    facts = [DraftFact("identity", "clusters", [name], asked("config", replies.host))] if name else []
    if not 0 < len(patterns) <= TOO_MANY_PATTERNS:
        many = f"host names: {len(patterns)} patterns are too many to detect the site"
        return Draft(tuple(facts), questions=(many,))
    why = "names of login and compute nodes"
    return Draft((*facts, DraftFact("identity", "hosts", patterns, asked("nodes", replies.host), why)))


def _draft_shape(shape: NodeShape, host: str) -> Draft:
    source = asked("nodes", host)
    pairs = (
        ("arch", shape.arch),
        ("sockets", shape.sockets),
        ("cores", shape.cores if shape.is_consistent else 0),
        ("threads_per_core", shape.threads if shape.cores else 0),
        ("reserved", ",".join(map(str, shape.reserved or ()))),
        ("memory_mb", shape.memory_mb),
        ("gpus", shape.gpus),
        ("gpu_model", shape.gpu_type),
    )
    whys = {"reserved": "CPUSpecList, as core numbers", "gpu_model": "the type of Slurm's gres/gpu"}
    facts = tuple(DraftFact("node", key, value, source, whys.get(key, "")) for key, value in pairs if value)
    questions = []
    if shape.reserved is None:
        questions.append("which cores are reserved: Slurm only has their number (CoreSpecCount)")
    if not shape.is_consistent:
        questions.append(
            f"cores of a node: Slurm has {shape.cpus} CPUs (CPUTot), but its sockets have {shape.cores} cores"
        )
    return Draft(facts, questions=tuple(questions))


def _draft_slurm(replies: Replies, config: Mapping[str, str], shape: NodeShape) -> Draft:
    source = asked("config", replies.host)
    version = config.get("slurm_version", "")
    facts = [DraftFact("slurm", "version", version, source)] if version else []
    if shape.gpus:
        why = f"SelectType is {config.get('selecttype', 'unknown')}; --gpus-per-node needs select/cons_tres"
        facts.append(DraftFact("slurm", "gpu_option", gpu_option(config), source, why))
    if gives_whole_nodes(config):
        facts.append(DraftFact("slurm", "whole_nodes", True, source, "select/linear allocates whole nodes"))
    plugins = parse_mpi(replies.slurm["mpi"])
    mpi = next((word for word in ("pmix", "pmi2") if word in plugins), "")
    if mpi:
        facts.append(
            DraftFact("launcher", "mpi", mpi, asked("mpi", replies.host), f"srun supports {', '.join(plugins)}")
        )
    return Draft(tuple(facts), questions=tuple(_slurm_questions(replies, config, shape)))


def _slurm_questions(replies: Replies, config: Mapping[str, str], shape: NodeShape) -> Iterator[str]:
    if shape.gpus and gives_whole_nodes(config) and not replies.node.get(GPU_STEPS):
        yield (
            "whether steps get GPUs: with select/linear srun may fail with 'Invalid generic resource'; then add "
            '[[options]] with to = "srun-always" and word = "--gres=none"'
        )
    types = parse_gpu_types(replies.slurm["nodes"]) if shape.gpus else ()
    if types:
        yield (
            f"GPUs of several types on a node ({', '.join(types)}): node.gpus counts all of them; write the number of "
            "one type, and the cores of the others in slurm.cpus_per_gpu_type"
        )
    enforced = config.get("accountingstorageenforce", "")
    if "associations" in enforced or "limits" in enforced:
        yield f"whether jobs need --account and --qos: Slurm enforces {enforced}; add them to slurm.required"
    if plugin := config.get("jobsubmitplugins", ""):
        yield f"options that the job_submit plugin ({plugin}) requires: add them to slurm.required"
    yield "variables that NCCL, RCCL or oneCCL needs on this network: add [[settings]]"
    yield "whether compute nodes have internet access: add build.network"


def _draft_runtime(replies: Replies) -> Draft:
    answers, host = (replies.node, replies.node.get("host", "")) if replies.node else (replies.here, replies.host)
    has_pyxis = "--container-image" in replies.slurm["srun"]
    facts = _runtime_found(answers, host, has_pyxis=has_pyxis)
    questions = () if facts else ("the container runtime: neither a program nor a module was found",)
    if answers.get("userns") in {"yes", "no"}:
        facts = (*facts, DraftFact("runtime", "user_namespaces", answers["userns"] == "yes", asked("userns", host)))
    return Draft(facts, questions=questions)


def _runtime_found(answers: Mapping[str, str], host: str, *, has_pyxis: bool) -> tuple[DraftFact, ...]:
    """Draft the runtime: Apptainer, else pyxis, else a module with Apptainer, else any other."""
    found, source = parse_runtimes(answers.get("runtimes", "")), asked("runtimes", host)
    if name := next((each for each in APPTAINERS if each in found), ""):
        mode = "a setuid starter" if f"/{name}/" in answers.get("setuid", "") else "no setuid starter"
        others = [each for each in (*found, *(("pyxis",) if has_pyxis else ())) if each != name]
        why = mode + (f"; also installed: {', '.join(others)}" if others else "")
        return DraftFact("runtime", "name", name, source, why), DraftFact("runtime", "version", found[name], source)
    if has_pyxis:
        return (DraftFact("runtime", "name", "pyxis", asked("srun", host), "srun has --container-image"),)
    name, module = parse_module(answers.get("modules", ""))
    if module:
        source = asked("modules", host)
        load = DraftFact("modules", "load", [module], source, "the runtime is in a module")
        return DraftFact("runtime", "name", name, source), load
    name = next(iter(found), "")
    return (
        (DraftFact("runtime", "name", name, source), DraftFact("runtime", "version", found[name], source))
        if name
        else ()
    )


QOS_OPTION = (
    'if users need not choose, add [[options]] with to = "sbatch", word = "--qos=QOS" and when = { partition = "NAME" }'
)


def _draft_partitions(
    nodes: tuple[SlurmNode, ...], partitions: tuple[SlurmPartition, ...], chosen: str, shape: NodeShape
) -> Draft:
    rows: list[PartitionRow] = []
    left: list[str] = []
    shapes = {each.name: shape_of(nodes, each.name) or NodeShape() for each in partitions}
    # The order is that of preference: jobs without GPUs ask for a partition without them.
    for partition in sorted(partitions, key=lambda each: (each.name != chosen, not shapes[each.name].gpus)):
        own = shape_of(nodes, partition.name)
        if not partition.up or own is None or (own.gpus and not shape.gpus):
            left.append(partition.name)
            continue
        cores = own.limit_cores(partition.max_cpus)
        debug = any(word in partition.name.lower() for word in ("debug", "devel"))
        row: PartitionRow = {
            "name": partition.name,
            "max_time": partition.max_time,
            "max_nodes": partition.max_nodes,
            "min_nodes": partition.min_nodes if partition.min_nodes > 1 else 0,
            "whole_nodes": partition.whole_nodes,
            "choose": partition.name == chosen,
            "debug": debug,
            "gpus": own.gpus if own.gpus != shape.gpus else None,
            "cores": cores if cores != shape.cores else 0,
            "gpu_model": own.gpu_type if own.gpu_type != shape.gpu_type else "",
            "why": f"cores: MaxCPUsPerNode is {partition.max_cpus}" if cores < own.cores else "",
        }
        rows.append(row)
    mixed = [each.name for each in partitions if len({n.shape for n in nodes if each.name in n.partitions}) > 1]
    qos = [f"{each.name}: {' or '.join(each.qos)}" for each in partitions if each.up and each.qos]
    questions = [
        (left, "omitted partitions, which are down or empty, or have GPUs, unlike the nodes of the profile: {}"),
        (qos, f"partitions that accept only some QOS (AllowQos): {{}}; {QOS_OPTION}"),
        (mixed, "partitions with different nodes, of which the profile has the most frequent ones: {}"),
    ]
    return Draft(
        partitions=tuple(rows), questions=tuple(text.replace("{}", ", ".join(n)) for n, text in questions if n)
    )


def _draft_machine(answers: Mapping[str, str], shape: NodeShape) -> Draft:
    """Draft the values of a compute node from its answers."""
    if not answers:
        return Draft()
    host = answers.get("host", "")
    draft = _draft_cpus(answers, host, shape)
    if shape.gpus:
        draft += _draft_gpus(answers, host, shape) + _draft_driver(answers, host)
    return draft + _draft_folders(answers, host) + _draft_network(answers, host)


def _facts(host: str, *rows: tuple[str, Value, str]) -> tuple[DraftFact, ...]:
    """Return facts of a node from key, value and question; those without a value are left out."""
    return tuple(DraftFact("node", key, value, asked(question, host)) for key, value, question in rows if value)


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
        facts += (DraftFact("node", "gpu_device", device, asked("devices", host), "/dev/nvidiactl does not exist"),)
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
    return Draft((DraftFact("node", key, version, asked(key, host), why),))


def _draft_map(answers: Mapping[str, str], gpus: Gpus, shape: NodeShape, host: str) -> Draft:
    shares = _share_cores(parse_lscpu(answers.get("cpus", "")), gpus.numa, shape)
    if not shares:
        return Draft(questions=("GPU -> CPU map: it cannot be derived from the core numbers",))
    why = "an even share of the NUMA node's cores, without the reserved ones; compare it with the site's documentation"
    whole = "a CPU mask may contain cores that a job on a part of a node does not have"
    source = asked("cpus", host)
    return Draft(
        (
            DraftFact("node", "gpu_cpus", list(shares), source, why),
            DraftFact("slurm", "mask_needs_whole_nodes", True, source, whole),
            DraftFact("slurm", "cpus_with_mask", False, source, "the two may contradict each other"),
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
    # GPUs of one NUMA node take its free cores in turn: each begins behind the cores of those before it.
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
    tmp = DraftFact("node", "tmp_in_memory", kind in IN_MEMORY, asked("mounts", host), f"/tmp is {kind}")  # noqa: S108
    return Draft((tmp, *_facts(host, ("local_disk", kind in DISK_KINDS, "mounts"))))


def _draft_network(answers: Mapping[str, str], host: str) -> Draft:
    interfaces = answers.get("net", "").split()
    count, link, rate = parse_links(answers.get("infiniband", ""))
    high_speed = [name for name in interfaces if name.startswith("hsn")]
    facts: tuple[DraftFact, ...] = ()
    questions: list[str] = []
    if count:
        facts = _facts(
            host, ("nics", count, "infiniband"), ("nic", link, "infiniband"), ("nic_gbit", rate, "infiniband")
        )
    elif high_speed:
        nic = DraftFact("node", "nic", "Slingshot", asked("net", host), "interfaces named hsn are HPE Slingshot")
        facts = (*_facts(host, ("nics", len(high_speed), "net")), nic)
    if high_speed:
        questions.append('the fragment for this network, slingshot-amd or slingshot-nvidia: add use = ["…"]')
    elif not count:
        questions.append(f"the network between nodes: {host} has {', '.join(interfaces)}; no InfiniBand")
    return Draft(facts, questions=tuple(questions))
