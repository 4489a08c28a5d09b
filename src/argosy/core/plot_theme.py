"""The colours of plots in light and dark mode, and the last touch that makes an SVG readable everywhere; pure.

matplotlib writes the light colours into each element, which any program can show. A style sheet in the file replaces
them in dark mode. Each plot has its own background, so it is readable on a page that ignores the mode.
"""

from __future__ import annotations

import re
from html import escape

TEXT, SOFT, GRID, BACK = "#1c1c1c", "#5a5a5a", "#d6d6d6", "#ffffff"
COLORS = ("#33608f", "#a83245", "#1b6b29", "#7a6a00", "#1c6f86", "#83265a", "#a14a14", "#00695e")
"""Colours of series; each has a contrast of 4.5 or more on white."""

DARK = {
    TEXT: "#ececec",
    SOFT: "#b4b4b4",
    GRID: "#44464a",
    BACK: "#17181a",
    **dict(
        zip(
            COLORS,
            ("#8fc1f0", "#ff9aa8", "#7fd694", "#e0cf5a", "#7fd3e8", "#e59ac8", "#f5b183", "#6fd9c8"),
            strict=True,
        )
    ),
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


def finish_svg(text: str, title: str, description: str) -> str:
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
