"""The scan of an image: what the scanner is asked, and how its report is read; no scanner is started."""

from __future__ import annotations

import pytest

from argosy.core.errors import ToolFailed
from argosy.diagnostics.scan import Vulnerability, parse_report, render_pins, render_scan, summarize
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, Tools

DIGEST = f"sha256:{'0' * 64}"
PACKAGES = (
    LockedPackage("torch", "2.9.0+cpu"),
    LockedPackage("jinja2", "2.10"),
    LockedPackage("libc6", "2.36-9", kind=PackageKind.DEB),
)
LOCK = Lock(LockedBase("debian:bookworm", DIGEST, 1, "amd64"), Tools("0.1.0"), 1, DIGEST, packages=PACKAGES)
REPORT = {
    "dependencies": [
        {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.9.0)"},
        {
            "name": "jinja2",
            "version": "2.10",
            "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"], "aliases": ["CVE-2019-10906"]}],
        },
    ],
    "fixes": [],
}


def test_python_packages_are_asked_by_the_version_of_their_release() -> None:
    assert render_pins(LOCK) == "torch==2.9.0\njinja2==2.10\n"


def test_the_report_names_what_was_found_and_what_was_not_checked() -> None:
    scan = parse_report(REPORT, "my.sif", LOCK)
    assert scan.found == (Vulnerability("jinja2", "2.10", "PYSEC-2019-217", ("CVE-2019-10906",), ("2.10.1",)),)
    assert summarize(scan) == (
        "known vulnerabilities: 1 in 1 Python packages; not checked: 1 that the database does not know, 1 deb packages"
    )
    assert render_scan(scan)[1] == ("jinja2", "2.10", "PYSEC-2019-217", "CVE-2019-10906", "2.10.1")


def test_nothing_found_is_an_empty_table() -> None:
    scan = parse_report({"dependencies": [{"name": "jinja2", "version": "3.1", "vulns": []}]}, "my.sif", LOCK)
    assert render_scan(scan) == []
    assert summarize(scan).startswith("known vulnerabilities: 0 in 1 Python packages")


def test_a_scan_that_checked_no_package_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="checked none of the 1 Python packages") as error:
        parse_report({"dependencies": REPORT["dependencies"][:1]}, "my.sif", LOCK)
    assert "torch: Dependency not found on PyPI" in error.value.evidence
    assert summarize(parse_report({"dependencies": []}, "my.sif", LOCK)).startswith("known vulnerabilities: 0 in 0")
