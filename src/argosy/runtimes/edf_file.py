"""The Environment Definition File of CSCS's Container Engine: read and written; TOML, and text only.

Its keys: https://github.com/eth-cscs/cscs-docs, docs/software/container-engine/edf.md.  In every value ``${NAME}`` is
expanded by the engine, so that a value of ours that holds it is written ``$${NAME}``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from argosy.errors import UsageError
from argosy.model import Late, Word
from argosy.nearest import nearest_word
from argosy.shell import in_double_quotes

KEYS: Mapping[str, type | tuple[type, ...]] = {
    "base_environment": (str, list),
    "image": str,
    "mounts": list,
    "workdir": str,
    "entrypoint": bool,
    "writable": bool,
    "env": dict,
    "annotations": dict,
    "devices": list,
}

ASTRAL = 0x10000
"""From here on a code point needs eight digits."""

SAFE = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Edf(msgspec.Struct, frozen=True):
    """What such a file says.

    Attributes
    ----------
    image
        A squashfs file, or a reference as enroot writes it: ``nvcr.io#nvidia/pytorch:24.03-py3``.
    mounts
        ``SOURCE:TARGET[:FLAGS]`` each.
    """

    image: Word = ""
    base: tuple[str, ...] = ()
    mounts: tuple[Word, ...] = ()
    workdir: Word = ""
    entrypoint: bool = True
    writable: bool = True
    env: tuple[tuple[str, Word], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def parse_edf(text: str, place: str) -> Edf:
    """Read an EDF.

    Raises
    ------
    UsageError
        When it is no TOML, has a key that the engine does not know, or a value of another type: with file and key.
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place} is no TOML", evidence=str(error), hint="see the line that it names") from error
    for key, value in table.items():
        if key not in KEYS:
            near = nearest_word(key, KEYS)
            known = f"the engine knows {', '.join(KEYS)}"
            raise UsageError(
                f"{place}: unknown key {key!r}", evidence=known, hint=f"did you mean {near}?" if near else ""
            )
        if not isinstance(value, KEYS[key]):
            raise UsageError(
                f"{place}: {key} is of the wrong type", evidence=f"{key} = {value!r}", hint="see the EDF reference"
            )
    base = table.get("base_environment", ())
    return Edf(
        image=table.get("image", ""),
        base=(base,) if isinstance(base, str) else tuple(map(str, base)),
        mounts=tuple(map(str, table.get("mounts", ()))),
        workdir=table.get("workdir", ""),
        entrypoint=table.get("entrypoint", True),
        writable=table.get("writable", True),
        env=tuple((name, str(value)) for name, value in table.get("env", {}).items()),
        annotations=tuple(_flat(table.get("annotations", {}))),
    )


def render_edf(edf: Edf) -> tuple[Word, ...]:
    """Render an EDF, one word per line; late where only the job knows a value."""
    lines: list[Word] = []
    if edf.base:
        lines.append(f"base_environment = [{', '.join(map(_text, edf.base))}]")
    lines += [_line("image", edf.image)] if edf.image else []
    if edf.mounts:
        lines.append(_mounts(edf.mounts))
    lines += [_line("workdir", edf.workdir)] if edf.workdir else []
    lines.append(f"entrypoint = {'true' if edf.entrypoint else 'false'}")
    lines.append(f"writable = {'true' if edf.writable else 'false'}")
    if edf.env:
        lines += ["[env]", *(_line(name, value) for name, value in edf.env)]
    if edf.annotations:
        lines += ["[annotations]", *(f"{name} = {_text(value)}" for name, value in edf.annotations)]
    return tuple(lines)


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Join dotted and nested names: both ways to write annotations are one."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        whole = f"{prefix}{name}"
        found += _flat(value, f"{whole}.") if isinstance(value, dict) else [(whole, str(value))]
    return found


def _line(name: str, value: Word) -> Word:
    text = _value(value)
    return Late(f"{name} = {text.expression}") if isinstance(text, Late) else f"{name} = {text}"


def _mounts(mounts: tuple[Word, ...]) -> Word:
    texts = [_value(mount) for mount in mounts]
    if not any(isinstance(text, Late) for text in texts):
        return f"mounts = [{', '.join(map(str, texts))}]"
    parts = [text.expression if isinstance(text, Late) else in_double_quotes(text) for text in texts]
    return Late(f"mounts = [{', '.join(parts)}]")


def _value(value: Word) -> Word:
    return Late(f'\\"{value.expression}\\"') if isinstance(value, Late) else _text(value)


def _text(value: Word) -> str:
    """Write a TOML string: what the engine would expand is doubled, and control characters are escaped."""
    plain = str(value).replace("${", "$${")
    return '"' + "".join(SAFE.get(c, c if c.isprintable() else _escape(c)) for c in plain) + '"'


def _escape(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < ASTRAL else f"\\U{ord(sign):08x}"
