"""The documentation website: its navigation, and the pages as they are rewritten for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tools.consoles import OUTPUTS, REPO, complete, complete_block, outputs_file, write_outputs
from tools.site_pages import FILES, FOLDERS, PAGES, github_anchor, site_markdown

DOCS = REPO / "docs"
SOURCES = [*(REPO / source for source in PAGES), *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def nav_pages(entries: object) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for value in entries.values():
            yield from nav_pages(value)
    elif isinstance(entries, list):
        for entry in entries:
            yield from nav_pages(entry)


def test_the_navigation_lists_every_page_exactly_once() -> None:
    listed = Counter(nav_pages(yaml.safe_load((REPO / "mkdocs.yml").read_text("utf-8"))["nav"]))
    pages = [*(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")), *PAGES.values()]
    assert sorted(Counter(pages) - listed) == [], "add these pages to nav in mkdocs.yml"
    assert sorted(listed - Counter(pages)) == [], "nav in mkdocs.yml names these pages twice, or they do not exist"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPO)))
def test_a_page_has_one_first_heading(path: Path) -> None:
    assert len(re.findall(r"^# \S.*$", BLOCK.sub("", path.read_text("utf-8")), re.MULTILINE)) == 1


def test_files_of_the_website_outside_docs_exist() -> None:
    assert [name for name in (*PAGES, *FOLDERS, *FILES) if not (REPO / name).exists()] == []


def test_a_page_reaches_the_website_without_comments_and_attributes() -> None:
    page = (
        "# Title\n\n<!-- needs: digits.sif -->\n\n```toml file=a.toml\nx = 1\n```\n\n```console lab soak\n$ true\n```\n"
    )
    written = '# Title\n\n```toml title="a.toml"\nx = 1\n```\n\n```console\n$ true\n```\n'
    assert site_markdown(page, "docs/how-to/none.md") == written


@pytest.mark.parametrize(
    ("source", "link", "written"),
    [
        ("docs/how-to/install.md", "../../README.md#install", "../project/readme.md#install"),
        ("docs/how-to/install.md", "../tutorial/first-image.md", "../tutorial/first-image.md"),
        ("README.md", "docs/how-to/wrap.md", "../how-to/wrap.md"),
        ("README.md", "docs/flow.svg", "../flow.svg"),
        ("README.md", "LICENSE", "../files/LICENSE"),
        ("README.md", "examples", "../examples/digits.md"),
        ("examples/ddp/README.md", "../digits/README.md", "digits.md"),
        ("docs/README.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_a_link_leads_to_the_place_in_the_website(source: str, link: str, written: str) -> None:
    assert site_markdown(f"see [this]({link}), not `[this]({link})`", source) == (
        f"see [this]({written}), not `[this]({link})`"
    )


def test_a_pipe_in_the_code_of_a_table_loses_its_backslash() -> None:
    assert site_markdown(r"| `str \| None` | a |", "docs/README.md") == "| `str | None` | a |"


def test_an_anchor_is_that_of_github() -> None:
    assert github_anchor("The `--site` option: a & b", "-") == "the---site-option-a--b"


def test_gaps_are_filled_and_long_ones_are_cut() -> None:
    expected = "made …files in 3 s\n…\nend, 5 kB"
    assert complete(expected, "made 12 files in 45 s\na\nb\nend, 7 MB\n") == "made 12 files in 3 s\na\nb\nend, 5 kB"
    lines = "".join(f"line {number}\n" for number in range(20))
    filled = complete(expected, f"made files in 1 s\n{lines}end, 1 kB\n")
    assert filled is not None
    assert filled.splitlines()[8:] == ["line 7", "[12 more lines]", "end, 5 kB"]
    assert complete(expected, "something else\n") is None


def test_a_long_line_is_cut() -> None:
    filled = complete("packages …", "packages " + "name==1.0, " * 100)
    assert filled is not None
    assert re.search(r"name==1\.0, \[\d+ more characters\]$", filled)
    assert len(filled) < 280


def test_a_command_without_a_record_that_matches_keeps_its_gap() -> None:
    body = "$ one \\\n  two\n…\n$ three\nend\n"
    assert complete_block(body, []) == body
    assert complete_block(body, [("one \\\n  two", "a\nb\n")]) == "$ one \\\n  two\na\nb\n$ three\nend\n"
    assert complete_block("$ one\n…\nlast\n", [("one", "other\n")]) == "$ one\n…\nlast\n"


def test_a_record_names_no_path_and_no_day_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.consoles.OUTPUTS", tmp_path)
    write_outputs(DOCS / "how-to/wrap.md", [("ls", "/root/x and /root/cache/y\n")], {"/root": "/home/ada"})
    (file,) = tmp_path.rglob("*.json")
    assert file == tmp_path / "how-to/wrap.json"
    assert json.loads(file.read_text("utf-8")) == [["ls", "/home/ada/x and /home/ada/cache/y\n"]]


def test_every_record_belongs_to_a_page() -> None:
    pages = {outputs_file(path) for path in SOURCES}
    assert set(OUTPUTS.rglob("*.json")) - pages == set()
