"""The lock: a JSON list of everything in an image, with digests.

The image's layer contains its lock, and the SIF file contains a copy as a data object. The same lock and base give
the same content digest.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any

import msgspec

from argosy.core.errors import ImageError
from argosy.core.parse import DIGEST, SHA256
from argosy.core.records import asdict, replace
from argosy.core.redact import redact
from argosy.core.toml_lines import find_fault

SCHEMA = 1

SPARSE = ("build", "url", "md5")
"""Fields of a package that the file omits if they are empty."""

TIME_END = 2**32
"""squashfs stores times in 32 bits."""

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\Z")
SYSTEM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
SYSTEM_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:^_-]*\Z")
"""Versions of Debian and RPM packages: an epoch ends with a colon, and a tilde marks a pre-release."""

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
    "ray-core": "ray",
}
"""conda packages whose Python module has another name, by which launchers know it."""


class SourceKind(StrEnum):
    """The kind of source of a package."""

    INDEX = "index"
    LOCAL = "local"
    VCS = "vcs"


class PackageKind(StrEnum):
    """The package manager that installed a package; it defines the form of names and versions."""

    PYPI = "pypi"
    CONDA = "conda"
    DEB = "deb"
    RPM = "rpm"


class LockedBase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base that the layer was built for."""

    reference: str
    """The base as the user named it: a path, or for example ``debian:bookworm``."""
    digest: str
    """``sha256:…`` of the base's bytes."""
    size: int
    """Size in bytes."""
    arch: str
    """Architecture by its Go name, for example ``amd64``."""
    system: str = ""
    """Name of the distribution, for example ``Debian GNU/Linux 12 (bookworm)``."""
    listed: bool = False
    """Whether the base is an image of Argosy that listed all its Python packages, which this lock lists, too."""

    def __post_init__(self) -> None:
        _check(DIGEST, self.digest, "base.digest")


class LockedPackage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A package, and the sha256 of each file that may provide it."""

    name: str
    version: str
    sha256: tuple[str, ...] = ()
    source: SourceKind = SourceKind.INDEX
    kind: PackageKind = PackageKind.PYPI
    build: str = ""
    """Build string of a conda package."""
    url: str = ""
    """Address without credentials: that of a conda package's file, or of a pip package that is not from an index."""
    md5: str = ""
    """Checksum from old channels that do not publish a sha256."""

    def __post_init__(self) -> None:
        system = self.kind in (PackageKind.DEB, PackageKind.RPM)
        name = {PackageKind.CONDA: CONDA_NAME, PackageKind.PYPI: NAME}.get(self.kind, SYSTEM_NAME)
        _check(name, self.name, "name of a package", "name")
        _check(BUILD, self.build, f"build of {self.name}", "build string")
        _check(MD5, self.md5, f"md5 of {self.name}", "md5 sum")
        _check(SYSTEM_VERSION if system else VERSION, self.version, f"version of {self.name}", "version")
        for digest in self.sha256:
            _check(SHA256, digest, f"sha256 of {self.name}")


class LockedSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that requested packages, and the sha256 of its bytes."""

    path: str
    sha256: str

    def __post_init__(self) -> None:
        _check(SHA256, self.sha256, f"sha256 of {self.path}")


class LockedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the image in addition to its packages; exactly one of `run`, `copy` and `url` is set."""

    run: tuple[str, ...] = ()
    copy: tuple[LockedSource, ...] = ()
    """Files and folders of the project, with their digests."""
    url: str = ""
    sha256: str = ""
    """Address and digest of a downloaded file."""
    to: str = ""
    """Target path of copies in the image."""
    before: str = ""
    """``packages`` for a step that runs before the packages are installed."""

    def __post_init__(self) -> None:
        if self.url:
            _check(SHA256, self.sha256, "sha256 of a step")

    def __str__(self) -> str:
        """Return the first command or file of the step."""
        return "".join((*self.run[:1], *(source.path for source in self.copy[:1]), self.url))


class LockedStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A build in another base, whose results are copied into the image."""

    name: str
    base: str
    copy: tuple[LockedSource, ...] = ()
    run: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    """Pairs of a path in the stage and a path in the image."""
    digest: str = ""
    """``sha256:…`` of the squashfs of its base."""
    pinned: str = ""
    """Reference of its base by digest, if it came from a registry."""


class Tools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Versions of the programs that built the image: other versions may write the same content as other bytes."""

    argosy: str
    uv: str = ""
    mksquashfs: str = ""
    rattler: str = ""


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an image."""

    base: LockedBase
    tools: Tools
    time: int
    """Modification time of all files, in seconds since 1970."""
    content: str
    """``sha256:…`` of the layer's content."""
    python: str = ""
    """Version of the base's Python; empty if the environment has no Python."""
    packages: tuple[LockedPackage, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    sources: tuple[LockedSource, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    """Name of the environment; may be empty."""
    requested: tuple[str, ...] = ()
    """Conda packages that were requested by name, in conda's syntax."""
    indexes: tuple[str, ...] = ()
    """pip options of the recipe that name package sources, for example ``extra-index-url https://…``."""
    system: bool = False
    """Whether the layer changes files outside ``/opt/argosy``: then a bind mount of that folder is not enough."""
    known_as: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Layout and labels of another tool that the image imitates: see `argosy.core.layout.PrefixLayout`."""
    unisolated: tuple[str, ...] = ()
    """Packages that were built last, against the installed packages."""
    steps: tuple[LockedStep, ...] = ()
    stages: tuple[LockedStage, ...] = ()
    """Other changes that a project file requested."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        _check(DIGEST, self.content, "content")
        if not 0 <= self.time < TIME_END:
            raise ValueError(f"squashfs cannot store the time {self.time}")

    @property
    def has_conda(self) -> bool:
        """Whether conda installed packages."""
        return any(package.kind is PackageKind.CONDA for package in self.packages)


def _check(pattern: re.Pattern[str], text: str, what: str, kind: str = "sha256 digest") -> None:
    if not pattern.match(text):
        raise ValueError(f"{what} is not a {kind}: {text!r}")


def render_lock(lock: Lock) -> str:
    """Render the lock as JSON: sorted keys, packages by name, no credentials, the same bytes for the same lock."""
    packages = sorted(lock.packages, key=lambda package: (package.name, package.version, package.kind))
    data = asdict(replace(lock, packages=tuple(packages)))
    data["base"]["reference"] = redact(lock.base.reference)
    for words in ("notes", "requested", "indexes"):
        data[words] = [redact(text) for text in data[words]]
    for package in data["packages"]:
        package["url"] = redact(package["url"])
        for word in [word for word in SPARSE if not package[word]]:
            del package[word]
    if not lock.base.listed:
        del data["base"]["listed"]
    for word in ("known_as", "labels"):
        if not data[word]:
            del data[word]
    # ASCII only: independent of the locale, and lone surrogates of file names survive.
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def python_names(lock: Lock) -> frozenset[str]:
    """Return the names of the packages by which Python knows them: conda's pytorch is torch."""
    return frozenset(
        PYTHON_NAMES.get(package.name, package.name) if package.kind is PackageKind.CONDA else package.name
        for package in lock.packages
    )


def lists_all_python(lock: Lock) -> bool:
    """Return whether the lock lists every package that Python sees in the image; it does not list files of steps."""
    return lists_python_of_base(lock) and not (lock.steps or lock.stages)


def lists_python_of_base(lock: Lock) -> bool:
    """Return whether the lock lists every package that Python sees, except those that steps may have added.

    The lock does not list the packages of a foreign base. The Debian bases of Argosy contain no Python packages, unless
    Debian's own are added (``+python3-mpi4py``), and conda's Python sees only its own.
    """
    own = any(package.kind is PackageKind.CONDA and package.name == "python" for package in lock.packages)
    debian = lock.base.reference.startswith("debian:") and "+python3-" not in lock.base.reference
    return own or debian or lock.base.listed


def parse_lock(text: str, where: str) -> Lock:
    """Parse a lock.

    `where` is the source of the text, for messages.

    Raises
    ------
    ImageError
        If the text is truncated, has a later schema, or has unknown, missing or invalid keys.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique_members)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, str(error) or "nested too deep") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise ImageError(
            f"{where} was written by a later version of Argosy",
            evidence=f"its schema is {schema}, this version knows {SCHEMA}",
            hint="update argosy",
        )
    if schema is None:
        raise _damaged(where, "it has no 'schema'")
    try:
        return msgspec.convert(data, Lock)
    except msgspec.ValidationError as error:
        fault = find_fault("", str(error), Lock)
        unknown = f"unknown key '{fault.key}'; {fault.hint}"
        raise _damaged(where, unknown if fault.unknown else f"{fault.key}: {fault.what}") from error


def _damaged(where: str, why: str) -> ImageError:
    hint = "build the image again, or extract the lock from the image again"
    return ImageError(f"cannot use the lock {where}", evidence=f"{where}: {why}", hint=hint)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a mapping; json and msgspec keep the last of several equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key '{next(key for key in keys if keys.count(key) > 1)}' appears twice")
    return found
