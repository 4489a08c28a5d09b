"""The report of `argosy bench startup` as a table and as a picture (SVG); text only."""

from __future__ import annotations

from html import escape

from argosy.bench.startup.model import CASES, Figure, StartupReport

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")
WIDTH, LEFT, BAR, GAP, HEAD = 720, 210, 18, 14, 40


def render_table(report: StartupReport) -> str:
    """Render milliseconds (median, quartiles) a row for each way, and its calls."""
    batches = _batches(report)
    head = ["", *(_named(each) for each in batches), "calls", "on the prefix's files"]
    rows = [head]
    for name in _names(report):
        figures = {figure.at_once: figure for figure in report.figures if figure.case == name}
        calls = next((each for each in report.calls if each.case == name), None)
        counts = ("", "")
        if calls:
            counts = (f"{calls.calls:,}", "" if calls.shared is None else f"{calls.shared:,}")
        rows.append([CASES[name], *(_milliseconds(figures.get(each)) for each in batches), *counts])
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    said = f"python -c {report.code!r} of {report.prefix}, by {report.runtime}; milliseconds: median (quartiles)"
    return "\n".join([said, "", *lines, *(["", *report.notes] if report.notes else [])])


def _milliseconds(figure: Figure | None) -> str:
    return f"{figure.median:.1f} ({figure.low:.1f}-{figure.high:.1f})" if figure else ""


def _named(at_once: int) -> str:
    return f"{at_once} at once" if at_once > 1 else "one" if at_once else "one, cold"


def _names(report: StartupReport) -> list[str]:
    return [name for name in CASES if any(figure.case == name for figure in report.figures)]


def _batches(report: StartupReport) -> list[int]:
    return sorted({figure.at_once for figure in report.figures})


def render_picture(report: StartupReport) -> str:
    """Render bars, a group for each number of starts; each group has a scale of its own, so that all can be read."""
    names, batches = _names(report), _batches(report)
    height = HEAD + len(batches) * (len(names) * BAR + 2 * GAP + BAR)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">',
        "<style>text { font: 12px sans-serif }</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="10" y="22">{escape(f"python -c {report.code!r}, by {report.runtime}")}</text>',
    ]
    top = HEAD
    for batch in batches:
        figures = [
            figure for name in names for figure in report.figures if (figure.case, figure.at_once) == (name, batch)
        ]
        parts.append(f'<text x="10" y="{top + BAR - 4}" font-weight="bold">{_named(batch)}</text>')
        parts += _bars(figures, names, top + BAR)
        top += len(names) * BAR + 2 * GAP + BAR
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(figures: list[Figure], names: list[str], top: int) -> list[str]:
    longest = max(figure.median for figure in figures) or 1.0
    lines = []
    for number, figure in enumerate(figures):
        y, width = top + number * BAR, (WIDTH - LEFT - 90) * figure.median / longest
        colour = COLOURS[names.index(figure.case)]
        lines += [
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{figure.case}</text>',
            f'<rect x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{BAR - 5}" fill="{colour}"/>',
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{figure.median:.1f} ms</text>',
        ]
    return lines
