"""Draw the timeline of a job as SVG; pure.

The colours come from the page's style sheet, so that the picture follows its light and dark modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from argosy.diagnostics.report.model import Moment, Phase

WIDTH, HEIGHT = 880, 30
"""Size of the timeline in pixels."""

CHARACTER = 7.5
"""Width of a character in pixels, to leave out texts that do not fit."""


def draw_timeline(moments: Sequence[Moment]) -> str:
    """Draw the phases of a job as a bar in proportion to their durations; empty for fewer than two moments."""
    if len(moments) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    first, span = moments[0].seconds, max(1.0, moments[-1].seconds - moments[0].seconds)
    label = escape(f"Timeline: {describe_phases(moments)}")
    start = _name_start(moments)
    parts = [f'<svg class="drawing" viewBox="0 0 {WIDTH} {HEIGHT + 2}" role="img" aria-label="{label}">']
    changes = [each for number, each in enumerate(moments) if not number or each.phase != moments[number - 1].phase]
    for before, after in pairwise([*changes, moments[-1]]):
        left, right = ((each.seconds - first) / span * WIDTH for each in (before, after))
        name = start if before.phase is Phase.START else before.phase
        text = f"{name} {render_seconds(after.seconds - before.seconds)}"
        parts.append(
            f'<g><title>{escape(text)}</title><rect x="{left:.1f}" y="1" width="{max(1, right - left):.1f}" '
            f'height="{HEIGHT}" class="{before.phase.name.lower()}"/>'
        )
        if len(text) * CHARACTER < right - left:
            parts.append(f'<text x="{(left + right) / 2:.1f}" y="20" class="middle">{escape(text)}</text>')
        parts.append("</g>")
    return "".join((*parts, "</svg>"))


def _name_start(moments: Sequence[Moment]) -> str:
    """Name the phase between the start and the first output, or the last start of a rank."""
    wrote = any(each.phase is Phase.RUN and each.text.endswith("first output") for each in moments)
    return "until the first output" if wrote else Phase.START


def describe_phases(moments: Sequence[Moment]) -> str:
    """Say how long each phase took, for example ``in the queue 5 s, running 2 min 10 s``."""
    return ", ".join(text for _, text in sum_phases(moments))


def sum_phases(moments: Sequence[Moment]) -> list[tuple[Phase, str]]:
    """Return the phases in their order, each with its name and how long it took in all."""
    start = _name_start(moments)
    took: dict[Phase, float] = {}
    for before, after in pairwise(moments):
        took[before.phase] = took.get(before.phase, 0.0) + after.seconds - before.seconds
    names = {phase: start if phase is Phase.START else phase for phase in took}
    return [(phase, f"{names[phase]} {render_seconds(took[phase])}") for phase in took if phase is not Phase.END]


def render_seconds(seconds: float) -> str:
    """Render a duration, for example ``75 s``, ``12 min 5 s`` or ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 - up to two minutes
        return f"{whole} s"
    if whole < 7200:  # noqa: PLR2004 - up to two hours
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
