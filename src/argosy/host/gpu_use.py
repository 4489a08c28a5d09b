"""Parse what the vendors' tools report about the use of GPUs; pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping

import msgspec

from argosy.core.parse import parse_float, parse_json

MEBIBYTE = 1 << 20


class GpuUse(msgspec.Struct, frozen=True):
    """The use of one GPU."""

    index: int
    """Its number on the node, as the vendor's tool counts."""
    busy: float | None = None
    """Percent of the last interval in which it computed; None if the tool does not know."""
    used: int | None = None
    total: int | None = None
    """Bytes of its memory; None if the tool does not know."""
    processes: tuple[int, ...] = ()
    """Process ids that use it, as the node sees them."""


def parse_nvidia(gpus: str, processes: str = "") -> tuple[GpuUse, ...]:
    """Parse two replies of nvidia-smi with ``--format=csv,noheader``.

    Parameters
    ----------
    gpus
        Index, UUID, utilization, used and total memory in MiB, one line per GPU, without units.
    processes
        Process id and UUID, one line per process.
    """
    users: dict[str, list[int]] = {}
    for row in _rows(processes):
        if len(row) >= 2 and row[0].isdigit():  # noqa: PLR2004
            users.setdefault(row[1], []).append(int(row[0]))
    return tuple(
        GpuUse(int(row[0]), parse_float(row[2]), _bytes(row[3]), _bytes(row[4]), tuple(sorted(users.get(row[1], ()))))
        for row in _rows(gpus)
        if len(row) == 5 and row[0].isdigit()  # noqa: PLR2004
    )


def parse_amd(gpus: str, processes: str = "") -> tuple[GpuUse, ...]:
    """Parse the replies of ``rocm-smi --showuse --showmeminfo vram --json`` and ``rocm-smi --showpidgpus``.

    rocm-smi may print warnings before its JSON.
    """
    found = re.search(r"^\{.*\}", gpus, re.MULTILINE | re.DOTALL)
    try:
        cards = parse_json(found[0]) if found else {}
    except ValueError:
        return ()
    users = _amd_users(processes)
    return tuple(
        _amd_gpu(int(name.removeprefix("card")), card, users)
        for name, card in cards.items()
        if name.removeprefix("card").isdigit() and isinstance(card, dict)
    )


def _amd_gpu(index: int, card: Mapping[str, object], users: Mapping[int, list[int]]) -> GpuUse:
    used, total = (parse_float(str(card.get(f"VRAM Total {name}Memory (B)", ""))) for name in ("Used ", ""))
    return GpuUse(
        index,
        parse_float(str(card.get("GPU use (%)", ""))),
        None if used is None else int(used),
        None if total is None else int(total),
        tuple(users.get(index, ())),
    )


def _amd_users(text: str) -> dict[int, list[int]]:
    """Parse ``PID 7 is using 2 DRM device(s):`` and the line with their numbers."""
    users: dict[int, list[int]] = {}
    for match in re.finditer(r"^PID (\d+) is using [1-9]\d* DRM device\(s\):?\s*\n([\d ]+)$", text, re.MULTILINE):
        for index in match[2].split():
            users.setdefault(int(index), []).append(int(match[1]))
    return users


def parse_intel(text: str) -> tuple[GpuUse, ...]:
    """Parse the reply of ``xpu-smi dump`` with the metrics 0, 5 and 18; it lists no processes.

    The utilization is ``N/A`` on some systems (https://github.com/intel/xpumanager/issues/98).
    """
    head: list[str] = []
    found = []
    for row in _rows(text):
        if "DeviceId" in row:
            head = row
        elif head and len(row) == len(head) and (cells := dict(zip(head, row, strict=True)))["DeviceId"].isdecimal():
            used, share = (
                _bytes(cells.get("GPU Memory Used (MiB)", "")),
                parse_float(cells.get("GPU Memory Utilization (%)", "")),
            )
            total = round(used * 100 / share) if used and share else None
            found.append(GpuUse(int(cells["DeviceId"]), parse_float(cells.get("GPU Utilization (%)", "")), used, total))
    return tuple(found)


def _rows(text: str) -> Iterable[list[str]]:
    return ([cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row)


def _bytes(mebibytes: str) -> int | None:
    number = parse_float(mebibytes)
    return None if number is None else round(number * MEBIBYTE)
