"""Resolve a profile for a job: the settings that apply, each with its reason, source, date and proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import Bind, Choice, ChoiceKey, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.core.suggest import did_you_mean
from argosy.sites.conditions import Facts, evaluate_condition, render_condition, unknown_facts
from argosy.sites.profile import Mode, Node, Partition, Site
from argosy.sites.profile_parts import BRACES, Avoid, Cache, Evident, Setting, SiteBind, SiteOption

INFINIBAND = "/sys/class/infiniband_mad /dev/infiniband/rdma_cm"
"""Files of a node with InfiniBand: enroot's hook 99-mellanox.sh fails without them."""

JOB_NAMES = {
    "user": "${USER:-$SLURM_JOB_USER}",
    "job": "$SLURM_JOB_ID",
    "infiniband": f"$(ls {INFINIBAND} >/dev/null 2>&1 && echo all || echo void)",
}
"""Name in a ``late`` text -> its shell form in a job script. ``{devices}`` is replaced when planning."""


Part = Setting | Cache | SiteBind | SiteOption
"""A part of a profile that may add something to a job."""


class SiteSettings(msgspec.Struct, frozen=True):
    """The settings that a site adds to a job."""

    variables: tuple[Variable, ...] = ()
    """Variables to set inside the container."""
    binds: tuple[Bind, ...] = ()
    node_binds: tuple[str, ...] = ()
    """Bind mounts; those of `node_binds` are searched on each node and may contain ``*``."""
    folders: tuple[Word, ...] = ()
    """Folders to create on each node before its ranks start."""
    sbatch: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    srun_always: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    """Arguments for these programs."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Names and values for hooks of the runtime."""
    choices: tuple[Choice, ...] = ()
    """The reason for each setting."""
    avoided: tuple[Avoid, ...] = ()
    """Options that the site advises against for such a job."""


DATE = len("2026-11-21")


def full_address(site: Site, source: str) -> str:
    """Return the full URLs of a source: in ``LUG docs/x.md``, the key of ``[sources]`` is replaced by its URL."""
    whole = []
    for part in source.split("; "):
        key, _, rest = part.partition(" ")
        whole.append(site.sources[key] + rest if key in site.sources else part)
    return "; ".join(whole)


def contradicted_fact(site: Site, part: Evident, field: str) -> str:
    """Return what the last run found for a value of the node that was edited since then; empty if they agree."""
    value, found = getattr(part, field, None), site.validated.facts.get(f"node.{field}", "")
    return found if isinstance(part, Node) and value and found and str(value) != found else ""


def proof_of(site: Site, part: Evident, field: str) -> str:
    """Return the run that confirmed a value; empty if there is none, or the run found another value."""
    return "" if contradicted_fact(site, part, field) else part.proofs.get(field, "")


def evident_choice(site: Site, part: Evident, key: str, value: str, *, field: str = "", why: str = "") -> Choice:
    """Return a value of a profile as a choice of a plan.

    Parameters
    ----------
    key
        Key of the choice.
    field
        Key of the part that contains the value, if the part has several values.
    """
    source = part.sources.get(field, part.source)
    shown = proof_of(site, part, field)
    return Choice(
        key,
        value,
        why or part.why or "set by the site",
        f"site {site.name}",
        evidence="; ".join(filter(None, (full_address(site, source), shown and f"validated {shown}"))),
        checked=shown[:DATE] or part.checked or site.checked,
        proof="validated" if shown else part.proof,
    )


def choose_mode(site: Site, asked: str, image: str = "") -> tuple[Site, str]:
    """Apply the requested mode, else that of the image or the site's default, and return its name; empty without modes.

    Raises
    ------
    SiteError
        When the site has no such mode; the hint suggests the most similar one.
    """
    if asked and asked not in site.modes:
        raise SiteError(
            f"{site.name} has no mode {asked!r}",
            evidence=f"its modes: {', '.join(site.modes) or 'none'}",
            hint=did_you_mean(asked, site.modes, "remove the mode", form="--mode {}"),
        )
    of_image = (name for name, mode in site.modes.items() if any(fnmatchcase(image, known) for known in mode.images))
    default = (name for name, mode in site.modes.items() if mode.default)
    name = asked or next(chain(of_image, default), "")
    mode = site.modes.get(name, Mode())
    if not mode.devices_per_gpu:
        return site, name
    node = replace(site.node, devices_per_gpu=mode.devices_per_gpu)
    return replace(site, node=node), name


def at_partition(site: Site, partition: Partition | None) -> Site:
    """Return the site with the nodes of one partition; without a core map if they differ from the profile's nodes."""
    if partition is None:
        return site
    node = site.node
    if partition.cores not in {0, node.cores}:
        node = replace(node, reserved="", sockets=0, numa=0)
    if not _has_usual_nodes(site, partition):
        node = replace(node, gpu_cpus=(), gpu_numa=(), gpu_pci=(), gpu_nics=())
    node = replace(
        node,
        gpus=gpus_of(site, partition),
        cores=partition.cores or site.node.cores,
        gpu_model=partition.gpu_model or site.node.gpu_model,
    )
    slurm = replace(
        site.slurm,
        cpus_per_gpu=partition.cpus_per_gpu or site.slurm.cpus_per_gpu,
        whole_nodes=partition.whole_nodes or site.slurm.whole_nodes,
    )
    return replace(site, node=node, slurm=slurm)


def at_gpu_type(site: Site, gpu_type: str) -> Site:
    """Return the site with the cores of one type of GPU; the site itself if the profile does not list the type.

    A slice of a GPU (MIG) has neither the number of GPUs of a node nor their core map.
    """
    cores = site.slurm.cpus_per_gpu_type.get(gpu_type, 0)
    if not cores:
        return site
    node = replace(site.node, gpus=0, gpu_cpus=(), gpu_numa=(), gpu_pci=(), gpu_nics=())
    return replace(site, node=node, slurm=replace(site.slurm, cpus_per_gpu=cores))


SLINGSHOT: Mapping[str, str] = {"amd": "slingshot-amd", "nvidia": "slingshot-nvidia"}
"""Vendor of GPUs whose collectives need a plugin for Slingshot -> the fragment with its settings."""


def describe_missing_plugin(site: Site) -> str:
    """Return why NCCL or RCCL uses TCP between the nodes of a site; empty if the profile does not show that it does."""
    is_slingshot = "slingshot" in site.node.nic.lower() and site.node.gpu_vendor in SLINGSHOT
    if not is_slingshot or site.network.plugin:
        return ""
    library = "RCCL" if site.node.gpu_vendor == "amd" else "NCCL"
    return f"{library} uses TCP on {site.node.nic} without a plugin, and the profile has no network.plugin"


def gpus_of(site: Site, partition: Partition | None) -> int:
    """Return the number of GPUs of a partition's nodes; if the partition does not set it, the number of the profile."""
    return site.node.gpus if partition is None or partition.gpus is None else partition.gpus


def _has_usual_nodes(site: Site, partition: Partition) -> bool:
    """Return whether the nodes of a partition are those that the profile describes."""
    same_model = partition.gpu_model in {"", site.node.gpu_model}
    same_cores = partition.cores in {0, site.node.cores}
    return same_model and same_cores and gpus_of(site, partition) == site.node.gpus


def choose_site_settings(site: Site, facts: Facts, devices: int) -> SiteSettings:
    """Return everything that the profile adds to a job with these facts.

    Parameters
    ----------
    devices
        Number of root devices of the job on each node.
    """
    settings = _settings(site, facts)
    caches = [cache for cache in site.caches if evaluate_condition(cache.condition, facts)]
    binds = [bind for bind in site.binds if evaluate_condition(bind.condition, facts)]
    options = [option for option in site.options if evaluate_condition(option.condition, facts)]
    folders = tuple(late_word(cache.path, devices) for cache in caches)
    cached = [Variable(name, folder) for cache, folder in zip(caches, folders, strict=True) for name in cache.variables]
    plain = [Bind(path, path) for bind in binds for path in bind.paths if not (bind.if_there or "*" in path)]
    parts: tuple[Part, ...] = (*settings, *caches, *binds, *options)
    return SiteSettings(
        variables=(*(Variable(s.name, late_word(s.late, devices) if s.late else s.value) for s in settings), *cached),
        binds=tuple(plain),
        node_binds=tuple(path for bind in binds for path in bind.paths if bind.if_there or "*" in path),
        folders=folders,
        sbatch=_arguments(options, "sbatch"),
        srun=_arguments(options, "srun"),
        srun_always=_arguments(options, "srun-always"),
        runtime=_arguments(options, "runtime"),
        annotations=tuple(_pair(word) for word in _arguments(options, "annotation")),
        choices=(
            *(evident_choice(site, part, _key(part), _value(part, devices)) for part in parts),
            *_left_out(site, facts),
        ),
        avoided=tuple(avoid for avoid in site.avoid if evaluate_condition(avoid.condition, facts) is not False),
    )


def _key(part: Part) -> str:
    """Return the key of the choice for a part; for an argument, it is the program that gets it."""
    match part:
        case Setting():
            return part.name
        case Cache():
            return ", ".join(part.variables)
        case SiteBind():
            return ChoiceKey.BIND
        case SiteOption():
            program = part.to.partition("-")[0]
            return ChoiceKey.RUNTIME_OPTION if program == "runtime" else program


def _value(part: Part, devices: int) -> str:
    match part:
        case Setting():
            return part.value or _shown(late_word(part.late, devices))
        case Cache():
            return _shown(late_word(part.path, devices))
        case SiteBind():
            return ", ".join(part.paths)
        case SiteOption():
            return part.word


def _arguments(options: list[SiteOption], to: str) -> tuple[str, ...]:
    return tuple(option.word for option in options if option.to == to)


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _settings(site: Site, facts: Facts) -> list[Setting]:
    """Return the settings whose condition holds; of several with one name the last one."""
    found = {setting.name: setting for setting in site.settings if evaluate_condition(setting.condition, facts)}
    return list(found.values())


def _left_out(site: Site, facts: Facts) -> Iterator[Choice]:
    """Yield a choice for each part whose condition depends on an unknown fact."""
    parts: tuple[Part, ...] = (*site.settings, *site.caches, *site.binds, *site.options)
    for part in parts:
        if evaluate_condition(part.condition, facts) is None:
            missing = ", ".join(unknown_facts(part.condition, facts))
            why = f"only for {render_condition(part.when)}, and {missing} is unknown"
            yield replace(evident_choice(site, part, _key(part), "not set", why=why), mark=Mark.UNSET)


def _shown(word: Word) -> str:
    return word.expression if isinstance(word, ShellExpr) else word


def late_word(text: str, devices: int) -> Word:
    """Convert a text with names in braces, such as ``{user}``, to a word of a script."""
    filled = text.replace("{devices}", ",".join(map(str, range(devices))))
    if not BRACES.search(filled):
        return filled
    pieces = BRACES.split(filled)
    escaped = [in_double_quotes(piece) for piece in pieces[::2]]
    names = [JOB_NAMES[name] for name in pieces[1::2]]
    return ShellExpr("".join(a + b for a, b in zip(escaped, [*names, ""], strict=True)))
