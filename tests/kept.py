"""The folder in which tests keep from run to run what is costly to make: the lab's, or one of the user's own."""

from __future__ import annotations

import os
from pathlib import Path

_OWN = "" if os.geteuid() == 0 else f"-{os.geteuid()}"
LAB = Path(os.environ.get("ARGOSY_LAB") or f"/var/tmp/argosy-lab{_OWN}")  # noqa: S108 - kept on purpose
