"""Follow the last line of output of each rank, and of the whole job."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

LAST_BYTES = 262_144
"""Bytes that are read from the end of a file when it is seen first, and at most per refresh."""

LONGEST_LINE = 400
LABEL = re.compile(r" *(?:(\d+): ?|\[(\d+)\] ?)(.*)")
"""The label of a rank, as srun, torchrun and hydra write it."""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Sequences that change colours, the cursor or the title of a terminal (ECMA-48, sections 5.4 and 8.3.89)."""


class LastOutput(msgspec.Struct, frozen=True):
    """The last line of output, and when it was written (seconds since 1970)."""

    line: str
    at: float


class OutputWatch:
    """Reads what was appended to the output files of a job since the last call.

    Parameters
    ----------
    output
        The job's output file; empty if it is not known.
    folder
        Folder with an output file for each rank, if the job has them.
    """

    def __init__(self, output: str, folder: Path | None) -> None:
        self._output = output
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self.job: LastOutput | None = None
        self.ranks: dict[int, LastOutput] = {}

    def read(self, ranks: Sequence[int]) -> None:
        """Read new output; `ranks` are the ranks whose own files are read, if they have any."""
        if self._output:
            self._read_job(Path(self._output))
        for rank in ranks if self.folder else ():
            self._read_rank(rank, Path(self.folder or "", f"rank-{rank}.log"))

    def _read_job(self, file: Path) -> None:
        found = self._appended(file)
        if not found:
            return
        lines, self.job = found
        for line in lines:
            if match := LABEL.fullmatch(line):
                self.ranks[int(match[1] or match[2])] = LastOutput(match[3], self.job.at)

    def _read_rank(self, rank: int, file: Path) -> None:
        found = self._appended(file)
        if found:
            self.ranks[rank] = found[1]
            self.job = max(filter(None, (self.job, found[1])), key=lambda output: output.at)

    def _appended(self, file: Path) -> tuple[list[str], LastOutput] | None:
        """Return new lines of a file, and the last one with the file's time; None if there are none."""
        try:
            with file.open("rb") as source:
                status = os.fstat(source.fileno())
                before = self._offsets.get(file, 0)
                source.seek(max(before if before <= status.st_size else 0, status.st_size - LAST_BYTES))
                data = source.read(LAST_BYTES)
                whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1  # an incomplete line is read again
                self._offsets[file] = source.tell() - len(data) + whole
        except OSError:
            return None
        lines = [clean_line(line) for line in re.split(r"[\r\n]+", data.decode(errors="replace"))]
        lines = [line for line in lines if line]
        return (lines, LastOutput(lines[-1], min(status.st_mtime, time.time()))) if lines else None


def clean_line(line: str) -> str:
    """Return a line without control characters, which could change the terminal, and cut to a sensible length."""
    plain = CONTROL.sub("", line).expandtabs(4)
    return "".join(c for c in plain if c.isprintable())[:LONGEST_LINE].rstrip()
