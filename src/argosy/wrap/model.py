"""Records of `argosy wrap`: requests, the stored state of a prefix, and reports."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.model import Bind, GpuMode
from argosy.core.records import replace


class PrefixSourceKind(StrEnum):
    """Kind of the sources of a prefix."""

    FILES = "files"
    IMAGE = "image"
    FOLDER = "folder"


class Settings(msgspec.Struct, frozen=True):
    """How the commands of a prefix start; each version inherits it."""

    paths: tuple[str, ...] = ()
    """Folders and programs in the image whose commands are wrapped, in the order of a PATH. Empty means the
    environment that Argosy built."""
    binds: tuple[Bind, ...] = ()
    """Further bind mounts, as with ``--bind``."""
    variables: tuple[tuple[str, str], ...] = ()
    """Variables to set in the container."""
    gpu: GpuMode = GpuMode.AUTO
    """With ``auto``, each start looks for the devices of the node."""
    host: bool = False
    """Whether the container shows the host's own file systems, with its system folders."""
    runtime: str = ""
    """Name of a runtime; empty for the first one that the machine has."""


class PrefixRecipe(msgspec.Struct, frozen=True):
    """How the image of a version was made; stored, so that an update can repeat it.

    Fields without a description are those of a build.
    """

    kind: PrefixSourceKind
    """Kind of the sources."""
    sources: tuple[str, ...]
    """Absolute paths of files, or the one image or folder as the user wrote it."""
    base: str = ""
    """The base of a build."""
    added: tuple[str, ...] = ()
    """Requirements that updates added, as pip reads them."""
    at: str = ""
    """Path of an installation in the container: the path that its files contain."""
    copy: bool = False
    """Whether an image outside the prefix is copied into it."""
    flatten: bool | None = None
    cuda: str = ""
    site: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Scripts to run in the container before and after the installation."""
    torch_backend: str = ""
    unisolated: tuple[str, ...] = ()
    replaceable: tuple[str, ...] = ()
    own_python: bool = False
    """Whether conda always installs the Python of an environment file: with ``--host``, that of the base is hidden."""
    default_base: bool = False
    """Whether the user gave no base: Argosy uses another one if it cannot create this one here."""

    def __str__(self) -> str:
        """Return a short description."""
        over = f" over {self.base}" if self.base else ""
        more = f" and {', '.join(self.added)}" if self.added else ""
        return f"{', '.join(Path(source).name or source for source in self.sources)}{more}{over}"

    def over(self, used: str) -> PrefixRecipe:
        """Return the recipe with the base that was used for the default one, so that later versions use it, too."""
        other = self.default_base and used != self.base
        return replace(self, base=used, default_base=False) if other else self


class WrapRequest(msgspec.Struct, frozen=True):
    """A request of `argosy wrap new`: the sources, the target folder, and how the commands start."""

    prefix: Path
    recipe: PrefixRecipe
    settings: Settings = msgspec.field(default_factory=Settings)


class UpdateRequest(msgspec.Struct, frozen=True):
    """A request of `argosy wrap update`."""

    prefix: Path
    packages: tuple[str, ...] = ()
    """Requirements to add."""
    files: tuple[str, ...] = ()
    """Environment files. A file replaces one of the same name; other files are added."""
    image: str = ""
    """Another image, or the same one at another path, for a prefix that wraps an image."""
    after: tuple[str, ...] = ()


class Wrapped(msgspec.Struct, frozen=True):
    """One command of a prefix: its name, and the path of its program in the container."""

    name: str
    target: str


class InContainer(msgspec.Struct, frozen=True):
    """Facts about an image, from one start of its container."""

    programs: tuple[str, ...]
    """Paths of programs, in the requested order."""
    missing: tuple[str, ...] = ()
    """Requested paths that do not exist, or contain no program."""
    path: str = ""
    """The PATH that the image sets."""
    neighbours: tuple[str, ...] = ()
    """Files and folders next to the first folder of programs, for example ``lib`` and ``pyvenv.cfg``."""
    folders: tuple[str, ...] = ()
    """Folders at the image's root that are not empty."""
    python: str = ""
    """Target of ``python`` in the first folder, with links resolved, or empty."""
    venv: tuple[tuple[str, str], ...] = ()
    """Settings of ``pyvenv.cfg`` next to the first folder; empty if the environment is not a venv."""
    glibc: str = ""
    """Version of glibc in the image; empty if it has another C library."""


class Needs(msgspec.Struct, frozen=True):
    """Requirements of the programs of an installation."""

    program: str = ""
    """A program of that architecture; empty if there is none."""
    arch: str = ""
    glibc: tuple[int, int] = (0, 0)
    """The newest version of glibc's symbols in use, for example (2, 35); (0, 0) if none is."""
    by: str = ""
    """The file that uses it."""


class VersionImage(msgspec.Struct, frozen=True):
    """The image in the folder of a version."""

    image: Path
    recipe: PrefixRecipe
    """How it was made, with the base that was used."""
    needs: Needs = msgspec.field(default_factory=Needs)
    """Requirements of an installation on the base; empty for an image that was built here."""
    inside: InContainer | None = None
    """Contents of an installation; None if a container of the image can list them."""


class Version(msgspec.Struct, frozen=True):
    """One version of a prefix, as stored in ``wrap.json``."""

    number: int
    identity: str
    """Identifier of the prefix, the same in all versions. A wrapper uses it to find out that it is in the container."""
    made: str
    """Time of creation, in UTC."""
    reason: str
    """The command that made it, for example ``new`` or ``update: numpy``."""
    argosy: str
    recipe: PrefixRecipe
    settings: Settings
    runtime: str
    """The runtime that starts its commands."""
    image: str
    digest: str = ""
    """Content digest of the image; empty if Argosy did not build it."""
    size: int = 0
    trees: tuple[str, ...] = ()
    """Names of the folders in ``DIR/cache/trees`` that it needs."""
    commands: tuple[Wrapped, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = 1


class WrapReport(msgspec.Struct, frozen=True):
    """Result of a change of a prefix."""

    prefix: str
    version: Version
    previous: int = 0
    """Number of the version before; 0 for a new prefix."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
