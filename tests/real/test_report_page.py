"""The pages of `argosy report`, `bench` and `sites show` in a real browser: no error, no request, and they work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from argosy.bench.result import BenchKind, BenchResult, Figure
from argosy.bench.show import render_html
from argosy.core.plots import BACK, DARK
from argosy.core.records import replace
from argosy.diagnostics.report.page import render_page
from argosy.sites.page import render_site
from argosy.sites.read import DATA, read_site
from argosy.sites.show import explain_site
from tests.unit.core.test_plots import contrast
from tests.unit.diagnostics.test_report import HOSTILE, MEASURED, REPORT

MODES = (("light", 1000), ("dark", 390))
"""Colour scheme and width in pixels."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    paths = (Path("/usr/bin") / name for name in ("chromium", "google-chrome"))
    chromium = next((path for path in paths if path.exists()), None)
    if chromium is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser: Any, file: Path, scheme: str, width: int) -> Any:
    """Open a page from disk, and check that it loads nothing, complains about nothing and fits the screen."""
    page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}).new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.add_init_script("window.alert = text => console.error(text)")
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    assert complaints == []
    assert requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("button[data-copy]").first.click()
    page.wait_for_function("document.querySelector('button[data-copy]').textContent == 'Copied'")
    return page


@pytest.mark.parametrize(("scheme", "width"), MODES)
def test_the_report_in_a_real_browser(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    file = tmp_path / "job.html"
    file.write_text(render_page(replace(REPORT, output=f"{HOSTILE}\n" * 1000)), encoding="utf-8")
    page = open_page(browser, file, scheme, width)
    page.locator("details.choices summary").first.click()
    assert page.locator("details.choices td").first.is_visible()
    assert page.locator("section h2").all_inner_texts() == [
        "Failure", "The program", "More commands", "Changes since job 5, the last run that passed", "Checks of the run",
        "Nodes and ranks", "Measured", "Timeline", "Plan", "End of the output",
    ]  # fmt: skip


@pytest.mark.parametrize(("scheme", "width"), MODES)
def test_a_plot_has_contrast_in_both_modes(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    figures = (Figure(HOSTILE, HOSTILE, "s", 2.5, 2.4, 2.7, each=(2.4, 2.5, 2.7)),)
    results = (BenchResult(BenchKind.SETTINGS, HOSTILE, HOSTILE, figures, notes=(HOSTILE,)),)
    for name, shown in (("settings", results), ("collectives", (MEASURED,))):
        file = tmp_path / f"{name}.html"
        file.write_text(render_html(shown, HOSTILE), encoding="utf-8")
        page = open_page(browser, file, scheme, width)
        back = DARK[BACK] if scheme == "dark" else BACK
        fills = page.locator("svg.plot text").evaluate_all("all => all.map(each => getComputedStyle(each).fill)")
        assert fills
        assert {fill for fill in fills if contrast(hex_of(fill), back) < 4.5} == set()
        boxes = page.locator("svg.plot text").evaluate_all("all => all.map(each => each.getBoundingClientRect().right)")
        assert name == "settings" or max(boxes) <= width, "no label is cut off"


def hex_of(color: str) -> str:
    """Return ``#rrggbb`` for the browser's ``rgb(r, g, b)``."""
    return "#" + "".join(f"{int(part):02x}" for part in color.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize(("scheme", "width"), MODES)
def test_the_page_of_a_site_in_a_real_browser(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    file = tmp_path / "site.html"
    file.write_text(render_site(read_site("lumi-g", (DATA,)), explain_site("lumi-g", (DATA,))), encoding="utf-8")
    page = open_page(browser, file, scheme, width)
    page.locator("details.choice summary").first.click()
    assert page.locator("details.choice p").first.is_visible()
    assert page.locator("svg").bounding_box()["width"] <= width
