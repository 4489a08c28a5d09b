# noqa: INP001 - mkdocs loads it by its path
"""Hooks of mkdocs for the documentation website (mkdocs.yml, `make docs`)."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.files import File
from pygments.lexers.shell import BashSessionLexer

from tools.consoles import REPO
from tools.site_pages import FILES, PAGES, github_anchor, site_markdown


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does, because links rely on them, and accept only `$ ` as the prompt of consoles."""
    config.mdx_configs["toc"]["slugify"] = github_anchor
    # Pygments also takes `#`, `%` and `>` for prompts, with which lines of outputs begin.
    BashSessionLexer._ps1rgx = re.compile(r"^(\$ )(.*\n?)")  # noqa: SLF001 - it has no option for this
    BashSessionLexer._ps2 = "\0"  # noqa: SLF001 - likewise
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and files that lie outside docs/."""
    for source, name in (*PAGES.items(), *((path, f"files/{path}") for path in FILES)):
        files.append(File.generated(config, name, abs_src_path=str(REPO / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_more: Any) -> str:
    """Rewrite a page for the website."""
    names = {name: source for source, name in PAGES.items()}
    return site_markdown(markdown, names.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
