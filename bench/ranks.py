"""A rank that maps the libraries of the image it runs in; started inside containers, so the standard library only.

ranks.py ALL FOLDER: map every shared library of the image's Python packages, wait until ALL ranks have done so, and
write down what of the mapped files' pages is its share.
"""

from __future__ import annotations

import mmap
import os
import site
import sys
import time
from pathlib import Path

SMALLEST = 64 << 10
MOST = 1 << 30
PAUSE = 0.01


def main() -> None:
    """Map, wait for all, measure, wait for all again, so that no rank leaves while another one still measures."""
    every, folder = int(sys.argv[1]), Path(sys.argv[2])
    mapped = libraries()
    size = sum(len(each) for each in mapped)
    # A process id is unique in its own process namespace only.
    name = os.urandom(8).hex()
    meet(folder / f"ready-{name}", "", every)
    meet(folder / f"share-{name}", f"{file_share()} {size}", every)


def libraries() -> list[mmap.mmap]:
    """Map shared libraries, largest first and 1 GiB at most, every page read in, as a loader's relocation does."""
    found = [path for root in site.getsitepackages() for path in Path(root).rglob("*.so*") if path.is_file()]
    sizes = {path: path.stat().st_size for path in found if not path.is_symlink()}
    mapped, total = [], 0
    for path, size in sorted(sizes.items(), key=lambda pair: (-pair[1], str(pair[0]))):
        if size < SMALLEST or total + size > MOST:
            continue
        with path.open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))
        total += size
    return mapped


def file_share() -> int:
    """Bytes of file pages that are this process's share (``Pss_File``: a page of n processes counts 1/n)."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_File:"):
            return int(line.split()[1]) << 10
    raise SystemExit("this kernel tells no Pss_File (Linux 5.4)")


def meet(mine: Path, text: str, every: int) -> None:
    """Leave a file and wait until every rank has left one of its kind."""
    part = mine.with_name(f"part-{mine.name}")
    part.write_text(text)
    part.rename(mine)
    kind = mine.name.partition("-")[0]
    while sum(1 for _ in mine.parent.glob(f"{kind}-*")) < every:
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
