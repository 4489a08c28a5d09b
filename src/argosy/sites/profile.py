"""Define the records of a site profile, in which every value comes with its evidence.

A value has ``why``, ``source`` and ``checked``. Its ``proof`` is ``documented``, or ``validated`` after a run at the
site. Unknown values keep their empty default and are listed in `Site.open_questions`.
"""

# No `from __future__ import annotations`: msgspec would evaluate each annotation again at every start.

import re
from typing import Annotated, Literal

import msgspec

from argosy.sites.profile_parts import Avoid, Cache, Count, Evident, Setting, SiteBind, SiteOption, Validated
from argosy.sites.software import (
    Build,
    Images,
    LauncherPolicy,
    Modules,
    Network,
    RuntimeFacts,
    architecture_of,
    refuse_unknown_processor,
)

Seconds = Annotated[float, msgspec.Meta(gt=0)]

TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}|unlimited|infinite|", re.IGNORECASE)
"""Forms of a time limit in Slurm: ``30``, ``1:30:00``, ``2-00:00:00``; empty for none."""


class Identity(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a machine of the site is detected. Names are patterns with ``*``; each kind of mark that is given must match.

    Attributes
    ----------
    clusters
        Slurm's ClusterName.
    hosts
        Names of login and compute nodes.
    variables
        Variables that the site sets -> pattern of their value.
    files
        Absolute paths, all of which exist at the site.
    not_detected
        Why no machine is detected as this site, for a profile without marks.
    """

    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    files: tuple[str, ...] = ()
    not_detected: str = ""

    def __post_init__(self) -> None:
        """Reject relative paths, and a reason why nothing is detected next to marks that are."""
        for path in self.files:
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is not an absolute path; write the path from / on")
        if self.not_detected and self.has_marks:
            raise ValueError("not_detected is for a profile without clusters, hosts, variables and files; remove it")

    @property
    def has_marks(self) -> bool:
        """Whether a machine can be detected as this site."""
        return bool(self.clusters or self.hosts or self.variables or self.files)


class Node(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a compute node.

    Attributes
    ----------
    cores
        Physical cores of a node, including the reserved ones, not hardware threads; 0 if unknown.
    threads_per_core
        Hardware threads of a core, as Slurm has them (ThreadsPerCore); 0 if unknown. If it is 2 or more, Slurm counts
        threads as CPUs, unless jobs have ``--threads-per-core=1`` or ``--hint=nomultithread``.
    reserved
        Cores that jobs cannot use (CpuSpecList), as a range list: ``0,8,16``.
    sockets
        Sockets of a node; 0 if unknown.
    numa
        NUMA nodes of a node; 0 if unknown.
    arch
        Architecture, as ``uname -m`` prints it; empty: that of `archspec`, if the profile has it.
    cpu_model
        Model of the CPU.
    gpus
        GPUs of a full node, as Slurm counts them.
    gpu_vendor
        ``amd``, ``intel`` or ``nvidia``; empty for nodes without GPUs.
    gpu_model
        Model of the GPU.
    gpu_device
        Device file that every node with GPUs has; empty for the vendor's usual one.
    devices_per_gpu
        Root devices of one GPU, and so ranks per GPU; the two stacks of an Intel Max GPU are two devices.
    gpu_cpus
        For each GPU the cores closest to it, as a range list of the operating system's CPU numbers: ``49-55``. Of each
        core, list only the first hardware thread (``lscpu -e``). Empty if unknown: ranks are then not bound to the
        cores of their GPU.
    gpu_numa
        NUMA node of each GPU, in the order of the GPU numbers.
    gpu_pci
        PCI bus of each GPU, in the same order: ``c1``.
    cuda, rocm
        Newest CUDA or ROCm that the driver of the nodes is known to support: ``12.8``; empty if unknown.
    archspec
        Instruction set by its archspec name: ``zen3``; empty: the baseline of the architecture.
    memory_mb
        Memory of a node according to Slurm, in MB.
    gpu_memory_gb
        Memory of one GPU, in GB.
    nics
        Network cards of a node; 0 if unknown.
    nic
        Type of the cards.
    nic_gbit
        Speed of one card, in Gbit/s.
    gpu_nics
        For each GPU the number of the card that it is attached to, from 0. GPUs with the same number share a card. The
        operating system may number the cards in another order.
    local_disk
        Whether nodes have a local disk.
    tmp_in_memory
        Whether ``/tmp`` of a node is in memory.
    """

    cores: Count = 0
    threads_per_core: Count = 0
    reserved: str = ""
    sockets: Count = 0
    numa: Count = 0
    arch: str = ""
    cpu_model: str = ""
    memory_mb: Count = 0
    gpus: Count = 0
    gpu_vendor: Literal["", "amd", "intel", "nvidia"] = ""
    gpu_device: str = ""
    gpu_model: str = ""
    cuda: str = ""
    rocm: str = ""
    archspec: str = ""
    gpu_memory_gb: Count = 0
    devices_per_gpu: Annotated[int, msgspec.Meta(ge=1)] = 1
    gpu_cpus: tuple[str, ...] = ()
    gpu_numa: tuple[int, ...] = ()
    gpu_pci: tuple[str, ...] = ()
    nics: Count = 0
    nic: str = ""
    nic_gbit: Count = 0
    gpu_nics: tuple[int, ...] = ()
    local_disk: bool | None = None
    tmp_in_memory: bool | None = None

    def __post_init__(self) -> None:
        """Reject invalid versions and CPU names."""
        for name, text, example in (("cuda", self.cuda, "12.8"), ("rocm", self.rocm, "6.4")):
            if text and not re.fullmatch(r"\d+(\.\d+){0,2}", text):
                raise ValueError(f'{name} = {text!r} is not a version; write {name} = "{example}"')
        if self.archspec:
            refuse_unknown_processor(self.archspec, self.arch)

    @property
    def architecture(self) -> str:
        """The architecture, also if only the name of the CPU shows it; empty if it is not known."""
        return self.arch or architecture_of(self.archspec)


class Partition(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition with its limits; 0 or empty if unknown.

    Attributes
    ----------
    name
        Name for ``--partition``.
    min_nodes
        Smallest number of nodes of a job.
    max_nodes
        Largest number of nodes of a job.
    max_jobs
        Largest number of jobs of one user, including waiting jobs.
    max_running
        Largest number of running jobs of one user.
    max_time
        Time limit in Slurm's form: ``2-00:00:00``.
    time_by_nodes
        Shorter time limits of smaller jobs: largest number of nodes -> time limit.
    whole_nodes
        Whether jobs get, and are billed for, whole nodes.
    choose
        Whether Argosy may choose it for jobs without ``--partition``: the first such one that allows the job is chosen.
    debug
        Whether it is for short tests.
    gpus, cores, cpus_per_gpu, gpu_model
        Set if its nodes differ from the nodes in ``[node]``; ``gpus = 0`` for nodes without GPUs.
    """

    name: str
    max_time: str = ""
    time_by_nodes: dict[str, str] = msgspec.field(default_factory=dict)
    max_nodes: Count = 0
    min_nodes: Count = 0
    max_jobs: Count = 0
    max_running: Count = 0
    whole_nodes: bool = False
    choose: bool = False
    debug: bool = False
    gpus: Count | None = None
    cores: Count = 0
    cpus_per_gpu: Count = 0
    gpu_model: str = ""

    def __post_init__(self) -> None:
        """Reject names that sbatch does not accept, and invalid time limits."""
        if not re.fullmatch(r"[^\s,]+", self.name):
            raise ValueError(f"name = {self.name!r} is not a valid name of a partition; write it as sinfo shows it")
        for nodes in self.time_by_nodes:
            if not (nodes.isascii() and nodes.isdigit()):
                raise ValueError(f'{nodes!r} is not a number of nodes; write {{ 91 = "2:00:00" }}')
        for time in (self.max_time, *self.time_by_nodes.values()):
            if not TIME.fullmatch(time):
                raise ValueError(f"{time!r} is not a time limit; write 1:30:00 or 2-00:00:00")


class Slurm(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are submitted at a site.

    Attributes
    ----------
    version
        Version of Slurm, as documented.
    gpu_option
        Option that requests GPUs: ``gpus-per-node``, ``gres``, or ``none`` if an srun option does so.
    cpus_per_gpu
        Cores per GPU if no map is known; 0: Slurm decides.
    cpus_per_gpu_type
        Cores per GPU of other types, such as slices of a GPU (MIG): ``{ "a100_1g.5gb" = 4 }``, for ``--gpu-type``.
    cpus_option
        Whether jobs set ``--cpus-per-task``; false if no script of the site does.
    cpus_with_mask
        Whether one srun may have both ``--cpus-per-task`` and a CPU mask.
    mask_needs_whole_nodes
        Whether CPU masks work on whole nodes only.
    required
        Options that the site requires of every job: ``account``, ``time``.
    mem, mem_per_gpu
        Memory to request if the user gives none: of each node, for jobs on whole nodes; for each GPU of other jobs.
    whole_nodes
        Whether every job gets whole nodes.
    several_nodes_whole
        Whether a job on several nodes must request all GPUs of each node.
    polling_seconds
        Seconds between two queries about a job.
    master_suffix
        Suffix that is added to the first host name for the rendezvous.
    account_form
        Form of account names, one word: error messages show it after ``--account``, for example ``project_<number>``.
    debug_qos
        QOS for short tests, at a site without a partition for them.
    """

    version: str = ""
    gpu_option: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    cpus_per_gpu: Count = 0
    cpus_per_gpu_type: dict[str, Count] = msgspec.field(default_factory=dict)
    cpus_option: bool = True
    cpus_with_mask: bool = True
    mask_needs_whole_nodes: bool = False
    required: tuple[Literal["account", "partition", "qos", "time", "mem", "constraint", "reservation"], ...] = ()
    mem: str = ""
    mem_per_gpu: str = ""
    whole_nodes: bool = False
    several_nodes_whole: bool = False
    polling_seconds: Seconds = 5.0
    master_suffix: str = ""
    account_form: str = ""
    debug_qos: str = ""

    def __post_init__(self) -> None:
        """Reject a suffix that is not part of a host name, since job scripts contain it unquoted."""
        if not re.fullmatch(r"[A-Za-z0-9.-]*", self.master_suffix):
            what = f"master_suffix = {self.master_suffix!r} is not part of a host name"
            raise ValueError(f"{what}; write letters, digits, '.' and '-' only")

    def request_gpus(self, number: int, kind: str = "") -> tuple[str, ...]:
        """Return the option of sbatch that requests GPUs on each node; nothing if jobs do not request them from Slurm.

        Parameters
        ----------
        kind
            Slurm's name of the GPU, if nodes have several; else empty.
        """
        if not number or self.gpu_option == "none":
            return ()
        option = "--gres=gpu:" if self.gpu_option == "gres" else "--gpus-per-node="
        return (f"{option}{f'{kind}:' if kind else ''}{number}",)


class Mode(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named mode of the site (``--mode``); its parts have ``when = { mode = "NAME" }``.

    Attributes
    ----------
    default
        Whether it applies without ``--mode``.
    images
        Shell patterns for the paths of images that need this mode; it applies to them without ``--mode``.
    devices_per_gpu
        Replaces `Node.devices_per_gpu`; 0 keeps it.
    """

    default: bool = False
    images: tuple[str, ...] = ()
    devices_per_gpu: Count = 0


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site, as its profile describes it.

    Attributes
    ----------
    name
        Name for ``--site``; the file is called ``NAME.toml``.
    title
        One line for people: machine, operator, hardware of the nodes.
    scheduler
        ``local`` or ``slurm``.
    use
        Fragments or other sites to include before this profile. Its own name means the next profile of that name on the
        search path.
    checked
        Date for all parts without a date.
    sources
        Short name -> beginning of a URL, for the `source` of parts.
    open_questions
        Facts that are not known yet. Argosy does not guess them.
    validated
        Results of ``argosy sites validate``.
    """

    name: str = ""
    title: str = ""
    scheduler: Literal["local", "slurm"] = "local"
    use: tuple[str, ...] = ()
    checked: str = ""
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    open_questions: tuple[str, ...] = ()
    identity: Identity = Identity()
    node: Node = Node()
    slurm: Slurm = Slurm()
    runtime: RuntimeFacts = RuntimeFacts()
    modules: Modules = Modules()
    launcher: LauncherPolicy = LauncherPolicy()
    network: Network = Network()
    images: Images = Images()
    build: Build = Build()
    modes: dict[str, Mode] = msgspec.field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    options: tuple[SiteOption, ...] = ()
    binds: tuple[SiteBind, ...] = ()
    caches: tuple[Cache, ...] = ()
    settings: tuple[Setting, ...] = ()
    avoid: tuple[Avoid, ...] = ()
    validated: Validated = Validated()

    def __post_init__(self) -> None:
        """Reject names that are not safe in scripts and file names."""
        if not re.fullmatch(r"[A-Za-z0-9._-]*", self.name):
            raise ValueError(f"name = {self.name!r} may only contain letters, digits, '.', '_' and '-'")

    @property
    def has_slurm(self) -> bool:
        """Whether jobs are submitted to Slurm; otherwise programs run on this machine."""
        return self.scheduler == "slurm"

    def partition(self, name: str) -> Partition | None:
        """Return the partition of that name, if the profile contains it."""
        return next((each for each in self.partitions if each.name == name), None)
