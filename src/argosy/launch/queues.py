"""Where jobs can go: partitions with limits and free nodes, and the accounts and QOS a user may name."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.launch.jobs import ask_slurm
from argosy.process import Command
from argosy.session import Session

SINFO_FORMAT = "%R|%a|%l|%s|%F|%c|%m|%G"
"""Partition, up or down, time limit, job sizes, nodes (allocated/idle/other/total), CPUs, memory in MB, GPUs."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition.

    Attributes
    ----------
    limit
        Longest time of a job, as Slurm writes it.
    sizes
        Nodes of a job, from to.
    free, nodes
        Idle nodes, and nodes in all.
    memory
        MB of a node.
    gres
        GPUs of a node, as Slurm says them: ``gpu:8``.
    """

    name: str
    up: bool
    limit: str
    sizes: str
    free: int
    nodes: int
    cpus: str
    memory: str
    gres: str


@dataclass(frozen=True, slots=True)
class Account:
    """An association of this user: what ``--account``, ``--partition`` and ``--qos`` may be together."""

    account: str
    partition: str
    qos: str


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Read sinfo's rows; a partition whose nodes differ has several."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        Queue(name, state == "up", limit, sizes, _number(nodes, 1), _number(nodes, 3), cpus, memory, _gres(gres))
        for name, state, limit, sizes, nodes, cpus, memory, gres in (row for row in rows if len(row) == 8)  # noqa: PLR2004
    )


def _number(slashed: str, index: int) -> int:
    parts = slashed.split("/")
    return int(parts[index]) if len(parts) > index and parts[index].isdigit() else 0


def _gres(text: str) -> str:
    return "" if text == "(null)" else text


def parse_associations(text: str) -> tuple[Account, ...]:
    """Read ``sacctmgr --parsable2 show associations format=account,partition,qos``."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Account(*row) for row in rows if len(row) == 3)  # noqa: PLR2004


def list_queues(session: Session) -> tuple[Queue, ...]:
    """Ask for the partitions."""
    return parse_sinfo(ask_slurm(session, ("sinfo", "--noheader", "-o", SINFO_FORMAT), doing="asking for the queues"))


def list_accounts(session: Session) -> tuple[Account, ...]:
    """Ask for the user's accounts; none where this cluster keeps no accounts."""
    user = session.host.person.name
    words = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}")
    reply = session.runner.run(Command((*words, "format=account,partition,qos")))
    return parse_associations(reply.stdout) if reply.code == 0 else ()
