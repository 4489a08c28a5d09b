"""The story of `argosy build`: an environment file and a base become an image; the base is never rebuilt.

read the recipe -> open the base -> find a room in it -> install into the layer -> lock -> pack -> write the image
"""

from __future__ import annotations

from argosy.build.report import BuildReport, BuildRequest, Timing
from argosy.build.story import build

__all__ = ["BuildReport", "BuildRequest", "Timing", "build"]
