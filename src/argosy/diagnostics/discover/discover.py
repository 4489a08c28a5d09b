"""Discover a site for `argosy sites new`: query the cluster, draft its profile, check and write it."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import SiteError, ToolMissing, UsageError
from argosy.core.parse import parse_toml
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.store import editing, write_text
from argosy.core.tool_errors import tool_error
from argosy.diagnostics.discover.draft import (
    Draft,
    DraftFact,
    PartitionRow,
    Replies,
    Value,
    choose_shape,
    draft_profile,
)
from argosy.diagnostics.discover.replies import (
    GPU_STEPS,
    LOGIN,
    gives_whole_nodes,
    gpu_option,
    parse_answers,
    parse_config,
    parse_nodes,
    parse_partitions,
    render_questions,
)
from argosy.sites.profile import Site
from argosy.slurm.calls import ask_slurm

SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher")


def _render_profile(name: str, draft: Draft, *, host: str, date: str) -> str:
    """Render the profile; `date` is that of the query, in ISO 8601."""
    cluster = next((fact.value for fact in draft.facts if fact.key == "clusters"), [])
    title = f"the Slurm cluster {cluster[0]}" if isinstance(cluster, list) and cluster else "a Slurm cluster"
    head = [
        f"# Written on {host} on {date} by 'argosy sites new'. Answer the open questions, then remove them.",
        f"name = {_toml(name)}",
        f"title = {_toml(title)}",
        'scheduler = "slurm"',
        f"checked = {_toml(date)}",
        "open_questions = [",
        *(f"    {_toml(question)}," for question in draft.questions),
        "]",
    ]
    sections = [line for section in SECTIONS for line in _section(section, draft)]
    options = [line for option in draft.options for line in _option(option)]
    rows = [line for row in draft.partitions for line in _partition(row, host)]
    return "\n".join([*head, *sections, *options, *rows]) + "\n"


def _section(section: str, draft: Draft) -> Iterator[str]:
    facts = [fact for fact in draft.facts if fact.section == section]
    if not facts:
        return
    usual = Counter(fact.source for fact in facts).most_common(1)[0][0]
    yield from ("", f"[{section}]")
    for fact in facts:
        yield f"{fact.key} = {_toml(fact.value)}"
    whys = [f"{fact.key}: {fact.why}" for fact in facts if fact.why]
    yield from (f"why = {_toml('; '.join(whys))}",) if whys else ()
    yield f"source = {_toml(usual)}"
    others = [fact for fact in facts if fact.source != usual]
    if others:
        yield f"[{section}.sources]"
        yield from (f"{fact.key} = {_toml(fact.source)}" for fact in others)


def _option(option: DraftFact) -> Iterator[str]:
    pairs = (("to", option.key), ("word", option.value), ("why", option.why), ("source", option.source))
    yield from ("", f"[[{option.section}]]", *(f"{name} = {_toml(value)}" for name, value in pairs))


def _partition(row: PartitionRow, host: str) -> Iterator[str]:
    yield from ("", "[[partitions]]")
    for key, value in row.items():
        if value or (key == "gpus" and value is not None):
            yield f"{key} = {_toml(value)}"
    yield f"source = {_toml(f'asked: scontrol show partition on {host}')}"


def _toml(value: Value) -> str:
    """Render a value as TOML. JSON's strings, numbers, booleans and lists are valid TOML, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


NO_GPU_STEP = "Invalid generic resource"
"""Message of srun if select/linear gives no GPUs to steps (Slurm 24.11)."""

WAIT_SECONDS = 300
"""Maximal time that the job on a compute node may wait in the queue."""


class DiscoverRequest(msgspec.Struct, frozen=True):
    """A request to discover a site."""

    name: str
    output: Path
    """The file to write."""
    date: str
    """Date of today, in ISO 8601."""
    on_node: bool = False
    """Whether a short job queries a compute node."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    """Options of that job; the profile describes the nodes of the partition."""


def discover_site(session: Session, request: DiscoverRequest) -> Draft:
    """Query the cluster of this machine and write its profile.

    Raises
    ------
    UsageError
        When the name is invalid, the file exists, or the partition does not.
    ToolMissing, ToolFailed
        When Slurm is not installed, or the compute node cannot be queried.
    """
    _refuse(request)
    with session.step("query", f"Slurm on {session.host.hostname}") as step:
        slurm = _ask_slurm(session)
        _refuse_unknown_partition(request.partition, slurm)
        here = parse_answers(session.runner.run(Command(("sh", "-c", render_questions()))).stdout)
        step.result = f"{sum(map(bool, slurm.values()))} of {len(slurm)} queries answered by {session.host.hostname}"
    node = {}
    if request.on_node:
        with session.step("query", "a compute node, in a job") as step:
            node = _ask_node(session, request, slurm)
            step.result = f"{sum(map(bool, node.values()))} of {len(node)} queries answered by {node.get('host', '')}"
    replies = Replies(session.host.hostname, slurm, here, node)
    draft = draft_profile(replies, request.partition)
    text = _render_profile(request.name, draft, host=session.host.hostname, date=request.date)
    _check(text)
    try:
        request.output.parent.mkdir(parents=True, exist_ok=True)
        with editing(request.output, waiting=session.waiting):
            write_text(request.output, text)
    except OSError as error:
        hint = "choose another file with -o"
        raise UsageError(f"cannot write {request.output}", evidence=str(error), hint=hint) from error
    return draft


def _refuse(request: DiscoverRequest) -> None:
    if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9._-]*", request.name):
        raise UsageError(f"{request.name!r} is not a valid site name", hint="use letters, digits, '.', '_' and '-'")
    if request.output.exists():
        raise UsageError(
            f"{request.output} already exists",
            hint="choose another file with -o; 'argosy sites diff' compares two profiles",
        )
    if request.output.suffix != ".toml":
        raise UsageError(f"invalid file name {request.output}", hint="use a name that ends in .toml")


def _ask_slurm(session: Session) -> dict[str, str]:
    if "srun" not in session.host.programs:
        hint = "run this on a login node, or copy and change a shipped profile: 'argosy sites show dawn' names its file"
        raise ToolMissing("cannot find Slurm", evidence="srun is not on PATH", hint=hint)
    answers = {}
    for name, words in LOGIN.items():
        if name in {"config", "nodes", "partitions"}:
            answers[name] = ask_slurm(session, words, doing="querying Slurm")
            continue
        reply = session.runner.run(Command(words))
        answers[name] = reply.stdout + (reply.stderr if name == "mpi" else "")
    return answers


def _refuse_unknown_partition(name: str, slurm: Mapping[str, str]) -> None:
    known = [each.name for each in parse_partitions(slurm["partitions"])]
    if name and name not in known:
        raise UsageError(
            f"unknown partition {name!r}", evidence=f"known: {', '.join(known)}", hint="choose one of them"
        )


def _ask_node(session: Session, request: DiscoverRequest, slurm: dict[str, str]) -> dict[str, str]:
    nodes, partitions = parse_nodes(slurm["nodes"]), parse_partitions(slurm["partitions"])
    partition, shape = choose_shape(nodes, partitions, request.partition)
    options = [f"--partition={partition}"] if partition else []
    options += [f"--account={request.account}"] if request.account else []
    options += [f"--qos={request.qos}"] if request.qos else []
    config = parse_config(slurm["config"])
    # All GPUs of the node, because vendors' programs show only those of the job.
    every = f"--gpus-per-node={shape.gpus}" if gpu_option(config) == "gpus-per-node" else f"--gres=gpu:{shape.gpus}"
    gpus = [every] if shape.gpus else []
    job = ("--nodes=1", "--ntasks=1", "--time=5", f"--immediate={WAIT_SECONDS}", "--job-name=argosy-sites-new")
    words = ("srun", *job)
    answers = {}
    if gpus and gives_whole_nodes(config):
        reply = session.runner.run(Command((*words, *options, *gpus, "true")))
        answers[GPU_STEPS] = "no" if NO_GPU_STEP in reply.stderr else "yes" if reply.code == 0 else ""
        gpus = gpus if answers[GPU_STEPS] == "yes" else []
    step = (*words, *options, *gpus, "sh", "-c")
    reply = session.runner.run(Command((*step, render_questions())))
    if reply.code:
        raise tool_error(
            Command((*step, "…")),
            reply,
            doing="querying a compute node",
            hint="add --partition, --account or --qos of your jobs; without --on-node, compute nodes are not queried",
        )
    return parse_answers(reply.stdout) | answers


def _check(text: str) -> None:
    """Check that the profile can be read."""
    try:
        msgspec.convert(parse_toml(text), Site)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        what = "cannot make a valid profile from Slurm's replies"
        raise SiteError(what, evidence=str(error), hint="report the replies as a bug") from error
