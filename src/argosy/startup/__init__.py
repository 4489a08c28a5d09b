"""What a start costs: a wrapped command beside the bare program, the plain runtime and a script-heavy wrapper."""

from argosy.startup.records import Calls, Case, Figure, StartupReport, StartupRequest
from argosy.startup.story import measure_startup

__all__ = ["Calls", "Case", "Figure", "StartupReport", "StartupRequest", "measure_startup"]
