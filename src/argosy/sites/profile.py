"""Define the records of a site profile, in which every value comes with its evidence.

A value has ``why``, ``source`` and ``checked``. Its ``proof`` is ``documented``, or ``validated`` after a run at the
site. Unknown values keep their empty default and are listed in `Site.open_questions`.
"""

# Without annotations as text (__future__): msgspec would evaluate each of them anew at every start.

import re
from typing import Annotated, Literal

import msgspec

from argosy.sites.profile_parts import (
    Avoid,
    Base,
    Cache,
    Conditional,
    Count,
    Evident,
    Option,
    Setting,
    SiteBind,
    Validated,
)
from argosy.sites.software import Bandwidth, Build, Images, LauncherPolicy, Modules, Network, RuntimeFacts

__all__ = [
    "Avoid",
    "Bandwidth",
    "Base",
    "Build",
    "Cache",
    "Conditional",
    "Evident",
    "Identity",
    "Images",
    "LauncherPolicy",
    "Mode",
    "Modules",
    "Network",
    "Node",
    "Option",
    "Partition",
    "RuntimeFacts",
    "Setting",
    "Site",
    "SiteBind",
    "Slurm",
    "Validated",
]


Seconds = Annotated[float, msgspec.Meta(gt=0)]

TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}|unlimited|infinite|", re.IGNORECASE)
"""How Slurm writes a time limit: ``30``, ``1:30:00``, ``2-00:00:00``; empty for none."""


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
                raise ValueError(f"files: {path!r} is not an absolute path")
        if self.not_detected and self.has_marks:
            raise ValueError("not_detected is for a profile without clusters, hosts, variables and files: remove it")

    @property
    def has_marks(self) -> bool:
        """Whether a machine can be detected as this site."""
        return bool(self.clusters or self.hosts or self.variables or self.files)


class Node(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a compute node.

    Attributes
    ----------
    cores
        Cores that Slurm knows, the reserved ones included; 0 where it is not known.
    reserved
        Cores that jobs do not get (CpuSpecList), as a range list: ``0,8,16``.
    sockets
        Processors of a node; 0 where it is not known.
    numa
        NUMA nodes of a node; 0 where it is not known.
    arch
        Architecture, as ``uname -m`` writes it.
    cpu_model
        The processor's name.
    gpus
        GPUs of a full node, as Slurm counts them.
    gpu_vendor
        ``amd``, ``intel`` or ``nvidia``; empty for nodes without GPUs.
    gpu_model
        The GPU's name.
    gpu_device
        Device node without which a node has no GPU; empty for the vendor's usual one.
    devices_per_gpu
        Root devices of one GPU: ranks per GPU (two stacks of Intel's Max cards are two of them).
    gpu_cpus
        For each GPU the cores nearest to it, as range lists: ``49-55``; empty where no map is known.
    gpu_numa
        NUMA node of each GPU, in the order of their numbers.
    gpu_pci
        PCI bus of each GPU, in the same order: ``c1``.
    cuda, rocm
        Newest CUDA or ROCm that the nodes' driver is known to support: ``12.8``; empty where none is known.
    archspec
        Instruction set as archspec names it: ``zen3``; empty: the architecture's common one.
    memory_mb
        Memory of a node as Slurm knows it, in MB.
    gpu_memory_gb
        Memory of one GPU, in GB.
    nics
        Network cards of a node; 0 where it is not known.
    nic
        Kind of these cards.
    nic_gbit
        Speed of one card, in Gbit/s.
    local_disk
        Whether nodes have a disk of their own.
    tmp_in_memory
        Whether ``/tmp`` of a node lies in its memory.
    """

    cores: Count = 0
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
    devices_per_gpu: Count = 1
    gpu_cpus: tuple[str, ...] = ()
    gpu_numa: tuple[int, ...] = ()
    gpu_pci: tuple[str, ...] = ()
    nics: Count = 0
    nic: str = ""
    nic_gbit: Count = 0
    local_disk: bool | None = None
    tmp_in_memory: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what is no version, and what is no name of a processor."""
        for name, text in (("cuda", self.cuda), ("rocm", self.rocm)):
            if text and not re.fullmatch(r"\d+(\.\d+){0,2}", text):
                raise ValueError(f'{name} = {text!r} is no version; write {name} = "12.8"')
        if self.archspec:
            from argosy.sites.software import refuse_processor  # noqa: PLC0415 - most profiles name none

            refuse_processor(self.archspec, self.arch)


class Partition(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition with its limits; 0 and empty where none is known.

    Attributes
    ----------
    name
        As ``--partition`` takes it.
    min_nodes
        Fewest nodes that a job may have.
    max_nodes
        Most nodes that a job may have.
    max_jobs
        Most jobs of one user in it, waiting ones included.
    max_running
        Most jobs of one user that run in it at once.
    max_time
        As Slurm writes it: ``2-00:00:00``.
    time_by_nodes
        Shorter limits of smaller jobs: most nodes -> time.
    whole_nodes
        Whether jobs get, and pay for, whole nodes.
    choose
        Whether it may be chosen where the user names none; the first that allows the job's shape is.
    debug
        Whether it is the one for short tests.
    gpus, cores, cpus_per_gpu, gpu_model
        Where its nodes differ from the profile's; ``gpus = 0`` where they have none.
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
        """Refuse a name that no option of sbatch takes, and what is no time."""
        if not re.fullmatch(r"[^\s,]+", self.name):
            raise ValueError(f"name = {self.name!r} is no name of a partition")
        for time in (self.max_time, *self.time_by_nodes.values()):
            if not TIME.fullmatch(time):
                raise ValueError(f"{time!r} is no time: write it as 1:30:00 or 2-00:00:00")


class Slurm(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are asked for at a site.

    Attributes
    ----------
    version
        Of Slurm, as documented.
    gpu_option
        ``gpus-per-node``, ``gres``, or ``none`` where the option of srun does it.
    cpus_per_gpu
        Cores that go with a GPU where no map is known; 0 leaves it to Slurm.
    cpus_option
        Whether the job says ``--cpus-per-task`` at all (false where no script of the site does).
    cpus_beside_mask
        Whether ``--cpus-per-task`` may stand beside a mask on one srun.
    mask_needs_whole_nodes
        Whether masks hold only where the job has whole nodes.
    required
        Options without which the site refuses a job: ``account``, ``time``.
    mem, mem_per_gpu
        Memory to ask for where the user says nothing.
    whole_nodes
        Whether every job gets whole nodes.
    several_nodes_whole
        Whether a job on several nodes must ask for all GPUs of each.
    polling_seconds
        How often the controller may be asked about a job.
    master_suffix
        What is added to the first host's name for the rendezvous.
    account_form
        How account names look, for error messages.
    debug_qos
        QOS for short tests, where a partition for them is not what the site has.
    """

    version: str = ""
    gpu_option: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    cpus_per_gpu: Count = 0
    cpus_option: bool = True
    cpus_beside_mask: bool = True
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
        """Refuse a suffix that is no part of a host's name: it stands in the script as it is."""
        if not re.fullmatch(r"[A-Za-z0-9.-]*", self.master_suffix):
            raise ValueError(f"master_suffix = {self.master_suffix!r} is no part of a host name")


class Mode(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named way to use the site (``--mode``); what belongs to it says ``when = { mode = "NAME" }``.

    Attributes
    ----------
    default
        Whether it holds where the user names no mode.
    devices_per_gpu
        In place of `Node.devices_per_gpu`; 0 leaves it.
    """

    default: bool = False
    devices_per_gpu: Count = 0


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine, as its profile describes it.

    Attributes
    ----------
    name
        As ``--site`` takes it; the file is called ``NAME.toml``.
    title
        The machine in words: name, place, what its nodes have.
    scheduler
        ``local`` or ``slurm``.
    use
        Fragments, or other sites, whose parts are taken first; a site of one's own name is the next on the search path.
    checked
        Date for every part that has none of its own.
    sources
        Short name -> beginning of an address, for the `source` of parts.
    open_questions
        What nobody could find out yet; what depends on it says so instead of guessing.
    validated
        What a run of ``argosy sites validate`` found.
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
    options: tuple[Option, ...] = ()
    binds: tuple[SiteBind, ...] = ()
    caches: tuple[Cache, ...] = ()
    settings: tuple[Setting, ...] = ()
    avoid: tuple[Avoid, ...] = ()
    validated: Validated = Validated()

    def __post_init__(self) -> None:
        """Refuse a name that is no plain word: it stands in scripts and in names of files."""
        if not re.fullmatch(r"[A-Za-z0-9._-]*", self.name):
            raise ValueError(f"name = {self.name!r} is no plain word: letters, digits, '.', '_' and '-'")

    @property
    def has_slurm(self) -> bool:
        """Whether jobs are submitted to Slurm; otherwise programs run on this machine."""
        return self.scheduler == "slurm"

    def partition(self, name: str) -> Partition | None:
        """Give the partition of that name, if the profile has it."""
        return next((each for each in self.partitions if each.name == name), None)
