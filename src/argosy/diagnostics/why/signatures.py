"""Read the known errors: the user's, the system's and those that Argosy ships."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import parse_toml
from argosy.core.session import config_folder

DATA = Path(__file__).with_name("signatures")

FILES = (
    *("training", "distributed", "kernels", "builds", "tools", "frameworks", "serving", "data", "downloads"),
    *("memory", "disks"),
    *("containers", "podman", "runtimes", "images", "registries"),
    *("rocm", "gpus", "gpu-containers", "gpu-libraries", "gpu-peers", "offload", "intel"),
    *("libraries", "nccl", "infiniband", "fabrics", "mpirun", "mpi", "rendezvous"),
    *("fortran", "molecules", "simulation", "languages", "python", "models", "conda", "packages", "modules", "shell"),
    *("workflows", "waiting", "batch", "slurm-daemons", "slurm", "submit", "general", "symptoms"),
)
SHIPPED = tuple(DATA / f"{name}.toml" for name in FILES)
"""The files of known errors. The first pattern that matches a line names it, so special cases come first."""

Level = Literal["cause", "maybe", "end", "symptom", "warning"]


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known error."""

    name: str
    match: str
    """Regular expression, searched in the whole log; the line where it begins counts. ``^``, ``$`` and ``.`` keep to
    one line, ``\\s`` and ``[^x]`` do not. ``{name}`` in cause and fix is the text of its named group."""
    needs: tuple[str, ...] = ()
    """Words without digits. A line that matches contains at least one of them; empty if that is unknown."""
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    """Regular expressions, searched in the whole log. The signature counts only if each of ``also`` and none of
    ``unless`` is found, for example if a container is involved. ``^`` and ``$`` match at each line."""
    cause: str
    """The failure that the line proves. If the line alone does not tell why, ``often`` has the reasons."""
    often: tuple[str, ...] = ()
    """The usual reasons of the cause, the most frequent one first, each with how to recognise or solve it."""
    fix: str
    source: str = ""
    level: Level = "cause"
    """``cause``, ``maybe`` (not always the reason), ``end`` (the cause unless an unknown error precedes it),
    ``symptom`` (follows from another error) or ``warning`` (programs print it and go on)."""
    late: bool = False
    """Whether the scheduler writes the line only when the job ends, so that other errors precede what caused them."""
    stalled: bool = False
    """Whether the line counts only if it is the last output of a program that did not end by itself: its job still
    runs, reached its time limit or was cancelled."""
    example: str = ""
    """A line as a program prints it."""

    def __post_init__(self) -> None:
        """Reject an invalid regular expression, and needed words that could never be found."""
        for word in self.needs:
            if any(letter.isdigit() for letter in word):
                raise ValueError(f"{word!r}, a needed word of {self.name!r}, has a digit: leave digits out")
        for pattern in (self.match, *self.also, *self.unless):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} of {self.name!r} is not a regular expression: {error}") from error


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...] = ()


@functools.lru_cache(maxsize=64)
def _parse_file(text: str) -> _File:
    """Parse a file. Results are cached, because a program that judges many jobs reads the same files for each."""
    return msgspec.convert(parse_toml(text), _File)


def signature_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of signatures: the user's, the system's, then the shipped ones."""
    folder = config_folder(environment)
    own = (folder / "signatures.toml",) if folder else ()
    return (*(path for path in (*own, Path("/etc/argosy/signatures.toml")) if path.is_file()), *SHIPPED)


def read_signatures(files: Iterable[Path] = SHIPPED) -> tuple[Signature, ...]:
    """Read signatures. If two have the same name, the first one counts.

    Raises
    ------
    UsageError
        When a file cannot be read or is invalid.
    """
    found: dict[str, Signature] = {}
    for path in files:
        try:
            table = _parse_file(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                "cannot read the known errors",
                evidence=f"{path}: {error}",
                hint="a signature needs name, match, cause and fix; all other fields are optional",
            ) from error
        for signature in table.signature:
            found.setdefault(signature.name, signature)
    return tuple(found.values())
