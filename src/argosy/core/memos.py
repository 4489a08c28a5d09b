"""Remember small values in files of the cache, each of which can be found out again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.parse import decode_json
from argosy.core.shared_folders import read_regular_file
from argosy.core.store import atomic_file, make_folder, mark_used

T = TypeVar("T")


def read_memo(file: Path, kind: type[T], *, trust_others: bool = False) -> T | None:
    """Return the value that a file remembers; None if it is missing or damaged.

    Parameters
    ----------
    trust_others
        Whether to use a file of any user. In a cache of several users, each of them can write any file; without this
        argument, only files of this user and of root are used.
    """
    with suppress(OSError, msgspec.DecodeError):
        text = read_regular_file(file, own=not trust_others)
        mark_used(file)
        return decode_json(text, kind)
    return None


def write_memo(file: Path, value: object) -> None:
    """Write a value as JSON. An incomplete file is not used, so it is not flushed to the disk."""
    # The value is valid even if the cache cannot be written, or a path is not UTF-8, which JSON cannot store.
    with suppress(OSError, ArgosyError, UnicodeEncodeError):
        make_folder(file.parent)
        with atomic_file(file, force=True, flush=False) as beside:
            beside.write_bytes(msgspec.json.encode(value))


def remember_text(file: Path | None, ask: Callable[[], str]) -> str:
    """Return the text that a file remembers, of any user; without it, ask for the text, and remember it.

    Parameters
    ----------
    file
        None to remember nothing.
    """
    if file is None:
        return ask()
    text = read_memo(file, str, trust_others=True)
    if text is None:
        text = ask()
        write_memo(file, text)
    return text
