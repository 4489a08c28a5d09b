"""Define the parts of a profile about software: container runtime, launchers, network, images and builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from argosy.core.model import plain_fingerprint
from argosy.core.suggest import did_you_mean
from argosy.sites.profile_parts import Count, Evident, SiteBase


class RuntimeFacts(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container runtime of the site.

    Attributes
    ----------
    name
        Value of ``--runtime``.
    version
        Version, as documented.
    gpu
        Value of ``--gpu``; empty: chosen by the vendor of the GPUs.
    user_namespaces
        Whether users can create user namespaces; None if unknown.
    """

    name: str = ""
    version: str = ""
    gpu: Literal["", "none", "nv", "nvccli", "rocm", "cdi"] = ""
    user_namespaces: bool | None = None


class Modules(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Environment modules that a job loads before it starts its ranks.

    Attributes
    ----------
    purge
        Whether to run ``module purge`` first.
    use
        Folders for ``module use``.
    load
        Modules for ``module load``, in order.
    """

    purge: bool = False
    use: tuple[str, ...] = ()
    load: tuple[str, ...] = ()


class LauncherPolicy(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ranks are started at the site.

    Attributes
    ----------
    default
        Launcher for Python programs without ``--launcher``; not ``ray``, which runs a program on the first node only.
    avoid
        Launchers that the site advises against; `why` gives the reason.
    torchrun
        Python module that users of the site start instead of ``torch.distributed.run``. Plans do not need it: they give
        each node its rank and the host of the store, so host names are not compared.
    mpi
        Default of ``srun --mpi``: ``pmix`` or ``pmi2``.
    mpiexec
        Launcher of the host for `mpi` instead of srun: ``hydra`` (``-n -ppn --hosts``); empty: srun.
    """

    default: Literal["", "torchrun", "srun", "mpi", "none"] = ""
    avoid: tuple[str, ...] = ()
    torchrun: str = ""
    mpi: Literal["", "pmix", "pmi2"] = ""
    mpiexec: Literal["", "hydra"] = ""

    def __post_init__(self) -> None:
        """Reject invalid names of Python modules."""
        if not re.fullmatch(r"[A-Za-z0-9_.]*", self.torchrun):
            raise ValueError(
                f"torchrun = {self.torchrun!r} is not a valid name of a Python module; write MODULE or PACKAGE.MODULE"
            )


class SiteBandwidth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandwidth that was measured at the site.

    Attributes
    ----------
    nodes
        Nodes of the run.
    gpus_per_node
        GPUs of each node.
    gigabytes
        Bus bandwidth of an all-reduce, in GB/s (1e9 bytes).
    payload_gb
        Size of the message, in GB; 0 if unknown.
    source
        Public URL of the figure.
    """

    nodes: int
    gpus_per_node: int
    gigabytes: float
    payload_gb: float = 0.0
    source: str = ""


class Network(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to verify that a run used the fast network.

    Attributes
    ----------
    plugin
        Network plugin of NCCL or RCCL: ``aws-ofi-rccl``.
    proof_lines
        Regular expressions; one of them must match a line of the log of NCCL, RCCL or oneCCL.
    """

    plugin: str = ""
    proof_lines: tuple[str, ...] = ()
    expected: tuple[SiteBandwidth, ...] = ()


class Images(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images of the site.

    Attributes
    ----------
    folders
        Folders with images of the site. They may contain variables, for example ``$PROJECT/images``; a folder with a
        variable that is not set is skipped.
    catalog
        Command that lists the images of the site.
    bases
        Base images, the recommended one first. The default base stays ``debian:bookworm``. On a machine that cannot
        create it, a build without ``--base`` takes the first base that exists and has ``enter = "exec"``; if the build
        needs Python, the first of those with ``python``, or with ``python`` in ``holds``.
    signed_by
        Fingerprints of OpenPGP keys; one of them must have signed every image that is launched. Empty: any image.
    cotainr_systems
        Value of ``cotainr build --system`` -> base image.
    enter
        Path of images, with ``*`` -> how to enter them: ``run`` or ``with-conda``, as for a base.
    """

    folders: tuple[str, ...] = ()
    catalog: str = ""
    bases: tuple[SiteBase, ...] = ()
    signed_by: tuple[str, ...] = ()
    cotainr_systems: dict[str, str] = msgspec.field(default_factory=dict)
    enter: dict[str, Literal["run", "with-conda"]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject invalid fingerprints."""
        for key in self.signed_by:
            plain_fingerprint(key)


class Build(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to build images at the site.

    Attributes
    ----------
    where
        Place for builds, in words: login node, partition, QOS.
    network
        Whether compute nodes have internet access; None if unknown.
    backends
        Build backends that work there, as ``--build-backend`` takes them; empty: not known.
    programs
        Program -> command that makes it available to users without root.
    variables
        Environment variables of builds.
    unload
        Environment modules that break builds.
    partition, qos, time, mem, cpus, gpus, exclusive
        Resources of a job that builds an image (`argosy build --on-node`, `--submit`); empty or 0: Slurm decides.
    work_dir
        Folder of compute nodes for work files; empty: Argosy decides.
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

ARCHSPEC: Mapping[str, frozenset[str]] = {
    "x86_64": frozenset(_X86.split()),
    "aarch64": frozenset(_ARM.split()),
    "ppc64le": frozenset(_POWER.split()),
}
"""Architecture -> its CPU names, from microarchitectures.json of archspec 0.2.7 (github.com/archspec/archspec-json)."""


def architecture_of(processor: str) -> str:
    """Return the architecture, as ``uname -m`` prints it, of an archspec name; empty if it is not known."""
    return next((each for each, names in ARCHSPEC.items() if processor in names), "")


def refuse_unknown_processor(name: str, arch: str) -> None:
    """Refuse a CPU name that archspec does not know, or knows for another architecture.

    Parameters
    ----------
    arch
        Architecture of the node; empty if unknown.

    Raises
    ------
    ValueError
        When it does not; the message suggests the most similar name.
    """
    home = architecture_of(name)
    if not home:
        hint = did_you_mean(name, sorted(frozenset[str]().union(*ARCHSPEC.values())), 'use a name such as "zen3"')
        raise ValueError(f"archspec does not know the CPU {name!r}; {hint}")
    if arch in ARCHSPEC and arch != home:
        raise ValueError(f"archspec = {name!r} is a CPU of {home}, but arch = {arch!r}")
