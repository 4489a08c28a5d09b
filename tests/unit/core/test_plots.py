"""Plots: equal data give equal bytes, every text is text, and nothing depends on colour or on the mode alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from argosy.core.errors import ToolMissing
from argosy.core.plots import (
    BACK,
    COLORS,
    DARK,
    SOFT,
    TEXT,
    Level,
    LinePlot,
    Plot,
    PlotLine,
    PlotRow,
    Point,
    RowPlot,
    describe,
    draw,
    number,
    size_label,
)

SPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert('1')</script> $x_{ \x1b[31m 漢"

LINES = LinePlot(
    "Bus bandwidth", "size of the message", "GB/s",
    (
        PlotLine("2 nodes", (Point(1 << 16, 1.5), Point(1 << 20, 40, 38, 44), Point(1 << 30, 90))),
        PlotLine(HOSTILE, (Point(1 << 16, 1), Point(1 << 30, 80))),
    ),
    (Level("the profile expects", 85),),
    in_bytes=True,
)  # fmt: skip
ROWS = RowPlot(
    HOSTILE, "ms",
    (
        PlotRow("bare", 13, 12, 15, accent=False, group="one start"),
        PlotRow("wrapped", 28, each=(27, 28, 31), limit=30, group="one start"),
        PlotRow(HOSTILE, 200, group="8 at once"),
    ),
    limit_label="budget",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _needs_matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")


@pytest.mark.parametrize("plot", [LINES, ROWS, RowPlot("Times", "s", ROWS.rows, log=True)])
def test_a_plot_is_xml_with_its_data_as_text_and_hostile_names_escaped(plot: Plot) -> None:
    root = ET.fromstring(draw(plot))  # noqa: S314 - our own
    words = [text.text or "" for text in root.iter(f"{SPACE}text")]
    assert root.findtext(f"{SPACE}title") == plot.title.replace("\x1b", "\ufffd")
    assert not list(root.iter(f"{SPACE}script"))
    assert any("<script>alert('1')</script> $x_{" in each for each in words)
    assert "\ufffd[31m" in (root.findtext(f"{SPACE}desc") or "")


def test_the_description_has_every_value() -> None:
    assert describe(LINES).startswith(
        "GB/s over size of the message; 2 nodes: 64 KiB: 1.5, 1 MiB: 40, 1 GiB: 90; </text>"
    )
    assert describe(LINES).endswith("the profile expects: 85")
    assert "one start: bare: 13 ms (12 to 15); one start: wrapped: 28 ms; 8 at once:" in describe(ROWS)


def test_equal_data_give_equal_bytes_in_another_process() -> None:
    program = (
        "from argosy.core.plots import *; print(draw(RowPlot('a', 'ms', (PlotRow('x', 1, 1, 2, limit=3),))), end='')"
    )
    texts = {
        subprocess.run(
            (sys.executable, "-c", program), env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_two_plots_on_a_page_share_no_element_id() -> None:
    ids = [
        [each.attrib["id"] for each in ET.fromstring(draw(plot)).iter() if "id" in each.attrib]  # noqa: S314
        for plot in (LINES, ROWS)
    ]
    assert len(set(ids[0])) == len(ids[0])
    assert not {each for each in (*ids[0], *ids[1]) if "figure" in each or "ax" in each}


def test_lines_differ_in_marker_and_dash() -> None:
    lines = tuple(PlotLine(str(n), (Point(1, n), Point(2, n))) for n in range(1, 4))
    root = ET.fromstring(draw(LinePlot("a", "x", "y", lines)))  # noqa: S314 - our own
    styles = [
        each.attrib["style"] for each in root.iter(f"{SPACE}path") if "stroke-width: 1.6" in each.get("style", "")
    ]
    dashes = {style.partition("stroke-dasharray")[2].partition(";")[0] for style in styles}
    assert len(dashes) == len(lines)


def test_every_colour_has_contrast_and_a_form_for_dark_mode() -> None:
    for color in (TEXT, SOFT, *COLORS):
        assert contrast(color, BACK) >= 4.5
        assert contrast(DARK[color], DARK[BACK]) >= 4.5
    assert all(f"{{fill:{dark}!important}}" in draw(ROWS) for dark in DARK.values())


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.1)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_matplotlib_the_error_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ToolMissing) as raised:
        draw(ROWS)
    assert "pip install 'argosy[report]'" in raised.value.hint


def test_numbers_and_sizes_are_short() -> None:
    assert [number(value) for value in (0, 0.01234, 12.34, 1234.5)] == ["0", "0.0123", "12.3", "1,234"]
    assert [size_label(size) for size in (4, 1 << 16, 3 << 20, 1 << 30)] == ["4 B", "64 KiB", "3 MiB", "1 GiB"]
