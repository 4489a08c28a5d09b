"""Define the lint rules for site profiles: evidence, contradictions and age."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.core.errors import SiteError
from argosy.core.findings import FileFinding
from argosy.core.model import RUNTIME_NAMES
from argosy.core.suggest import did_you_mean
from argosy.sites.binding import MAP, counts_cores, gives_threads, plan_masks, usable_cores
from argosy.sites.conditions import FactComparison, Facts, evaluate_condition
from argosy.sites.faults import read_faults
from argosy.sites.job_settings import SLINGSHOT, contradicted_fact, describe_missing_plugin, full_address
from argosy.sites.lint.rule import FORMAT, Fault, Profile, Rule, file_finding
from argosy.sites.lint.script_rules import CSCS, LTM25, OLCF, PHB, documented, meant_variable
from argosy.sites.lint.value_rules import LAUNCHER_NAMES, VALUE_RULES
from argosy.sites.profile import Node, Partition, Site, Slurm
from argosy.sites.profile_parts import Conditional
from argosy.sites.read import describe_unused, find_profile, read_site
from argosy.slurm.times import parse_minutes

OLDEST = dt.timedelta(days=540)
"""Age after which a source must be read again: sites change their software about once a year."""

SMT = "https://slurm.schedmd.com/mc_support.html"
PLACE = re.compile(r"(.*?\.toml):(\d+)(?:: |$)", re.MULTILINE)
"""Beginning of the evidence of an error about a file."""

FACT_VALUES = {
    "vendor": frozenset({"amd", "intel", "nvidia", "none"}),
    "launcher": LAUNCHER_NAMES,
    "runtime": frozenset(RUNTIME_NAMES),
    "whole_nodes": frozenset({"yes", "no"}),
}
"""Fact of a condition -> the values that it can have."""
NUMBERS = frozenset({"nodes", "ranks", "ranks_per_node", "gpus_per_node"})
"""Facts of a condition that are numbers."""

GPU_MODES = {"nv": "nvidia", "nvccli": "nvidia", "rocm": "amd"}


def lint_profile(path: str, text: str, site: Site, today: dt.date) -> tuple[FileFinding, ...]:
    """Check a profile with a valid format."""
    profile = Profile(site, text, today, Path(path).stem)
    found = (file_finding(path, rule, each) for rule in PROFILE_RULES for each in rule.check(profile))
    return tuple(sorted(found, key=lambda finding: finding.line))


def lint_named_profile(name: str, folders: Sequence[Path]) -> tuple[FileFinding, ...]:
    """Check a profile by its name or file. If its format is invalid, all faults of the format are the findings.

    Raises
    ------
    SiteError
        If there is no such profile.
    """
    path = find_profile(name, folders)
    try:
        site = read_site(str(path), folders)
    except SiteError as error:
        return _format_findings(path, error)
    if describe_unused(path):
        return _format_findings(path, SiteError("unknown keys", evidence=str(path)))
    return lint_profile(str(path), path.read_text(encoding="utf-8"), site, dt.datetime.now(tz=dt.UTC).date())


def _format_findings(path: Path, error: SiteError) -> tuple[FileFinding, ...]:
    """Return why a profile cannot be read, with all faults of the file that the error is about: it, or a fragment."""
    place = PLACE.match(error.evidence)
    file, line = (place[1], int(place[2])) if place else (str(path), 0)
    faults = [
        Fault(each.line, f"{each.key}: {each.what or 'unknown key'}", each.hint) for each in read_faults(Path(file))
    ]
    if not faults:
        shown = error.evidence[place.end() :] if place else error.evidence
        faults = [Fault(line, ": ".join(filter(None, (error.what, shown))), error.hint)]
    return tuple(file_finding(file, INVALID, fault) for fault in faults)


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
                        profile.line(*keys),
                        f"{address!r} is not a URL",
                        "write the whole URL, or add its beginning to [sources]",
                    )


def _without_reason(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        if isinstance(part, Conditional) and not part.why:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} has no why", "add why: what happens without it")


def _stale(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        checked = part.checked or profile.site.checked
        try:
            day = dt.date.fromisoformat(checked)
        except ValueError:
            what = f"checked = {checked!r} is not a date" if checked else "the date of its source is missing"
            hint = f'add checked = "{profile.today}", the day on which you read the source'
            yield Fault(profile.line(*keys), f"{'.'.join(keys)}: {what}", hint)
            continue
        if day > profile.today:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)}: checked is in the future: {checked}")
        elif profile.today - day > OLDEST:
            yield Fault(
                profile.line(*keys),
                f"{'.'.join(keys)} was last checked on {checked}",
                "read the source again, and update checked",
            )


def _wrong_map(profile: Profile) -> Iterator[Fault]:
    node = profile.site.node
    try:
        plan_masks(node)
    except SiteError as error:
        if error.key == MAP:  # another rule checks the reserved cores
            yield Fault(profile.line("node", "gpu_cpus"), f"{error.what}: {error.evidence}", error.hint)
    for key in ("gpu_numa", "gpu_pci", "gpu_nics"):
        rows = getattr(node, key)
        if rows and len(rows) != node.gpus:
            yield Fault(profile.line("node", key), f"{key} has {len(rows)} rows for {node.gpus} GPUs")
    if any(card not in range(node.nics) for card in node.gpu_nics):
        yield Fault(profile.line("node", "gpu_nics"), f"gpu_nics has numbers of cards that nics = {node.nics} excludes")


def _threads_as_cores(profile: Profile) -> Iterator[Fault]:
    """Find hardware threads that are counted as cores, by Slurm or in the profile."""
    site = profile.site
    node = site.node
    if gives_threads(site):
        what = f"a core has {node.threads_per_core} threads, which Slurm gives to jobs instead of cores"
        hint = 'add [[options]] with to = "sbatch" and word = "--threads-per-core=1"'
        yield Fault(profile.line("node", "threads_per_core"), what, hint)
    mapped = _mapped_cores(node)
    usable = len(usable_cores(node)) if mapped else 0
    if mapped and node.threads_per_core != 1 and mapped * 2 <= usable:
        what = f"gpu_cpus has {mapped} of {usable} cores, so cores may count hardware threads"
        hint = f"if a core has two threads, write cores = {node.cores // 2}; if it has one, add threads_per_core = 1"
        yield Fault(profile.line("node", "cores"), what, hint)


def _mapped_cores(node: Node) -> int:
    """Return the number of cores in a map; 0 without a valid map, which another rule reports."""
    try:
        return sum(mask.bit_count() for mask in plan_masks(node))
    except SiteError:
        return 0


def _slingshot_without_plugin(profile: Profile) -> Iterator[Fault]:
    missing = describe_missing_plugin(profile.site)
    if missing and not any("plugin" in question for question in profile.site.open_questions):
        hint = f'add use = ["{SLINGSHOT[profile.site.node.gpu_vendor]}"]'
        yield Fault(profile.line("node", "nic"), missing, hint)


def _misspelt_setting(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    settings = ((each.name, profile.line("settings", str(profile.index("settings", each)))) for each in site.settings)
    caches = ((name, profile.line("caches")) for cache in site.caches for name in cache.variables)
    for name, line in (*settings, *caches):
        if near := meant_variable(name):
            yield Fault(line, f"no library reads {name}", f"did you mean {near}?", documented(near))


def _phb_with_new_rocm(profile: Profile) -> Iterator[Fault]:
    """Find a setting PHB that applies to ROCm 7."""
    if profile.site.node.gpu_vendor != "amd":
        return
    facts = Facts(nodes="2", rocm="7.0", vendor="amd")
    for setting in profile.site.settings:
        if (
            setting.name == "NCCL_NET_GDR_LEVEL"
            and setting.value == "PHB"
            and evaluate_condition(setting.condition, facts)
        ):
            yield Fault(
                profile.line("settings"), "jobs with ROCm 7 get NCCL_NET_GDR_LEVEL=PHB", 'when = { rocm = "< 6.2" }'
            )


def _ofi_on_one_node(profile: Profile) -> Iterator[Fault]:
    for setting in profile.site.settings:
        one = evaluate_condition(setting.condition, Facts(nodes="1", vendor=profile.site.node.gpu_vendor))
        if setting.name == "NCCL_NET" and setting.value == "OFI" and one is not False:
            yield Fault(profile.line("settings"), "jobs of one node get NCCL_NET=OFI", 'when = { nodes = "> 1" }')


def _fixed_port(profile: Profile) -> Iterator[Fault]:
    for setting in profile.site.settings:
        if setting.name in {"MASTER_PORT", "MASTER_ADDR"}:
            yield Fault(
                profile.line("settings"), f"{setting.name} differs for each job", "remove it: job scripts set it"
            )


def _mask_beside_cores(profile: Profile) -> Iterator[Fault]:
    slurm, node = profile.site.slurm, profile.site.node
    if node.gpu_cpus and slurm.mask_needs_whole_nodes and slurm.cpus_with_mask:
        yield Fault(profile.line("slurm"), "srun gets both CPU masks and --cpus-per-task", "add cpus_with_mask = false")


def _peers_cut_off(profile: Profile) -> Iterator[Fault]:
    words = {option.word for option in profile.site.options}
    for avoid in profile.site.avoid:
        if avoid.word in words:
            yield Fault(profile.line("options"), f"the profile sets {avoid.word}, and advises against it")


def _set_twice(profile: Profile) -> Iterator[Fault]:
    keys = Counter((s.name, tuple(sorted(s.when.items()))) for s in profile.site.settings)
    for (name, _), count in keys.items():
        if count > 1:
            yield Fault(profile.line("settings"), f"{name} is set {count} times for the same condition", "keep one")


def _odd_path(profile: Profile) -> Iterator[Fault]:
    for bind in profile.site.binds:
        for path in bind.paths:
            # A runtime reads a colon or comma as the end of the path: HOST:CONTAINER, and --bind A,B.
            special = r"[\s;&$`\"'\\,:]" if bind.if_there or "*" in path else r"[,:]|\s/"
            if re.search(special, path):
                what = f"{path!r} contains a special character of the shell or the runtime"
                hint = "write each path of the host as an element of paths; inside, it is the same"
                yield Fault(profile.part_line("binds", bind), what, hint)
    for cache in profile.site.caches:
        if not re.match(r"/(tmp|dev/shm|var/tmp|local|scratch_local)\b", cache.path):
            yield Fault(
                profile.line("caches"), f"the cache {cache.path} may be shared by all nodes", "use a folder in /tmp"
            )


def _unknown_condition(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    known = FACT_VALUES | {"mode": frozenset(site.modes)}
    known |= {"partition": frozenset(p.name for p in site.partitions)} if site.partitions else {}
    for key in ("settings", "binds", "options", "caches", "avoid"):
        parts: tuple[Conditional, ...] = getattr(site, key)
        for part in parts:
            for row in part.condition:
                if fault := _describe_unknown(row, known.get(row.fact)):
                    line = profile.part_line(key, part, "when")
                    yield Fault(line, *fault)
    if site.modes and sum(mode.default for mode in site.modes.values()) != 1:
        yield Fault(profile.line("modes"), "one of several modes must be the default", "add default = true")


def _describe_unknown(row: FactComparison, known: frozenset[str] | None) -> tuple[str, str] | None:
    """Return a value of a comparison that its fact never has, and the hint; None if all are possible.

    `known` are the values that the fact can have; None if there are too many to list.
    """
    if row.fact in NUMBERS:
        wrong = [value for value in row.values if not value.isdecimal()]
        hint = f'write a number: when = {{ {row.fact} = "> 1" }}'
    elif known is not None:
        wrong = [value for value in row.values if value not in known]
        otherwise = (
            f"known: {', '.join(sorted(known))}" if known else f"the profile has no {row.fact}: remove the condition"
        )
        hint = did_you_mean(wrong[0], known, otherwise) if wrong else ""
    else:
        wrong, hint = [], ""
    return (f"a condition names the unknown {row.fact} {wrong[0]!r}", hint) if wrong else None


def _avoided_default(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    if site.launcher.default in site.launcher.avoid:
        yield Fault(
            profile.line("launcher"), f"the profile advises against its default launcher {site.launcher.default}"
        )


def _no_scheduler(profile: Profile) -> Iterator[Fault]:
    """Find a profile of a cluster without `scheduler`, whose default means a single machine."""
    site = profile.site
    if not site.has_slurm and (site.partitions or site.slurm != Slurm()):
        what = "the profile has partitions or options of Slurm, but no scheduler"
        yield Fault(1, what, 'add scheduler = "slurm"')


def _wrong_gpu_mode(profile: Profile) -> Iterator[Fault]:
    vendor = GPU_MODES.get(profile.site.runtime.gpu)
    if vendor and profile.site.node.gpu_vendor not in {"", vendor}:
        what = (
            f"--{profile.site.runtime.gpu} is for GPUs of {vendor}, and the nodes have {profile.site.node.gpu_vendor}"
        )
        yield Fault(profile.line("runtime", "gpu"), what)


def _claims_proof(profile: Profile) -> Iterator[Fault]:
    for keys, part in profile.parts():
        if part.proof == "validated" and not part.checked:
            yield Fault(profile.line(*keys), f"{'.'.join(keys)} has proof = 'validated' without a date", "add checked")


def _impossible_partition(profile: Profile) -> Iterator[Fault]:
    def is_empty(partition: Partition) -> bool:
        return bool(partition.max_nodes and partition.min_nodes > partition.max_nodes)

    for partition in profile.site.partitions:
        line = profile.part_line("partitions", partition)
        if is_empty(partition):
            yield Fault(line, f"{partition.name}: min_nodes is larger than max_nodes")
        for most, time in partition.time_by_nodes.items():
            if partition.max_time and parse_minutes(time) > parse_minutes(partition.max_time):
                what = f"{partition.name}: jobs of up to {most} nodes may take {time}, more than max_time"
                yield Fault(line, what, "write the longest limit as max_time, and shorter ones in time_by_nodes")
    names = Counter(partition.name for partition in profile.site.partitions)
    for name in (name for name, count in names.items() if count > 1):
        yield Fault(profile.line("partitions"), f"the partition {name} occurs twice")


def _no_questions(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    unknown = [
        what
        for what, known in (
            ("the runtime", site.runtime.name),
            ("a GPU -> CPU map", site.node.gpu_cpus),
            ("the number of threads of a core (threads_per_core)", site.node.threads_per_core or counts_cores(site)),
        )
        if not known
    ]
    if site.has_slurm and site.node.gpus and unknown and not site.open_questions:
        yield Fault(1, f"{unknown[0]} is unknown, and not listed in open_questions", 'add open_questions = ["…"]')


def _without_detection(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    if site.has_slurm and not site.identity.has_marks and not site.identity.not_detected:
        hint = 'add hosts, clusters, variables or files to [identity], or not_detected = "why"'
        yield Fault(1, "no machine is detected as this site, but the profile does not say why", hint)


def _edited_proof(profile: Profile) -> Iterator[Fault]:
    """Find a value that was edited after a run had confirmed it."""
    node = profile.site.node
    for key in node.proofs:
        if found := contradicted_fact(profile.site, node, key):
            what = f"node.{key} is {getattr(node, key)}, but the run that confirmed it found {found}"
            yield Fault(profile.line("node", key), what, "correct the value, or validate and merge again")


def _other_name(profile: Profile) -> Iterator[Fault]:
    """Find a profile that ``--site`` does not find by its name."""
    name, stem = profile.site.name, profile.stem
    if name != stem:
        hint = f'write name = "{stem}", or rename the file to {name}.toml'
        yield Fault(profile.line("name"), f"the file {stem}.toml has the profile of {name}", hint)


INVALID: Rule[Profile] = Rule("invalid-profile", "no command can use the profile", FORMAT, lambda _: ())
"""Its faults are found before there is a `Profile` to check."""

PROFILE_RULES: tuple[Rule[Profile], ...] = (
    Rule("no-source", "a fact without a source cannot be checked", FORMAT, _without_source),
    Rule("no-reason", "a setting without a reason cannot be reviewed", FORMAT, _without_reason),
    Rule("stale", "sites change their software", FORMAT, _stale),
    Rule("wrong-map", "ranks would be bound to cores that jobs cannot use", FORMAT, _wrong_map),
    Rule("threads-as-cores", "ranks get half of the cores that they request", SMT, _threads_as_cores),
    Rule("slingshot-without-plugin", "traffic between nodes is several times slower", CSCS, _slingshot_without_plugin),
    Rule("misspelt-variable", "the setting has no effect, without a warning", FORMAT, _misspelt_setting),
    Rule("gdr-phb", "jobs on several nodes hang", PHB, _phb_with_new_rocm),
    Rule("ofi-on-one-node", "the network is not configured for jobs of one node", OLCF, _ofi_on_one_node),
    Rule("fixed-port", "jobs of one node may connect", "https://github.com/pytorch/pytorch/issues/73656", _fixed_port),
    Rule("mask-with-cores", "the two contradict each other", LTM25 + "202-Binding.md", _mask_beside_cores),
    Rule("own-advice", "the profile contradicts itself", FORMAT, _peers_cut_off),
    Rule("set-twice", "only the last one counts", FORMAT, _set_twice),
    Rule("odd-path", "the job fails on the node", FORMAT, _odd_path),
    Rule("unknown-condition", "the part is never used", FORMAT, _unknown_condition),
    Rule("avoided-default", "the profile contradicts itself", FORMAT, _avoided_default),
    Rule("wrong-gpu-mode", "containers see no GPU", FORMAT, _wrong_gpu_mode),
    Rule("no-scheduler", "programs run on the login node, not in jobs", FORMAT, _no_scheduler),
    Rule("undated-proof", "a validation is valid for certain versions", FORMAT, _claims_proof),
    Rule("impossible-partition", "it allows no job", FORMAT, _impossible_partition),
    Rule("no-detection", "users must name the site in every command", FORMAT, _without_detection),
    Rule("edited-proof", "no run has confirmed the value", FORMAT, _edited_proof),
    Rule("other-name", "--site finds a profile by the name of its file", FORMAT, _other_name),
    Rule("no-questions", "unknown facts must be listed", FORMAT, _no_questions),
    *VALUE_RULES,
)  # fmt: skip
