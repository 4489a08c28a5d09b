"""Define the lint rules for the numbers of a node: those that contradict each other, and those in the wrong unit."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.errors import SiteError
from argosy.sites.binding import parse_ranges, usable_cores
from argosy.sites.job_settings import SLINGSHOT, at_partition
from argosy.sites.lint.profile import FORMAT, Profile
from argosy.sites.lint.rule import Fault, Rule
from argosy.sites.profile import Site

LEAST_MB_PER_CORE = 40
"""A node with less memory for each core has its memory in GB: 512 GB and 64 cores are 8 MB per core."""
MOST_GPU_GB, MOST_NIC_GBIT = 2000, 10_000
"""More memory of a GPU, or a faster network card, is in MB or Mbit/s."""

VENDOR_OF = {"cuda": "nvidia", "rocm": "amd"}
"""Key of the version that the driver supports -> vendor of the GPUs."""


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


NODE_RULES: tuple[Rule[Profile], ...] = (
    Rule("reserved-cores", "plans count cores that do not exist", FORMAT, _impossible_cores),
    Rule("uneven-node", "plans count cores that do not exist", FORMAT, _uneven_node),
    Rule("cores-per-gpu", "Slurm rejects jobs with all GPUs of a node", FORMAT, _too_many_cores),
    Rule("wrong-vendor", "images and settings are chosen for the vendor of the GPUs", FORMAT, _wrong_vendor),
    Rule("wrong-unit", "pictures, plans and checks show a wrong node", FORMAT, _wrong_unit),
    Rule("network-without-nic", "a slow network between nodes is not reported", FORMAT, _without_nic),
)
