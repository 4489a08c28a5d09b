"""Names of processor architectures."""

from __future__ import annotations

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architecture as in ``uname -m`` -> its name in Go, Docker and image files, if that differs."""


def go_arch(machine: str) -> str:
    """Return the name in Go of an architecture as in ``uname -m``; an unknown one is returned unchanged."""
    return GO_NAMES.get(machine, machine)
