"""The pages hold together: links lead somewhere, pictures are whole, and lists in prose match what the program has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from packaging.requirements import Requirement

from argosy.core import errors
from argosy.recipes.user_config import KEYS, variable_name
from argosy.runtimes.runtime import RUNTIMES, load_runtime
from examples.demo import summary
from tests.docs.conftest import Shop
from tests.docs.reading import read_page, run_page
from tools.consoles import agrees
from tools.make_reference import render_pages

REPO = Path(__file__).parents[2]
DOCS = REPO / "docs"
PAGES = [
    *(
        REPO / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "lab/README.md",
            "packaging/README.md",
            "contrib/README.md",
        )
    ),
    *sorted((REPO / "examples").rglob("README.md")),
    *sorted(DOCS.rglob("*.md")),
]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
OPENING = re.compile(r"^```([^\n]*)\n.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"console", "text", "sh", "toml", "yaml", "python", "json", "dockerfile"}
VARIABLE = re.compile(r"\bARGOSY_[A-Z_]+\b")

named = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(REPO)) for page in PAGES])


def anchors(page: Path) -> set[str]:
    """Give the anchors of a page's headings, by GitHub's rule."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text()))
    yield from (target for target in LINK.findall(text) if not target.startswith(("http://", "https://", "mailto:")))


@named
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name} -> {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name} -> {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    seen, todo = set[Path](), [REPO / "README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        found = {(page.parent / target.partition("#")[0]).resolve() for target in links(page)}
        todo += [path for path in found - seen - set(todo) if path.suffix == ".md"]
    assert set(DOCS.rglob("*.md")) - seen == set()


@named
def test_every_code_block_names_its_language(page: Path) -> None:
    if page.is_relative_to(DOCS) or page.name == "README.md":
        kinds = {opening.split()[0] if opening.split() else "" for opening in OPENING.findall(page.read_text())}
        assert kinds - LANGUAGES == set()


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_complete_and_describes_itself_in_text(picture: Path) -> None:
    root = ET.fromstring(picture.read_text())  # noqa: S314 - a file of this repository
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert (root.findtext(f"{space}title") or "").strip()
    assert (root.findtext(f"{space}desc") or "").strip()


def test_generated_pages_are_up_to_date() -> None:
    for name, text in render_pages().items():
        # Words, not lines: releases of click wrap differently.
        assert (DOCS / "reference" / name).read_text().split() == text.split(), "run: python tools/make_reference.py"


def test_every_exit_code_of_the_error_tree_is_explained() -> None:
    text = (DOCS / "reference/exit-codes.md").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ArgosyError)]
    codes = {kind.code for kind in kinds if kind is not errors.Stopped} | {errors.USER_PROGRAM_FAILURE, 130, 143}
    assert {code for code in codes if not re.search(rf"^\| {code} \|", text, re.MULTILINE)} == set()


def test_every_variable_that_the_program_reads_is_explained_and_no_other() -> None:
    files = [path for kind in ("*.py", "*.sh") for path in (REPO / "src").rglob(kind)]
    used = {name for path in files for name in VARIABLE.findall(path.read_text())} | set(map(variable_name, KEYS))
    told = set(VARIABLE.findall((DOCS / "reference/files-and-variables.md").read_text()))
    # Of the completion scripts, of docker's containers, of a help text, of a probe of sites validate.
    inner = {"ARGOSY_COMPLETE", "ARGOSY_UMASK", "ARGOSY_KEY", "ARGOSY_ODD"}
    assert told - {"ARGOSY_"} == used - inner


def test_every_key_of_a_configuration_file_is_explained() -> None:
    text = (
        (DOCS / "reference/files-and-variables.md").read_text().partition("The keys are")[2].partition(" An unknown")[0]
    )
    assert set(re.findall(r"`(\w+)`", text)) == set(KEYS)


SPOKEN = {"bwrap": "bubblewrap", "edf": "CSCS' Container Engine", "singularity": "SingularityCE"}
"""Runtimes that users know by another name."""


def test_the_page_of_what_is_tested_names_every_runtime_with_its_proof() -> None:
    text = (DOCS / "reference/status.md").read_text()
    rows = re.findall(r"^\| runtimes: (.*?) \| (.*) \|$", text, re.MULTILINE)
    for name in RUNTIMES.keys() - {"bare"}:
        word = re.compile(rf"\b{re.escape(SPOKEN.get(name, name))}\b(?!-)", re.IGNORECASE)
        states = [state for names, state in rows if word.search(names)]
        assert len(states) == 1, f"docs/reference/status.md has {len(states)} rows of the runtime {name}"
        assert ("rendered" in states[0]) == (load_runtime(name).proof == "rendered"), name


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    names = [Requirement(line).name for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    text = (DOCS / "explanation/dependencies.md").read_text()
    assert [name for name in names if not re.search(rf"^\| {re.escape(name)} \|", text, re.MULTILINE)] == []


def test_the_readme_shows_the_last_line_of_the_demonstration_as_it_is_printed() -> None:
    built = {"seconds": 41.2, "timings": [{"step": s, "seconds": 1.4} for s in ("base", "packages", "pack")]}
    printed = "test accuracy 0.98 · 2 ranks (gloo)\nTime for loading data and training: 9.10 seconds\n"
    shown = [line for line in (REPO / "README.md").read_text().splitlines() if line.startswith("test accuracy")]
    assert any(agrees(line, summary(printed, built, start=0.4)) for line in shown)


def test_the_readmes_claim_is_that_of_the_figures() -> None:
    claim = re.search(r"\[(\d+) times faster\]", (REPO / "README.md").read_text())
    figures = (DOCS / "reference/figures.md").read_text()
    measured = re.search(r"cold: times faster +\| +([\d.]+) x", figures)
    assert (claim and claim[1]) == (measured and measured[1].split(".")[0])
    assert claim


def test_measured_numbers_and_marked_gaps_may_differ_and_nothing_else() -> None:
    page = "made in 12 s (base 1, packages 2, pack 3)\n…\nend of a … line"
    assert agrees(page, "made in 7.5 s (base 10, packages 20, pack 30)\none\ntwo\nend of a longer line\n")
    assert agrees(page, "made in 7.5 s (base 10, packages 20, pack 30, clean up 2)\none\ntwo\nend of a longer line\n")
    assert agrees(page, "made in 1 s (base 1, packages 2, pack 3)\nend of a  line\n")
    assert not agrees(page, "made in 7.5 s (base 10, packages 20)\nend of a longer line\n")
    assert not agrees(page, "made in 7.5 s (base 1, packages 2, pack 3)\nend of a longer line\nmore\n")
    assert not agrees("", "something\n")
    assert not agrees("something", "")
    assert not agrees("4 ranks", "2 ranks\n")


def test_a_page_is_parsed_into_commands_and_outputs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: a b -->\n```sh file=x.sh\ntrue\n```\n```console\n$ one \\\n  two\nout\n$ three\n```\n")
    read = read_page(page)
    assert read.needs == ("a", "b")
    assert read.files == (("x.sh", "true\n"),)
    told = [(command.words, command.expected, command.line) for command in read.commands]
    assert told == [("one \\\n  two", "out", 6), ("three", "", 9)]


@pytest.mark.parametrize(
    ("block", "code", "text", "complaint"),
    [
        ("$ false\n", 1, "", "ends with code 1"),
        ("$ echo a\na\n", 0, "b\n", "prints something else"),
        ("$ echo a\n", 0, "a\n", "prints something else"),
    ],
)
def test_a_wrong_page_fails_with_its_line(block: str, code: int, text: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(f"```console\n{block}```\n")
    with pytest.raises(pytest.fail.Exception, match=rf"wrong.md:2: (?s:.*){complaint}"):
        run_page(read_page(page), lambda _words: (code, text))


def test_a_page_finds_no_images_of_another_page_or_of_this_machine(tmp_path: Path) -> None:
    """Pages of one process are run in any order, and may fail half-way."""
    shop, pages = Shop(tmp_path), [tmp_path / "a", tmp_path / "b"]
    for page in pages:
        page.mkdir()
    (tmp_path / "programs").mkdir()
    names = 'mkdir -p "$ARGOSY_IMAGES"; echo x > "$ARGOSY_IMAGES/mine"; ls "$ARGOSY_IMAGES"; echo "$ARGOSY_IMAGES"'
    assert shop.start(pages[0], names) == (0, "mine\n/home/ada/.local/share/argosy/images\n")
    assert shop.start(pages[1], 'ls "$ARGOSY_IMAGES" 2>/dev/null') == (2, "")
