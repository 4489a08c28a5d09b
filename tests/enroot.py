"""A built enroot with pyxis, for the tests that start it for real: it is in no package, so its place is given."""

from __future__ import annotations

import os

VARIABLE = "ARGOSY_LAB_ENROOT"
NO_ENROOT = f"{VARIABLE} names no folder with a built enroot and pyxis (lab/README.md)"


def built_enroot() -> str:
    """Give the folder that is laid over a machine of the lab; empty where none is given."""
    return os.environ.get(VARIABLE, "")
