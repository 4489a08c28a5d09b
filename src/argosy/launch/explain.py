"""Explain a planned job: every option, variable, bind mount and mask with its value, reason, source and date; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from argosy.core.model import Choice, ChoiceKey, Mark
from argosy.jobs.launch_plan import LaunchPlan
from argosy.runtimes.runtime import load_runtime

GROUPS = ("job", "ranks", "container", "variables", "assumed or not set")

GROUP_OF_KEY: Mapping[str, str] = {
    ChoiceKey.BIND: "container",
    ChoiceKey.CONTAINER_PER: "container",
    ChoiceKey.GPU: "container",
    ChoiceKey.LAYER: "container",
    ChoiceKey.RUNTIME: "container",
    ChoiceKey.RUNTIME_OPTION: "container",
    ChoiceKey.CORES_PER_RANK: "ranks",
    ChoiceKey.LAUNCHER: "ranks",
    ChoiceKey.RANKS: "ranks",
    ChoiceKey.RANKS_PER_NODE: "ranks",
    ChoiceKey.RANK_CORES: "ranks",
    ChoiceKey.SRUN: "ranks",
}
"""Key of a choice -> its group; every other choice is in ``job``."""

CHOICE_OF_OPTION: Mapping[str, str] = {
    "nodes": ChoiceKey.NODES,
    "gpus-per-node": ChoiceKey.GPUS_PER_NODE,
    "gres": ChoiceKey.GPUS_PER_NODE,
    "ntasks-per-node": ChoiceKey.LAUNCHER,
    "cpus-per-task": ChoiceKey.CORES_PER_RANK,
    "partition": ChoiceKey.PARTITION,
}
"""Option of sbatch -> key of the choice that it follows from; any other option is a key itself."""

SHOWN_BY_OPTIONS = frozenset({ChoiceKey.NODES, ChoiceKey.PARTITION, ChoiceKey.SBATCH})
"""Choices that the sbatch options show already."""

GPU_OPTION = re.compile(r"--gpus-per-node=|--gres=(.*,)?gpu\b")
"""An option of sbatch that shows the GPUs; without one, the choice itself is shown."""

DEFAULT_OPTIONS: Mapping[str, str] = {
    "job-name": "the program's name, unless --name is given",
    "output": "one file per job, unless --output is given",
    "open-mode": "a requeued job appends to its output",
}
"""Option of sbatch that a plan adds by itself -> the reason."""

PROOFS = {
    "ran": "the tests start it for real",
    "rendered": "its command line is tested against its documentation; no test has started it",
}


class ExplainedValue(msgspec.Struct, frozen=True):
    """One value of a planned job."""

    group: str
    """One of `GROUPS`."""
    what: str
    """Name of the value, as users see it."""
    value: str
    why: str
    source: str
    """Origin of the value: ``option``, ``environment``, ``site NAME``, ``image``, ``default``, ``assumed``."""
    evidence: str = ""
    checked: str = ""
    proof: str = ""
    """For a site's value: the public address, the date, ``documented`` or ``validated``."""


def explain_plan(plan: LaunchPlan) -> tuple[ExplainedValue, ...]:
    """Return every value of a planned job, in the order of `GROUPS`."""
    policy = tuple(_explain_policy(plan))
    if not plan.directives:
        return _sorted((*map(_explain_choice, plan.choices), *policy))
    options = tuple(_explain_options(plan))
    shown = {row.what for row in options} | SHOWN_BY_OPTIONS
    if any(map(GPU_OPTION.match, plan.directives)):
        shown |= {ChoiceKey.GPUS_PER_NODE}
    others = (_explain_choice(choice) for choice in plan.choices if choice.key not in shown)
    return _sorted((*options, *others, *policy, *_explain_rank_logs(plan)))


def _explain_rank_logs(plan: LaunchPlan) -> tuple[ExplainedValue, ...]:
    """Explain NCCL_DEBUG, which ranks with GPUs set by themselves so that the end can name the network (rank.sh)."""
    if not plan.shape.gpus_per_node or any(choice.key == "NCCL_DEBUG" for choice in plan.choices):
        return ()
    value = "INFO, subsystems INIT,NET, into the job's record"
    why = "so that the verdict can name the network; not set if the image or the caller sets it"
    return (ExplainedValue("variables", "NCCL_DEBUG", value, why, "default"),)


def _explain_policy(plan: LaunchPlan) -> Iterator[ExplainedValue]:
    """Explain which variables of the caller the runtime passes on, and whether the tests start it for real."""
    for choice in plan.choices:
        if choice.key == ChoiceKey.RUNTIME:
            runtime = load_runtime(choice.value)
            source = f"runtime {runtime.name}"
            yield ExplainedValue("container", "caller's variables", "filtered", runtime.traits.caller, source)
            yield ExplainedValue("container", "proof of the runtime", runtime.proof, PROOFS[runtime.proof], source)


def _sorted(rows: Iterable[ExplainedValue]) -> tuple[ExplainedValue, ...]:
    return tuple(sorted(rows, key=lambda row: GROUPS.index(row.group)))


def _explain_options(plan: LaunchPlan) -> Iterator[ExplainedValue]:
    """Explain each option of sbatch by the choice behind it."""
    choices = {choice.key: choice for choice in plan.choices}
    by_site = {choice.value: choice for choice in plan.choices if choice.key == ChoiceKey.SBATCH}
    for option in plan.directives:
        name, _, value = option[2:].partition("=")
        choice = by_site.get(option) or choices.get(CHOICE_OF_OPTION.get(name, ""), choices.get(f"--{name}"))
        shown = value or "yes"
        if choice:
            why = choice.why if choice.value == value else f"{choice.label} = {choice.value}: {choice.why}"
            evidence = (choice.evidence, choice.checked, choice.proof)
            yield ExplainedValue("job", f"--{name}", shown, why, choice.source, *evidence)
        elif name in DEFAULT_OPTIONS:
            yield ExplainedValue("job", f"--{name}", shown, DEFAULT_OPTIONS[name], "default")
        else:
            yield ExplainedValue("job", f"--{name}", shown, "requested", "option")


def _explain_choice(choice: Choice) -> ExplainedValue:
    evidence = (choice.evidence, choice.checked, choice.proof)
    return ExplainedValue(_group_of(choice), choice.label, choice.value, choice.why, choice.source, *evidence)


def _group_of(choice: Choice) -> str:
    if choice.mark is Mark.UNSET or choice.source == "assumed":
        return "assumed or not set"
    if re.fullmatch(r"[A-Z][A-Z0-9_]+(, [A-Z][A-Z0-9_]+)*", choice.key):
        return "variables"
    return GROUP_OF_KEY.get(choice.key, "job")
