"""Records of `argosy wrap`: requests, the stored state of a prefix, and reports."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.model import Bind, GpuMode


class SourceKind(StrEnum):
    """Kind of the sources of a prefix."""

    FILES = "files"
    IMAGE = "image"
    FOLDER = "folder"


class Settings(msgspec.Struct, frozen=True):
    """How the commands of a prefix start; each version inherits it.

    Attributes
    ----------
    paths
        Folders and programs in the image whose commands are wrapped, in the order of a PATH. Empty means the
        environment that Argosy built.
    binds
        Further bind mounts, as with ``--bind``.
    variables
        Variables to set in the container.
    gpu
        With ``auto``, each start looks for the devices of the node.
    host
        Whether the container shows the host's own file systems, with its system folders.
    runtime
        Name of a runtime; empty for the first one that the machine has.
    """

    paths: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    gpu: GpuMode = GpuMode.AUTO
    host: bool = False
    runtime: str = ""


class PrefixRecipe(msgspec.Struct, frozen=True):
    """How the image of a version was made; stored, so that an update can repeat it.

    Attributes
    ----------
    kind
        Kind of the sources.
    sources
        Absolute paths of files, or the one image or folder as the user wrote it.
    base
        The base of a build.
    added
        Requirements that updates added, as pip reads them.
    at
        Path of an installation in the container: the path that its files contain.
    copy
        Whether an image outside the prefix is copied into it.
    flatten, cuda, site, torch_backend, unisolated, replaceable
        As for a build.
    before, after
        Scripts to run in the container before and after the installation.
    own_python
        Whether conda always installs the Python of an environment file: with ``--host``, that of the base is hidden.
    default_base
        Whether the user gave no base: Argosy uses another one if it cannot create this one here.
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
        """Return a short description."""
        over = f" over {self.base}" if self.base else ""
        more = f" and {', '.join(self.added)}" if self.added else ""
        return f"{', '.join(Path(source).name or source for source in self.sources)}{more}{over}"


class WrapRequest(msgspec.Struct, frozen=True):
    """A request of `argosy wrap new`: the sources, the target folder, and how the commands start."""

    prefix: Path
    recipe: PrefixRecipe
    settings: Settings = msgspec.field(default_factory=Settings)


class UpdateRequest(msgspec.Struct, frozen=True):
    """A request of `argosy wrap update`.

    Attributes
    ----------
    packages
        Requirements to add.
    files
        Environment files. A file replaces one of the same name; other files are added.
    image
        Another image, or the same one at another path, for a prefix that wraps an image.
    """

    prefix: Path
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    image: str = ""
    after: tuple[str, ...] = ()


class Wrapped(msgspec.Struct, frozen=True):
    """One command of a prefix: its name, and the path of its program in the container."""

    name: str
    target: str


class InContainer(msgspec.Struct, frozen=True):
    """Facts about an image, from one start of its container.

    Attributes
    ----------
    programs
        Paths of programs, in the requested order.
    missing
        Requested paths that do not exist, or contain no program.
    path
        The PATH that the image sets.
    neighbours
        Files and folders next to the first folder of programs, for example ``lib`` and ``pyvenv.cfg``.
    folders
        Folders at the image's root that are not empty.
    python
        Target of ``python`` in the first folder, with links resolved, or empty.
    venv
        Settings of ``pyvenv.cfg`` next to the first folder; empty if the environment is not a venv.
    glibc
        Version of glibc in the image; empty if it has another C library.
    """

    programs: tuple[str, ...]
    missing: tuple[str, ...] = ()
    path: str = ""
    neighbours: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    python: str = ""
    venv: tuple[tuple[str, str], ...] = ()
    glibc: str = ""


class Needs(msgspec.Struct, frozen=True):
    """Requirements of the programs of an installation.

    Attributes
    ----------
    program
        A program of that architecture; empty if there is none.
    glibc
        The newest version of glibc's symbols in use, for example (2, 35); (0, 0) if none is.
    by
        The file that uses it.
    """

    program: str = ""
    arch: str = ""
    glibc: tuple[int, int] = (0, 0)
    by: str = ""


class Version(msgspec.Struct, frozen=True):
    """One version of a prefix, as stored in ``wrap.json``.

    Attributes
    ----------
    identity
        Identifier of the prefix, the same in all versions. A wrapper uses it to find out that it is in the container.
    made
        Time of creation, in UTC.
    reason
        The command that made it, for example ``new`` or ``update: numpy``.
    runtime
        The runtime that starts its commands.
    digest
        Content digest of the image; empty if Argosy did not build it.
    trees
        Names of the folders in ``DIR/cache/trees`` that it needs.
    """

    number: int
    identity: str
    made: str
    reason: str
    argosy: str
    recipe: PrefixRecipe
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
    """Result of a change of a prefix.

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
