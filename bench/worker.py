"""The measuring process: one task from a file, its answer to a file; it decides nothing and prints nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.mapping import run_memory_task
from bench.packing_ways import run_command_task, run_pack_task
from bench.starting import run_start_task
from bench.tasks import CommandTask, MemoryTask, PackTask, StartTask

TASKS: Mapping[str, tuple[type, Callable[[Any], object]]] = {
    "PackTask": (PackTask, run_pack_task),
    "CommandTask": (CommandTask, run_command_task),
    "StartTask": (StartTask, run_start_task),
    "MemoryTask": (MemoryTask, run_memory_task),
}


def main() -> None:
    """Carry out the task that the arguments name: KIND TASK-FILE ANSWER-FILE."""
    kind, given, got = sys.argv[1:]
    record, work = TASKS[kind]
    answer = work(msgspec.json.decode(Path(given).read_bytes(), type=record))
    Path(got).write_bytes(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
