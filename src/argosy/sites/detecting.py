"""Tell which site a machine belongs to, by its names and variables; two answers or none are said.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from argosy.sites.records import Identity, Site


class Machine(msgspec.Struct, frozen=True):
    """What identifies a machine.

    Attributes
    ----------
    cluster
        Slurm's ClusterName; empty where it is not known.
    host
        Name without domain.
    """

    cluster: str
    host: str
    variables: Mapping[str, str]


class Match(msgspec.Struct, frozen=True):
    """A site that a machine looks like, and what shows it."""

    site: str
    reasons: tuple[str, ...]


def detect_sites(sites: Iterable[Site], machine: Machine) -> tuple[Match, ...]:
    """Give the sites whose every kind of mark is found here; those without marks are never found."""
    found = ((site.name, _judge_identity(site.identity, machine)) for site in sites)
    return tuple(Match(name, reasons) for name, reasons in found if reasons)


def _judge_identity(identity: Identity, machine: Machine) -> tuple[str, ...]:
    """Say what of a machine fits an identity; nothing where one kind of its marks does not."""
    reasons: list[str] = []
    for what, value, patterns in (
        ("ClusterName", machine.cluster, identity.clusters),
        ("host name", machine.host.partition(".")[0], identity.hosts),
    ):
        hits = [pattern for pattern in patterns if value and fnmatchcase(value, pattern)]
        if patterns and not hits and not (what == "ClusterName" and not value):
            return ()
        reasons += [f"{what} {value} is like {hits[0]}"] if hits else []
    for name, pattern in identity.variables.items():
        if not fnmatchcase(machine.variables.get(name, ""), pattern):
            return ()
        reasons.append(f"{name} is {machine.variables[name]}")
    return tuple(reasons)
