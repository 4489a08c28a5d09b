#!/usr/bin/env python3
"""Take pictures of a job's report for the manual: docs/report-light.png and docs/report-dark.png.

Usage: tools/record_report.py [PAGE.html]   Without a page, the report of a job that fails in the lab is made first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

REPO = Path(__file__).parents[1]
CHROMIUM = "/usr/bin/chromium"
LAB_IMAGE = re.compile(r"small-flat-[0-9a-f]+\.sif")
LAB_FOLDER = re.compile(r"/shared/test_\w+-\w+")
"""The image and the folder of the lab's jobs, which have other names in the pictures."""
WIDTH, HEIGHT = 960, 1250
"""Size of a picture in pixels: the part of the page that answers what happened, why, and what to do."""


def main() -> None:
    """Make the page if none is given, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(sys.argv[1]) if len(sys.argv) > 1 else make_page(Path(folder))
        page = Path(folder, "shown.html")
        text = made.read_text(encoding="utf-8").replace("alice", "ada")
        page.write_text(LAB_FOLDER.sub("/shared/train", LAB_IMAGE.sub("pytorch.sif", text)), encoding="utf-8")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                context = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
                view = context.new_page()
                view.goto(page.as_uri())
                view.screenshot(path=REPO / f"docs/report-{scheme}.png")
            browser.close()


def make_page(folder: Path) -> Path:
    """Run the lab's job that fails, and return its report."""
    test = "tests/lab/slurm/test_slurm_report.py::test_the_reports_of_a_failed_a_slow_and_a_good_job_with_gpus"
    env = {**os.environ, "ARGOSY_KEEP_REPORTS": str(folder), "ARGOSY_SOAK": "1"}
    subprocess.run((sys.executable, "-m", "pytest", "-q", test), cwd=REPO, env=env, check=True)
    return folder / "failed.html"


if __name__ == "__main__":
    main()
