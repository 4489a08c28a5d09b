"""The documentation website: mkdocs builds it strictly, and a browser shows it without any other server."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.patience import PATIENCE_S
from tools.consoles import REPO

BROWSER = shutil.which("chromium")
PAGE_S = 60
"""Longest wait for a page or an element of it, in seconds; the pages are static."""
PHONE = {"width": 390, "height": 844}
PAGES = (
    "index.html",
    "reference/cli.html",
    "reference/cli/launch.html",
    "reference/sites/lumi-g.html",
    "tutorial/first-image.html",
)


@dataclass(slots=True)
class Visit:
    """A browser, and all that its pages requested or reported."""

    base: str
    browser: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str, **options: Any) -> Any:
        """Open a page of the website in a new window."""
        page = self.browser.new_context(**options).new_page()
        page.set_default_timeout(PAGE_S * 1000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda said: self.complaints.extend([said.text] * (said.type == "error")))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(path if "://" in path else f"{self.base}/{path}")
        return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the website."""
    if importlib.util.find_spec("material") is None:
        pytest.skip("needs mkdocs-material: make docs")
    folder = tmp_path_factory.mktemp("site")
    words = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def visit(site: Path) -> Iterator[Visit]:
    """Serve the website on this machine, and start a browser."""
    if BROWSER is None:
        pytest.skip("needs a browser: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with playwright.sync_playwright() as start:
            browser = start.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=PATIENCE_S * 1000)
            yield Visit(f"http://127.0.0.1:{server.server_port}", browser)
            browser.close()
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Print nothing."""


def search(page: Any, words: str) -> list[str]:
    """Search the website, and return the titles of the results."""
    page.keyboard.press("/")
    # The search listens to keys: text that appears at once is not noticed.
    page.locator("input.md-search__input").press_sequentially(words)
    page.locator(".md-search-result__item").first.wait_for()
    return [title.strip() for title in page.locator(".md-search-result__item h1").all_inner_texts()]


def test_every_page_has_a_title_and_shows_neither_comments_nor_attributes_of_fences(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 90
    titles = {path: re.search(r"<title>([^<]+) - Argosy</title>", path.read_text("utf-8")) for path in pages}
    assert [path for path, title in titles.items() if not title and path != site / "index.html"] == []
    for path in pages:
        text = path.read_text("utf-8")
        assert "needs: " not in "".join(re.findall(r"(?:<!--|&lt;!--).*?--(?:>|&gt;)", text)), path
        assert "```" not in re.sub(r"<(code|pre).*?</\1>", "", text, flags=re.DOTALL), path
        assert "code> file=" not in text, path


@pytest.mark.soak
def test_the_start_page_loads_and_the_search_finds_torchrun(visit: Visit) -> None:
    page = visit.open("index.html")
    assert "Argosy" in page.title()
    assert page.locator("h1").count() == 1
    assert search(page, "torchrun")


@pytest.mark.soak
def test_the_search_works_in_a_copy_that_is_opened_as_files(visit: Visit, site: Path) -> None:
    page = visit.open(f"file://{quote(str(site))}/index.html")
    assert search(page, "torchrun")


@pytest.mark.soak
@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_on_a_phone(visit: Visit, path: str) -> None:
    page = visit.open(path, viewport=PHONE)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


@pytest.mark.soak
@pytest.mark.parametrize(("scheme", "name"), [("light", "default"), ("dark", "slate")])
def test_the_colours_follow_the_system(visit: Visit, scheme: str, name: str) -> None:
    page = visit.open("index.html", color_scheme=scheme)
    page.locator(f"body[data-md-color-scheme={name}]").wait_for()


@pytest.mark.soak
def test_the_copy_button_of_a_console_copies_the_commands_only(visit: Visit) -> None:
    page = visit.open("tutorial/first-image.html", permissions=["clipboard-read", "clipboard-write"])
    block = page.locator(".highlight").first
    block.hover()
    block.locator("button[data-md-type=copy]").click()
    page.locator(".md-dialog--active").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == "cat examples/digits/environment.yml"


@pytest.mark.soak
def test_no_page_reports_an_error_or_asks_another_server(visit: Visit) -> None:
    for path in PAGES:
        assert visit.open(path).title()
    foreign = {url for url in visit.requests if not url.startswith((visit.base, "file://", "data:", "blob:"))}
    assert foreign == set()
    assert visit.complaints == []
