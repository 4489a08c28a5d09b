"""Turn what uv says while it installs into progress for people: which package, bytes, time left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec

from argosy.progress import render_amount

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
BEGUN = re.compile(r"Downloading (?P<name>\S+) \((?P<size>[\d.]+)(?P<unit>[KMG]iB)\)")
ENDED = re.compile(r"Downloaded (?P<name>\S+)")
STAGES = (
    (re.compile(r"Resolved (\d+) packages?"), "fetching {0} packages"),
    (re.compile(r"Building (\S+)"), "building {0}"),
    (re.compile(r"Prepared (\d+) packages?"), "installing {0} packages"),
    (re.compile(r"Installed (\d+) packages?"), "compiling the byte code of {0} packages"),
)
"""What uv says at the end of a stage, and what therefore begins (uv 0.13)."""


class UvProgress(msgspec.Struct):
    """Remembers what is being downloaded.

    Attributes
    ----------
    tell
        Gets a line where there is something to say.
    sizes
        Bytes of each file that uv found worth naming: it says nothing of small ones.
    """

    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sizes: dict[str, float] = msgspec.field(default_factory=dict)
    ended: set[str] = msgspec.field(default_factory=set)
    begun: float = 0.0

    def hear(self, line: str) -> None:
        """Take one line of uv's; lines that tell a person nothing, as the list at its end, are dropped."""
        if found := BEGUN.search(line):
            self.begun = self.begun or self.clock()
            self.sizes[found["name"]] = float(found["size"]) * UNITS[found["unit"]]
            self.tell(self._amount())
        elif found := ENDED.search(line):
            self.ended.add(found["name"])
            self.tell(self._amount())
        else:
            for pattern, text in STAGES:
                if found := pattern.search(line):
                    self.tell(text.format(found[1]))

    def _amount(self) -> str:
        done = sum(size for name, size in self.sizes.items() if name in self.ended)
        waited = [name for name in self.sizes if name not in self.ended]
        amount = render_amount(done, sum(self.sizes.values()), self.clock() - self.begun)
        more = f" and {len(waited) - 1} more" if len(waited) > 1 else ""
        return f"downloading {max(waited, key=self.sizes.__getitem__)}{more}: {amount}" if waited else f"got {amount}"
