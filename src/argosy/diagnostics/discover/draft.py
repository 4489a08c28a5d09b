"""Draft a profile from the replies of a cluster: values with their sources, and open questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from argosy.core.model import APPTAINERS
from argosy.core.records import replace
from argosy.diagnostics.discover.node_facts import Draft, Fact, draft_machine
from argosy.diagnostics.discover.questions import GPU_STEPS, asked
from argosy.diagnostics.discover.replies import (
    NUMBER,
    NodeShape,
    SlurmNode,
    SlurmPartition,
    gives_whole_nodes,
    gpu_option,
    name_pattern,
    parse_config,
    parse_gpu_types,
    parse_module,
    parse_mpi,
    parse_nodes,
    parse_partitions,
    parse_runtimes,
)

TOO_MANY_PATTERNS = 8


class Replies(msgspec.Struct, frozen=True):
    """The replies of a cluster."""

    host: str
    """Name of the login node."""
    login: Mapping[str, str]
    """Replies of Slurm."""
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
    nodes, partitions = parse_nodes(replies.login["nodes"]), parse_partitions(replies.login["partitions"])
    chosen, shape = choose_shape(nodes, partitions, wanted)
    config = parse_config(replies.login["config"])
    draft = (
        _draft_identity(replies, config, nodes)
        + _draft_shape(shape, replies.host)
        + draft_machine(replies.node, shape)
        + _draft_slurm(replies, config, shape)
        + _draft_runtime(replies)
        + _draft_partitions(nodes, partitions, chosen, shape)
    )
    node = "facts of compute nodes, such as NUMA nodes, GPU vendor and /tmp: query them with --on-node"
    return replace(
        draft,
        facts=tuple({(fact.section, fact.key): fact for fact in draft.facts}.values()),
        options=(*_one_thread(shape, replies.host), *_no_gpu_steps(replies)),
        questions=draft.questions if replies.node else (node, *draft.questions),
    )


def _one_thread(shape: NodeShape, host: str) -> Iterator[Fact]:
    """Yield the option that makes Slurm count cores instead of hardware threads, as plans do (sbatch(1))."""
    if shape.threads > 1:
        why = f"a core has {shape.threads} threads, which Slurm would allocate as cores"
        yield Fact("options", "sbatch", "--threads-per-core=1", asked("nodes", host), why)


def _no_gpu_steps(replies: Replies) -> Iterator[Fact]:
    """Yield the option with which steps request no GPUs, if Slurm rejected a step with GPUs on a whole node."""
    if replies.node.get(GPU_STEPS) == "no":
        source = f"asked: srun --gres=gpu on {replies.host}"
        yield Fact("options", "srun-always", "--gres=none", source, "select/linear does not give GPUs to steps")


def _draft_identity(replies: Replies, config: Mapping[str, str], nodes: tuple[SlurmNode, ...]) -> Draft:
    patterns = sorted({name_pattern(node.name) for node in nodes} | {name_pattern(replies.host)} - {NUMBER})
    name = config.get("clustername", "")
    facts = [Fact("identity", "clusters", [name], asked("config", replies.host))] if name else []
    if not 0 < len(patterns) <= TOO_MANY_PATTERNS:
        many = f"host names: {len(patterns)} patterns are too many to detect the site"
        return Draft(tuple(facts), questions=(many,))
    why = "names of login and compute nodes"
    return Draft((*facts, Fact("identity", "hosts", patterns, asked("nodes", replies.host), why)))


def _draft_shape(shape: NodeShape, host: str) -> Draft:
    source = asked("nodes", host)
    pairs = (
        ("arch", shape.arch),
        ("sockets", shape.sockets),
        ("cores", shape.cores if shape.is_consistent else 0),
        ("threads_per_core", shape.threads if shape.threads > 1 else 0),
        ("reserved", ",".join(map(str, shape.reserved or ()))),
        ("memory_mb", shape.memory_mb),
        ("gpus", shape.gpus),
        ("gpu_model", shape.gpu_type),
    )
    whys = {"reserved": "CPUSpecList, as core numbers", "gpu_model": "the type of Slurm's gres/gpu"}
    facts = tuple(Fact("node", key, value, source, whys.get(key, "")) for key, value in pairs if value)
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
    facts = [Fact("slurm", "version", version, source)] if version else []
    if shape.gpus:
        why = f"SelectType is {config.get('selecttype', 'unknown')}; --gpus-per-node needs select/cons_tres"
        facts.append(Fact("slurm", "gpu_option", gpu_option(config), source, why))
    if gives_whole_nodes(config):
        facts.append(Fact("slurm", "whole_nodes", True, source, "select/linear allocates whole nodes"))
    plugins = parse_mpi(replies.login["mpi"])
    mpi = next((word for word in ("pmix", "pmi2") if word in plugins), "")
    if mpi:
        facts.append(Fact("launcher", "mpi", mpi, asked("mpi", replies.host), f"srun supports {', '.join(plugins)}"))
    return Draft(tuple(facts), questions=tuple(_slurm_questions(replies, config, shape)))


def _slurm_questions(replies: Replies, config: Mapping[str, str], shape: NodeShape) -> Iterator[str]:
    if shape.gpus and gives_whole_nodes(config) and not replies.node.get(GPU_STEPS):
        yield (
            "whether steps get GPUs: with select/linear srun may fail with 'Invalid generic resource'; then add "
            '[[options]] with to = "srun-always" and word = "--gres=none"'
        )
    types = parse_gpu_types(replies.login["nodes"]) if shape.gpus else ()
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
    has_pyxis = "--container-image" in replies.login["srun"]
    facts = _runtime_found(answers, host, has_pyxis=has_pyxis)
    questions = () if facts else ("the container runtime: neither a program nor a module was found",)
    if answers.get("userns") in {"yes", "no"}:
        facts = (*facts, Fact("runtime", "user_namespaces", answers["userns"] == "yes", asked("userns", host)))
    return Draft(facts, questions=questions)


def _runtime_found(answers: Mapping[str, str], host: str, *, has_pyxis: bool) -> tuple[Fact, ...]:
    """Draft the runtime: Apptainer, else pyxis, else a module with Apptainer, else any other."""
    found, source = parse_runtimes(answers.get("runtimes", "")), asked("runtimes", host)
    if name := next((each for each in APPTAINERS if each in found), ""):
        mode = "a setuid starter" if f"/{name}/" in answers.get("setuid", "") else "no setuid starter"
        others = [each for each in (*found, *(("pyxis",) if has_pyxis else ())) if each != name]
        why = mode + (f"; also installed: {', '.join(others)}" if others else "")
        return Fact("runtime", "name", name, source, why), Fact("runtime", "version", found[name], source)
    if has_pyxis:
        return (Fact("runtime", "name", "pyxis", asked("srun", host), "srun has --container-image"),)
    name, module = parse_module(answers.get("modules", ""))
    if module:
        source = asked("modules", host)
        load = Fact("modules", "load", [module], source, "the runtime is in a module")
        return Fact("runtime", "name", name, source), load
    name = next(iter(found), "")
    return (Fact("runtime", "name", name, source), Fact("runtime", "version", found[name], source)) if name else ()


def _draft_partitions(
    nodes: tuple[SlurmNode, ...], partitions: tuple[SlurmPartition, ...], chosen: str, shape: NodeShape
) -> Draft:
    rows: list[Mapping[str, str | int | bool]] = []
    left: list[str] = []
    for partition in sorted(partitions, key=lambda each: each.name != chosen):
        own = shape_of(nodes, partition.name)
        if not partition.up or own is None or bool(own.gpus) != bool(shape.gpus):
            left.append(partition.name)
            continue
        cores = own.limit_cores(partition.max_cpus)
        debug = any(word in partition.name.lower() for word in ("debug", "devel"))
        row: Mapping[str, str | int | bool] = {
            "name": partition.name,
            "max_time": partition.max_time,
            "max_nodes": partition.max_nodes,
            "min_nodes": partition.min_nodes if partition.min_nodes > 1 else 0,
            "whole_nodes": partition.whole_nodes,
            "choose": partition.name == chosen,
            "debug": debug,
            "gpus": own.gpus if own.gpus != shape.gpus else 0,
            "cores": cores if cores != shape.cores else 0,
            "gpu_model": own.gpu_type if own.gpu_type != shape.gpu_type else "",
            "why": f"cores: MaxCPUsPerNode is {partition.max_cpus}" if cores < own.cores else "",
        }
        rows.append(row)
    mixed = [each.name for each in partitions if len({n.shape for n in nodes if each.name in n.partitions}) > 1]
    questions = [
        (left, "omitted partitions, which are down, empty, or differ in having GPUs: {}"),
        (mixed, "partitions with different nodes, of which the profile has the most frequent ones: {}"),
    ]
    return Draft(partitions=tuple(rows), questions=tuple(text.format(", ".join(n)) for n, text in questions if n))
