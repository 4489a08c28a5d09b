"""The lock: what is in an image, to the byte, as JSON; it never decides what goes in.

A lock lies in the image's layer and beside it as a data object.  Same lock and base, same content digest.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from functools import cache
from typing import Any, NoReturn, get_args, get_type_hints

import msgspec

from argosy.core.errors import ImageError
from argosy.core.records import asdict, replace
from argosy.core.suggest import suggest_word

SCHEMA = 1

SPARSE = ("build", "url", "md5")
"""Fields of a package that are left out of the file where they are empty."""

TIME_END = 2**32
"""squashfs keeps times in 32 bits."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\Z")
SYSTEM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
SYSTEM_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:^_-]*\Z")
"""Of distributions' packages: an epoch stands before a colon, a tilde sorts before nothing."""

CONDA_NAME = re.compile(r"[a-z0-9_][a-z0-9_.+-]*\Z")
BUILD = re.compile(r"[A-Za-z0-9_.+-]*\Z")
MD5 = re.compile(r"([0-9a-f]{32})?\Z")

PYTHON_NAMES = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-base": "tensorflow",
    "jax-base": "jax",
    "jaxlib-base": "jaxlib",
}
"""conda packages that are imported and known to launchers by another name."""


class SourceKind(StrEnum):
    """Where a package came from."""

    INDEX = "index"
    LOCAL = "local"
    VCS = "vcs"


class PackageKind(StrEnum):
    """Who installed a package, and so what its name and version mean."""

    PYPI = "pypi"
    CONDA = "conda"
    DEB = "deb"
    RPM = "rpm"


class LockedBase(msgspec.Struct, frozen=True):
    """The base that the layer was made for.

    Attributes
    ----------
    reference
        As it was given: a path, ``debian:bookworm``.
    digest
        ``sha256:…`` of the base's bytes.
    size
        Bytes.
    arch
        Go's name of the architecture: ``amd64``.
    system
        The distribution's own name for itself: ``Debian GNU/Linux 12 (bookworm)``.
    """

    reference: str
    digest: str
    size: int
    arch: str
    system: str = ""

    def __post_init__(self) -> None:
        _check(DIGEST, self.digest, "base.digest")


class LockedPackage(msgspec.Struct, frozen=True):
    """A package, and the sha256 of each file that may stand for it.

    Attributes
    ----------
    url
        Address without credentials: of a conda package's file, or of a pip package that comes from no index.
    build, md5
        Of a conda package: its build string, and the checksum of old channels that know no sha256.
    """

    name: str
    version: str
    sha256: tuple[str, ...] = ()
    source: SourceKind = SourceKind.INDEX
    kind: PackageKind = PackageKind.PYPI
    build: str = ""
    url: str = ""
    md5: str = ""

    def __post_init__(self) -> None:
        system = self.kind in (PackageKind.DEB, PackageKind.RPM)
        name = {PackageKind.CONDA: CONDA_NAME, PackageKind.PYPI: NAME}.get(self.kind, SYSTEM_NAME)
        _check(name, self.name, "a package's name", "name")
        _check(BUILD, self.build, f"build of {self.name}", "build string")
        _check(MD5, self.md5, f"md5 of {self.name}", "md5 sum")
        _check(SYSTEM_VERSION if system else VERSION, self.version, f"version of {self.name}", "version")
        for digest in self.sha256:
            _check(SHA256, digest, f"sha256 of {self.name}")


class LockedSource(msgspec.Struct, frozen=True):
    """A file that asked for packages, and the sha256 of its bytes."""

    path: str
    sha256: str

    def __post_init__(self) -> None:
        _check(SHA256, self.sha256, f"sha256 of {self.path}")


class LockedStep(msgspec.Struct, frozen=True):
    """A change of the image beside its packages; one of `run`, `copy` and `url` says what.

    Attributes
    ----------
    copy
        Files and folders of the project, with their digests.
    url, sha256
        Of a file that was fetched.
    to
        Where copies go in the image.
    before
        ``packages`` for a step that comes before them.
    """

    run: tuple[str, ...] = ()
    copy: tuple[LockedSource, ...] = ()
    url: str = ""
    sha256: str = ""
    to: str = ""
    before: str = ""

    def __post_init__(self) -> None:
        if self.url:
            _check(SHA256, self.sha256, "sha256 of a step")

    def __str__(self) -> str:
        """Say it in a few words."""
        return "".join((*self.run[:1], *(source.path for source in self.copy[:1]), self.url))


class LockedStage(msgspec.Struct, frozen=True):
    """Something made in another base, of which the image has the results: path there, path in the image.

    Attributes
    ----------
    digest
        ``sha256:…`` of the squashfs of its base; empty in the locks of older versions.
    pinned
        Its base by digest, where it came from a registry.
    """

    name: str
    base: str
    copy: tuple[LockedSource, ...] = ()
    run: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    pinned: str = ""


class Tools(msgspec.Struct, frozen=True):
    """Versions of the programs that made the image: other ones may give other bytes of the same content."""

    argosy: str
    uv: str = ""
    mksquashfs: str = ""
    rattler: str = ""


class Lock(msgspec.Struct, frozen=True):
    """All that is in an image.

    Attributes
    ----------
    python
        Version of the base's Python; empty where the environment has none.
    time
        The one time that all files carry, in seconds since 1970.
    content
        ``sha256:…`` of the layer's content.
    name
        Of the environment; empty where it has none.
    requested
        What was asked of conda by name, as conda writes it.
    indexes
        pip's options of the recipe that say where packages come from: ``extra-index-url https://…``.
    system
        Whether the layer changes files outside ``/opt/argosy``: then binding that folder alone is not enough.
    known_as, labels
        What makes it look as another tool would have made it: see `argosy.core.layout.Guise`.
    unisolated
        Packages that were built after all others, and saw them.
    steps, stages
        What a project file asked for beside packages.
    """

    base: LockedBase
    tools: Tools
    time: int
    content: str
    python: str = ""
    packages: tuple[LockedPackage, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    sources: tuple[LockedSource, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    requested: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    system: bool = False
    known_as: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    unisolated: tuple[str, ...] = ()
    steps: tuple[LockedStep, ...] = ()
    stages: tuple[LockedStage, ...] = ()
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        _check(DIGEST, self.content, "content")
        if not 0 <= self.time < TIME_END:
            raise ValueError(f"time {self.time} is none that squashfs can keep")


def _check(pattern: re.Pattern[str], text: str, what: str, kind: str = "sha256 digest") -> None:
    if not pattern.match(text):
        raise ValueError(f"{what} is no {kind}: {text!r}")


def render_lock(lock: Lock) -> str:
    """Render the lock as JSON: sorted keys, packages by name, no credential, the same bytes for the same lock."""
    from argosy.core.redact import redact  # noqa: PLC0415 - reading a lock, as each start does, needs none of it

    packages = sorted(lock.packages, key=lambda package: (package.name, package.version, package.kind))
    data = asdict(replace(lock, packages=tuple(packages)))
    data["base"]["reference"] = redact(lock.base.reference)
    for words in ("notes", "requested", "indexes"):
        data[words] = [redact(text) for text in data[words]]
    for package in data["packages"]:
        package["url"] = redact(package["url"])
        for word in [word for word in SPARSE if not package[word]]:
            del package[word]
    for word in ("known_as", "labels"):
        if not data[word]:
            del data[word]
    # ASCII only: the same in every locale, and a lone surrogate of a file name survives.
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def python_names(lock: Lock) -> frozenset[str]:
    """Give the names by which the packages of an image are known to Python's world: conda's pytorch is torch."""
    return frozenset(
        PYTHON_NAMES.get(package.name, package.name) if package.kind is PackageKind.CONDA else package.name
        for package in lock.packages
    )


def lists_all_python(lock: Lock) -> bool:
    """Tell whether Python sees no package in the image but those of the lock.

    The packages of a foreign base are not listed, nor is what a step brought; Debian as we make it has none, and
    conda's Python sees its own alone.
    """
    own = any(package.kind is PackageKind.CONDA and package.name == "python" for package in lock.packages)
    debian = lock.base.reference.startswith("debian:") and "torch" not in lock.base.reference  # +python3-torch
    return (own or debian) and not (lock.steps or lock.stages)


def parse_lock(text: str, where: str) -> Lock:
    """Parse a lock.

    Parameters
    ----------
    where
        What the text was read from, for messages.

    Raises
    ------
    ImageError
        When it is cut off, of a later schema, has a word that is not known, or lacks one.
    """
    try:
        data = json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, str(error) or "nested too deep") from error
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        raise ImageError(
            f"{where} was written by a later version of Argosy",
            evidence=f"its schema is {data['schema']}, this version knows {SCHEMA}",
            hint="update argosy",
        )
    try:
        lock: Lock = _convert(data, Lock, "lock")
    except (ValueError, TypeError) as error:
        raise _damaged(where, str(error)) from error
    return lock


def _damaged(where: str, why: str) -> ImageError:
    hint = "build the image again, or take the lock out of the image once more"
    return ImageError(f"{where} is no lock that can be used", evidence=f"{where}: {why}", hint=hint)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twins = sorted({key for key in keys if keys.count(key) > 1})
    if twins:
        raise ValueError(f"'{twins[0]}' is there twice")
    return dict(pairs)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _convert(data: Any, kind: Any, where: str) -> Any:
    """Convert JSON to a record, strictly: a wrong type or an unknown word is an error that says where."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _convert_record(data, kind, where)
    if getattr(kind, "__origin__", None) is tuple:
        return _convert_tuple(data, get_args(kind), where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(data)
    # Not isinstance: True would pass for 1.
    if type(data) is not kind:
        raise TypeError(f"{where} is {type(data).__name__}, not {kind.__name__}")
    return data


def _convert_record(data: Any, kind: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{where} is {type(data).__name__}, not an object")
    hints = _hints(kind)
    for key in data:
        if key not in hints:
            near = suggest_word(key, hints)
            raise ValueError(f"{where} knows no '{key}'" + (f"; did you mean '{near}'?" if near else ""))
    required = kind.__struct_fields__[: -len(kind.__struct_defaults__) or None]
    if missing := [name for name in [*required, *(["schema"] if kind is Lock else [])] if name not in data]:
        raise ValueError(f"{where} has no '{missing[0]}'")
    return kind(**{key: _convert(value, hints[key], f"{where}.{key}") for key, value in data.items()})


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert_tuple(data: Any, kinds: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise TypeError(f"{where} is {type(data).__name__}, not a list")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(data)
    if len(data) != len(kinds):
        raise ValueError(f"{where} has {len(data)} items, not {len(kinds)}")
    return tuple(_convert(item, kind, f"{where}[{n}]") for n, (item, kind) in enumerate(zip(data, kinds, strict=True)))
