"""The records of an environment file, each with the line it stands on; they never touch a disk."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import quote

import msgspec

from argosy.core.errors import UsageError
from argosy.core.redact import redact

PYPI = "https://pypi.org/simple"
"""The index that pip and uv ask where none is named."""


class Where(msgspec.Struct, frozen=True, order=True):
    """A line of a user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        """Render as editors and compilers do."""
        return f"{self.file}:{self.line}"


class Note(msgspec.Struct, frozen=True):
    """Something that was read and not followed, or followed in another way than written: said, never an error."""

    text: str
    where: Where | None = None

    def __str__(self) -> str:
        """Render with its origin first."""
        return f"{self.where}: {self.text}" if self.where else self.text


class PipKind(StrEnum):
    """Where the package of a pip line comes from."""

    INDEX = "index"
    URL = "url"
    VCS = "vcs"
    LOCAL = "local"


class PipIndex(msgspec.Struct, frozen=True):
    """Where a package has to come from: an index, or a `flat` one, which is a folder or a page of links to files."""

    address: str
    flat: bool = False


class PipLine(msgspec.Struct, frozen=True):
    """One package that pip is asked for.

    Attributes
    ----------
    text
        The line as it was written, variables not expanded: for messages.
    name
        Normalised name, empty where only the package itself knows it (a path, a bare URL).
    spec
        What uv is given, variables expanded; may hold a secret.  Empty for a local package, see `path`.
    path
        Of a local package: as written, and absolute once it was looked up on the disk.
    extras, marker
        Of a local package: ``[test,gpu]`` and ``python_version < "3.12"``.
    hashes
        ``sha256:…`` and its like.
    settings
        ``KEY=VALUE`` for the package's build backend.
    index
        The one index that it comes from; None: any.
    """

    text: str
    name: str
    kind: PipKind
    where: Where
    spec: str = ""
    path: str = ""
    extras: str = ""
    marker: str = ""
    editable: bool = False
    hashes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    index: PipIndex | None = None

    @property
    def requirement(self) -> str:
        """The requirement as PEP 508 or uv's unnamed form has it, without hashes."""
        if not self.path:
            return self.spec
        url = "file://" + quote(self.path)
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{self.extras} @ {url}{marker}" if self.name else f"{url}{self.extras}{marker}"


class PipOption(msgspec.Struct, frozen=True):
    """An option for all packages, as ``--extra-index-url``; a flag's value is empty.

    Three are no option of pip's: ``own-index`` and ``own-links`` are for the packages alone that name them,
    ``default-links`` stands in PyPI's place.
    """

    name: str
    value: str
    where: Where

    @property
    def for_all(self) -> PipOption:
        """The same as an option of pip's: where hashes hold each package to its file, it may come from anywhere."""
        return PipOption(_OF_PIP.get(self.name, self.name), self.value, self.where)


_OF_PIP = {"own-index": "extra-index-url", "own-links": "find-links", "default-links": "find-links"}


class Include(msgspec.Struct, frozen=True):
    """A file named by ``-r`` or ``-c``, relative to the file that names it."""

    path: str
    constraint: bool
    where: Where


Entry = PipLine | PipOption | Include


class CondaSpec(msgspec.Struct, frozen=True):
    """One conda package.

    Attributes
    ----------
    version
        Normalised: ``=1.26`` (1.26 and all below it), ``==1.26.4`` (exactly), ``>=1,<2``, ``>=1|==0.9``; empty: any.
    build
        Glob of the build string.
    extra
        What stood in brackets beside these, and ``url`` of a package named by its address.
    """

    name: str
    version: str
    build: str
    channel: str
    where: Where
    extra: tuple[tuple[str, str], ...] = ()


class CondaPin(msgspec.Struct, frozen=True):
    """One conda package to the byte: its file's address, and what the file must hash to; nothing is chosen.

    Attributes
    ----------
    sha256, md5
        Hexadecimal; one may be empty.
    """

    name: str
    version: str
    build: str
    url: str
    where: Where
    sha256: str = ""
    md5: str = ""


class Channel(msgspec.Struct, frozen=True):
    """A conda channel, by name or URL."""

    name: str
    where: Where


class Asked(msgspec.Struct, frozen=True):
    """A value that files may ask for differently: the Python version, a variable."""

    name: str
    value: str
    where: Where


class Source(msgspec.Struct, frozen=True):
    """A file that was read, and the sha256 of its bytes."""

    path: str
    sha256: str


class Part(msgspec.Struct, frozen=True):
    """What one file asks for, the files it includes with it.

    Attributes
    ----------
    includes
        Files that hold more of it, until they are read.
    complete
        Whether it is a lock that lists all pip packages: what they ask of each other was settled when it was made.
    """

    name: str = ""
    python: tuple[Asked, ...] = ()
    pip: tuple[PipLine, ...] = ()
    constraints: tuple[PipLine, ...] = ()
    overrides: tuple[PipLine, ...] = ()
    options: tuple[PipOption, ...] = ()
    conda: tuple[CondaSpec, ...] = ()
    conda_pins: tuple[CondaPin, ...] = ()
    interpreter: tuple[CondaSpec, ...] = ()
    channels: tuple[Channel, ...] = ()
    variables: tuple[Asked, ...] = ()
    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    includes: tuple[Include, ...] = ()
    unisolated: tuple[str, ...] = ()
    complete: bool = False


class Recipe(msgspec.Struct, frozen=True):
    """What all files together ask for.

    Attributes
    ----------
    python
        The version asked for, as conda writes it (``=3.11``, ``>=3.10,<3.12``); empty: any.
    python_where
        Where it is asked for; None where it is not.
    overrides
        What holds for a package whatever others ask of it.
    conda
        Packages that only conda can bring.
    conda_pins
        Conda packages that a lock names to the byte: all that conda brings, its Python with them.
    conda_limits
        What else is asked of conda packages, where they are needed at all: the versions of an earlier lock.
    interpreter
        What is asked of ``python`` and ``pip``: a base's own Python can stand for these.
    options
        pip's options in the order of the files: later ones win where only one can hold.
    exact
        Whether `pip` and `conda_pins` are all that is installed, so that nothing is chosen: the recipe of a lock of
        ours.  Each pip line's `text` is then ``name==version``, also where it is installed from an address.
    requested
        What was asked of conda when an exact recipe was locked, as conda writes it.
    unisolated
        Names of packages that are built after all others and see them: extensions that compile against torch.
    replaceable
        Names of packages of the base that another version may hide.
    """

    name: str = ""
    python: str = ""
    python_where: Where | None = None
    pip: tuple[PipLine, ...] = ()
    constraints: tuple[PipLine, ...] = ()
    overrides: tuple[PipLine, ...] = ()
    options: tuple[PipOption, ...] = ()
    conda: tuple[CondaSpec, ...] = ()
    conda_pins: tuple[CondaPin, ...] = ()
    conda_limits: tuple[CondaSpec, ...] = ()
    interpreter: tuple[CondaSpec, ...] = ()
    channels: tuple[Channel, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    exact: bool = False
    requested: tuple[str, ...] = ()
    unisolated: tuple[str, ...] = ()
    replaceable: tuple[str, ...] = ()

    @property
    def wants_conda(self) -> bool:
        """Tell whether conda has something to bring."""
        return bool(self.conda or self.conda_pins)


def bad_line(what: str, where: Where, text: str, *, hint: str = "") -> UsageError:
    """Make the error for a line that cannot be meant: what is wrong, where it stands, what to write instead."""
    return UsageError(what, evidence=f"{where}: {' '.join(redact(text).split())}", hint=hint)
