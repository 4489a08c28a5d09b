"""Try settings on a user's own program: several ways to run it, in turns in one job, compared round by round."""

from __future__ import annotations

from argosy.ways.comparing import Compared, compare, parse_runs, render_table
from argosy.ways.plan import Way, parse_ways
from argosy.ways.story import launch_ways, read_report, report_of

__all__ = [
    "Compared",
    "Way",
    "compare",
    "launch_ways",
    "parse_runs",
    "parse_ways",
    "read_report",
    "render_table",
    "report_of",
]
