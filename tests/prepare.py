"""Make beside the checks of the code what most tests of the lab and of builds wait for: two Debians, once per machine.

Making them is mostly waiting.  Nothing is judged here: where one cannot be made, the tests that need it say why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.conftest import why_no_lab
from tests.lab.slurm.conftest import kept_image

REPO = Path(__file__).parents[1]


def make_root() -> None:
    """Make the root file system of the lab's machines."""
    if not why_no_lab():
        subprocess.run((REPO / "lab/rootfs", "ensure"), check=False, stdout=subprocess.DEVNULL)


def make_base() -> None:
    """Make the base of nearly all images, and the smallest of these."""
    if os.geteuid() == 0:
        kept_image("small", "pip\n")


def main() -> None:
    """Make both at once."""
    with ThreadPoolExecutor() as beside:
        for made in [beside.submit(make_root), beside.submit(make_base)]:
            if error := made.exception():
                sys.stderr.write(f"prepare: {error}\n")


if __name__ == "__main__":
    main()
