"""The bound on a hang: long, as tests also run on busy machines.  No test asserts a time."""

from __future__ import annotations

import os
import select
from pathlib import Path

PATIENCE_S = 900


def wait_until_written(pipe: Path) -> None:
    """Wait until a program writes to a named pipe."""
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([handle], [], [], PATIENCE_S)[0], f"nothing wrote to {pipe}"
    finally:
        os.close(handle)
