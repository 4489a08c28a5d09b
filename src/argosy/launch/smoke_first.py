"""Submit a smoke run and the job that starts after it, on this machine or by ssh."""

from __future__ import annotations

from functools import partial

from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.ssh import Remote
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.resolve import prepare_launch
from argosy.launch.submit import Launched, launch


def launch_after_smoke(request: LaunchRequest, session: Session, remote: Remote | None) -> tuple[Launched, Launched]:
    """Submit a smoke run, and the launch itself, which starts after the smoke run succeeded; else Slurm removes it.

    Both are planned before the first is submitted, so that an invalid request submits neither.

    Parameters
    ----------
    remote
        The login node where both are submitted by ssh; None for this machine.
    """
    if remote is None:
        prepare_launch(request, session, purpose=Purpose.SHOW)
        submit_one = partial(launch, session=session)
    else:
        from argosy.launch.submit_ssh import launch_by_ssh, preview  # noqa: PLC0415 - a local one needs no ssh

        preview(request, session, remote)
        submit_one = partial(launch_by_ssh, session=session, remote=remote)
    smoke = submit_one(replace(request, smoke=True))
    session.reporter.note(f"job {smoke.job} is the smoke run; the job itself starts if the smoke run succeeds")
    after = ",".join(filter(None, (request.options.dependency, f"afterok:{smoke.job}")))
    extra = (*request.extra, "--kill-on-invalid-dep=yes")
    return smoke, submit_one(replace(request, options=replace(request.options, dependency=after), extra=extra))
