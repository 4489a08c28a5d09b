"""Records that several packages share; all are frozen.

::

    Request  --plan-->  Plan  --execute-->  Report

A request is the user's input, a `Host` holds the facts about the machine, an `Image` those about an image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from argosy.core.shell import Word

NO_VALUES: Mapping[str, str] = MappingProxyType({})
"""Default of fields of records, which share it; therefore it cannot be changed."""


class GpuMode(StrEnum):
    """How GPUs are made available in a container; the values of ``--gpu``."""

    AUTO = "auto"
    NONE = "none"
    NV = "nv"
    NVCCLI = "nvccli"
    ROCM = "rocm"
    CDI = "cdi"


BARE_PREFIX = "bare:"
"""Prefix of an image argument that means no container; the folder of a venv or conda environment may follow."""


APPTAINERS = ("apptainer", "singularity")
"""Apptainer and SingularityCE, the preferred one first: two programs with the same command line."""

RUNTIME_NAMES = (*APPTAINERS, "bwrap", "podman", "docker", "podman-hpc", "enroot", "pyxis", "edf", "bare")
"""Values of ``--runtime`` and of ``runtime.name`` in a profile; `argosy.runtimes.runtime.RUNTIMES` has their adapters.
"""

APPTAINER_FAMILIES = tuple(map(str.upper, APPTAINERS))
"""Prefixes of the variables that both programs read; Apptainer takes the second as well."""


class ImageKind(StrEnum):
    """The kind of an image.

    ``registry`` is a reference that the runtime pulls itself, ``edf`` an Environment Definition File for the Container
    Engine of CSCS, and ``host`` the host's own software without a container.
    """

    SIF = "sif"
    SQUASHFS = "squashfs"
    TREE = "tree"
    REGISTRY = "registry"
    EDF = "edf"
    HOST = "host"


class Attach(StrEnum):
    """How an image's layer is attached to its base; programs see the same tree with all of them."""

    OVERLAY = "overlay"
    BIND = "bind"
    FLAT = "flat"


class Bind(msgspec.Struct, frozen=True):
    """A bind mount of a host path into the container; an optional one is skipped if the host does not have the path."""

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


class Variable(msgspec.Struct, frozen=True):
    """A variable to set in the container, regardless of values from the image or the caller."""

    name: str
    value: Word
    inherited: bool = False
    """Whether the value comes from the caller's environment. It may be a secret and must not appear in arguments."""


class ChoiceKey(StrEnum):
    """Keys of the choices that are neither a variable nor an option."""

    ASSUMED = "assumed"
    BILLED = "billed"
    BIND = "bind"
    BUILD_BACKEND = "build-backend"
    CONTAINER_PER = "container-per"
    CORES_PER_RANK = "cores-per-rank"
    CUDA = "cuda"
    ELASTIC = "elastic"
    ENTER = "enter"
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
    PULL = "pull"
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
    TORCH_BACKEND = "torch-backend"
    VARIANT = "variant"


LABELS: Mapping[str, str] = {
    ChoiceKey.CONTAINER_PER: "one container per",
    ChoiceKey.CORES_PER_RANK: "cores per rank",
    ChoiceKey.EXCLUDED_NODES: "excluded nodes",
    ChoiceKey.GPUS_PER_NODE: "GPUs per node",
    ChoiceKey.NODE_TEST: "node test",
    ChoiceKey.RANKS_PER_NODE: "ranks per node",
    ChoiceKey.RANK_CORES: "cores of each rank",
    ChoiceKey.RUNTIME_OPTION: "runtime",
    ChoiceKey.SIGNED_BY: "signed by",
}
"""Texts that users see instead of keys."""


class Mark(StrEnum):
    """Marks a choice that readers of a plan must see.

    ``first`` is a command to run before the job, and ``doubtful`` is probably a mistake of the user.  ``unused`` is an
    option without effect in this launch, and ``unset`` a setting of the site whose condition cannot be evaluated.
    """

    NONE = ""
    FIRST = "first"
    DOUBTFUL = "doubtful"
    UNUSED = "unused"
    UNSET = "unset"


class Choice(msgspec.Struct, frozen=True):
    """One choice of a plan with its reason, as ``--dry-run`` and ``explain`` print it."""

    key: str
    """The setting: a `ChoiceKey`, a variable's name (``OMP_NUM_THREADS``), or an option (``--time``)."""
    value: str
    """The chosen value."""
    why: str
    """The reason, as a phrase."""
    source: str
    """Origin: ``option``, ``argosy.toml``, ``environment``, ``site local``, ``machine``, ``image``."""
    evidence: str = ""
    checked: str = ""
    proof: str = ""
    """For values of a site profile: public source, date of the check, and ``documented`` or ``validated``."""
    mark: Mark = Mark.NONE

    @property
    def label(self) -> str:
        """The text that users see for the key."""
        return LABELS.get(self.key, self.key)


class Gpu(msgspec.Struct, frozen=True):
    """A GPU of this machine, found by its device nodes."""

    vendor: str
    index: int
    device: str


class Person(msgspec.Struct, frozen=True):
    """The user who runs the container."""

    uid: int
    gid: int
    name: str
    home: str


class Host(msgspec.Struct, frozen=True):
    """Facts about this machine, probed once."""

    hostname: str
    arch: str
    person: Person
    cwd: str
    cpus: int
    """CPUs that this process may use: the smaller of affinity and cgroup quota."""
    memory: int
    """Bytes of memory that this process may use."""
    programs: Mapping[str, str]
    """Paths of the external programs found on PATH, by name."""
    user_namespaces: bool
    """Whether kernel settings allow this user to create user namespaces."""
    can_mount: bool
    """Whether this process may mount file systems without a user namespace (root with CAP_SYS_ADMIN)."""
    fuse: bool
    overlay: str = "unknown"
    """``yes``, ``no`` or ``unknown``: whether Apptainer's configuration allows overlays."""
    gpus: tuple[Gpu, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    links: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    """Symbolic links in the paths of mounted folders, with their targets."""
    emulated: str = ""
    """Emulated architecture of the image's programs; empty for native."""

    @property
    def target(self) -> str:
        """Return the architecture of images to build and run, in the form of ``uname -m``."""
        return self.emulated or self.arch


class Image(msgspec.Struct, frozen=True):
    """An image that was opened and checked."""

    path: str
    """The file or directory."""
    kind: ImageKind
    digest: str
    """``sha256:…`` of the content if the image records it, else empty."""
    arch: str
    """Go's name of the architecture, as in SIF and OCI (``amd64``, ``arm64``); empty if unknown."""
    base_offset: int = 0
    """Offset of the squashfs of the base in the file, in bytes; -1 if there is none."""
    base_size: int = 0
    layer_offset: int = -1
    """The same of the layer."""
    layer_size: int = 0
    layer_part: int = 0
    """Descriptor id of the layer's partition; 0 if there is none."""
    base_spans: tuple[tuple[int, int], ...] = ()
    """Offset and size of each range of the file that belongs to the base, in bytes. A flat image has several; empty
    if the base is the squashfs at `base_offset`."""
    argosy: bool = False
    """Whether the image was built by Argosy, so that ``/opt/argosy/enter`` starts programs in it."""
    packages: frozenset[str] = frozenset()
    """Normalised names of the Python packages in its lock."""
    complete: bool = False
    """Whether `packages` are all Python packages: none come from the base or from build steps."""
    only_steps_unlisted: bool = False
    """Whether only build steps may have added other packages, which few of them do."""
    torch: str = ""
    """Version of torch in its lock; empty if it has none."""
    nccl: str = ""
    """Version of NCCL in its lock; empty if it has none."""
    mpi: str = ""
    """The MPI that its lock shows: ``openmpi``, ``mpich``, ``several``, ``none``; empty if it does not show one."""
    cpu_jax: str = ""
    """Version of jaxlib in its lock if that shows no support of GPUs; else empty."""
    system: bool = False
    """Whether its layer changes files outside ``/opt/argosy``."""
    enter: str = ""
    """How programs start in it: ``exec`` (or empty), ``run`` (by its start script) or ``with-conda``."""
    reference: str = ""
    """How the user named an image whose file is in the cache, for example an archive; empty for other images."""
    sources: frozenset[tuple[str, str]] = frozenset()
    """Name, without folders, and sha256 of each environment file that it was built from."""

    @property
    def shown(self) -> str:
        """Return its name for users, which commands accept as well: a path in the cache does not stay."""
        return self.reference or self.path


class ContainerRequest(msgspec.Struct, frozen=True):
    """The container options that ``run``, ``shell`` and ``launch`` share."""

    binds: tuple[Bind, ...] = ()
    variables: tuple[Variable, ...] = ()
    workdir: str = ""
    """Working directory inside; empty means the caller's current directory."""
    gpu: GpuMode = GpuMode.AUTO
    contain: bool = False
    runtime: str = ""
    """Name of a runtime; empty means that Argosy chooses one."""
    signed_by: tuple[str, ...] = ()
    """Fingerprints of keys, one of which must have signed the image; empty accepts any image."""
    enter: str = ""
    """How programs start in the image: ``exec``, ``run`` or ``with-conda``; empty means as the site's profile says."""


def plain_fingerprint(text: str) -> str:
    """Normalise the fingerprint of an OpenPGP key to 40 capital hexadecimal digits (64 for a version 6 key).

    Raises
    ------
    ValueError
        If the text is not a full fingerprint. Short key ids are rejected because they are not unique.
    """
    plain = "".join(text.split()).upper().removeprefix("0X")
    if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", plain):
        raise ValueError(f"invalid key fingerprint {text!r}: use the 40 hexadecimal digits of 'apptainer key list'")
    return plain


class Devices(msgspec.Struct, frozen=True):
    """The files and variables that GPUs need in a container, for runtimes without GPU support (bwrap)."""

    nodes: tuple[str, ...] = ()
    """Device nodes; their paths are the same inside."""
    binds: tuple[Bind, ...] = ()
    """Driver libraries and programs."""
    variables: tuple[Variable, ...] = ()
    """Variables from the CDI specification of the driver."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links to create inside: (target, link)."""
    library_folders: tuple[str, ...] = ()
    """Folders for LD_LIBRARY_PATH."""


class Entry(msgspec.Struct, frozen=True):
    """A complete description of a container start; planning creates it, and a runtime turns it into a command line."""

    image: Image
    attach: Attach
    binds: tuple[Bind, ...]
    variables: tuple[Variable, ...]
    workdir: str
    gpu: GpuMode
    """The chosen mode; never `GpuMode.AUTO`."""
    contain: bool
    person: Person
    drop: tuple[str, ...] = ()
    """Names of the caller's variables that must not reach the program, for example ``PYTHONPATH``."""
    interactive: bool = False
    devices: Devices = Devices()
    """Set for runtimes without GPU support of their own."""
    trees: tuple[str, ...] = ()
    """Unpacked trees of the image, the layer first, for runtimes that cannot mount an image file (bwrap)."""
    scratch: str = ""
    """An existing empty directory, used as mount point in a private mount namespace (bwrap)."""
    options: tuple[str, ...] = ()
    """Options of the runtime from the site profile."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Annotations from the site profile for hooks of the runtime, by name (edf)."""
    dev: str = ""
    """An existing folder with ``upper`` and ``work`` that stores all writes to the image; empty means read-only."""
    fakeroot: bool = False
    """Whether an ordinary user is root inside, in a user namespace."""
