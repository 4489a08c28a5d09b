"""Merge the result of a validation job into a profile: confirm values, add new ones, report contradictions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
import tomlkit.exceptions

from argosy.core.errors import SiteError, UsageError
from argosy.core.findings import Finding, State
from argosy.core.mounts import IN_MEMORY
from argosy.core.os_errors import reading
from argosy.core.parse import decode_json, parse_int, parse_toml
from argosy.sites.profile import Site

NOT_TRIED = "not tried"
MOST_BYTES = 1 << 20


class Fact(msgspec.Struct, frozen=True):
    """One fact of a validation job."""

    name: str
    """For example ``node.cores``, ``attach.overlay``."""
    value: str
    """Result as text; ``not tried`` if it could not be tested, for the reason in `how`."""
    how: str = ""
    """How it was tested."""

    @property
    def tried(self) -> bool:
        """Whether the fact was tested."""
        return self.value not in {"", NOT_TRIED}


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of a validation job."""

    argosy_validate: int
    site: str
    job: str
    date: str
    partition: str
    nodes: str
    runtime: str
    image: str
    facts: tuple[Fact, ...]

    def value(self, name: str) -> str:
        """Return the value of a fact; empty if it was not tested."""
        return next((fact.value for fact in self.facts if fact.name == name and fact.tried), "")

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Slurm and of the runtime during the run."""
        slurm = re.search(r"\d+(?:\.\d+)+", self.value("slurm.version"))
        found = {"slurm": slurm[0] if slurm else "", self.runtime or "runtime": self.value("runtime.version")}
        return {name: version for name, version in found.items() if version}

    @property
    def summary(self) -> str:
        """Summary of the run: ``2026-11-21, job 7, slurm 24.11.5, apptainer 1.4.5``."""
        versions = (f"{name} {version}" for name, version in self.versions.items())
        return ", ".join((self.date, f"job {self.job}", *versions))


def read_result(path: Path) -> ValidationResult:
    """Read the JSON of a validation job.

    Raises
    ------
    UsageError
        When the file cannot be read, or is not such a result.
    """
    hint = "use the argosy-validate-JOB.json that the job wrote"
    with reading(path), path.open("rb") as source:
        text = source.read(MOST_BYTES).decode(errors="replace")
    try:
        result = decode_json(text, ValidationResult)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not a result of argosy sites validate", evidence=str(error), hint=hint) from error
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", result.date) or not re.fullmatch(r"[\w-]*", result.job):
        raise UsageError(
            f"{path} is not a result of argosy sites validate",
            evidence=f"date {result.date!r}, job {result.job!r}",
            hint=hint,
        )
    return result


Value = str | int | bool


class FactCheck(msgspec.Struct, frozen=True):
    """A value of a profile compared with a run."""

    key: str
    """Section and key: ``node.cores``."""
    documented: Value | None
    """Value of the profile; None if it has none."""
    found: Value
    """Value of the run."""

    @property
    def section(self) -> str:
        """The table of the profile that has the value."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """The key in that table."""
        return self.key.partition(".")[2]

    @property
    def agrees(self) -> bool:
        """Whether the values agree; a version may have more numbers than the documented one."""
        if self.key == "runtime.version":
            asked, has = str(self.documented), str(self.found)
            return has == asked or has.startswith((f"{asked}.", f"{asked}-", f"{asked}+")) or asked in has.split()
        return self.documented == self.found


class Merged(msgspec.Struct, frozen=True):
    """The text of a profile with the result of a run."""

    text: str
    confirmed: tuple[FactCheck, ...]
    added: tuple[FactCheck, ...]
    against: tuple[FactCheck, ...]
    """Values that the run confirms, adds and contradicts."""
    accepted: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return a finding for each compared value."""
        rows = [Finding(row.key, State.OK, f"{row.documented}, confirmed") for row in self.confirmed]
        rows += [Finding(row.key, State.OK, f"{row.found}, new in the profile") for row in self.added]
        for row in self.against:
            evidence = f"the profile has {row.documented}, the run found {row.found}"
            if self.accepted and row.key in FROM_FACTS:
                rows.append(Finding(row.key, State.WARN, evidence, f"the profile now has {row.found}"))
            else:
                hint = "check which one is right; --accept takes the value of the run"
                rows.append(Finding(row.key, State.FAIL, evidence, hint))
        return tuple(rows)


def _number(text: str) -> int | None:
    return parse_int(text) or None


def _word(text: str) -> str | None:
    return text if text and "|" not in text and text != "none" else None


def _vendor(text: str) -> str | None:
    return text if text in {"amd", "intel", "nvidia"} else None


def _boolean(text: str) -> bool | None:
    return {"yes": True, "no": False}.get(text)


def _in_memory(text: str) -> bool | None:
    return None if not text or "|" in text else text in IN_MEMORY


def _version(text: str) -> str | None:
    return text if re.match(r"\d", text) else None


FROM_FACTS: Mapping[str, tuple[str, Callable[[str], Value | None]]] = {
    "node.cores": ("node.cores", _number),
    "node.sockets": ("node.sockets", _number),
    "node.numa": ("node.numa", _number),
    "node.memory_mb": ("node.memory_mb", _number),
    "node.arch": ("node.arch", _word),
    "node.gpus": ("node.gpus", _number),
    "node.gpu_vendor": ("gpus.vendor", _vendor),
    "node.tmp_in_memory": ("node.tmp", _in_memory),
    "runtime.version": ("runtime.version", _version),
    "runtime.user_namespaces": ("node.user_namespaces", _boolean),
}
"""Key of a profile -> the fact with its value, and the parser, which returns None for a fact without a value."""


def _compare(result: ValidationResult, site: Site) -> tuple[FactCheck, ...]:
    """Compare the values of a profile with a run."""
    found: list[FactCheck] = []
    for key, (name, read) in FROM_FACTS.items():
        value = read(result.value(name))
        section, _, inner = key.partition(".")
        if value is None or (section == "runtime" and result.runtime not in {site.runtime.name, ""}):
            continue
        part = getattr(site, section)
        documented = getattr(part, inner)
        found.append(FactCheck(key, None if documented == getattr(type(part)(), inner) else documented, value))
    return (*found, *_compare_others(result, site))


def _compare_others(result: ValidationResult, site: Site) -> tuple[FactCheck, ...]:
    """Compare the values that need a rule: CPU masks, the network, the name of the first host, and MPI."""
    rows: list[FactCheck] = []
    planned, back = result.value("mask.planned"), result.value("mask.planned_read_back")
    if site.node.gpu_cpus and planned and back:
        rows.append(FactCheck("node.gpu_cpus", planned, back))
    line = result.value("network.line")
    if site.network.proof_lines and line and result.value("network.all_reduce").startswith("nccl"):
        patterns = site.network.proof_lines
        shown = next((pattern for pattern in patterns if any(re.search(pattern, each) for each in line.split(";"))), "")
        rows.append(FactCheck("network.proof_lines", shown or patterns[0], shown or line))
    resolves = result.value("master.resolves")
    if site.slurm.master_suffix and resolves:
        suffix = site.slurm.master_suffix
        rows.append(
            FactCheck(
                "slurm.master_suffix", suffix, suffix if resolves == "yes" else "names with this suffix do not resolve"
            )
        )
    kinds = result.value("mpi.list").replace(",", " ").split()
    if site.launcher.mpi and kinds:
        mpi = site.launcher.mpi
        rows.append(FactCheck("launcher.mpi", mpi, mpi if mpi in kinds else f"srun supports only {' '.join(kinds)}"))
    return tuple(rows)


def merge_result(text: str, site: Site, result: ValidationResult, *, accept: bool = False) -> Merged:
    """Return the text of a profile with the result of a run.

    Parameters
    ----------
    accept
        Whether values of the run replace values that they contradict.

    Raises
    ------
    SiteError
        When the text cannot be edited.
    UsageError
        When the run found no value of a profile.
    """
    compared = _compare(result, site)
    if not compared:
        reasons = "; ".join(f"{fact.name} was not tried: {fact.how}" for fact in result.facts if not fact.tried)
        raise UsageError(
            f"job {result.job} found no value of the profile",
            evidence=reasons[:500],
            hint="read the output of that job, mend what failed, and validate again",
        )
    added = tuple(row for row in compared if row.documented is None)
    known = [row for row in compared if row.documented is not None]
    confirmed = tuple(row for row in known if row.agrees)
    against = tuple(row for row in known if not row.agrees)
    taken = tuple(row for row in against if accept and row.key in FROM_FACTS)
    shown = (*confirmed, *added, *taken)
    denied = {row.key for row in against if row not in taken}
    try:
        document = tomlkit.parse(text)
        for row in (*added, *taken):
            document.setdefault(row.section, tomlkit.table())[row.name] = row.found
        for section in dict.fromkeys(row.section for row in compared):
            proofs = {k: v for k, v in getattr(site, section).proofs.items() if f"{section}.{k}" not in denied}
            proofs |= {row.name: result.summary for row in shown if row.section == section}
            set_table(document, f"{section}.proofs", proofs)
        set_table(document, "validated", {"date": result.date, "job": result.job})
        set_table(document, "validated.versions", result.versions)
        set_table(document, "validated.facts", {fact.name: fact.value for fact in result.facts if fact.tried})
        text = tomlkit.dumps(document)
        msgspec.convert(parse_toml(text), Site)
    except (tomlkit.exceptions.TOMLKitError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SiteError(
            f"cannot merge the result into the profile of {site.name}",
            evidence=str(error),
            hint="write each [section] once, with its keys below it, and merge again",
        ) from error
    return Merged(text, confirmed, added, against, accepted=accept)


def set_table(document: MutableMapping[str, Any], name: str, rows: Mapping[str, str]) -> None:
    """Replace the table of a dotted name by these rows, but not its inner tables; remove it if there are none."""
    *parents, last = name.split(".")
    for parent in parents:
        document = document.setdefault(parent, tomlkit.table(is_super_table=True))
    table = document.get(last)
    if not rows or not isinstance(table, MutableMapping):
        document.pop(last, None)
        if rows:
            document[last] = dict(rows)
        return
    for key in [key for key, value in table.items() if key not in rows and not isinstance(value, MutableMapping)]:
        del table[key]
    table.update(rows)  # in place: comments at the end of the table stay
