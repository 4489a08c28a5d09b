"""Render self-contained HTML pages: one style, no request to anywhere, and every text escaped."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).with_name("templates")
"""``page.html`` is the frame that other templates extend."""


def page_templates(folder: Path) -> Environment:
    """Return the templates of a folder, which may extend ``page.html``; they escape every text."""
    return Environment(
        loader=FileSystemLoader((folder, TEMPLATES)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
