"""Records of the contents of environment files; most have the file and line that they come from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import msgspec

from argosy.core.errors import UsageError
from argosy.core.redact import redact
from argosy.recipes.lock import LockedSource

PYPI = "https://pypi.org/simple"
"""The default index of pip and uv."""


class Where(msgspec.Struct, frozen=True, order=True):
    """A line of a user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        """Render as ``file:line``."""
        return f"{self.file}:{self.line}"


class Note(msgspec.Struct, frozen=True):
    """A remark for the user about something in a file that Argosy ignores or changes; it is not an error."""

    text: str
    where: Where | None = None

    def __str__(self) -> str:
        """Render with its position first."""
        return f"{self.where}: {self.text}" if self.where else self.text


class PipKind(StrEnum):
    """The kind of source of a pip package."""

    INDEX = "index"
    URL = "url"
    VCS = "vcs"
    LOCAL = "local"


class PipIndex(msgspec.Struct, frozen=True):
    """The index that must provide a package; a `flat` index is a folder or a page of links to files."""

    address: str
    flat: bool = False


class PipLine(msgspec.Struct, frozen=True):
    """One requested pip package."""

    text: str
    """The line as written, without expanded variables, for messages."""
    name: str
    """Normalised name. It is empty if only the package itself contains it (a path, a bare URL)."""
    kind: PipKind
    where: Where
    spec: str = ""
    """Requirement for uv with expanded variables; may contain a secret. Empty for a local package, see `path`."""
    path: str = ""
    """Path of a local package: as written, or absolute after `argosy.recipes.read` has found it."""
    extras: str = ""
    marker: str = ""
    """Extras and marker of a local package, for example ``[test,gpu]`` and ``python_version < "3.12"``."""
    editable: bool = False
    hashes: tuple[str, ...] = ()
    """Accepted hashes, for example ``sha256:…``."""
    settings: tuple[str, ...] = ()
    """``KEY=VALUE`` for the package's build backend."""
    index: PipIndex | None = None
    """The only index that may provide the package; None means any."""

    @property
    def requirement(self) -> str:
        """The requirement in the form of PEP 508, or uv's form for packages without a name; without hashes."""
        if not self.path:
            return self.spec
        url = "file://" + quote(self.path)
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{self.extras} @ {url}{marker}" if self.name else f"{url}{self.extras}{marker}"


class PipOption(msgspec.Struct, frozen=True):
    """An option for all packages, for example ``--extra-index-url``; the value of a flag is empty.

    pip does not have three of them: ``own-index`` and ``own-links`` serve only packages that name them, and
    ``default-links`` replaces PyPI.
    """

    name: str
    value: str
    where: Where

    @property
    def for_all(self) -> PipOption:
        """The option under pip's name: if hashes identify each file, any index may provide it."""
        return PipOption(_PIP_NAMES.get(self.name, self.name), self.value, self.where)


_PIP_NAMES = {"own-index": "extra-index-url", "own-links": "find-links", "default-links": "find-links"}


class Include(msgspec.Struct, frozen=True):
    """A file included by ``-r`` or ``-c``, relative to the including file."""

    path: str
    constraint: bool
    where: Where


Entry = PipLine | PipOption | Include


class CondaSpec(msgspec.Struct, frozen=True):
    """One conda package."""

    name: str
    version: str
    """Normalised: ``=1.26`` (1.26 and 1.26.*), ``==1.26.4`` (exactly), ``>=1,<2``, ``>=1|==0.9``; empty means any."""
    build: str
    """Glob pattern for the build string."""
    channel: str
    where: Where
    extra: tuple[tuple[str, str], ...] = ()
    """Other keys in brackets, and ``url`` if the package is given by its address."""


class CondaPin(msgspec.Struct, frozen=True):
    """One exact conda package file, with its address and digest."""

    name: str
    version: str
    build: str
    url: str
    where: Where
    sha256: str = ""
    md5: str = ""
    """Hexadecimal digits; one may be empty."""


class Channel(msgspec.Struct, frozen=True):
    """A conda channel, by name or URL."""

    name: str
    where: Where


class Asked(msgspec.Struct, frozen=True):
    """A value on which several files must agree: the Python version, or a variable."""

    name: str
    value: str
    where: Where


class Requests(msgspec.Struct, frozen=True):
    """The requests that a file and a whole recipe have in common."""

    name: str = ""
    pip: tuple[PipLine, ...] = ()
    constraints: tuple[PipLine, ...] = ()
    overrides: tuple[PipLine, ...] = ()
    """Requirements that replace those of other packages, as in uv."""
    options: tuple[PipOption, ...] = ()
    """pip options in the order of the files; later ones win."""
    conda: tuple[CondaSpec, ...] = ()
    """Packages that only conda can install."""
    conda_pins: tuple[CondaPin, ...] = ()
    """Exact conda packages of a lock: all packages that conda installs, including Python."""
    interpreter: tuple[CondaSpec, ...] = ()
    """Specifications of ``python`` and ``pip``, which the base's own Python may satisfy."""
    channels: tuple[Channel, ...] = ()
    sources: tuple[LockedSource, ...] = ()
    notes: tuple[Note, ...] = ()
    unisolated: tuple[str, ...] = ()
    """Names of packages that are built last, against the installed packages, for example extensions of torch."""


class Part(Requests, frozen=True):
    """The requests of one file and of the files that it includes."""

    python: tuple[Asked, ...] = ()
    variables: tuple[Asked, ...] = ()
    includes: tuple[Include, ...] = ()
    """Included files that were not read yet."""
    complete: bool = False
    """Whether the file is a lock of all pip packages, so that their requirements are already resolved."""


class Recipe(Requests, frozen=True):
    """The merged requests of all files."""

    python: str = ""
    """Requested version in conda's syntax (``=3.11``, ``>=3.10,<3.12``); empty means any."""
    python_where: Where | None = None
    """Position of that request; None if there is none."""
    conda_limits: tuple[CondaSpec, ...] = ()
    """Constraints for conda packages that may be needed, for example the versions of an earlier lock."""
    variables: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    """Whether `pip` and `conda_pins` list everything to install, as the recipe of an Argosy lock does. The `text`
    of each pip line is then ``name==version``, even if it is installed from an address."""
    requested: tuple[str, ...] = ()
    """The conda specifications from which an exact recipe was locked."""
    replaceable: tuple[str, ...] = ()
    """Names of packages of the base that another version may replace."""

    @property
    def wants_conda(self) -> bool:
        """Whether conda installs any package."""
        return bool(self.conda or self.conda_pins)


def render_sources(recipe: Recipe) -> str:
    """Render the names of a recipe's files for progress lines."""
    return ", ".join(Path(source.path).name for source in recipe.sources) or "none"


def bad_line(what: str, where: Where, text: str, *, hint: str = "") -> UsageError:
    """Return the error for an invalid line of a user's file."""
    return UsageError(what, evidence=f"{where}: {' '.join(redact(text).split())}", hint=hint)
