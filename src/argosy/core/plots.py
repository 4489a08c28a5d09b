"""Draw plots as SVG with matplotlib: lines over a size or a number, and rows of values with their spread.

matplotlib belongs to the extra ``argosy[report]``, and is imported when a plot is drawn. Equal data give equal bytes.
It writes the light colours into each element, which any program can show. A style sheet in the file replaces them in
dark mode. Each plot has its own background, so it is readable on a page that ignores the mode.
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

import msgspec

from argosy.core.errors import ToolMissing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT, SOFT, GRID, BACK = "#1c1c1c", "#5a5a5a", "#d6d6d6", "#ffffff"
COLORS = ("#33608f", "#a83245", "#1b6b29", "#7a6a00", "#1c6f86", "#83265a", "#a14a14", "#00695e")
DARK_COLORS = ("#8fc1f0", "#ff9aa8", "#7fd694", "#e0cf5a", "#7fd3e8", "#e59ac8", "#f5b183", "#6fd9c8")
"""Colours of series in light and in dark mode; each has a contrast of 4.5 or more on its background."""

DARK = {
    TEXT: "#ececec",
    SOFT: "#b4b4b4",
    GRID: "#44464a",
    BACK: "#17181a",
    **dict(zip(COLORS, DARK_COLORS, strict=True)),
}
"""Light colour -> its replacement in dark mode."""

PREAMBLE = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
ROOT = re.compile(r"<svg\b[^>]*>", re.DOTALL)
VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
ELEMENT_ID = re.compile(r'(?<=<g) id="[a-z_.\d]+"')
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
FONT = re.compile(r"'DejaVu Sans'(?:, [^;\"]*)?")
SCALE = 4 / 3
"""Pixels in a point."""

WIDTH = 7.2
"""Width of a plot in inches."""

LINE_HEIGHT, ROW_HEIGHT, ROWS_MARGIN = 3.6, 0.24, 1.0
"""Height of a line plot, of one row, and of the margins of a plot of rows, in inches."""

MARKERS, DASHES = "osD^vPX*", ("-", "--", "-.", ":")
"""Lines differ in marker and dash, too, so that nobody has to tell colours apart."""

MOST_TICKS = 12
MOST_NAME, MOST_TITLE = 44, 76
"""Characters of a name and of the title in a plot; the description has the whole texts."""
NEAR_LIMIT = 2.5
"""A limit up to this multiple of the value is near enough to collide with the number behind the bar."""
BAR_HEIGHT, BAR_ABOVE, SPREAD_BELOW = 0.42, 0.12, 0.25
"""A bar lies above the middle of its row, and the spread below the bar, so that both are visible in any colour."""

STYLE = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": TEXT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.facecolor": "#ffffff",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "argosy",
    "text.color": TEXT,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "xtick.labelcolor": TEXT,
    "ytick.color": SOFT,
    "ytick.labelcolor": TEXT,
}


class Point(msgspec.Struct, frozen=True):
    """A point of a line; `low` and `high` are the ends of its spread, None if there is none."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class PlotLine(msgspec.Struct, frozen=True):
    """A series of a line plot, its points in the order of x."""

    name: str
    points: tuple[Point, ...]


class Level(msgspec.Struct, frozen=True):
    """A value for comparison, drawn as a dashed line across a line plot."""

    name: str
    value: float


class LinePlot(msgspec.Struct, frozen=True):
    """Values over a size or a number, on a logarithmic axis whose ticks are the points: powers of two read well."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[PlotLine, ...]
    levels: tuple[Level, ...] = ()
    in_bytes: bool = False
    """Whether x is a size in bytes; its labels then have a unit."""


class PlotRow(msgspec.Struct, frozen=True):
    """A value of a plot of rows."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    """Ends of the spread; None if there is none."""
    each: tuple[float, ...] = ()
    """Single values, drawn as dots."""
    limit: float | None = None
    """Limit that the value should keep, drawn as a mark; None if there is none."""
    accent: bool = True
    """Whether the row stands out from the others."""
    group: str = ""
    """Heading above the row, written once for rows that follow each other."""


class RowPlot(msgspec.Struct, frozen=True):
    """Values side by side, one row for each."""

    title: str
    unit: str
    """Unit of all values, for the axis and the numbers."""
    rows: tuple[PlotRow, ...]
    log: bool = False
    """Whether the axis is logarithmic: points instead of bars, because a bar needs a zero."""
    limit_label: str = "limit"
    """Meaning of the rows' limits."""


Plot = LinePlot | RowPlot


def refuse_without_matplotlib() -> None:
    """Refuse to continue without matplotlib: before a job starts whose result is to be drawn.

    Raises
    ------
    ToolMissing
        If matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ToolMissing(
            "plots need matplotlib, which is not installed",
            evidence=f"for {sys.executable}",
            hint=f"install it with: {sys.executable} -m pip install 'argosy[report]'",
        )


def draw(plot: Plot) -> str:
    """Draw a plot as the text of an SVG file.

    Raises
    ------
    ToolMissing
        If matplotlib is not installed.
    """
    refuse_without_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - an optional package that takes half a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has fonts for all scripts
        if isinstance(plot, LinePlot):
            figure = Figure(figsize=(WIDTH, LINE_HEIGHT), layout="constrained")
            _draw_lines(figure.subplots(), plot)
        else:
            slots = len(plot.rows) + len(list(_headings(plot.rows)))
            figure = Figure(figsize=(WIDTH, ROWS_MARGIN + ROW_HEIGHT * slots), layout="constrained")
            _draw_rows(figure.subplots(), plot)
        return _finish_svg(_save(figure), plot.title, describe(plot))


def _save(figure: Figure) -> str:
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=nothing)
    return text.getvalue()


def _finish_svg(text: str, title: str, description: str) -> str:
    """Give an SVG of matplotlib a title, a description and dark mode, and remove what would clash inside a page.

    Parameters
    ----------
    description
        The content in words.
    """
    view = VIEW.search(text)
    if view is None:
        raise ValueError("the SVG has no viewBox")
    width, height = (float(size) for size in view.groups())
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="plot" '
        f'viewBox="0 0 {width:g} {height:g}" width="{width * SCALE:.0f}" height="{height * SCALE:.0f}" '
        f'role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n<style>{_dark_rules()}</style>"
    )
    text = ELEMENT_ID.sub("", PREAMBLE.sub("", text))
    text = FONT.sub("system-ui, 'DejaVu Sans', sans-serif", text)
    return NOT_XML.sub("\ufffd", ROOT.sub(lambda _: root, text, count=1))


def _dark_rules() -> str:
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{{rules}}}"


def describe(plot: Plot) -> str:
    """Return the values of a plot as text, for readers who cannot see it."""
    if isinstance(plot, RowPlot):
        groups = (f"{row.group}: " if row.group else "" for row in plot.rows)
        values = (f"{row.name}: {_value_text(row, plot.unit)}" for row in plot.rows)
        parts = [group + value for group, value in zip(groups, values, strict=True)]
    else:
        parts = [
            f"{line.name}: "
            + ", ".join(f"{_x_text(point.x, in_bytes=plot.in_bytes)}: {number(point.y)}" for point in line.points)
            for line in plot.lines
        ]
        parts += [f"{level.name}: {number(level.value)}" for level in plot.levels]
        parts = [f"{plot.y_label} over {plot.x_label}", *parts]
    return "; ".join(parts)


def number(value: float) -> str:
    """Render a value with three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - thousands


def size_label(size: float) -> str:
    """Render a size in bytes with its unit: ``64 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _x_text(value: float, *, in_bytes: bool) -> str:
    return size_label(value) if in_bytes else f"{value:g}"


def _value_text(row: PlotRow, unit: str) -> str:
    spread = ""
    if row.low is not None and row.high is not None and row.low != row.high:
        spread = f" ({number(row.low)} to {number(row.high)})"
    return f"{number(row.value)} {unit}".rstrip() + spread


def _draw_lines(axes: Axes, plot: LinePlot) -> None:
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xscale("log", base=2)
    for index, line in enumerate(plot.lines):
        _draw_line(axes, line, index)
    for index, level in enumerate(plot.levels):
        style = (0, (6 - index % 3, 2 + index % 3))
        axes.axhline(level.value, color=SOFT, linewidth=1.2, linestyle=style, zorder=1)
        text = f"{_short(level.name, MOST_NAME)}: {number(level.value)}"
        axes.annotate(text, (1.01, level.value), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    ticks = sorted({point.x for line in plot.lines for point in line.points})
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS) or 1]
    axes.set_xticks(ticks, [_x_text(tick, in_bytes=plot.in_bytes) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.set_title(_short(plot.title, MOST_TITLE))
    if len(plot.lines) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=2, borderaxespad=0)


def _draw_line(axes: Axes, line: PlotLine, index: int) -> None:
    color = COLORS[index % len(COLORS)]
    xs, ys = [point.x for point in line.points], [point.y for point in line.points]
    marker, dash = MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
    name = _short(line.name, MOST_NAME)
    axes.plot(xs, ys, color=color, marker=marker, markersize=5, linestyle=dash, linewidth=1.6, label=name)
    for point in line.points:
        if point.low is not None and point.high is not None:
            ends = [point.low, point.high]
            axes.plot([point.x, point.x], ends, color=color, linewidth=1, marker="_", markersize=6)


def _headings(rows: Sequence[PlotRow]) -> Iterator[tuple[int, str]]:
    """Yield index and heading of each row that begins a group."""
    before = ""
    for index, row in enumerate(rows):
        if row.group and row.group != before:
            yield index, row.group
        before = row.group


def _draw_rows(axes: Axes, plot: RowPlot) -> None:
    headings = dict(_headings(plot.rows))
    slot, ticks, names = 0, [], []
    if plot.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _position: number(value))
    for index, row in enumerate(plot.rows):
        if index in headings:
            text, place = _short(headings[index], MOST_TITLE), ("axes fraction", "data")
            axes.annotate(text, (0, slot), xycoords=place, va="center", weight="bold")
            slot += 1
        _draw_row(axes, row, slot, plot)
        ticks.append(slot)
        names.append(_short(row.name, MOST_NAME))
        slot += 1
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(slot - 0.4, -0.6)
    axes.grid(axis="x", linewidth=0.8)
    axes.set_axisbelow(True)
    _stretch(axes, plot)
    axes.set_xlabel(_short(plot.unit, MOST_TITLE))
    axes.set_title(_short(plot.title, MOST_TITLE))
    if any(row.limit is not None for row in plot.rows):
        axes.legend(loc="upper right", bbox_to_anchor=(1, 1.12), borderaxespad=0)


def _draw_row(axes: Axes, row: PlotRow, slot: int, plot: RowPlot) -> None:
    color = COLORS[0] if row.accent else SOFT
    if plot.log:
        axes.plot([row.value], [slot], color=color, marker="D", markersize=6, linestyle="")
    else:
        axes.barh([slot - BAR_ABOVE], [row.value], height=BAR_HEIGHT, color=color, linewidth=0)
    end, below = row.value, slot + SPREAD_BELOW
    if row.low is not None and row.high is not None and row.low != row.high:
        axes.plot([row.low, row.high], [below, below], color=TEXT, linewidth=1.2, marker="|", markersize=5)
        end = max(end, row.high)
    if row.each:
        axes.plot(row.each, [below] * len(row.each), color=TEXT, marker=".", markersize=4, linestyle="")
        end = max(end, *row.each)
    if row.limit is not None:
        label = None if axes.get_legend_handles_labels()[1] else plot.limit_label
        axes.plot(
            [row.limit], [slot], color=COLORS[1], marker="|", markersize=13, markeredgewidth=2, linestyle="",
            label=label or "_",
        )  # fmt: skip
    if row.limit is not None and end < row.limit < NEAR_LIMIT * end:
        end = row.limit  # the mark would lie on the number
    axes.annotate(
        _value_text(row, plot.unit), (max(end, 0), slot), (6, 0), textcoords="offset points", va="center",
        fontsize="small",
    )  # fmt: skip


def _stretch(axes: Axes, plot: RowPlot) -> None:
    """Make room for the numbers behind the longest bar."""
    ends = [each for row in plot.rows for each in (row.value, row.high, row.limit, *row.each) if each is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    if plot.log:
        axes.set_xlim(low / 1.5, high * (high / low) ** 0.45 * 1.5)
    else:
        axes.set_xlim(min(0.0, low * 1.1), (high or 1.0) * 1.4)
