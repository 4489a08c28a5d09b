"""List the bandwidths that earlier jobs measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from argosy.bench.collectives_output import Measured, parse_bandwidth
from argosy.core.render import align_rows
from argosy.core.session import Session
from argosy.jobs.history import PastJob, past_jobs
from argosy.jobs.launch_plan import Shape, parse_shape
from argosy.jobs.outputs import can_read, find_output, read_ends_of

LATEST = 200
"""Number of jobs that are searched."""


class EarlierRun(msgspec.Struct, frozen=True):
    """The bandwidth that an earlier job measured."""

    job: str
    date: str
    """Day of its submission, in ISO 8601."""
    measured: Measured
    site: str = ""
    nodes: str = ""
    """Names of the nodes of its last run; empty if its end was not recorded."""
    shape: Shape | None = None
    """Shape of the job; None if its plan cannot be read."""

    @property
    def group(self) -> tuple[object, ...]:
        """Return what must be equal for two measurements to be comparable."""
        return (self.site, self.shape, self.measured.operation)


def list_earlier(session: Session, site: str = "") -> tuple[EarlierRun, ...]:
    """Return the measurements of the last jobs, newest first; only those of `site` if it is given."""
    jobs = [job for job in past_jobs(session, most=LATEST) if site in {"", job.site}]
    return tuple(_measured(jobs, session))


def _measured(jobs: Sequence[PastJob], session: Session) -> Iterator[EarlierRun]:
    for job in jobs:
        output = find_output(Path(job.record), job.id, session.host.person.name)
        found = parse_bandwidth(read_ends_of(output)) if can_read(output) else None
        if found:
            yield EarlierRun(
                job.id, job.submitted[:10], found, job.site, job.run.nodes if job.run else "", parse_shape(job.plan)
            )


def render_history(rows: Sequence[EarlierRun]) -> str:
    """Render measurements as a table; compare each with the best of its site, shape and operation."""
    best: dict[tuple[object, ...], float] = {}
    for row in rows:
        best[row.group] = max(row.measured.gigabytes, best.get(row.group, 0.0))
    cells = [("date", "job", "site", "operation", "nodes x ranks", "GB/s", "of the best", "on")]
    for row in rows:
        share = row.measured.gigabytes / best[row.group] if best[row.group] else 1.0
        speed, operation = f"{row.measured.gigabytes:g}", row.measured.operation or "-"
        shape = f"{row.shape.nodes} x {row.shape.ranks_per_node}" if row.shape else "-"
        cells.append((row.date, row.job, row.site, operation, shape, speed, f"{share:.0%}", row.nodes or "-"))
    return "\n".join(align_rows(cells))
