"""Read the output of programs from pipes, in blocks and in lines."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import IO

BLOCK_BYTES = 65536
LINE_END = re.compile(rb"\r?\n|\r(?!\n|$)")
"""A carriage return at the end of a block may be the first half of a line end."""


def read_blocks(stream: IO[bytes] | None, put: Callable[[bytes], None]) -> None:
    """Read a stream to its end, or until another thread closes it after an interrupt."""
    with contextlib.suppress(ValueError):
        while stream is not None and (block := os.read(stream.fileno(), BLOCK_BYTES)):
            put(block)


def read_lines(stream: IO[bytes] | None, put: Callable[[bytes], None], on_line: Callable[[str], None] | None) -> None:
    """Read a stream as `read_blocks` does, and pass on its lines that are not empty.

    A carriage return also ends a line, because progress bars write them.
    """
    if on_line is None:
        read_blocks(stream, put)
        return
    rest = b""

    def split(block: bytes) -> None:
        nonlocal rest
        put(block)
        *lines, rest = LINE_END.split(rest + block)
        for line in lines:
            _pass_on(line, on_line)

    read_blocks(stream, split)
    _pass_on(rest, on_line)


def _pass_on(line: bytes, on_line: Callable[[str], None]) -> None:
    if line.strip():
        on_line(line.decode(errors="replace").rstrip())


def decode_blocks(blocks: list[bytes]) -> str:
    """Return the text of all blocks."""
    return b"".join(blocks).decode(errors="replace")
