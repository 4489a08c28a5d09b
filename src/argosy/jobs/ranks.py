"""Read what each rank of a run said of itself: host, cores, GPUs; pure.

One line a rank, words of the form ``name=value``, as ``rank.sh`` beside the job script writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that choose GPUs, the lowest level first."""


class RankFacts(msgspec.Struct, frozen=True):
    """What one rank was given.

    Attributes
    ----------
    local
        Its number on its node.
    restart
        Of which run of a job that was requeued it is.
    cores
        The cores it may use, as a list of ranges: read back, not what was asked for.
    devices
        GPU device nodes that it sees.
    visible
        Its variables of visible GPUs, as they are.
    """

    rank: int
    local: int
    host: str
    restart: int = 0
    cores: str = ""
    devices: int = 0
    visible: tuple[tuple[str, str], ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs that it can use: the device nodes, or fewer where a variable lists fewer."""
        return min([self.devices, *(len(value.split(",")) for _, value in self.visible)])


def parse_ranks(text: str, job: str = "") -> tuple[RankFacts, ...]:
    """Read the lines of a run, of the last one where a job ran several times; what is no such line is passed over.

    The tasks of an array note theirs in one place; `job` is the number of one of them.
    """
    ranks = list(_ranks(text, job))
    last = max((each.restart for each in ranks), default=0)
    mine = {(each.rank, each.host): each for each in ranks if each.restart == last}
    return tuple(sorted(mine.values(), key=lambda each: (each.rank, each.host)))


def _ranks(text: str, job: str) -> Iterator[RankFacts]:
    for line in text.splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        if "rank" in words and "host" in words and not (job and words.get("job", job) != job):
            yield RankFacts(
                rank=_number(words["rank"]),
                local=_number(words.get("local", "")),
                host=words["host"],
                restart=_number(words.get("restart", "")),
                cores=words.get("cores", ""),
                devices=_number(words.get("devices", "")),
                visible=tuple((name, words[name]) for name in VISIBLE if name in words),
            )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def parse_cores(text: str) -> frozenset[int]:
    """Read a list of ranges: ``1-7,9``; a stride (``0-6:2``) as taskset may print it, too."""
    out: set[int] = set()
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdigit() and (last or first).isdigit():
            out |= set(range(int(first), int(last or first) + 1, _number(step) or 1))
    return frozenset(out)
