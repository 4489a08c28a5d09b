"""Read the logs of a run: of a large one its beginning and its end."""

from __future__ import annotations

from pathlib import Path

from argosy.errors import UsageError

MOST_BYTES = 1 << 20
"""Of each log, from its beginning, where NCCL and RCCL say what they found, and from its end."""


def read_ends_of(path: str) -> str:
    """Read the beginning and the end of a log.

    Raises
    ------
    UsageError
        When it cannot be read.
    """
    try:
        with Path(path).open("rb") as source:
            head = source.read(MOST_BYTES)
            size = source.seek(0, 2)
            source.seek(max(len(head), size - MOST_BYTES))
            return (head + b"\n" + source.read()).decode(errors="replace")
    except FileNotFoundError as error:
        raise UsageError(f"there is no log {path!r}", hint="give a file, or the number of a job") from error
    except OSError as error:
        raise UsageError(f"the log {path} cannot be read", evidence=str(error), hint="check the path") from error
