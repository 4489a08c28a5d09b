"""Change samples at random, and the same way for the same seed: as bad disks, editors, proxies and attackers do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

TOKENS = (
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n\n", b"\x1b[4m", "²".encode(), "٣".encode()),
    *(b"9" * 5000, b"99999999999999999999", b"0-99999999999", b"1:2:3:4", b"-1", b"1e999", b"NaN", b"0x", b"%s%n"),
    *(b"null", b"[]", b"{}", b'""', b"true", b"[1]", b"1", b"'", b'"', b"`", b"\\", b"$(", b"${"),
    *(b"<<EOF\n", b"&a *a"),
    *(
        b"[" * 3000,
        b"{" * 300,
        b'{"a":' * 3000,
        b"(" * 300,
        b"A" * 70_000,
        b" " * 5000,
        b"=" * 40,
        b"|" * 40,
        b"," * 40,
    ),
    *(b"https://[", b"file://", b"../" * 40, b"@", b";", b"#", b"!", b"--", b"-", b"~", b"*", b"%"),
)
"""Texts that parsers are known to fail on: numbers, nesting, quotes, encodings, line ends and addresses."""

LONGEST = 400_000
"""Bytes of an input; repetitions must not grow without bound."""


def _flip(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _set_word(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    """Write an extreme number in the place of four or eight bytes, as in a damaged header."""
    size = chance.choice((2, 4, 8))
    at = chance.randrange(len(data))
    value = chance.choice((0, 1, (1 << (8 * size)) - 1, 1 << (8 * size - 1), len(data)))
    data[at : at + size] = (value % (1 << (8 * size))).to_bytes(size, "little")


def _insert(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.choice(TOKENS)


def _replace(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    first, last = _span(data, chance)
    data[first:last] = chance.choice(TOKENS)


def _replace_value(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    """Replace what follows a sign of assignment, up to the end of the value."""
    signs = [at for at, byte in enumerate(data[:20_000]) if byte in b"=:|"]
    if signs:
        first = chance.choice(signs) + 1
        rest = bytes(data[first:])
        length = min((rest.find(stop) for stop in (b"\n", b" ", b",", b"|", b"}") if stop in rest), default=len(rest))
        data[first : first + max(length, 1)] = chance.choice(TOKENS)


def _delete(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    first, last = _span(data, chance)
    del data[first:last]


def _repeat(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    first, last = _span(data, chance)
    data[first:first] = data[first:last] * chance.choice((1, 2, 50))


def _truncate(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    del data[chance.randrange(len(data)) :]


def _splice(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    """Go on with the end of another sample."""
    other = chance.choice(others)
    data[chance.randrange(len(data)) :] = other[chance.randrange(len(other) + 1) :]


def _swap_lines(data: bytearray, chance: random.Random, _others: Sequence[bytes]) -> None:
    lines = bytes(data).split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    data[:] = b"\n".join(lines)


def _span(data: bytearray, chance: random.Random) -> tuple[int, int]:
    first = chance.randrange(len(data))
    return first, min(len(data), first + chance.choice((1, 2, 4, 8, 32, 200)))


CHANGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    *(_flip, _set_word, _insert, _insert, _replace, _replace_value, _replace_value),
    *(_delete, _repeat, _truncate, _splice, _swap_lines),
)


def mutate(samples: Sequence[bytes], chance: random.Random) -> bytes:
    """Give one sample with one to six changes."""
    data = bytearray(chance.choice(samples))
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        if not data:
            break
        chance.choice(CHANGES)(data, chance, samples)
        del data[LONGEST:]
    return bytes(data)
