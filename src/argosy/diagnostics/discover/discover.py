"""The story of `argosy sites new`: ask the login node, ask a compute node, draft, check, write."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, SiteError, ToolMissing, UsageError
from argosy.core.process import Command, run_checked
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.diagnostics.discover.draft import Replies, choose_shape, draft_profile
from argosy.diagnostics.discover.facts import Draft, Fact, Value
from argosy.diagnostics.discover.questions import GPU_STEPS, LOGIN, parse_answers, render_questions
from argosy.diagnostics.discover.replies import gives_whole_nodes, parse_config, parse_nodes, parse_partitions
from argosy.sites.profile import Site

SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher")


def _render_profile(name: str, draft: Draft, *, host: str, date: str) -> str:
    """Render the profile.

    Parameters
    ----------
    date
        Of the survey, as ``2026-11-20``.
    """
    cluster = next((fact.value for fact in draft.facts if fact.key == "clusters"), [])
    title = f"the Slurm cluster {cluster[0]}" if isinstance(cluster, list) and cluster else "a Slurm cluster"
    head = [
        f"# Asked of {host} on {date} by 'argosy sites new'.  Answer the open questions, then remove them.",
        f"name = {_word(name)}",
        f"title = {_word(title)}",
        'scheduler = "slurm"',
        f"checked = {_word(date)}",
        "open_questions = [",
        *(f"    {_word(question)}," for question in draft.questions),
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
        yield f"{fact.key} = {_word(fact.value)}"
    whys = [f"{fact.key}: {fact.why}" for fact in facts if fact.why]
    yield from (f"why = {_word('; '.join(whys))}",) if whys else ()
    yield f"source = {_word(usual)}"
    others = [fact for fact in facts if fact.source != usual]
    if others:
        yield f"[{section}.sources]"
        yield from (f"{fact.key} = {_word(fact.source)}" for fact in others)


def _option(option: Fact) -> Iterator[str]:
    pairs = (("to", option.key), ("word", option.value), ("why", option.why), ("source", option.source))
    yield from ("", f"[[{option.section}]]", *(f"{name} = {_word(value)}" for name, value in pairs))


def _partition(row: Mapping[str, str | int | bool], host: str) -> Iterator[str]:
    yield from ("", "[[partitions]]")
    for key, value in row.items():
        if value:
            yield f"{key} = {_word(value)}"
    yield f"source = {_word(f'asked: scontrol show partition on {host}')}"


def _word(value: Value) -> str:
    """Write a value as TOML: JSON's strings, numbers, booleans and lists are TOML's too, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


NO_GPU_STEP = "Invalid generic resource"
"""What srun says where select/linear gives no step GPUs (24.11)."""

PATIENCE_SECONDS = 300
"""How long a job for the compute node's questions may wait."""


class Ask(msgspec.Struct, frozen=True):
    """What `argosy sites new` was asked.

    Attributes
    ----------
    output
        The file to write.
    on_node
        Whether one short job asks a compute node.
    partition, account, qos
        For that job; the profile describes this partition's nodes.
    date
        Today, as ``2026-11-20``.
    """

    name: str
    output: Path
    date: str
    on_node: bool = False
    partition: str = ""
    account: str = ""
    qos: str = ""


def discover_site(session: Session, ask: Ask) -> Draft:
    """Ask the cluster at hand and write its profile.

    Raises
    ------
    UsageError
        When the name is none, the file is there, or the partition is not.
    ToolMissing, ToolFailed
        When there is no Slurm here, or the compute node cannot be asked.
    """
    _refuse(ask)
    with session.step("ask", f"{session.host.hostname} about Slurm") as step:
        login = _ask_login(session)
        here = parse_answers(session.runner.run(Command(("sh", "-c", render_questions()))).stdout)
        step.result = f"{sum(map(bool, login.values()))} of {len(login)} questions answered by {session.host.hostname}"
    node = {}
    if ask.on_node:
        with session.step("ask", "a compute node, in a job of its own") as step:
            node = _ask_node(session, ask, login)
            step.result = f"{sum(map(bool, node.values()))} of {len(node)} questions answered by {node.get('host', '')}"
    replies = Replies(session.host.hostname, login, here, node)
    draft = draft_profile(replies, ask.partition)
    text = _render_profile(ask.name, draft, host=session.host.hostname, date=ask.date)
    _check(text)
    try:
        ask.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(ask.output, text)
    except OSError as error:
        raise UsageError(
            f"{ask.output} cannot be written", evidence=str(error), hint="choose another with -o"
        ) from error
    return draft


def _refuse(ask: Ask) -> None:
    if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9._-]*", ask.name):
        raise UsageError(f"{ask.name!r} is not a valid site name", hint="letters, digits, '.', '_' and '-'")
    if ask.output.exists():
        raise UsageError(
            f"{ask.output} is there already", hint="choose another with -o, and compare: argosy sites diff"
        )
    if ask.output.suffix != ".toml":
        raise UsageError(f"{ask.output} is no name of a profile", hint="end it in .toml")


def _ask_login(session: Session) -> dict[str, str]:
    if "srun" not in session.host.programs:
        raise ToolMissing("there is no Slurm here", evidence="srun is not on PATH", hint="run this on a login node")
    answers = {}
    for name, words in LOGIN.items():
        command = Command(words)
        needed = name in {"config", "nodes", "partitions"}
        hint = "'scontrol ping' tells whether the controller answers; nothing was written"
        asked = (session.runner, command)
        reply = run_checked(*asked, doing="asking Slurm", hint=hint) if needed else session.runner.run(command)
        answers[name] = reply.stdout + (reply.stderr if name == "mpi" else "")
    return answers


def _ask_node(session: Session, ask: Ask, login: dict[str, str]) -> dict[str, str]:
    nodes, partitions = parse_nodes(login["nodes"]), parse_partitions(login["partitions"])
    known = [each.name for each in partitions]
    if ask.partition and ask.partition not in known:
        raise UsageError(f"there is no partition {ask.partition!r}", evidence=f"known: {', '.join(known)}")
    partition, shape = choose_shape(nodes, partitions, ask.partition)
    options = [f"--partition={partition}"] if partition else []
    options += [f"--account={ask.account}"] if ask.account else []
    options += [f"--qos={ask.qos}"] if ask.qos else []
    gpus = [f"--gres=gpu:{shape.gpus}"] if shape.gpus else []  # all of the node: their programs show the job's own only
    words = (
        "srun",
        "--nodes=1",
        "--ntasks=1",
        "--time=5",
        f"--immediate={PATIENCE_SECONDS}",
        "--job-name=argosy-sites-new",
    )
    told = {}
    if gpus and gives_whole_nodes(parse_config(login["config"])):
        reply = session.runner.run(Command((*words, *options, *gpus, "true")))
        told[GPU_STEPS] = "no" if NO_GPU_STEP in reply.stderr else "yes" if reply.code == 0 else ""
        gpus = gpus if told[GPU_STEPS] == "yes" else []
    reply = run_checked(
        session.runner,
        Command((*words, *options, *gpus, "sh", "-c", render_questions())),
        doing="asking a compute node",
        hint="name --partition, --account or --qos as your jobs do; without --on-node its questions stay open",
    )
    return parse_answers(reply.stdout) | told


def _check(text: str) -> None:
    """Refuse to write what could not be read again."""
    try:
        msgspec.convert(tomllib.loads(text), Site)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> ArgosyError:
    return SiteError("Slurm's replies make no valid profile", evidence=str(error), hint="please report its replies")
