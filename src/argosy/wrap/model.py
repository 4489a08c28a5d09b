"""What `argosy wrap` is asked, keeps and reports: records only."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.model import Bind, GpuMode


class SourceKind(StrEnum):
    """What is wrapped."""

    FILES = "files"
    IMAGE = "image"
    FOLDER = "folder"


class Settings(msgspec.Struct, frozen=True):
    """How the commands of a prefix start; kept from version to version.

    Attributes
    ----------
    paths
        Folders and programs inside the image whose commands are wrapped, in the order of a PATH; empty means the
        environment that Argosy built.
    binds
        Further bind mounts, same words as ``--bind``.
    variables
        Variables forced inside.
    gpu
        ``auto`` looks at each start for the devices of the node.
    host
        Show the host's own file systems inside, system folders included.
    runtime
        Name of a runtime; empty lets the machine decide.
    """

    paths: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    gpu: GpuMode = GpuMode.AUTO
    host: bool = False
    runtime: str = ""


class Recipe(msgspec.Struct, frozen=True):
    """How the image of a version came about; kept, so that an update can repeat it.

    Attributes
    ----------
    kind
        What the sources are.
    sources
        Files (absolute), or the one image or folder, as the user named it.
    base
        The base of a build.
    added
        Requirements that updates added, as pip reads them.
    at
        Where a folder is found inside: the path that its files name.
    copy
        Whether an image that lies elsewhere is copied into the prefix.
    flatten, cuda, site, torch_backend, unisolated, replaceable
        As of a build; ``flatten`` is None while it is not chosen.
    before, after
        Scripts run inside before and after the installation.
    own_python
        Whether the Python that an environment file names is always conda's: without the base's system folders there is
        no other.
    default_base
        Whether the user named no base: another one is taken if this one cannot be made here.
    """

    kind: SourceKind
    sources: tuple[str, ...]
    base: str = ""
    added: tuple[str, ...] = ()
    at: str = ""
    copy: bool = False
    flatten: bool | None = None
    cuda: str = ""
    site: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    torch_backend: str = ""
    unisolated: tuple[str, ...] = ()
    replaceable: tuple[str, ...] = ()
    own_python: bool = False
    default_base: bool = False

    def __str__(self) -> str:
        """Say it in a few words."""
        over = f" over {self.base}" if self.base else ""
        more = f" and {', '.join(self.added)}" if self.added else ""
        return f"{', '.join(Path(source).name or source for source in self.sources)}{more}{over}"


class WrapRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy wrap new`: what to wrap, where to, and how its commands start."""

    prefix: Path
    recipe: Recipe
    settings: Settings = msgspec.field(default_factory=Settings)


class UpdateRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy wrap update`.

    Attributes
    ----------
    packages
        Requirements to add.
    files
        Environment files: one of a name that the prefix knows replaces it, any other is added.
    image
        Another image (or the same at another place) for a prefix that wraps an image.
    """

    prefix: Path
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    image: str = ""
    after: tuple[str, ...] = ()


class Wrapped(msgspec.Struct, frozen=True):
    """One command of a prefix: its name, and the program inside that it starts."""

    name: str
    target: str


class InContainer(msgspec.Struct, frozen=True):
    """What was found in an image, by one start of its container.

    Attributes
    ----------
    programs
        Paths of programs, in the order asked for.
    missing
        Paths asked for that are not there, or hold no program.
    path
        The PATH that the image sets.
    beside
        What lies beside the first folder of programs: ``lib``, ``pyvenv.cfg`` and so on.
    folders
        Folders at the image's root that hold something.
    python
        What ``python`` in the first folder is in the end; empty where there is none.
    venv
        What ``pyvenv.cfg`` beside the first folder says; nothing where the environment is not a venv.
    glibc
        Version of the image's C library; empty where it has another one.
    """

    programs: tuple[str, ...]
    missing: tuple[str, ...] = ()
    path: str = ""
    beside: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    python: str = ""
    venv: tuple[tuple[str, str], ...] = ()
    glibc: str = ""


class Version(msgspec.Struct, frozen=True):
    """One version of a prefix, as ``wrap.json`` keeps it.

    Attributes
    ----------
    identity
        The prefix's own mark, the same in all its versions: by it a wrapper knows that it is inside already.
    made
        When, in UTC.
    reason
        What made it: ``new``, ``update: numpy``.
    runtime
        The runtime that its commands start.
    digest
        Content digest of the image; empty where Argosy did not make it.
    trees
        Names in ``DIR/cache/trees`` that it needs.
    """

    number: int
    identity: str
    made: str
    reason: str
    argosy: str
    recipe: Recipe
    settings: Settings
    runtime: str
    image: str
    digest: str = ""
    size: int = 0
    trees: tuple[str, ...] = ()
    commands: tuple[Wrapped, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = 1


class WrapReport(msgspec.Struct, frozen=True):
    """What a change of a prefix did.

    Attributes
    ----------
    previous
        Number of the version before; 0 for a new prefix.
    """

    prefix: str
    version: Version
    previous: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
