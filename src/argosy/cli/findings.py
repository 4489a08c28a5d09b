"""Print the findings of a command that checks something, as text or as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from argosy.cli.common import print_json
from argosy.core.errors import CheckFailed
from argosy.core.findings import Finding, has_failed, render_findings
from argosy.core.records import asdict


def print_findings(findings: Sequence[Finding], *, as_json: bool, **more: object) -> int:
    """Print findings, and return the exit code of the command: 7 if a check failed, else 0.

    Parameters
    ----------
    more
        Further keys of the JSON report, beside ``ok`` and ``findings``.
    """
    failed = has_failed(findings)
    if as_json:
        print_json({"ok": not failed, **more, "findings": [asdict(each) for each in findings]})
    elif findings:
        click.echo(render_findings(findings, colour=use_colour()))
    return CheckFailed.code if failed else 0


def use_colour() -> bool:
    """Return whether standard output is a terminal, and the user has not set NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
