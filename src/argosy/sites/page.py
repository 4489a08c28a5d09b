"""Render a site profile as one self-contained HTML page: node, partitions, open questions, and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.core.pages import page_templates
from argosy.sites.node_picture import picture_missing, render_picture
from argosy.sites.profile import Site
from argosy.sites.show import Row
from argosy.version import VERSION

TEMPLATES = Path(__file__).with_name("templates")


def render_site(site: Site, rows: Sequence[Row]) -> str:
    """Render the page of a site.

    Parameters
    ----------
    rows
        Values of the profile (`argosy.sites.show.explain_site`).
    """
    sections = [(name, tuple(own)) for name, own in groupby(rows, key=lambda row: row.key.partition(".")[0])]
    return (
        page_templates(TEMPLATES)
        .get_template("site.html")
        .render(
            argosy=VERSION,
            site=site,
            picture=Markup(render_picture(site)),  # noqa: S704 - the picture escapes its texts
            missing=picture_missing(site.node),
            sections=sections,
            sources=lambda row: row.source.split("; ") if row.source else [],
        )
    )
