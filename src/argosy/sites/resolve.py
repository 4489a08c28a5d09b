"""From a profile and a job's facts to what the job gets: each value with its reason, source, date and proof; pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import Bind, Choice, ChoiceKey, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.core.suggest import suggest_word
from argosy.sites.conditions import Facts, judge_condition, render_condition, unknown_facts
from argosy.sites.profile import Mode, Partition, Site
from argosy.sites.profile_parts import BRACES, Cache, Conditional, Evident, Option, Setting

INFINIBAND = "/sys/class/infiniband_mad /dev/infiniband/rdma_cm"
"""What a node with InfiniBand has: enroot's hook 99-mellanox.sh fails without it."""

LATE_NAMES = {
    "user": "${USER:-$SLURM_JOB_USER}",
    "job": "$SLURM_JOB_ID",
    "infiniband": f"$(ls {INFINIBAND} >/dev/null 2>&1 && echo all || echo void)",
}
"""What ``late`` texts may hold, and how a job script says it; ``{devices}`` is known when planning."""


class SiteDemands(msgspec.Struct, frozen=True):
    """What a site adds to a job.

    Attributes
    ----------
    variables
        Forced inside the container.
    binds, late_binds
        Paths that containers see; the late ones are looked for on each node and may hold ``*``.
    folders
        Made on each node before its ranks start.
    sbatch, srun, srun_always, runtime
        Words for these programs.
    annotations
        What hooks of the runtime are told, by name.
    choices
        The reason of each.
    """

    variables: tuple[Variable, ...] = ()
    binds: tuple[Bind, ...] = ()
    late_binds: tuple[str, ...] = ()
    folders: tuple[Word, ...] = ()
    sbatch: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    srun_always: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    choices: tuple[Choice, ...] = ()


DATE = len("2026-11-21")


def full_address(site: Site, source: str) -> str:
    """Write a source in full: in ``LUG docs/x.md`` the key of ``[sources]`` is replaced by its address."""
    whole = []
    for part in source.split("; "):
        key, _, rest = part.partition(" ")
        whole.append(site.sources[key] + rest if key in site.sources else part)
    return "; ".join(whole)


def evident_choice(site: Site, part: Evident, key: str, value: str, *, field: str = "", why: str = "") -> Choice:
    """Say one value of a profile as a choice of a plan.

    Parameters
    ----------
    key
        As of `Choice`.
    field
        The key of the part that the value comes from, if the part holds several values.
    """
    source = part.sources.get(field, part.source)
    shown = part.proofs.get(field, "")
    return Choice(
        key,
        value,
        why or part.why or "the site's own",
        f"site {site.name}",
        evidence="; ".join(filter(None, (full_address(site, source), shown and f"validated {shown}"))),
        checked=shown[:DATE] or part.checked or site.checked,
        proof="validated" if shown else part.proof,
    )


def choose_mode(site: Site, asked: str) -> tuple[Site, str]:
    """Apply a mode: the one asked for, else the site's default one; empty where the site has none.

    Raises
    ------
    SiteError
        When the site has no such mode; the nearest is named.
    """
    if asked and asked not in site.modes:
        near = suggest_word(asked.upper(), [name.upper() for name in site.modes])
        meant = next((name for name in site.modes if name.upper() == near), "")
        raise SiteError(
            f"{site.name} has no mode {asked!r}",
            evidence=f"its modes: {', '.join(site.modes) or 'none'}",
            hint=f"did you mean --mode {meant}?" if meant else "leave --mode out",
        )
    name = asked or next((name for name, mode in site.modes.items() if mode.default), "")
    mode = site.modes.get(name, Mode())
    if not mode.devices_per_gpu:
        return site, name
    node = msgspec.structs.replace(site.node, devices_per_gpu=mode.devices_per_gpu)
    return msgspec.structs.replace(site, node=node), name


def at_partition(site: Site, partition: Partition | None) -> Site:
    """Give the site with the nodes of one partition; for nodes of another kind it has no map of cores."""
    if partition is None:
        return site
    node = site.node
    if partition.cores not in {0, node.cores}:
        node = msgspec.structs.replace(node, reserved="", sockets=0, numa=0)
    if not _has_usual_nodes(site, partition):
        node = msgspec.structs.replace(node, gpu_cpus=(), gpu_numa=(), gpu_pci=())
    node = msgspec.structs.replace(
        node,
        gpus=gpus_of(site, partition),
        cores=partition.cores or site.node.cores,
        gpu_model=partition.gpu_model or site.node.gpu_model,
    )
    slurm = msgspec.structs.replace(
        site.slurm,
        cpus_per_gpu=partition.cpus_per_gpu or site.slurm.cpus_per_gpu,
        whole_nodes=partition.whole_nodes or site.slurm.whole_nodes,
    )
    return msgspec.structs.replace(site, node=node, slurm=slurm)


def gpus_of(site: Site, partition: Partition | None) -> int:
    """Give the GPUs of a node of a partition: those of the profile's nodes, where it does not say."""
    return site.node.gpus if partition is None or partition.gpus is None else partition.gpus


def _has_usual_nodes(site: Site, partition: Partition) -> bool:
    """Tell whether the nodes of a partition are those that the profile describes."""
    same_model = partition.gpu_model in {"", site.node.gpu_model}
    same_cores = partition.cores in {0, site.node.cores}
    return same_model and same_cores and gpus_of(site, partition) == site.node.gpus


def resolve(site: Site, facts: Facts, devices: int) -> SiteDemands:
    """Give everything that the profile adds to a job of these facts.

    Parameters
    ----------
    devices
        Root devices that the job has on each node.
    """
    settings = _settings(site, facts)
    caches = [cache for cache in site.caches if judge_condition(cache.condition, facts)]
    binds = [bind for bind in site.binds if judge_condition(bind.condition, facts)]
    options = [option for option in site.options if judge_condition(option.condition, facts)]
    folders = tuple(late_word(cache.path, devices) for cache in caches)
    cached = [Variable(name, folder) for cache, folder in zip(caches, folders, strict=True) for name in cache.variables]
    plain = [Bind(path, path) for bind in binds for path in bind.paths if not (bind.if_there or "*" in path)]
    rows = (
        *(evident_choice(site, s, s.name, s.value or s.late) for s in settings),
        *(evident_choice(site, c, ", ".join(c.variables), c.path) for c in caches),
        *(evident_choice(site, bind, ChoiceKey.BIND, ", ".join(bind.paths)) for bind in binds),
        *(evident_choice(site, option, _option_key(option), option.word) for option in options),
        *_left_out(site, facts),
    )
    return SiteDemands(
        variables=(*(Variable(s.name, _setting_word(s, devices)) for s in settings), *cached),
        binds=tuple(plain),
        late_binds=tuple(path for bind in binds for path in bind.paths if bind.if_there or "*" in path),
        folders=folders,
        sbatch=_words(options, "sbatch"),
        srun=_words(options, "srun"),
        srun_always=_words(options, "srun-always"),
        runtime=_words(options, "runtime"),
        annotations=tuple(_pair(word) for word in _words(options, "annotation")),
        choices=rows,
    )


def _option_key(option: Option) -> str:
    """Return the key of the choice for a word that the profile adds: the program that it is for."""
    program = option.to.partition("-")[0]
    return ChoiceKey.RUNTIME_OPTION if program == "runtime" else program


def _words(options: list[Option], to: str) -> tuple[str, ...]:
    return tuple(option.word for option in options if option.to == to)


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _settings(site: Site, facts: Facts) -> list[Setting]:
    """Give the settings whose condition holds; the last one of a name wins."""
    found = {setting.name: setting for setting in site.settings if judge_condition(setting.condition, facts)}
    return list(found.values())


def _left_out(site: Site, facts: Facts) -> Iterator[Choice]:
    """Give a row for each part whose condition cannot be judged, since a fact is not known here."""
    parts: tuple[Conditional, ...] = (*site.settings, *site.caches, *site.binds, *site.options)
    for part in parts:
        if judge_condition(part.condition, facts) is None:
            missing = ", ".join(unknown_facts(part.condition, facts))
            why = f"only for {render_condition(part.when)}, and {missing} is not known here"
            yield replace(evident_choice(site, part, _part_name(part), "not set", why=why), mark=Mark.UNSET)


def _part_name(part: Conditional) -> str:
    """Give what a part is called in an explanation."""
    match part:
        case Setting():
            return part.name
        case Cache():
            return ", ".join(part.variables)
        case Option():
            return part.to
        case _:
            return "bind"


def _setting_word(setting: Setting, devices: int) -> Word:
    """Give a setting's value: verbatim, or known on the node only."""
    return late_word(setting.late, devices) if setting.late else setting.value


def late_word(text: str, devices: int) -> Word:
    """Turn a text with names in braces, as ``{user}``, into a word; a profile has no other names in braces."""
    filled = text.replace("{devices}", ",".join(map(str, range(devices))))
    if not BRACES.search(filled):
        return filled
    pieces = BRACES.split(filled)
    escaped = [in_double_quotes(piece) for piece in pieces[::2]]
    names = [LATE_NAMES[name] for name in pieces[1::2]]
    return ShellExpr("".join(a + b for a, b in zip(escaped, [*names, ""], strict=True)))
