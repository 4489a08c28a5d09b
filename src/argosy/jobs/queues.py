"""List partitions with their limits and free nodes, and the accounts and QOS of the user."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from argosy.core.parse import parse_int
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.slurm.calls import ask_slurm
from argosy.slurm.queries import known_value, parse_scontrol_job

SINFO_FORMAT = "%R|%a|%l|%s|%F|%c|%m|%G"
"""Partition, state, time limit, job sizes, nodes (allocated/idle/other/total), CPUs, memory in MB, GPUs."""


class Queue(msgspec.Struct, frozen=True):
    """A partition."""

    name: str
    up: bool
    limit: str
    """Time limit of a job in Slurm's notation."""
    sizes: str
    """Numbers of nodes that a job may have."""
    free: int
    nodes: int
    """Idle nodes, and all nodes."""
    cpus: str
    memory: str
    """Memory of a node in MB."""
    gres: str
    """GPUs of a node in Slurm's notation, for example ``gpu:8``."""
    qos: str = ""
    """The QOS whose limits hold for every job of the partition; empty if it has none, or was not asked for."""


class Account(msgspec.Struct, frozen=True):
    """An association of this user: valid combinations of ``--account``, ``--partition`` and ``--qos`` on a cluster."""

    cluster: str
    account: str
    partition: str
    qos: str


QOS_FIELDS = ("Name", "MaxWall", "MaxTRES", "MaxTRESPU", "MaxJobsPU", "MaxSubmitJobsPU")
"""Fields of a QOS in sacctmgr, in the order of `Qos`."""


class Qos(msgspec.Struct, frozen=True):
    """A quality of service; empty values mean no limit."""

    name: str
    limit: str
    """Time limit of a job in Slurm's notation."""
    job_resources: str
    """Resources of one job, for example ``cpu=256,node=2``."""
    resources: str
    """Resources of all running jobs of a user, for example ``gres/gpu=16,node=4``."""
    running: str
    jobs: str
    """Most running jobs of a user, and most jobs that wait or run."""

    @property
    def limits(self) -> str:
        """The limits in a line."""
        forms = (
            (self.limit, "up to {}"),
            (self.job_resources, "{} in a job"),
            (self.resources, "{} in total"),
            (self.running, "{} running jobs"),
            (self.jobs, "{} jobs"),
        )
        return ", ".join(form.format(value) for value, form in forms if value) or "no limits"


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Parse the rows of sinfo; a partition with different nodes has several rows."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        Queue(name, state == "up", limit, sizes, _number(nodes, 1), _number(nodes, 3), cpus, memory, known_value(gres))
        for name, state, limit, sizes, nodes, cpus, memory, gres in (row for row in rows if len(row) == 8)  # noqa: PLR2004
    )


def _number(slashed: str, index: int) -> int:
    parts = slashed.split("/")
    return parse_int(parts[index]) if len(parts) > index else 0


def parse_associations(text: str) -> tuple[Account, ...]:
    """Parse ``sacctmgr --parsable2 show associations format=cluster,account,partition,qos``."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Account(*row) for row in rows if len(row) == 4)  # noqa: PLR2004


def render_accounts(accounts: tuple[Account, ...]) -> Iterator[str]:
    """Render a line per association, with its cluster if accounting serves several clusters."""
    several = len({each.cluster for each in accounts}) > 1
    for each in accounts:
        place = " of ".join(filter(None, (each.partition, f"cluster {each.cluster}" if several else "")))
        yield f"account {each.account}{f' on {place}' if place else ''}, QOS {each.qos or 'default'}"


def parse_qos(text: str, names: Collection[str]) -> tuple[Qos, ...]:
    """Parse ``sacctmgr --parsable2 show qos``, and return the rows with these names."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Qos(*row) for row in rows if len(row) == len(QOS_FIELDS) and row[0] in names)


def _parse_partition_qos(text: str) -> dict[str, str]:
    """Parse ``scontrol show partition --oneliner``: name -> QOS of the partitions that have one."""
    rows = (parse_scontrol_job(line) for line in text.splitlines())
    named = {row["PartitionName"]: known_value(row.get("QoS", "")) for row in rows if row.get("PartitionName")}
    return {name: qos for name, qos in named.items() if qos}


def list_queues(session: Session) -> tuple[Queue, ...]:
    """Return the partitions of the cluster."""
    return parse_sinfo(ask_slurm(session, ("sinfo", "--noheader", "-o", SINFO_FORMAT), doing="asking for the queues"))


def list_accounts(session: Session) -> tuple[Account, ...]:
    """Return the user's accounts; none if the cluster has no accounting."""
    user = session.host.person.name
    form = "format=cluster,account,partition,qos"
    return parse_associations(_ask_accounting(session, "associations", f"user={user}", form))


def with_partition_qos(session: Session, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the partitions with the QOS of each one, which sinfo does not show."""
    words = ("scontrol", "show", "partition", "--oneliner")
    named = _parse_partition_qos(ask_slurm(session, words, doing="asking for the QOS of the queues"))
    return tuple(replace(queue, qos=named.get(queue.name, "")) for queue in queues)


def list_qos(session: Session, accounts: tuple[Account, ...], queues: tuple[Queue, ...]) -> tuple[Qos, ...]:
    """Return the limits of each QOS of the accounts and of the partitions."""
    names = {name for account in accounts for name in account.qos.split(",")} | {queue.qos for queue in queues}
    asked = names - {""} and _ask_accounting(session, "qos", f"format={','.join(QOS_FIELDS)}")
    return parse_qos(asked or "", names)


def _ask_accounting(session: Session, *words: str) -> str:
    reply = session.runner.run(Command(("sacctmgr", "--noheader", "--parsable2", "show", *words)))
    return reply.stdout if reply.code == 0 else ""
