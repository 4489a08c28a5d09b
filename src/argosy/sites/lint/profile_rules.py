"""The rules for site profiles: evidence, contradictions, staleness; pure."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from argosy.core.errors import SiteError
from argosy.core.findings import FileFinding
from argosy.core.toml_lines import find_line
from argosy.sites.binding import plan_masks
from argosy.sites.conditions import Facts, judge_condition
from argosy.sites.lint.rule import Fault, Rule, file_finding
from argosy.sites.lint.script_rules import LTM25, OLCF, PHB, documented, meant_variable
from argosy.sites.profile import Identity, Partition, Site
from argosy.sites.profile_parts import Conditional, Evident
from argosy.sites.resolve import full_address
from argosy.sites.software import Images

OLDEST = dt.timedelta(days=540)
"""How long a fact is believed without anybody looking again: sites change their software about once a year."""

OURS = "the format of profiles"
SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher", "network", "images", "build")
LISTS = ("settings", "caches", "binds", "options", "avoid", "partitions")
GPU_WAYS = {"nv": "nvidia", "nvccli": "nvidia", "rocm": "amd"}


class Profile(msgspec.Struct, frozen=True):
    """A profile, its text, and the day on which it is looked at."""

    site: Site
    text: str
    today: dt.date

    def line(self, *keys: str) -> int:
        """Give the line of a key; that of a part of a fragment is the line of ``use``."""
        return find_line(self.text, keys)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Evident]]:
        """Give every part with its place, those that say nothing left out."""
        for section in SECTIONS:
            part: Evident = getattr(self.site, section)
            own = msgspec.structs.replace(part, bases=()) if isinstance(part, Images) else part
            if own != type(part)() and not (isinstance(part, Identity) and not part.has_marks):
                yield (section,), own
        for number, base in enumerate(self.site.images.bases):
            yield ("images", "bases", str(number)), base
        for name in LISTS:
            for part in getattr(self.site, name):
                yield (name, str(self.index(name, part))), part
        for name, mode in self.site.modes.items():
            yield ("modes", name), mode

    def index(self, key: str, part: Evident) -> int:
        """Give a part's number within this file: parts of fragments come first in the joined list."""
        parts: tuple[Evident, ...] = getattr(self.site, key)
        here = len(re.findall(rf"^\s*\[\[\s*{key}\s*\]\]", self.text, re.MULTILINE))
        return parts.index(part) - (len(parts) - here)


def lint_profile(path: str, text: str, site: Site, today: dt.date) -> tuple[FileFinding, ...]:
    """Check a profile whose format is valid."""
    profile = Profile(site, text, today)
    found = (file_finding(path, rule, each) for rule in PROFILE_RULES for each in rule.check(profile))
    return tuple(sorted(found, key=lambda finding: finding.line))


def _without_source(profile: Profile) -> Iterator[Fault]:
    if not profile.site.has_slurm and not profile.site.settings:
        return
    for keys, part in profile.parts():
        sources = [*filter(None, (part.source, *part.sources.values()))]
        if not sources:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} has no source", 'add source = "https://…"')
        for source in sources:
            for address in full_address(profile.site, source).split("; "):
                if not re.match(r"https?://[\w.-]+|asked: .+ on [\w.-]+$", address):
                    yield Fault(
                        profile.line(*keys), f"{address!r} is no address", "write it out, or add it to [sources]"
                    )


def _without_reason(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        if isinstance(part, Conditional) and not part.why:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} has no why", "say what happens without it")


def _stale(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        checked = part.checked or profile.site.checked
        try:
            day = dt.date.fromisoformat(checked)
        except ValueError:
            said = f": checked = {checked!r} is no date" if checked else " does not say when its source was looked at"
            hint = f'add checked = "{profile.today}", the day on which you looked'
            yield Fault(profile.line(*keys), f"{'.'.join(keys)}{said}", hint)
            continue
        if day > profile.today:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} was checked in the future: {checked}", "")
        elif profile.today - day > OLDEST:
            yield Fault(
                profile.line(*keys), f"{'.'.join(keys)} was last checked on {checked}", "look again, set checked"
            )


def _wrong_map(profile: Profile) -> Iterator[Fault]:
    node = profile.site.node
    try:
        plan_masks(node)
    except SiteError as error:
        yield Fault(profile.line("node", "gpu_cpus"), f"{error.what}: {error.evidence}", "")
    for key in ("gpu_numa", "gpu_pci"):
        rows = getattr(node, key)
        if rows and len(rows) != node.gpus:
            yield Fault(profile.line("node", key), f"{key} has {len(rows)} rows for {node.gpus} GPUs", "")


def _misspelt_setting(profile: Profile) -> Iterator[Fault]:
    names = [(("settings", s), s.name) for s in profile.site.settings]
    for (key, part), name in names:
        if near := meant_variable(name):
            yield Fault(
                profile.line(key, str(profile.index(key, part))),
                f"nothing reads {name}",
                f"did you mean {near}?",
                documented(near),
            )
    for cache in profile.site.caches:
        for name in cache.variables:
            if near := meant_variable(name):
                what = f"nothing reads {name}"
                yield Fault(profile.line("caches"), what, f"did you mean {near}?", documented(near))


def _phb_with_new_rocm(profile: Profile) -> Iterator[Fault]:
    """Find PHB that a job with ROCm 7 would get."""
    if profile.site.node.gpu_vendor != "amd":
        return
    facts = Facts(nodes="2", rocm="7.0", vendor="amd")
    for setting in profile.site.settings:
        if (
            setting.name == "NCCL_NET_GDR_LEVEL"
            and setting.value == "PHB"
            and judge_condition(setting.condition, facts)
        ):
            yield Fault(
                profile.line("settings"), "jobs with ROCm 7 get NCCL_NET_GDR_LEVEL=PHB", 'when = { rocm = "< 6.2" }'
            )


def _ofi_on_one_node(profile: Profile) -> Iterator[Fault]:
    for setting in profile.site.settings:
        one = judge_condition(setting.condition, Facts(nodes="1", vendor=profile.site.node.gpu_vendor))
        if setting.name == "NCCL_NET" and setting.value == "OFI" and one is not False:
            yield Fault(profile.line("settings"), "jobs of one node get NCCL_NET=OFI", 'when = { nodes = "> 1" }')


def _fixed_port(profile: Profile) -> Iterator[Fault]:
    for setting in profile.site.settings:
        if setting.name in {"MASTER_PORT", "MASTER_ADDR"}:
            yield Fault(profile.line("settings"), f"{setting.name} is a job's own", "remove it: the script finds it")


def _mask_beside_cores(profile: Profile) -> Iterator[Fault]:
    slurm, node = profile.site.slurm, profile.site.node
    if node.gpu_cpus and slurm.mask_needs_whole_nodes and slurm.cpus_beside_mask:
        yield Fault(
            profile.line("slurm"), "masks stand beside --cpus-per-task", "cpus_beside_mask = false, if the site says so"
        )


def _peers_cut_off(profile: Profile) -> Iterator[Fault]:
    words = {option.word for option in profile.site.options}
    for avoid in profile.site.avoid:
        if avoid.word in words:
            yield Fault(profile.line("options"), f"the profile gives {avoid.word}, and advises against it", "")


def _set_twice(profile: Profile) -> Iterator[Fault]:
    keys = Counter((s.name, tuple(sorted(s.when.items()))) for s in profile.site.settings)
    for (name, _), count in keys.items():
        if count > 1:
            yield Fault(profile.line("settings"), f"{name} is set {count} times under one condition", "keep one")


def _odd_path(profile: Profile) -> Iterator[Fault]:
    for bind in profile.site.binds:
        for path in bind.paths:
            if (bind.if_there or "*" in path) and re.search(r"[\s;&$`\"'\\,:]", path):
                yield Fault(profile.line("binds"), f"{path!r} holds a character that a shell or the runtime reads", "")
    for cache in profile.site.caches:
        if not re.match(r"/(tmp|dev/shm|var/tmp|local|scratch_local)\b", cache.path):
            yield Fault(profile.line("caches"), f"the cache {cache.path} may be shared by all nodes", "use /tmp")


def _unknown_mode(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    parts: tuple[Conditional, ...] = (*site.settings, *site.binds, *site.options, *site.caches)
    for part in parts:
        for fact, known in (("mode", set(site.modes)), ("partition", {p.name for p in site.partitions})):
            words = {word.strip(" =!") for word in part.when.get(fact, "").split("|")} - {""}
            if known and words - known:
                yield Fault(
                    profile.line(fact),
                    f"a condition asks for the {fact} {min(words - known)!r}, which is not there",
                    "",
                )
    if site.modes and sum(mode.default for mode in site.modes.values()) != 1:
        yield Fault(profile.line("modes"), "of several modes one must be the default", "default = true")


def _avoided_default(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    if site.launcher.default in site.launcher.avoid:
        yield Fault(profile.line("launcher"), f"the default launcher {site.launcher.default} is one to avoid", "")


def _wrong_gpu_way(profile: Profile) -> Iterator[Fault]:
    vendor = GPU_WAYS.get(profile.site.runtime.gpu, "")
    if vendor and profile.site.node.gpu_vendor not in {"", vendor}:
        what = f"--{profile.site.runtime.gpu} is for GPUs of {vendor}, the nodes have {profile.site.node.gpu_vendor}"
        yield Fault(profile.line("runtime", "gpu"), what, "")


def _claims_proof(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        if part.proof == "validated" and not part.checked:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} has proof = 'validated' without a date", "checked = …")


def _impossible_partition(profile: Profile) -> Iterator[Fault]:
    def is_empty(partition: Partition) -> bool:
        return bool(partition.max_nodes and partition.min_nodes > partition.max_nodes)

    for partition in filter(is_empty, profile.site.partitions):
        yield Fault(profile.line("partitions"), f"{partition.name} takes at least more nodes than at most", "")
    names = Counter(partition.name for partition in profile.site.partitions)
    for name in (name for name, count in names.items() if count > 1):
        yield Fault(profile.line("partitions"), f"the partition {name} is there twice", "")


def _no_questions(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    unknown = [
        n for n, known in (("the runtime", site.runtime.name), ("a GPU -> CPU map", site.node.gpu_cpus)) if not known
    ]
    if site.has_slurm and site.node.gpus and unknown and not site.open_questions:
        yield Fault(1, f"{unknown[0]} is not known, and no question says so", 'add open_questions = ["…"]')


def _without_detection(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    if site.has_slurm and not site.identity.has_marks and not site.identity.not_detected:
        hint = 'add hosts, clusters, variables or files to [identity], or not_detected = "why"'
        yield Fault(1, "no machine is detected as this site, and the profile does not say why", hint)


PROFILE_RULES: tuple[Rule[Profile], ...] = (
    Rule("no-source", "a fact without a source cannot be checked", OURS, _without_source),
    Rule("no-reason", "nobody dares to remove a setting whose reason is lost", OURS, _without_reason),
    Rule("stale", "sites change", OURS, _stale),
    Rule("wrong-map", "ranks would be bound to cores that they do not get", OURS, _wrong_map),
    Rule("misspelt-variable", "the setting has no effect, and nobody says so", OURS, _misspelt_setting),
    Rule("gdr-phb", "jobs on several nodes hang", PHB, _phb_with_new_rocm),
    Rule("ofi-on-one-node", "the network is not set up for jobs of one node", OLCF, _ofi_on_one_node),
    Rule("fixed-port", "two jobs on one node meet", "https://github.com/pytorch/pytorch/issues/73656", _fixed_port),
    Rule("mask-with-cores", "the two contradict each other", LTM25 + "202-Binding.md", _mask_beside_cores),
    Rule("own-advice", "the profile contradicts itself", OURS, _peers_cut_off),
    Rule("set-twice", "the last one wins, and the other misleads", OURS, _set_twice),
    Rule("odd-path", "the job fails on the node", OURS, _odd_path),
    Rule("unknown-condition", "the part is never used", OURS, _unknown_mode),
    Rule("avoided-default", "the profile contradicts itself", OURS, _avoided_default),
    Rule("wrong-gpu-way", "containers see no GPU", OURS, _wrong_gpu_way),
    Rule("undated-proof", "a validation holds for a day and for versions", OURS, _claims_proof),
    Rule("impossible-partition", "no job is allowed", OURS, _impossible_partition),
    Rule("no-detection", "users must name the site in every command", OURS, _without_detection),
    Rule("no-questions", "what is not known must be said", OURS, _no_questions),
)  # fmt: skip
