"""Define the lint rules for values: their form, and the numbers of a node that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import RUNTIME_NAMES
from argosy.core.parse import parse_toml
from argosy.core.suggest import did_you_mean, suggest_word
from argosy.sites.binding import parse_ranges, usable_cores
from argosy.sites.job_settings import SLINGSHOT, at_partition
from argosy.sites.lint.rule import FORMAT, Fault, Profile, Rule
from argosy.sites.profile import Site
from argosy.sites.profile_parts import BRACES, LATE, VARIABLE, Evident
from argosy.slurm.option_checks import refuse_invalid_options
from argosy.slurm.sbatch import JobOptions
from argosy.slurm.times import describe_short_time

LAUNCHER_NAMES = frozenset({"torchrun", "srun", "mpi", "ray", "none"})
"""Launchers that a profile can name."""
ARCHITECTURES = frozenset({"aarch64", "ppc64le", "x86_64"})
"""Architectures by the names of ``uname -m``."""

MODULE = re.compile(r"[^\s,;&|<>$`'\"()]+")
"""Name of an environment module."""
SHELL = re.compile(r"\$[\w{(]|^~|`")
"""Text that a shell would replace; a profile's values are not read by one."""
LIKE = 0.75
"""Likeness from which an unknown partition is a typing error: a profile need not list all partitions."""

LEAST_MB_PER_CORE = 40
"""A node with less memory for each core has its memory in GB: 512 GB and 64 cores are 8 MB per core."""
MOST_GPU_GB, MOST_NIC_GBIT = 2000, 10_000
"""More memory of a GPU, or a faster network card, is in MB or Mbit/s."""

VENDOR_OF = {"cuda": "nvidia", "rocm": "amd"}
"""Key of the version that the driver supports -> vendor of the GPUs."""

AMOUNTS = (("slurm", "mem"), ("slurm", "mem_per_gpu"), ("build", "mem"), ("build", "time"))
"""Values that become options of sbatch with the names of their keys."""


def _invalid_amount(profile: Profile) -> Iterator[Fault]:
    """Find amounts of memory and times that sbatch rejects or misreads."""
    for section, key in AMOUNTS:
        value = getattr(getattr(profile.site, section), key)
        try:
            refuse_invalid_options(JobOptions(**{key: value}))
        except UsageError as error:
            option = key.replace("_", "-")
            hint = re.sub(rf"--{option} (\w+)", rf'{key} = "\1"', error.hint)
            hint = 'write time = "1:30:00" for 90 minutes' if key == "time" else hint
            yield Fault(profile.line(section, key), f"{section}.{key}: {error.what}", hint)


def _short_time(profile: Profile) -> Iterator[Fault]:
    """Find time limits in minutes that are probably meant as hours."""
    for partition in profile.site.partitions:
        for time in (partition.max_time, *partition.time_by_nodes.values()):
            if meaning := describe_short_time(time).partition("; ")[0]:
                number = int(time.partition(":")[0])
                hint = f"write {number}:00:00 for hours, 00:{number:02}:00 for minutes"
                line = profile.part_line("partitions", partition)
                yield Fault(line, f"{partition.name}: the time limit is {time!r}: {meaning}", hint)


def _several_words(profile: Profile) -> Iterator[Fault]:
    """Find arguments of programs that are two arguments or none."""
    for option in profile.site.options:
        if fault := _describe_argument(option.word, option.to):
            yield Fault(profile.part_line("options", option, "word"), *fault)
    for avoid in profile.site.avoid:
        if fault := _describe_argument(avoid.word, "avoid"):
            yield Fault(profile.part_line("avoid", avoid, "word"), *fault)


def _describe_argument(word: str, to: str) -> tuple[str, str] | None:
    """Return the fault of an argument, and its correction; None if it has the form of one.

    `to` is the program that gets it, as in the profile; ``avoid`` for an argument that scripts must not use.
    """
    if to == "annotation":
        return None if re.match(r"\S+=", word) else (f"{word!r} is not an annotation", "write NAME=VALUE")
    first, _, rest = word.partition(" ")
    # An option may have a value with blanks: --comment=two words.
    if first.startswith("-") and rest and ("=" not in first or rest.startswith("-")):
        whole = f"write {first}={rest}" if not rest.startswith("-") else f"write {first}"
        return f"{word!r} is one argument with a blank", f"{whole}; a second argument needs a table of its own"
    if to in {"sbatch", "srun", "srun-always"} and not first.startswith("-"):
        return f"{word!r} is not an option", f"write --{word.lstrip('-')}"
    if to == "avoid" and not first.startswith("-") and "=" not in first:
        return f"{word!r} is neither an option nor a variable", "write --OPTION, --OPTION=VALUE or NAME=VALUE"
    return None


def _split_names(profile: Profile) -> Iterator[Fault]:
    """Find names of modules, partitions and QOS that are several names, or part of a command."""
    site = profile.site
    for section, key in (("modules", "load"), ("build", "unload")):
        for name in getattr(getattr(site, section), key):
            if not MODULE.fullmatch(name):
                words = [word for word in re.split(r"[\s,;]+", name) if word not in {"", "module", "load", "ml"}]
                listed = ", ".join(f'"{word}"' for word in words)
                yield Fault(profile.line(section, key), f"{name!r} is not the name of a module", f"write [{listed}]")
    for section, key in (("slurm", "account_form"), ("slurm", "debug_qos"), ("build", "qos"), ("build", "partition")):
        value = getattr(getattr(site, section), key)
        if value and not re.fullmatch(r"[^\s,]+", value):
            yield Fault(profile.line(section, key), f"{section}.{key} = {value!r} is not one name", "write one name")


OPEN_FOLDERS = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - names
"""Folders of each node in which every user may create folders."""


def _relative_path(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    images = (pattern for pattern in site.images.enter if "://" not in pattern)
    rows: list[tuple[tuple[str, ...], str]] = [
        (("node", "gpu_device"), site.node.gpu_device),
        (("build", "work_dir"), site.build.work_dir),
        *((("modules", "use"), folder) for folder in site.modules.use),
        # The folders of images may begin with a variable of the user's environment.
        *((("images", "folders"), folder) for folder in site.images.folders if not folder.startswith("$")),
        *((("images", "enter"), pattern) for pattern in images),
        *((("modes", name, "images"), pattern) for name, mode in site.modes.items() for pattern in mode.images),
        *((("images", "bases"), base.conda) for base in site.images.bases),
    ]
    for keys, path in rows:
        if path and not path.startswith(("/", "*")):
            what = f"{'.'.join(keys)}: {path!r} is not an absolute path"
            yield Fault(profile.line(*keys), what, "write the path from / on, without ~")


def _not_expanded(profile: Profile) -> Iterator[Fault]:
    """Find variables of a shell, and names in braces, that nothing replaces."""
    late = ", ".join("{" + name + "}" for name in LATE)
    for setting in profile.site.settings:
        key = "late" if setting.late else "value"
        text = setting.late or setting.value
        if SHELL.search(text) or any(name in LATE for name in BRACES.findall(setting.value)):
            hint = f'write late = "…" with {late}, or the value itself'
            line = profile.part_line("settings", setting, key)
            yield Fault(line, f"{setting.name}: no shell expands {text!r}", hint)
    for cache in profile.site.caches:
        if SHELL.search(cache.path):
            line = profile.part_line("caches", cache, "path")
            yield Fault(line, f"no shell expands {cache.path!r}", f"use {late}")
    for bind in profile.site.binds:
        for path in filter(SHELL.search, bind.paths):
            line = profile.part_line("binds", bind, "paths")
            yield Fault(line, f"no shell expands {path!r}", "write the path, or one of its parents")


def _shared_cache(profile: Profile) -> Iterator[Fault]:
    """Find folders on nodes that users would share, and those below a folder that another user may create first."""
    for cache in profile.site.caches:
        line, names = profile.part_line("caches", cache, "path"), set(BRACES.findall(cache.path))
        parent, _, last = cache.path.rstrip("/").rpartition("/")
        if not names & {"user", "job"}:
            what = f"all users of a node would get {cache.path!r}, and only the first one may use it"
            yield Fault(line, what, f'write path = "{parent}/{{user}}-{last}-{{job}}"')
        elif "{" in parent and parent.startswith(OPEN_FOLDERS):
            what = f"another user may create {parent!r} first; jobs then end with code 7"
            yield Fault(
                line, what, 'write one name below the folder of all users, for example "/tmp/{user}-NAME-{job}"'
            )


def _without_value(profile: Profile) -> Iterator[Fault]:
    """Find settings of this file that have no value; the variable would be set to nothing."""
    for number, row in enumerate(parse_toml(profile.text).get("settings", ())):
        if not row.keys() & {"value", "late"}:
            name = row.get("name", "")
            yield Fault(profile.line("settings", str(number)), f"{name} has no value", 'add value = "…"')


def _never_detected(profile: Profile) -> Iterator[Fault]:
    """Find marks that no machine has."""
    identity = profile.site.identity
    for host in identity.hosts:
        line = profile.line("identity", "hosts")
        if re.search(r"\[\d+-\d\d", host):
            hint = f"write {host.partition('[')[0]}*; a pattern has * and ?, and no ranges of Slurm"
            yield Fault(line, f"no host name matches {host!r}", hint)
        elif "." in host:
            hint = f"write {host.partition('.')[0]!r}, with * for any letters"
            yield Fault(line, f"{host!r} is compared with the host name up to its first dot", hint)
    for key in ("hosts", "clusters"):
        for name in getattr(identity, key):
            if name != "".join(name.split()):
                yield Fault(profile.line("identity", key), f"{name!r} contains a blank", "remove it")
    for name in identity.variables:
        if not VARIABLE.fullmatch(name):
            line = profile.line("identity", "variables")
            yield Fault(line, f"{name!r} is not the name of a variable", f"write {name.lstrip('$')}")


def _detected_everywhere(profile: Profile) -> Iterator[Fault]:
    identity = profile.site.identity
    for key in ("hosts", "clusters"):
        if any(not name.strip("*?") for name in getattr(identity, key)):
            hint = "write the names of the site, or not_detected with the reason"
            yield Fault(profile.line("identity", key), f"every machine matches {key}", hint)


def _unknown_name(profile: Profile) -> Iterator[Fault]:
    site = profile.site
    for keys, values, known in (
        (("runtime", "name"), (site.runtime.name,), RUNTIME_NAMES),
        (("node", "arch"), (site.node.arch,), ARCHITECTURES),
        (("launcher", "avoid"), site.launcher.avoid, LAUNCHER_NAMES),
    ):
        for value in filter(None, values):
            if value not in known:
                hint = did_you_mean(value, known, f"use one of {', '.join(sorted(known))}")
                yield Fault(profile.line(*keys), f"unknown {'.'.join(keys)} {value!r}", hint)
    for name in site.build.variables:
        if not VARIABLE.fullmatch(name):
            line = profile.line("build", "variables")
            yield Fault(line, f"{name!r} is not the name of a variable", "write letters, digits and _ only")


def _misspelt_partition(profile: Profile) -> Iterator[Fault]:
    """Find names that are similar to a partition of the profile, but not equal."""
    site = profile.site
    partitions = [partition.name for partition in site.partitions]
    options = (option for option in site.options if option.word.startswith("--partition="))
    used = (
        (profile.line("build", "partition"), site.build.partition),
        *((profile.part_line("options", each, "word"), each.word.partition("=")[2]) for each in options),
    )
    for line, names in used:
        for name in filter(None, names.split(",")):  # Slurm chooses one of several
            near = suggest_word(name, partitions, likeness=LIKE)
            if near and name not in partitions:
                what = f"{name!r} is none of the partitions of the profile"
                yield Fault(line, what, f"did you mean {near}?")


def _unknown_evidence(profile: Profile) -> Iterator[Fault]:
    """Find sources and proofs of keys that their table does not have."""
    for keys, part in profile.parts():
        known = [key for key in part.__struct_fields__ if key not in Evident.__struct_fields__]
        for field in ("sources", "proofs"):
            for name in getattr(part, field):
                if name not in known:
                    hint = did_you_mean(name, known, f"known here: {', '.join(known)}")
                    yield Fault(profile.line(*keys, field, name), f"{'.'.join(keys)} has no key {name!r}", hint)


def _invalid_pattern(profile: Profile) -> Iterator[Fault]:
    for pattern in profile.site.network.proof_lines:
        try:
            re.compile(pattern)
        except re.error as error:
            what = f"{pattern!r} is not a regular expression: {error}"
            yield Fault(profile.line("network", "proof_lines"), what, r"write \( for a parenthesis of the text")


def _not_a_version(profile: Profile) -> Iterator[Fault]:
    for section in ("slurm", "runtime"):
        version = getattr(profile.site, section).version
        if version and not re.match(r"\d", version):
            found = re.search(r"\d+(\.\d+)*", version)
            hint = f'write version = "{found[0] if found else "24.05"}"'
            yield Fault(profile.line(section, "version"), f"{section}.version {version!r} is not a version", hint)


def _impossible_cores(profile: Profile) -> Iterator[Fault]:
    """Find reserved cores that the node does not have."""
    node = profile.site.node
    line = profile.line("node", "reserved")
    try:
        reserved = parse_ranges(node.reserved)
    except SiteError as error:
        yield Fault(line, error.what, f'write reserved = "0,8-10"; {error.evidence}')
        return
    beyond = sorted(core for core in reserved if core >= node.cores)
    if node.cores and beyond:
        what = f"core {beyond[0]} is reserved, but the cores of the node are 0 to {node.cores - 1}"
        yield Fault(line, what, "correct cores or reserved; both count physical cores")
    elif node.cores and len(reserved) == node.cores:
        yield Fault(line, f"all {node.cores} cores are reserved", "list only the cores that jobs cannot use")


def _uneven_node(profile: Profile) -> Iterator[Fault]:
    """Find sockets and NUMA nodes that do not divide the cores, and GPUs of NUMA nodes that do not exist."""
    node = profile.site.node
    for key in ("sockets", "numa"):
        parts = getattr(node, key)
        if parts and node.cores % parts:
            what = f"{node.cores} cores cannot be divided by {key} = {parts}"
            yield Fault(profile.line("node", key), what, f"correct cores or {key}; both are those of the whole node")
    if node.numa and any(number not in range(node.numa) for number in node.gpu_numa):
        what = f"gpu_numa has numbers of NUMA nodes that numa = {node.numa} excludes"
        yield Fault(profile.line("node", "gpu_numa"), what, "count NUMA nodes from 0")


def _too_many_cores(profile: Profile) -> Iterator[Fault]:
    """Find cores per GPU that a node does not have, on the usual nodes and on those of each partition."""
    site = profile.site
    if what := _describe_too_many_cores(site):
        yield Fault(profile.line("slurm", "cpus_per_gpu"), what, "write the cores that a job gets with one GPU")
        return
    for partition in site.partitions:
        if what := _describe_too_many_cores(at_partition(site, partition)):
            line = profile.part_line("partitions", partition)
            yield Fault(line, f"{partition.name}: {what}", "correct gpus, cores or cpus_per_gpu of the partition")


def _describe_too_many_cores(site: Site) -> str:
    """Return why a node does not have the cores for its GPUs; empty if it has, or if the profile does not show it."""
    node, each = site.node, site.slurm.cpus_per_gpu
    try:
        usable = len(usable_cores(node))
    except SiteError:
        return ""
    # Slurm may count hardware threads. If their number is not known, a core has at most two.
    most = usable * (node.threads_per_core or 2)
    return (
        f"{node.gpus} GPUs with {each} cores each exceed the {usable} cores of a node"
        if 0 < most < node.gpus * each
        else ""
    )


def _wrong_vendor(profile: Profile) -> Iterator[Fault]:
    """Find facts about GPUs of another vendor, or of none."""
    site = profile.site
    node, vendor = site.node, site.node.gpu_vendor
    has_gpus = node.gpus or any(partition.gpus for partition in site.partitions)
    # The vendor may be an open question of a draft: `argosy sites new` learns it from a compute node only.
    is_asked = any("vendor" in question or "--on-node" in question for question in site.open_questions)
    if has_gpus and not vendor and not is_asked:
        hint = 'add gpu_vendor = "nvidia", "amd" or "intel" to [node]'
        yield Fault(profile.line("node", "gpus"), "the nodes have GPUs, but no gpu_vendor", hint)
    if vendor and node.cores and not has_gpus:  # a profile without cores describes no node: it is for any cluster
        hint = "add gpus to [node], or to the partitions with GPUs"
        yield Fault(profile.line("node", "gpu_vendor"), f"gpu_vendor is {vendor}, but no node has GPUs", hint)
    for key, known in VENDOR_OF.items():
        if getattr(node, key) and vendor not in {"", known}:
            yield Fault(
                profile.line("node", key), f"{key} is for GPUs of {known}, and the nodes have {vendor}", "remove it"
            )
    for known, fragment in SLINGSHOT.items():
        if fragment in site.use and vendor not in {"", known}:
            hint = f'write "{SLINGSHOT[vendor]}"' if vendor in SLINGSHOT else "remove it"
            what = f"the fragment {fragment} is for GPUs of {known}, and the nodes have {vendor}"
            yield Fault(profile.line("use"), what, hint)


def _wrong_unit(profile: Profile) -> Iterator[Fault]:
    node = profile.site.node
    if 0 < node.memory_mb < node.cores * LEAST_MB_PER_CORE:
        what = f"memory_mb = {node.memory_mb} is little for {node.cores} cores"
        yield Fault(
            profile.line("node", "memory_mb"), what, f"if it is in GB, write memory_mb = {node.memory_mb * 1024}"
        )
    for key, most, unit in (("gpu_memory_gb", MOST_GPU_GB, "MB"), ("nic_gbit", MOST_NIC_GBIT, "Mbit/s")):
        value = getattr(node, key)
        if value > most:
            factor = 1024 if unit == "MB" else 1000
            hint = f"if it is in {unit}, write {key} = {value // factor}"
            yield Fault(profile.line("node", key), f"{key} = {value} is too much", hint)


def _without_nic(profile: Profile) -> Iterator[Fault]:
    """Find a network plugin without the name of the network that it is for."""
    site = profile.site
    is_asked = any("network card" in question for question in site.open_questions)
    if site.network.plugin and not site.node.nic and not is_asked:
        what = f"network.plugin is {site.network.plugin}, but node.nic does not name the network cards"
        hint = 'add nic = "Slingshot 11", or the cards of the site, to [node]; if they are unknown, to open_questions'
        yield Fault(profile.line("use") if site.use else profile.line("network", "plugin"), what, hint)


VALUE_RULES: tuple[Rule[Profile], ...] = (
    Rule("reserved-cores", "plans count cores that do not exist", FORMAT, _impossible_cores),
    Rule("uneven-node", "plans count cores that do not exist", FORMAT, _uneven_node),
    Rule("cores-per-gpu", "Slurm rejects jobs with all GPUs of a node", FORMAT, _too_many_cores),
    Rule("wrong-vendor", "images and settings are chosen for the vendor of the GPUs", FORMAT, _wrong_vendor),
    Rule("wrong-unit", "pictures, plans and checks show a wrong node", FORMAT, _wrong_unit),
    Rule("network-without-nic", "a slow network between nodes is not reported", FORMAT, _without_nic),
    Rule("invalid-amount", "Slurm rejects or misreads it", "https://slurm.schedmd.com/sbatch.html", _invalid_amount),
    Rule("short-time", "jobs with longer times are refused", "https://slurm.schedmd.com/sbatch.html", _short_time),
    Rule("several-words", "the program gets a wrong argument", FORMAT, _several_words),
    Rule("several-names", "the job fails when it uses the name", FORMAT, _split_names),
    Rule("relative-path", "each working directory would have another one", FORMAT, _relative_path),
    Rule("shared-cache", "jobs use no folder on a node that belongs to another user", FORMAT, _shared_cache),
    Rule("not-expanded", "programs get the text as it is written", FORMAT, _not_expanded),
    Rule("no-value", "the variable is empty in each job", FORMAT, _without_value),
    Rule("never-detected", "users must name the site in every command", FORMAT, _never_detected),
    Rule("detected-everywhere", "other machines get the settings of this site", FORMAT, _detected_everywhere),
    Rule("unknown-name", "no job can use it", FORMAT, _unknown_name),
    Rule("misspelt-partition", "sbatch rejects the job", FORMAT, _misspelt_partition),
    Rule("unknown-evidence", "the evidence belongs to no value", FORMAT, _unknown_evidence),
    Rule("invalid-pattern", "'argosy verify' fails", FORMAT, _invalid_pattern),
    Rule("not-a-version", "conditions on the version are never met", FORMAT, _not_a_version),
)
