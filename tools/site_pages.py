# noqa: INP001 - a program's part, not a package
"""Rewrite the pages of the repository for the documentation website; tools/site_hooks.py gives them to mkdocs.

The pages are written for a repository viewer and for `tests/docs`. For the website,

- links to pages, files and folders outside `docs/` lead to their place in the website;
- HTML comments, such as the requirements of a page's test, are removed;
- fences get a form that mkdocs highlights (`toml file=argosy.toml`, `console lab`);
- gaps in console outputs are filled from the recorded outputs in `docs/outputs`.
"""

from __future__ import annotations

import os
import posixpath
import re

from tools.consoles import REPO, complete_block, read_outputs

PAGES = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "lab/README.md": "project/lab.md",
    "packaging/README.md": "project/packaging.md",
    "contrib/README.md": "project/contrib.md",
} | {
    f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md"
    for path in sorted((REPO / "examples").glob("*/README.md"))
}
"""Pages outside docs/, and where the website has them."""

FOLDERS = {"examples": "examples/digits.md"}
"""Folders of the repository that pages link, and the page that the website shows instead."""

FILES = ("LICENSE", "examples/lightning/train.py", "examples/from_python.py")
"""Other files that pages link; the website offers them for download, below files/."""

BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
NOT_HTML = re.compile(r"<(?=number>)")


def github_anchor(title: str, _separator: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def site_markdown(text: str, source: str) -> str:
    """Rewrite the Markdown of a page, whose path in the repository is `source`, for the website."""
    outputs = read_outputs(REPO / source)
    parts: list[str] = []
    end = 0
    for block in BLOCK.finditer(text):
        parts.append(_prose(text[end : block.start()], source))
        language, *words = block["info"].split() or ["text"]
        body = complete_block(block["body"], outputs) if language == "console" else block["body"]
        titles = [f' title="{word.removeprefix("file=")}"' for word in words if word.startswith("file=")]
        parts.append(f"```{language}{''.join(titles)}\n{body}```")
        end = block.end()
    return "".join((*parts, _prose(text[end:], source)))


def _prose(text: str, source: str) -> str:
    text = NOT_HTML.sub("&lt;", COMMENT.sub("", text)).replace("<details>", '<details markdown="1">')
    hidden: list[str] = []

    def hide(code: re.Match[str]) -> str:
        hidden.append(code[0].replace("\\|", "|"))  # mkdocs needs no backslash for a pipe in a table's code
        return f"\0{len(hidden) - 1}\0"

    text = LINK.sub(lambda link: _link(link, source), CODE.sub(hide, text))
    return re.sub("\0(\\d+)\0", lambda mark: hidden[int(mark[1])], text)


def _link(link: re.Match[str], source: str) -> str:
    """Point a link of a page to the website's place for its target."""
    target, anchor = link["target"], link["anchor"] or ""
    if re.match(r"[a-z]+:", target):
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    here = posixpath.dirname(_place(source))
    return f"{link['before']}{os.path.relpath(_place(path), here or '.')}{anchor})"


def _place(path: str) -> str:
    """Return the place in the website of a path in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path) or FOLDERS.get(path) or (f"files/{path}" if path in FILES else f"missing/{path}")
