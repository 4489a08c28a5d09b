"""Read the known errors: the user's, the system's and those that Argosy ships."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.parse import parse_toml
from argosy.core.render import count
from argosy.core.session import config_folder
from argosy.core.toml_lines import TomlFault, find_fault, load_toml

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

FILE = "signatures.toml"
"""The file of a user's or the system's own known errors."""
SYSTEM = Path("/etc/argosy")

IN_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
"""A name in braces, but not a variable of the shell."""

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
        """Reject invalid regular expressions, names in braces without a group, and words that could never be found."""
        for word in self.needs:
            if any(letter.isdigit() for letter in word):
                raise ValueError(f"{word!r}, a needed word of {self.name!r}, has a digit: leave digits out")
        for pattern in (self.match, *self.also, *self.unless):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} of {self.name!r} is not a regular expression: {error}") from error
        groups = re.compile(self.match).groupindex
        for text in (self.cause, *self.often, self.fix):
            if unknown := next((name for name in IN_BRACES.findall(text) if name not in groups), None):
                raise ValueError(f"'{{{unknown}}}' of {self.name!r} is not a group of its match: (?P<{unknown}>...)")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...] = ()


@functools.lru_cache(maxsize=64)
def _parse_file(text: str) -> _File:
    """Parse a file. Results are cached, because a program that judges many jobs reads the same files for each."""
    return msgspec.convert(parse_toml(text), _File)


class KnownErrors(msgspec.Struct, frozen=True):
    """Known errors, and notes on those of the user and the system that cannot be used."""

    signatures: tuple[Signature, ...] = ()
    notes: tuple[str, ...] = ()


def read_signatures() -> tuple[Signature, ...]:
    """Read the shipped known errors."""
    return tuple(known for path in SHIPPED for known in _parse_file(path.read_text(encoding="utf-8")).signature)


def read_known_errors(environment: Mapping[str, str]) -> KnownErrors:
    """Read the known errors of the user, the system and Argosy. If two have the same name, the first one counts.

    A mistake in the user's or the system's file costs only that entry: the others must work for everybody.
    """
    folder = config_folder(environment)
    own = [read_own_file(path) for path in (*((folder / FILE,) if folder else ()), SYSTEM / FILE)]
    found: dict[str, Signature] = {}
    for signature in (*(each for file in own for each in file.signatures), *read_signatures()):
        found.setdefault(signature.name, signature)
    return KnownErrors(tuple(found.values()), tuple(note for file in own for note in file.notes))


def read_own_file(path: Path) -> KnownErrors:
    """Read a file of the user or the system; a note describes the first invalid entry, which is left out."""
    try:
        text = path.read_text(encoding="utf-8")
        table = load_toml(text, str(path))
    except (FileNotFoundError, NotADirectoryError):
        return KnownErrors()
    except PermissionError:
        return _skipped(path, f"you have no permission to read it; its owner can change that: chmod a+r {path}")
    except (OSError, UnicodeDecodeError) as error:
        return _skipped(path, str(error))
    except ArgosyError as error:
        return KnownErrors(notes=(f"{error.evidence}; the known errors in this file are not used",))
    entries = table.get("signature", [])
    if not isinstance(entries, list):
        return _skipped(path, "write [[signature]] in two pairs of brackets")
    return _convert_entries(path, text, table, entries)


def _skipped(path: Path, why: str) -> KnownErrors:
    return KnownErrors(notes=(f"the known errors in {path} are not used: {why}",))


def _convert_entries(path: Path, text: str, table: Mapping[str, Any], entries: Sequence[Any]) -> KnownErrors:
    found: list[Signature] = []
    faults: list[str] = []
    for number, entry in enumerate(entries):
        try:
            found.append(msgspec.convert(entry, Signature))
        except msgspec.ValidationError as error:
            fault = find_fault(text, str(error), _File, ("signature", str(number)))
            name = entry.get("name", "") if isinstance(entry, dict) else ""
            faults.append(f"{_render_fault(path, fault)}; the known error{f' {name!r}' if name else ''} is not used")
    try:
        msgspec.convert({**table, "signature": []}, _File)
    except msgspec.ValidationError as error:
        faults.append(f"{_render_fault(path, find_fault(text, str(error), _File))}; its table is not used")
    more = f" (and {count(len(faults) - 1, 'more mistake')} in this file)" if len(faults) > 1 else ""
    return KnownErrors(tuple(found), tuple(f"{fault}{more}" for fault in faults[:1]))


def _render_fault(path: Path, fault: TomlFault) -> str:
    what = f"unknown key {fault.unknown!r}" if fault.unknown else fault.what
    return f"{path}:{fault.line}: {what}{f' ({fault.hint})' if fault.hint else ''}"
