"""Explain a planned job: every option, variable, bind mount and mask with its value, reason, source and date; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from argosy.core.model import Choice
from argosy.jobs.launch_plan import LaunchPlan
from argosy.runtimes.runtime import load_runtime

GROUPS = ("job", "ranks", "container", "variables", "not decided")

BEHIND = {
    "nodes": "nodes",
    "gpus-per-node": "GPUs per node",
    "gres": "GPUs per node",
    "ntasks-per-node": "launcher",
    "cpus-per-task": "cores per rank",
    "partition": "partition",
    "mem-per-gpu": "--mem-per-gpu",
    "mem": "--mem",
}
"""Option of sbatch -> the choice that it follows from."""

OWN = {
    "job-name": ("the program's name, unless --name is given", "default"),
    "output": ("one file per job, unless --output is given", "default"),
    "open-mode": ("a job that starts again goes on with its file", "default"),
}


PROOFS = {
    "ran": "the tests start it for real",
    "rendered": "its words are tested against its documentation; nobody has started it here",
}


class Explained(msgspec.Struct, frozen=True):
    """One value of a planned job.

    Attributes
    ----------
    group
        One of `GROUPS`.
    source
        Who chose it: ``option``, ``environment``, ``site NAME``, ``image``, ``default``, ``assumed``.
    evidence, checked, proof
        For a site's value: the public address, the date, ``documented`` or ``proved``.
    """

    group: str
    what: str
    value: str
    why: str
    source: str
    evidence: str = ""
    checked: str = ""
    proof: str = ""


def explain_plan(plan: LaunchPlan) -> tuple[Explained, ...]:
    """Give every value of a planned job, in the order of `GROUPS`."""
    directives = tuple(_directives(plan))
    policy = tuple(_policy(plan))
    if not directives:
        return _sorted((*map(_of_choice, plan.choices), *policy))
    said = {row.what for row in directives} | {"nodes", "GPUs per node", "partition", "sbatch"}
    rows = (*directives, *(_of_choice(choice) for choice in plan.choices if choice.what not in said))
    return _sorted((*rows, *policy, *_told_by_ranks(plan)))


def _told_by_ranks(plan: LaunchPlan) -> tuple[Explained, ...]:
    """Explain what ranks with GPUs set by themselves, so that the end can tell which network was used (rank.sh)."""
    if not plan.shape.gpus_per_node or any(choice.what == "NCCL_DEBUG" for choice in plan.choices):
        return ()
    value = "INFO, subsystems INIT,NET, into the job's record"
    why = "so that the verdict can tell the network; left alone where the image or the caller sets it"
    return (Explained("variables", "NCCL_DEBUG", value, why, "default"),)


def _policy(plan: LaunchPlan) -> Iterator[Explained]:
    """Say what of the caller's environment the runtime lets in, and whether it has been started for real in tests."""
    for choice in plan.choices:
        if choice.what == "runtime":
            runtime = load_runtime(choice.value)
            source = f"runtime {runtime.name}"
            yield Explained("container", "caller's variables", "by policy", runtime.traits.caller, source)
            yield Explained("container", "proof of the runtime", runtime.proof, PROOFS[runtime.proof], source)


def _sorted(rows: Iterable[Explained]) -> tuple[Explained, ...]:
    return tuple(sorted(rows, key=lambda row: GROUPS.index(row.group)))


def _directives(plan: LaunchPlan) -> Iterator[Explained]:
    """Explain each ``#SBATCH`` line by the choice behind it."""
    choices = {choice.what: choice for choice in plan.choices}
    words = {choice.value: choice for choice in plan.choices if choice.what == "sbatch"}
    for option in re.findall(r"^#SBATCH (--.*)$", plan.script, re.MULTILINE):
        name, _, value = option[2:].partition("=")
        choice = words.get(option) or choices.get(BEHIND.get(name, ""), choices.get(f"--{name}"))
        if choice:
            why = choice.why if choice.value == value else f"{choice.what} = {choice.value}: {choice.why}"
            evidence = (choice.evidence, choice.checked, choice.proof)
            yield Explained("job", f"--{name}", value or "yes", why, choice.source, *evidence)
        else:
            why, source = OWN.get(name, ("asked for", "option"))
            yield Explained("job", f"--{name}", value or "yes", why, source)


def _of_choice(choice: Choice) -> Explained:
    evidence = (choice.evidence, choice.checked, choice.proof)
    return Explained(_group(choice), choice.what, choice.value, choice.why, choice.source, *evidence)


def _group(choice: Choice) -> str:
    if choice.value == "not set" or choice.source == "assumed":
        return "not decided"
    if choice.what in {"runtime", "layer", "gpu", "bind"}:
        return "container"
    if re.fullmatch(r"[A-Z][A-Z0-9_]+(, [A-Z][A-Z0-9_]+)*", choice.what):
        return "variables"
    return "ranks" if choice.what in {"launcher", "srun", "srun-always"} or "rank" in choice.what else "job"
