"""Show results side by side: as a table, as plots, or as one HTML page; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from argosy.bench.result import ALGORITHM, BUS, GBIT, BenchKind, BenchResult, Figure
from argosy.core.pages import page_templates
from argosy.core.plots import Level, LinePlot, Plot, PlotLine, PlotRow, Point, RowPlot, draw, number, size_label
from argosy.core.render import align_rows, count
from argosy.version import VERSION

TEMPLATES = Path(__file__).with_name("templates")
MOST_DEVICES = 32
"""Devices in a plot of a node test: the slowest ones."""

Cells = tuple[str, ...]


def _table_of(results: Sequence[BenchResult]) -> tuple[Cells, ...]:
    """Return the rows of a table, the head first: one row for each value of each result, comparable ones together."""
    head: Cells
    if results[0].kind is BenchKind.COLLECTIVES:
        rows = _nodes_rows(results) if _over_nodes(results) else _size_rows(results)
        head = ("nodes", "message", "result", "bus GB/s", "bus Gb/s", "spread", "algorithm GB/s", "algorithm Gb/s")
    else:
        rows = _plain_rows(results)
        head = ("what", "quantity", "result", "value", "spread")
    return (*((*head, "ratio"),), *rows)


def _over_nodes(results: Sequence[BenchResult]) -> bool:
    return len({nodes for result in results for nodes in result.node_counts}) > 1


def _nodes_rows(results: Sequence[BenchResult]) -> Iterator[Cells]:
    """Yield a row for each number of nodes and each result: the message with the largest bus bandwidth."""
    for nodes in sorted({nodes for result in results for nodes in result.node_counts}):
        first: Figure | None = None
        for result in results:
            bus, algorithm = result.peak(nodes, BUS), result.peak(nodes, ALGORITHM)
            if bus and algorithm:
                yield _bandwidth_row(result, bus, algorithm, first)
                first = first or bus


def _size_rows(results: Sequence[BenchResult]) -> Iterator[Cells]:
    for size in sorted({figure.size for result in results for figure in result.figures}):
        first: Figure | None = None
        for result in results:
            pair = {each.quantity: each for each in result.figures if each.size == size}
            if BUS in pair and ALGORITHM in pair:
                yield _bandwidth_row(result, pair[BUS], pair[ALGORITHM], first)
                first = first or pair[BUS]


def _bandwidth_row(result: BenchResult, bus: Figure, algorithm: Figure, first: Figure | None) -> Cells:
    return (
        str(bus.nodes or "-"), size_label(bus.size), result.label, number(bus.value), number(bus.value * GBIT),
        _spread(bus), number(algorithm.value), number(algorithm.value * GBIT), _ratio(bus, first),
    )  # fmt: skip


def _plain_rows(results: Sequence[BenchResult]) -> Iterator[Cells]:
    for key in dict.fromkeys(figure.key for result in results for figure in result.figures):
        first: Figure | None = None
        for result in results:
            figure = next((each for each in result.figures if each.key == key), None)
            if figure:
                what = f"{figure.name}, {_at_once(figure.at_once)}" if result.kind is BenchKind.STARTUP else figure.name
                value = f"{number(figure.value)} {figure.unit}".rstrip()
                yield what, figure.quantity, result.label, value, _spread(figure), _ratio(figure, first)
                first = first or figure


def _spread(figure: Figure) -> str:
    return "" if figure.low == figure.high else f"{number(figure.low)} to {number(figure.high)}"


def _ratio(figure: Figure, first: Figure | None) -> str:
    return f"{figure.value / first.value:.2f} x" if first and first.value else ""


def _at_once(count: int) -> str:
    return f"{count} at once" if count > 1 else "one start" if count else "one cold start"


def render_table(results: Sequence[BenchResult]) -> str:
    """Render results as text: a heading, the table without empty columns, and the notes."""
    found = notes(results)
    return "\n".join([heading(results), "", *align_rows(compact_table(results)), *(["", *found] if found else [])])


def compact_table(results: Sequence[BenchResult]) -> tuple[Cells, ...]:
    """Return the table without columns that have a head only; a single result is named in the heading."""
    head, *rows = _table_of(results)
    kept = [
        index
        for index, name in enumerate(head)
        if any(row[index] for row in rows) and (len(results) > 1 or name != "result")
    ]
    return tuple(tuple(row[index] for index in kept) for row in (head, *rows))


def heading(results: Sequence[BenchResult]) -> str:
    """Return one line about results: what was measured, and by which jobs or files."""
    titles = " and ".join(dict.fromkeys(result.title for result in results))
    return f"{titles}: {', '.join(map(_describe, results))}"


def _describe(result: BenchResult) -> str:
    facts = ", ".join(filter(None, (result.site, result.date)))
    return f"{result.label} ({facts})" if facts else result.label


def notes(results: Sequence[BenchResult]) -> list[str]:
    """Return the notes of results; each names its result if there are several."""
    return [f"{result.label}: {note}" if len(results) > 1 else note for result in results for note in result.notes]


def plots_of(results: Sequence[BenchResult]) -> tuple[Plot, ...]:
    """Return the plots of results."""
    if results[0].kind is not BenchKind.COLLECTIVES:
        return tuple(_row_plots(results))
    by_size = _size_plot(results)
    return (_nodes_plot(results), by_size) if _over_nodes(results) else (by_size,)


def _point(x: float, figure: Figure) -> Point:
    several = figure.low != figure.high
    return Point(x, figure.value, figure.low if several else None, figure.high if several else None)


def _nodes_plot(results: Sequence[BenchResult]) -> Plot:
    lines = []
    for result in results:
        for quantity in (BUS, ALGORITHM) if len(results) == 1 else (BUS,):
            peaks = [(nodes, result.peak(nodes, quantity)) for nodes in result.node_counts]
            points = tuple(_point(nodes, peak) for nodes, peak in peaks if peak)
            lines.append(PlotLine(f"{quantity}, {result.label}" if len(results) > 1 else quantity, points))
    expected = results[0].expected
    known = tuple(Point(nodes, expected[nodes]) for nodes in results[0].node_counts if nodes in expected)
    if known:
        lines.append(PlotLine("bus bandwidth, expected by the profile", known))
    return LinePlot(f"{results[0].title}: bandwidth over nodes", "nodes", "GB/s", tuple(lines))


def _size_plot(results: Sequence[BenchResult]) -> Plot:
    lines = []
    for result in results:
        for nodes in result.node_counts or (0,):
            figures = [each for each in result.figures if each.quantity == BUS and each.nodes in (0, nodes)]
            several = (result.label,) if len(results) > 1 else ()
            name = ", ".join((*several, count(nodes, "node"))) if nodes else result.label
            lines.append(
                PlotLine(name, tuple(_point(each.size, each) for each in sorted(figures, key=lambda x: x.size)))
            )
    counts = {nodes for result in results for nodes in result.node_counts}
    expected = [(nodes, speed) for nodes, speed in sorted(results[0].expected.items()) if nodes in counts]
    levels = tuple(Level(f"expected, {count(nodes, 'node')}", speed) for nodes, speed in expected)
    title = f"{results[0].title}: bus bandwidth over message size"
    return LinePlot(
        title, "size of the message", "GB/s", tuple(lines), levels if len(counts) == 1 else (), in_bytes=True
    )


def _row_plots(results: Sequence[BenchResult]) -> Iterator[Plot]:
    """Yield a plot for each quantity of nodes, or one of all rows."""
    for quantity in dict.fromkeys(figure.quantity for result in results for figure in result.figures):
        pairs = [(r, figure) for r in results for figure in r.figures if figure.quantity == quantity]
        title, total = f"{results[0].title}: {quantity}", len(pairs)
        middle: tuple[PlotRow, ...] = ()
        if results[0].kind is BenchKind.NODES:
            median = statistics.median(figure.value for _, figure in pairs)
            middle = (PlotRow(f"median of {total} device(s)", median, accent=False),)
            pairs = sorted(pairs, key=lambda pair: pair[1].value)[:MOST_DEVICES]
            title += f", the slowest {MOST_DEVICES} of {total}" if total > MOST_DEVICES else ""
        else:
            title = results[0].title
            keys = list(dict.fromkeys((figure.at_once, figure.name) for _, figure in pairs))
            pairs.sort(key=lambda pair: (pair[1].at_once, keys.index((pair[1].at_once, pair[1].name))))
        rows = tuple(_bar(result, figure, several=len(results) > 1) for result, figure in pairs)
        yield RowPlot(title, pairs[0][1].unit or quantity, (*middle, *rows))


def _bar(result: BenchResult, figure: Figure, *, several: bool) -> PlotRow:
    point = _point(0, figure)
    group = _at_once(figure.at_once) if result.kind is BenchKind.STARTUP else ""
    name = f"{figure.name}, {result.label}" if several else figure.name
    return PlotRow(name, figure.value, point.low, point.high, figure.each, group=group)


def render_html(results: Sequence[BenchResult], command: str) -> str:
    """Render results as one self-contained HTML page.

    Parameters
    ----------
    command
        The command line that makes the page again.
    """
    return (
        page_templates(TEMPLATES)
        .get_template("bench.html")
        .render(
            argosy=VERSION,
            title=heading(results),
            rows=compact_table(results),
            plots=[Markup(draw(plot)) for plot in plots_of(results)],  # noqa: S704 - drawn plots escape their texts
            notes=notes(results),
            command=command,
        )
    )
