"""The page of `argosy report` in a real browser: no error, no request, readable, and its buttons work."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.records import replace
from argosy.diagnostics.report.page import render_page
from tests.unit.diagnostics.test_report import HOSTILE, REPORT


def test_the_page_in_a_real_browser(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(
        (path for name in ("chromium", "google-chrome") if (path := Path("/usr/bin") / name).exists()), None
    )
    if chromium is None:
        pytest.skip("there is no Chromium")
    page_file = tmp_path / "job.html"
    page_file.write_text(render_page(replace(REPORT, output=f"{HOSTILE}\n" * 1000)), encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme, width in (("light", 1000), ("dark", 390)):
            page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}).new_page()
            complaints: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message, complaints=complaints: complaints.append(message.text))
            page.on("pageerror", lambda error, complaints=complaints: complaints.append(str(error)))
            page.on("dialog", lambda dialog, complaints=complaints: (complaints.append("dialog"), dialog.dismiss()))
            page.on("request", lambda request, requests=requests: requests.append(request.url))
            page.goto(page_file.as_uri())
            assert complaints == []
            assert requests == [page_file.as_uri()]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator("details.choice summary").first.click()
            assert page.locator("details.choice p").first.is_visible()
            page.locator("button[data-copy]").first.click()
            page.wait_for_function("document.querySelector('button[data-copy]').textContent == 'Copied'")
        browser.close()
