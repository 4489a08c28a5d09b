"""Read the known errors: TOML files of patterns, each with its cause, fix and public source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from argosy.core.errors import UsageError

SHIPPED = Path(__file__).with_name("signatures.toml")

Level = Literal["cause", "maybe", "symptom"]
LEVELS: tuple[Level, ...] = ("cause", "maybe", "symptom")


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known error.

    Attributes
    ----------
    match
        Regular expression, searched in each line.
    needs
        Words without digits. A line that matches contains at least one of them; empty if that is unknown.
    level
        ``cause``, ``maybe`` (not always the reason) or ``symptom`` (follows from another error).
    example
        A line as a program prints it.
    """

    name: str
    match: str
    needs: tuple[str, ...] = ()
    cause: str
    fix: str
    source: str = ""
    level: Level = "cause"
    example: str = ""

    def __post_init__(self) -> None:
        """Reject an invalid regular expression."""
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match of {self.name!r} is not a regular expression: {error}") from error


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...] = ()


def signature_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of signatures: the user's, the system's, then the shipped one."""
    home = environment.get("HOME", "")
    user = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    own = (Path(user) / "argosy/signatures.toml",) if user else ()
    return (*(path for path in (*own, Path("/etc/argosy/signatures.toml")) if path.is_file()), SHIPPED)


def read_signatures(files: Iterable[Path] = (SHIPPED,)) -> tuple[Signature, ...]:
    """Read signatures. If two have the same name, the first one counts.

    Raises
    ------
    UsageError
        When a file cannot be read or is invalid.
    """
    found: dict[str, Signature] = {}
    for path in files:
        try:
            table = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                "cannot read the known errors",
                evidence=f"{path}: {error}",
                hint="a signature needs name, match, cause and fix; needs, source, level and example are optional",
            ) from error
        for signature in table.signature:
            found.setdefault(signature.name, signature)
    return tuple(found.values())
