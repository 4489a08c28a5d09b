"""Replace the advice to ask sacct on a cluster that keeps no accounting."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import ArgosyError
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.jobs.remote_record import session_of
from argosy.slurm.calls import run_slurm

NO_ACCOUNTING = re.compile(r"^AccountingStorageType *= *(\(null\)|accounting_storage/none) *$", re.MULTILINE)
"""Line of ``scontrol show config`` on a cluster whose sacct answers ``Slurm accounting storage is disabled``."""

WITHOUT = (
    "sacct does not work on this cluster, which keeps no accounting: use 'scontrol show job {job}' in the first "
    "minutes after the end, or read the log"
)


def advise_without_accounting(session: Session, text: str, job: str, record: str) -> str:
    """Return the replacement for a text about a job that recommends sacct; empty if sacct works, or that is unknown.

    Parameters
    ----------
    record
        Folder of the job's record, which names the cluster of a job submitted by ssh; empty without a record.
    """
    if not re.search(r"\bsacct\b", text):
        return ""
    try:
        there = session_of(session, Path(record)) if record else session
        reply = run_slurm(there, Command(("scontrol", "show", "config")))
    except ArgosyError:
        return ""
    return WITHOUT.format(job=job) if NO_ACCOUNTING.search(reply.stdout) else ""
