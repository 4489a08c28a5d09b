"""The story of `argosy launch`: an image and a command become a script that stands alone, and that script is run."""

from __future__ import annotations

from argosy.launch.grounds import find_site, plan_here
from argosy.launch.plan import plan_launch
from argosy.launch.records import LaunchPlan, LaunchRequest
from argosy.launch.shape import Wanted
from argosy.launch.story import Launched, launch, write_script

__all__ = [
    "LaunchPlan",
    "LaunchRequest",
    "Launched",
    "Wanted",
    "find_site",
    "launch",
    "plan_here",
    "plan_launch",
    "write_script",
]
