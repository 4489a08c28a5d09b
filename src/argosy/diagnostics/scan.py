"""Find known vulnerabilities of the Python packages in an image, with pip-audit (https://pypi.org/project/pip-audit)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from argosy.builder.freeze import freeze_whole
from argosy.core.errors import ToolFailed, ToolMissing
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.store import work_folder
from argosy.core.tool_errors import LAST_LINES
from argosy.recipes.lock import Lock, PackageKind

SCANNER = "pip-audit"
DATABASE_HINT = (
    "it queries pypi.org; without a network, run the scan on another machine, or set "
    "PIP_AUDIT_VULNERABILITY_SERVICE=osv and PIP_AUDIT_OSV_URL to a mirror"
)


class Vulnerability(msgspec.Struct, frozen=True):
    """A known vulnerability of a package."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...] = ()
    """Its number in the database, and those in others, for example of CVE."""
    fixed: tuple[str, ...] = ()
    """Versions without it; empty if there is none."""


class Scan(msgspec.Struct, frozen=True):
    """The result of a scan."""

    image: str
    checked: int
    """Number of packages that were checked."""
    found: tuple[Vulnerability, ...]
    unchecked: tuple[str, ...] = ()
    """Packages that the database does not know, for example builds of a vendor."""
    others: dict[str, int] = msgspec.field(default_factory=dict)
    """Packages that are not from PyPI, by kind: ``deb``, ``conda``, ``rpm``. They were not checked."""


def scan_image(image: str, session: Session) -> Scan:
    """Scan the Python packages of an image: of its layer and of its base.

    Raises
    ------
    ToolMissing
        If pip-audit is not installed.
    ToolFailed
        If it fails, for example without a network, or checks none of the packages.
    ArgosyError
        See `freeze_whole`.
    """
    if SCANNER not in session.host.programs:
        raise ToolMissing(
            f"cannot scan {image}: {SCANNER} is not installed",
            evidence="it is a program of the Python Packaging Authority that queries the databases of PyPI and OSV",
            hint="install it with: uv tool install pip-audit, or pipx install pip-audit",
        )
    lock = freeze_whole(image, session)
    with work_folder(session.work_parent()) as work:
        requirements = work / "requirements.txt"
        requirements.write_text(render_pins(lock), encoding="utf-8")
        report = _run_scanner(requirements, session)
    return parse_report(report, image, lock)


def render_pins(lock: Lock) -> str:
    """Render the Python packages with the versions of the release: ``torch==2.9.0+cpu`` has the faults of 2.9.0."""
    packages = [package for package in lock.packages if package.kind is PackageKind.PYPI]
    return "".join(f"{each.name}=={each.version.partition('+')[0]}\n" for each in packages)


def _run_scanner(requirements: Path, session: Session) -> dict[str, Any]:
    """Return the report of pip-audit, whose exit code is 1 for a vulnerability and for an error."""
    form = ("--format", "json", "--desc", "off", "--aliases", "on", "--progress-spinner", "off")
    argv = (SCANNER, "--disable-pip", "--no-deps", *form, "--requirement", str(requirements))
    reply = session.runner.run(Command(argv))
    try:
        report = json.loads(reply.stdout)
    except ValueError:
        lines = reply.stderr.strip().splitlines()[-LAST_LINES:]
        raise ToolFailed(
            f"{SCANNER} cannot scan the image",
            evidence="\n".join((*lines, f"(exit code {reply.code})")),
            hint=DATABASE_HINT,
        ) from None
    return dict(report)


def parse_report(report: dict[str, Any], image: str, lock: Lock) -> Scan:
    """Parse the JSON report of pip-audit.

    Raises
    ------
    ToolFailed
        If it checked none of the packages: a proxy of PyPI without the database answers that it knows none.
    """
    found: list[Vulnerability] = []
    skipped = {row["name"]: row["skip_reason"] for row in report["dependencies"] if "skip_reason" in row}
    checked = len(report["dependencies"]) - len(skipped)
    if skipped and not checked:
        name, reason = next(iter(skipped.items()))
        what = f"{SCANNER} checked none of the {len(skipped)} Python packages"
        raise ToolFailed(what, evidence=f"{name}: {reason}", hint=DATABASE_HINT)
    for row in report["dependencies"]:
        for each in row.get("vulns", ()):
            ids = (each["id"], tuple(each.get("aliases", ())), tuple(each.get("fix_versions", ())))
            found.append(Vulnerability(row["name"], row["version"], *ids))
    kinds = [str(package.kind) for package in lock.packages if package.kind is not PackageKind.PYPI]
    return Scan(image, checked, tuple(found), tuple(skipped), {kind: kinds.count(kind) for kind in sorted({*kinds})})


def render_scan(scan: Scan) -> list[tuple[str, ...]]:
    """Render the vulnerabilities as rows of a table: package, version, number and fix."""
    rows = [
        (each.package, each.version, each.id, ", ".join(each.aliases), ", ".join(each.fixed) or "-")
        for each in scan.found
    ]
    return [("package", "version", "vulnerability", "also", "fixed in"), *rows] if rows else []


def summarize(scan: Scan) -> str:
    """Say in one sentence what was checked, found and not checked."""
    text = f"known vulnerabilities: {len(scan.found)} in {scan.checked} Python packages"
    missing = [f"{len(scan.unchecked)} that the database does not know"] if scan.unchecked else []
    missing += [f"{number} {kind} packages" for kind, number in scan.others.items()]
    return text + (f"; not checked: {', '.join(missing)}" if missing else "")
