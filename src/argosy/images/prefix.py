"""Read a prefix of wrapped commands: the current version, and the image of that version.

::

    DIR/bin -> versions/2/bin      the link to the current version: one rename switches all commands at once
    DIR/versions/2/bin/python      a wrapped command: a few lines of sh
    DIR/versions/2/start.sh        the code that the commands share
    DIR/versions/2/image.sif       the image, or a link to it
    DIR/versions/2/inside          the content of DIR inside the container
    DIR/versions/2/wrap.json       the request, and its result
    DIR/activate, DIR/modulefiles  the same commands for a shell and for `module`
    DIR/cache                      unpacked trees, for runtimes that cannot mount an image file
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
    """Return the number of the current version of a prefix; None if the folder is not a prefix."""
    try:
        match = _TARGET.match(os.readlink(prefix / SWITCH))  # noqa: PTH115 - asked at every start: one system call
    except (OSError, ValueError):
        return None
    return int(match[1]) if match else None


def version_folder(prefix: Path, number: int) -> Path:
    """Return the folder of a version."""
    return prefix / VERSIONS / str(number)


def image_of_prefix(prefix: Path) -> Path | None:
    """Return the image of the current version of a prefix; None if the folder is not a prefix."""
    number = current_version(prefix)
    if number is None:
        return None
    return next(iter(sorted(version_folder(prefix, number).glob("image*"))), None)
