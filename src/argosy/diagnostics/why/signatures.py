"""The known errors: data files of patterns, each with its cause, what to do, and a public source."""

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
    level
        ``cause``; ``maybe`` where it need not be the reason; ``symptom`` where it follows from something else.
    example
        A line as it is really printed.
    """

    name: str
    match: str
    cause: str
    fix: str
    source: str = ""
    level: Level = "cause"
    example: str = ""

    def __post_init__(self) -> None:
        """Refuse a pattern that is none."""
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match of {self.name!r} is no regular expression: {error}") from error


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...] = ()


def signature_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Give the files of signatures, the user's before the system's and the shipped one."""
    home = environment.get("HOME", "")
    user = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    own = (Path(user) / "argosy/signatures.toml",) if user else ()
    return (*(path for path in (*own, Path("/etc/argosy/signatures.toml")) if path.is_file()), SHIPPED)


def read_signatures(files: Iterable[Path] = (SHIPPED,)) -> tuple[Signature, ...]:
    """Read signatures; where two have one name, the first is kept.

    Raises
    ------
    UsageError
        When a file cannot be read, or is not of this form.
    """
    found: dict[str, Signature] = {}
    for path in files:
        try:
            table = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                "a file of known errors cannot be used",
                evidence=f"{path}: {error}",
                hint="a signature has name, match, cause and fix; source, level and example may be there",
            ) from error
        for signature in table.signature:
            found.setdefault(signature.name, signature)
    return tuple(found.values())
