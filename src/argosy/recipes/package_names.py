"""Names that people write for a pip package that has another name in PyPI."""

from __future__ import annotations

from collections.abc import Mapping

PACKAGE_OF: Mapping[str, str] = {
    "cv2": "opencv-python-headless",  # opencv-python itself needs libGL, which images seldom have
    "opencv": "opencv-python-headless",
    "pil": "pillow",
    "pytorch": "torch",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow-gpu": "tensorflow",
    "yaml": "pyyaml",
}
"""Normalised name of a module, of a conda package or of an old package -> name of the package in PyPI."""


def suggest_package(name: str) -> str:
    """Return the hint for a name that PyPI does not have, or has only to point to another one; empty for others."""
    if name == "pkg-resources":
        return "remove this line: pip freeze of Debian and Ubuntu adds it by mistake, and no index has it"
    return f"{name} is in the package {PACKAGE_OF[name]}: write that name" if name in PACKAGE_OF else ""
