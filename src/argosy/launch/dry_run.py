"""Notes and the script of a launch that is planned and not started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.core.os_errors import refuse_unwritable_folder, translate_os_errors
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.sites.load import sites_here


def note_local(session: Session, plan: LaunchPlan) -> None:
    """Note that the site is ``local`` on a machine with Slurm, outside of jobs: the user may expect a job."""
    host = session.host
    if plan.site != "local" or host.environment.get("SLURM_JOB_ID") or not {"sbatch", "srun"} & host.programs.keys():
        return
    names = [each.name for each in sites_here(host)]
    known = " or ".join(f"--site {name}" for name in names) or "--site NAME ('argosy sites ls' lists them)"
    place = f"the site is 'local', so the program runs on {host.hostname} itself"
    session.reporter.note(f"{place}; to submit a job to Slurm, use {known}, or set site in argosy.toml")


def write_script(plan: LaunchPlan, path: Path) -> None:
    """Write the script to a file of the user."""
    refuse_unwritable_folder(path.parent)
    with translate_os_errors(path.parent), _umask(0o077 if plan.private else 0o022):
        write_text(path, plan.script)
        path.chmod(0o700 if plan.private else 0o755)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
