"""Time starts of commands, alternately. It needs only Python, and reads its task as JSON on standard input.

Input   {"cases": [{"name", "words", "env", "drop": [files]}], "at_once": [[copies, times], …], "cold": times}
Output  {name: {"1": [seconds, …], "cold": [seconds, …]}}

Before a cold start, the pages of the files in `drop` are dropped from memory (posix_fadvise(2)), which needs no
privilege; names and attributes stay in memory. Other load on the machine slows all cases alike, since they take turns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def start(case: Mapping[str, Any], copies: int, said: str) -> float:
    """Start several copies of a case at once, and return the seconds until the last one ended."""
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    ]
    begin = time.perf_counter()
    words, env = case["words"], case["env"]
    children = [os.posix_spawnp(words[0], words, env, file_actions=streams) for _ in range(copies)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    seconds = time.perf_counter() - begin
    if any(codes):  # a failed start is quick, and would look like a good result
        with open(said, errors="replace", encoding="utf-8") as file:  # noqa: PTH123 - without importing pathlib
            sys.exit(f"{case['name']} ended with {max(codes)}: {file.read()[-600:].strip()}")
    return seconds


def forget(paths: Iterable[str]) -> None:
    """Drop the pages of files, and of all files below folders, from memory."""
    for path in paths:
        inner = (f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
        for file in (path,) if os.path.isfile(path) else inner:  # noqa: PTH113 - without importing pathlib
            if os.path.islink(file) or not os.access(file, os.R_OK) or not os.path.isfile(file):  # noqa: PTH113, PTH114
                continue
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure(
    cases: Sequence[Mapping[str, Any]], asked: Mapping[str, Any], said: str
) -> dict[str, dict[str, list[float]]]:
    """Start every case once, then alternately, so that caches that a start fills help all cases alike."""
    taken: dict[str, dict[str, list[float]]] = {case["name"]: {} for case in cases}
    for case in cases:
        start(case, 1, said)
    for copies, times in asked["at_once"]:
        for turn in range(times):
            for case in _from(cases, turn):
                taken[case["name"]].setdefault(str(copies), []).append(start(case, copies, said))
    for turn in range(asked["cold"]):
        for case in _from(cases, turn):
            forget(case["drop"])
            taken[case["name"]].setdefault("cold", []).append(start(case, 1, said))
    return taken


def _from(cases: Sequence[Mapping[str, Any]], turn: int) -> list[Mapping[str, Any]]:
    first = turn % len(cases)
    return [*cases[first:], *cases[:first]]


if __name__ == "__main__":
    task = json.load(sys.stdin)
    json.dump(measure(task["cases"], task, sys.argv[1]), sys.stdout)
