"""The records that cross module borders, all frozen; they never touch the machine.

    Request  --plan-->  Plan  --carry out-->  Report

What a user asks is a request; what the machine is, a `Host`; what a file is, an `Image`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from argosy.core.shell import ShellExpr, Word

__all__ = ["ShellExpr", "Word"]

NO_VALUES: Mapping[str, str] = MappingProxyType({})


class GpuMode(StrEnum):
    """How GPUs enter a container; the words of ``--gpu``."""

    AUTO = "auto"
    NONE = "none"
    NV = "nv"
    NVCCLI = "nvccli"
    ROCM = "rocm"
    CDI = "cdi"


BARE_PREFIX = "bare:"
"""What stands in place of an image where there is no container; the folder of an installation may follow."""


class ImageKind(StrEnum):
    """What an image is, once it is resolved.

    ``registry`` is a reference that the runtime fetches itself; ``edf`` a file that describes an environment for the
    Container Engine of CSCS; ``host`` is no image, but the machine's own software.
    """

    SIF = "sif"
    SQUASHFS = "squashfs"
    TREE = "tree"
    REGISTRY = "registry"
    EDF = "edf"
    HOST = "host"


class Attach(StrEnum):
    """How an image's layer joins its base; the tree that programs see is the same."""

    OVERLAY = "overlay"
    BIND = "bind"
    FLAT = "flat"


class Bind(msgspec.Struct, frozen=True):
    """A bind mount: a path of the host seen inside; an optional one is left out where the host has no such path."""

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


class Variable(msgspec.Struct, frozen=True):
    """A variable that is forced by name and verbatim, whatever the image or the caller set.

    Attributes
    ----------
    inherited
        Whether the value is that of the caller's environment, which others must not read: it may be a token.
    """

    name: str
    value: Word
    inherited: bool = False


class ChoiceKey(StrEnum):
    """Keys of the choices that are neither a variable nor an option."""

    ASSUMED = "assumed"
    BILLED = "billed"
    BIND = "bind"
    CORES_PER_RANK = "cores-per-rank"
    ELASTIC = "elastic"
    EXCLUDED_NODES = "excluded-nodes"
    GPU = "gpu"
    GPUS_PER_NODE = "gpus-per-node"
    LAUNCHER = "launcher"
    LAYER = "layer"
    MODE = "mode"
    NODES = "nodes"
    NODE_TEST = "node-test"
    PARTITION = "partition"
    PROFILE = "profile"
    QUEUE = "queue"
    RANKS = "ranks"
    RANKS_PER_NODE = "ranks-per-node"
    RANK_CORES = "rank-cores"
    RUNTIME = "runtime"
    RUNTIME_OPTION = "runtime-option"
    SBATCH = "sbatch"
    SIGNED_BY = "signed-by"
    SRUN = "srun"
    STAGE_TO = "stage-to"
    TORCH = "torch"
    VARIANT = "variant"


LABELS: Mapping[str, str] = MappingProxyType(
    {
        ChoiceKey.CORES_PER_RANK: "cores per rank",
        ChoiceKey.EXCLUDED_NODES: "excluded nodes",
        ChoiceKey.GPUS_PER_NODE: "GPUs per node",
        ChoiceKey.NODE_TEST: "node test",
        ChoiceKey.RANKS_PER_NODE: "ranks per node",
        ChoiceKey.RANK_CORES: "cores of each rank",
        ChoiceKey.RUNTIME_OPTION: "runtime",
        ChoiceKey.SIGNED_BY: "signed by",
    }
)
"""Keys that users see under another text."""


def choice_label(key: str) -> str:
    """Return the text that users see for the key of a choice."""
    return LABELS.get(key, key)


class Choice(msgspec.Struct, frozen=True):
    """One choice of a plan, with its reason: what ``--dry-run`` and ``explain`` print.

    Attributes
    ----------
    key
        What was chosen: a `ChoiceKey`, a variable's name (``OMP_NUM_THREADS``), or an option (``--time``).
    value
        What was chosen.
    why
        The reason, as half a sentence.
    source
        Where it comes from: ``option``, ``argosy.toml``, ``environment``, ``site local``, ``machine``, ``image``.
    evidence, checked, proof
        For what a site profile says: the public address, the date, and ``documented`` or ``proved``.
    """

    key: str
    value: str
    why: str
    source: str
    evidence: str = ""
    checked: str = ""
    proof: str = ""

    @property
    def label(self) -> str:
        """The text that users see for the key."""
        return choice_label(self.key)


class Gpu(msgspec.Struct, frozen=True):
    """A GPU of this machine, as its device nodes tell."""

    vendor: str
    index: int
    device: str


class Person(msgspec.Struct, frozen=True):
    """Who runs this, as the container must see it."""

    uid: int
    gid: int
    name: str
    home: str


class Host(msgspec.Struct, frozen=True):
    """What was asked of this machine, once.

    Attributes
    ----------
    cpus
        CPUs that this process may use: affinity and cgroup quota, whichever is less.
    memory
        Bytes of memory that this process may use.
    programs
        Paths of the external programs found on PATH, by name.
    user_namespaces
        Whether this user may make user namespaces, as the kernel's switches say.
    can_mount
        Whether this process may mount file systems without a user namespace (root with CAP_SYS_ADMIN).
    overlay
        ``yes``, ``no`` or ``unknown``: what Apptainer's configuration says of overlays.
    links
        Symbolic links on the way to folders that a container shall show, and where each leads.
    emulated
        Architecture of the programs that an image of this story holds, where an emulator runs them here; empty: the
        machine's own.
    """

    hostname: str
    arch: str
    person: Person
    cwd: str
    cpus: int
    memory: int
    programs: Mapping[str, str]
    user_namespaces: bool
    can_mount: bool
    fuse: bool
    overlay: str = "unknown"
    gpus: tuple[Gpu, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    links: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    emulated: str = ""

    @property
    def target(self) -> str:
        """Give the architecture that images are made for and run as, as ``uname -m`` writes it."""
        return self.emulated or self.arch


class Image(msgspec.Struct, frozen=True):
    """An image that was opened and checked.

    Attributes
    ----------
    path
        The file or directory.
    digest
        ``sha256:…`` of the content where the image knows it, else empty.
    arch
        Go's name of the architecture, as SIF and OCI say it (``amd64``, ``arm64``); empty where the file does not tell.
    base_offset, layer_offset
        Where the squashfs of the base and of the layer begin in the file, in bytes; -1 where there is none.
    layer_part
        Descriptor id of the layer's partition, 0 where there is none.
    argosy
        Whether ``/opt/argosy/enter`` starts programs in it.
    packages
        Names of the Python packages that its lock lists, normalised.
    complete
        Whether its programs see no Python package but those: nothing of a base's own, and nothing that a step brought.
    torch
        Version of torch that its lock lists; empty where it lists none.
    nccl
        Likewise of NCCL.
    system
        Whether its layer changes files outside ``/opt/argosy``.
    """

    path: str
    kind: ImageKind
    digest: str
    arch: str
    base_offset: int = 0
    base_size: int = 0
    layer_offset: int = -1
    layer_size: int = 0
    layer_part: int = 0
    argosy: bool = False
    packages: frozenset[str] = frozenset()
    complete: bool = False
    torch: str = ""
    nccl: str = ""
    system: bool = False


class ContainerRequest(msgspec.Struct, frozen=True):
    """What ``run``, ``shell`` and ``launch`` share: how a container is to be entered.

    Attributes
    ----------
    workdir
        Directory inside; empty means the caller's current one.
    runtime
        Name of a runtime; empty lets the machine decide.
    signed_by
        Fingerprints of keys, one of which must have signed the image; empty takes any image.
    """

    binds: tuple[Bind, ...] = ()
    variables: tuple[Variable, ...] = ()
    workdir: str = ""
    gpu: GpuMode = GpuMode.AUTO
    contain: bool = False
    runtime: str = ""
    signed_by: tuple[str, ...] = ()


def plain_fingerprint(text: str) -> str:
    """Give the fingerprint of an OpenPGP key as 40 capital digits (64 of a version 6 key), however it was copied.

    Raises
    ------
    ValueError
        When it is none: a short number may belong to somebody else's key, too.
    """
    plain = "".join(text.split()).upper().removeprefix("0X")
    if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", plain):
        raise ValueError(f"{text!r} is no fingerprint of a key: 40 hexadecimal digits, as 'apptainer key list' shows")
    return plain


class Devices(msgspec.Struct, frozen=True):
    """What must be carried into a container for GPUs, where the runtime does not find it out itself (bwrap).

    Attributes
    ----------
    nodes
        Device nodes, same path on both sides.
    binds
        Driver libraries and programs.
    variables
        Variables that the driver's specification sets.
    links
        Symbolic links to make inside: (target, link).
    library_folders
        Folders to put on the dynamic linker's path.
    """

    nodes: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    variables: tuple[Variable, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    library_folders: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """All that a runtime needs to know to start a command in an image; made by planning, spoken by an adapter.

    Attributes
    ----------
    drop
        Names of the caller's variables that must not reach the program (``PYTHONPATH`` and its like).
    gpu
        The way chosen; never `GpuWay.AUTO`.
    devices
        Filled for runtimes that carry GPUs in by hand.
    trees
        Unpacked trees of the image, the layer first, for runtimes that cannot mount an image file (bwrap).
    scratch
        An existing empty directory, used as mount point in a private mount namespace (bwrap).
    options
        Words that the site gives the runtime.
    annotations
        What the site tells the hooks of the runtime, by name (edf).
    dev
        An existing folder with ``upper`` and ``work``, which takes what is written into the image; empty: it is
        read-only.
    """

    image: Image
    attach: Attach
    binds: tuple[Bind, ...]
    variables: tuple[Variable, ...]
    workdir: str
    gpu: GpuMode
    contain: bool
    person: Person
    drop: tuple[str, ...] = ()
    interactive: bool = False
    devices: Devices = Devices()
    trees: tuple[str, ...] = ()
    scratch: str = ""
    options: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    dev: str = ""
