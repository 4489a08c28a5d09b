"""Find what an earlier job measured, so that a run has something to be compared with where its site tells no figure."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.launch.history import past_jobs
from argosy.launch.record import can_read, find_output
from argosy.session import Session
from argosy.verify.bandwidth import Measured, parse_bandwidth
from argosy.verify.logs import read_ends_of

LATEST = 200
"""So many jobs are looked at."""


class Earlier(msgspec.Struct, frozen=True):
    """What an earlier job measured; `date` is that of its submission, as ISO 8601 writes it."""

    job: str
    date: str
    measured: Measured


def find_earlier(session: Session, record: Path, measured: Measured) -> Earlier | None:
    """Give the last job before that of `record` that measured the same operation in the same shape at the same site."""
    jobs = past_jobs(session, most=LATEST)
    own = next((job for job in jobs if Path(job.record) == record), None)
    if own is None:
        return None
    for job in jobs[jobs.index(own) + 1 :]:
        if (job.site, job.plan.get("shape")) != (own.site, own.plan.get("shape")):
            continue
        output = find_output(Path(job.record), job.id, session.host.person.name)
        found = parse_bandwidth(read_ends_of(output)) if can_read(output) else None
        if found and found.operation == measured.operation:
            return Earlier(job.id, job.submitted[:10], found)
    return None
