"""What a profile says of software: how containers run, ranks start and images are built; it decides nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from argosy.core.model import plain_fingerprint
from argosy.core.suggest import suggest_word
from argosy.sites.profile_parts import Base, Count, Evident


class RuntimeFacts(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container runtime of the site.

    Attributes
    ----------
    name
        The word of ``--runtime``.
    version
        As documented.
    gpu
        The word of ``--gpu``; empty leaves it to the vendor.
    user_namespaces
        Whether users may make them there; None where it is not known.
    """

    name: str = ""
    version: str = ""
    gpu: Literal["", "none", "nv", "nvccli", "rocm", "cdi"] = ""
    user_namespaces: bool | None = None


class Modules(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Modules that a job loads before it starts its ranks.

    Attributes
    ----------
    purge
        Whether ``module purge`` comes first.
    use
        Folders for ``module use``.
    load
        Modules for ``module load``, in this order.
    """

    purge: bool = False
    use: tuple[str, ...] = ()
    load: tuple[str, ...] = ()


class LauncherPolicy(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ranks are started at the site.

    Attributes
    ----------
    default
        For Python programs, where the user names none.
    avoid
        Launchers that the site advises against; `why` says so.
    torchrun
        Python module that the site's users start in place of ``torch.distributed.run``.  Plans do not need it, and say
        so: they tell each node its rank, and which of them holds the store, so no host names are compared.
    mpi
        Wire-up of srun where none is asked for: ``pmix`` or ``pmi2``.
    mpiexec
        The host's own launcher for `mpi` instead of srun: ``hydra`` (``-n -ppn --hosts``); empty for srun.
    """

    default: Literal["", "torchrun", "srun", "mpi", "none"] = ""
    avoid: tuple[str, ...] = ()
    torchrun: str = ""
    mpi: Literal["", "pmix", "pmi2"] = ""
    mpiexec: Literal["", "hydra"] = ""

    def __post_init__(self) -> None:
        """Refuse what is no name of a Python module."""
        if not re.fullmatch(r"[A-Za-z0-9_.]*", self.torchrun):
            raise ValueError(f"torchrun = {self.torchrun!r} is no name of a Python module")


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandwidth that was measured at the site.

    Attributes
    ----------
    nodes
        Nodes of the run.
    gpus_per_node
        GPUs that it used on each of them.
    gigabytes
        Bus bandwidth of an all-reduce, in GB/s (1e9 bytes).
    payload_gb
        Size of the message, in GB; 0 where it is not known.
    source
        Public address of the figure.
    """

    nodes: int
    gpus_per_node: int
    gigabytes: float
    payload_gb: float = 0.0
    source: str = ""


class Network(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run shows that it used the fast network.

    Attributes
    ----------
    plugin
        Library by which NCCL or RCCL reaches the network: ``aws-ofi-rccl``.
    proof_lines
        Regular expressions; one must match a line of the communication library's log.
    """

    plugin: str = ""
    proof_lines: tuple[str, ...] = ()
    expected: tuple[Bandwidth, ...] = ()


class Images(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images of the site.

    Attributes
    ----------
    folders
        Where the site keeps them.
    catalog
        Command that lists them.
    bases
        Bases to build on; the first one is recommended.
    signed_by
        Fingerprints of OpenPGP keys, one of which must have signed an image that is launched; empty takes any image.
    cotainr_systems
        The words of ``cotainr build --system`` -> the base that each stands for.
    """

    folders: tuple[str, ...] = ()
    catalog: str = ""
    bases: tuple[Base, ...] = ()
    signed_by: tuple[str, ...] = ()
    cotainr_systems: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no fingerprint of a key."""
        for key in self.signed_by:
            plain_fingerprint(key)


class Build(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how images are built at the site.

    Attributes
    ----------
    where
        In words: login node, partition, QOS.
    network
        Whether compute nodes reach the internet; None where it is not known.
    backends
        Build backends that work there, as ``--build-backend`` takes them; empty: not known.
    programs
        Program -> command that makes it available to users without root.
    variables
        Variables that a build sets.
    unload
        Modules that break a build.
    partition, qos, time, mem, cpus, gpus, exclusive
        What a job that builds an image asks for (`argosy build --on-node`, `--submit`); empty and 0 leave it to Slurm.
    work_dir
        Folder of compute nodes for work files; empty leaves it to Argosy.
    """

    where: str = ""
    network: bool | None = None
    backends: tuple[Literal["root", "userns", "apptainer", "singularity", "proot"], ...] = ()
    programs: dict[str, str] = msgspec.field(default_factory=dict)
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    unload: tuple[str, ...] = ()
    partition: str = ""
    qos: str = ""
    time: str = ""
    mem: str = ""
    cpus: Count = 0
    gpus: Count = 0
    exclusive: bool = False
    work_dir: str = ""


_X86 = """
alderlake arrowlake arrowlake_s broadwell bulldozer cannonlake cascadelake core2 excavator haswell icelake ivybridge k10
mic_knl nehalem nocona piledriver sandybridge sapphirerapids skylake skylake_avx512 steamroller westmere x86_64
x86_64_v2 x86_64_v3 x86_64_v4 zen zen2 zen3 zen4 zen5 zen6
"""
_ARM = """
a64fx aarch64 ampere1 ampere1a armv8.1a armv8.2a armv8.3a armv8.4a armv8.5a armv8.6a armv9.0a armv9.2a cortex_a72 m1 m2
m3 m4 neoverse_n1 neoverse_n2 neoverse_v1 neoverse_v2 neoverse_v3ae olympus thunderx2
"""
_POWER = "power10le power8le power9le ppc64le"

ARCHSPEC: Mapping[str, frozenset[str]] = MappingProxyType(
    {"x86_64": frozenset(_X86.split()), "aarch64": frozenset(_ARM.split()), "ppc64le": frozenset(_POWER.split())}
)
"""Architecture -> its names: microarchitectures.json of archspec 0.2.7 (github.com/archspec/archspec-json)."""


def refuse_processor(name: str, arch: str) -> None:
    """Refuse a name that archspec does not have, or has for another architecture.

    Parameters
    ----------
    arch
        Architecture of the node; empty where it is not known.

    Raises
    ------
    ValueError
        Naming the nearest.
    """
    home = next((each for each, names in ARCHSPEC.items() if name in names), "")
    if not home:
        near = suggest_word(name, sorted(frozenset[str]().union(*ARCHSPEC.values())))
        hint = f"did you mean {near}?" if near else 'write one, as archspec = "zen3"'
        raise ValueError(f"archspec = {name!r} is none of archspec's names; {hint}")
    if arch in ARCHSPEC and arch != home:
        raise ValueError(f"archspec = {name!r} is a processor of {home}, and arch = {arch!r}")
