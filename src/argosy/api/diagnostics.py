"""Diagnose: doctor, check, verify, report and why."""

from __future__ import annotations

from pathlib import Path

from argosy.api.session import use_session
from argosy.core.findings import Finding
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.diagnostics.check import rules as check
from argosy.diagnostics.doctor import rules as doctor
from argosy.diagnostics.report.bundle import write_bundle
from argosy.diagnostics.report.collect import collect_report
from argosy.diagnostics.report.model import Report
from argosy.diagnostics.report.page import render_page
from argosy.diagnostics.verify.evidence import Evidence
from argosy.diagnostics.verify.rules import Verdict
from argosy.diagnostics.verify.verify import verify_runs
from argosy.diagnostics.why import explain as why


def examine_machine(*, site: str = "", session: Session | None = None) -> tuple[Finding, ...]:
    """Check this machine, as ``argosy doctor`` does.

    Parameters
    ----------
    site
        Profile to compare with; empty: the profile that fits this machine.
    """
    return doctor.examine(use_session(session), site)


def check_image(image: str, *, site: str, session: Session | None = None) -> tuple[Finding, ...]:
    """Check whether an image will work at a site, as ``argosy check`` does."""
    return check.check_image(use_session(session), image, site)


def verify_run(*runs: str, site: str = "", nodes: int = 0, session: Session | None = None) -> tuple[Evidence, Verdict]:
    """Check what a run used: network, GPUs and cores, as ``argosy verify`` does.

    Parameters
    ----------
    runs
        The id of one job, or log files.
    nodes
        Number of nodes, if log files do not show it.
    """
    return verify_runs(use_session(session), runs, site=site, nodes=nodes)


def explain_failure(log: str, *, session: Session | None = None) -> why.Explained:
    """Return the known errors in a log file or in the output of a job, as ``argosy why`` does."""
    return why.explain_log(use_session(session), log)


def report_job(job: str, output: str | Path, *, bundle: bool = False, session: Session | None = None) -> Report:
    """Write a report of a job as an HTML page, as ``argosy report`` does, and return its facts.

    Parameters
    ----------
    output
        The file to write.
    bundle
        Whether to write an archive with the report, the script, the records and the output.

    Raises
    ------
    UsageError
        When the job is unknown.
    """
    collected = collect_report(use_session(session), job)
    if bundle:
        write_bundle(Path(output), collected)
    else:
        write_text(Path(output), render_page(collected))
    return collected
