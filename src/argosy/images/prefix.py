"""A prefix of wrapped commands on disk: which version its commands belong to, and that version's image; read only.

::

    DIR/bin -> versions/2/bin      the switch: one rename changes every command at once
    DIR/versions/2/bin/python      a few lines of sh
    DIR/versions/2/start.sh        what they share
    DIR/versions/2/image.sif       the image, or a link to one that lies elsewhere
    DIR/versions/2/inside          what DIR shows inside the container
    DIR/versions/2/wrap.json       what was asked, and what came of it
    DIR/activate, DIR/modulefiles  the same commands for a shell and for `module`
    DIR/cache                      unpacked trees, where the runtime mounts no image file
"""

from __future__ import annotations

import os
import re
from pathlib import Path

VERSIONS = "versions"
SWITCH = "bin"
RECORD = "wrap.json"

_TARGET = re.compile(rf"{VERSIONS}/([1-9]\d*)/bin\Z")


def current_version(prefix: Path) -> int | None:
    """Give the number of the version that the commands of a prefix belong to; None where it is no prefix."""
    try:
        match = _TARGET.match(os.readlink(prefix / SWITCH))  # noqa: PTH115 - asked at every start: one system call
    except (OSError, ValueError):
        return None
    return int(match[1]) if match else None


def version_folder(prefix: Path, number: int) -> Path:
    """Give the folder of one version."""
    return prefix / VERSIONS / str(number)


def image_of_prefix(prefix: Path) -> Path | None:
    """Give the image behind the commands of a prefix; None where it is no prefix."""
    number = current_version(prefix)
    if number is None:
        return None
    return next(iter(sorted(version_folder(prefix, number).glob("image*"))), None)
