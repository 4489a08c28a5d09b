r"""Read text between the quotes ``$'…'`` of bash, for example ``$'a\tb'``; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|c(?P<control>.)|(?P<sign>.))",
    re.DOTALL,
)

SIGNS: Mapping[str, str] = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True)) | {
    each: each for each in "\\'\"?"
}
"""Letter behind a backslash -> the character that it means; another letter keeps its backslash."""


def decode_ansi_text(text: str) -> str:
    """Replace the escapes in the text between ``$'`` and ``'``."""
    return ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    if sign := found["sign"]:
        return SIGNS.get(sign, found[0])
    if found["control"]:
        return chr(ord(found["control"]) & 0x1F)
    number = int(found["octal"], 8) & 0xFF if found["octal"] else int(found["hex"] or found["u"] or found["U"], 16)
    return chr(number) if number <= 0x10FFFF else found[0]  # noqa: PLR2004 - the last character of Unicode
