"""Follow jobs: jobs, logs, cancel, attach and queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from argosy.api.session import use_session
from argosy.core.session import Session
from argosy.jobs import cancel, history, logs, query, queues
from argosy.jobs.live import stacks
from argosy.jobs.live.model import JobView
from argosy.jobs.live.watch import HUNG_SECONDS, JobWatch
from argosy.launch import interactive
from argosy.slurm.text import JobRow


def list_jobs(*, session: Session | None = None) -> tuple[JobRow, ...]:
    """List your jobs that wait or run, as ``argosy jobs`` does."""
    return query.list_jobs(use_session(session))


def list_past_jobs(*, most: int = 20, session: Session | None = None) -> tuple[history.PastJob, ...]:
    """List the last jobs that were submitted from here, as ``argosy jobs --past`` does."""
    return history.past_jobs(use_session(session), most=most)


def find_job(job: str, *, session: Session | None = None) -> query.JobFacts:
    """Return state, nodes, exit code and output files of a job, as ``argosy jobs show`` does."""
    return query.find_job(use_session(session), job, or_record=True)


def diff_jobs(first: str, second: str, *, session: Session | None = None) -> tuple[tuple[str, str, str], ...]:
    """Return the differences of two jobs, as ``argosy jobs diff`` does: key, first value, second value."""
    here = use_session(session)
    return history.diff_jobs(history.read_job(here, first), history.read_job(here, second))


def read_logs(job: str, *, rank: int | None = None, session: Session | None = None) -> Iterator[bytes]:
    """Yield the output of a job, as ``argosy logs`` does.

    Parameters
    ----------
    rank
        Only the output of this rank, of a job with ``label`` or ``log_dir``.
    """
    return logs.read_output(find_job(job, session=session), rank=rank)


def follow_job(
    job: str, *, every: float | None = None, stream: BinaryIO | None = None, rank: int | None = None,
    session: Session | None = None,
) -> query.JobFacts:  # fmt: skip
    """Wait for a job, write its output to a stream, and return its end, as ``argosy logs -f`` does.

    Parameters
    ----------
    every
        Seconds between two queries; None: the polling interval of the site.
    stream
        Takes the output; None: standard output.
    """
    return logs.follow_job(use_session(session), job, pause=every, stream=stream, rank=rank)


def measure_job(job: str, *, session: Session | None = None) -> JobView:
    """Measure what the ranks of a running job do now, as ``argosy top --once`` does; this takes about two seconds."""
    return JobWatch(use_session(session), job).refresh()


def watch_job(
    job: str, *, every: float = 0.0, hung_after: float = HUNG_SECONDS, session: Session | None = None
) -> Iterator[JobView]:
    """Yield a view of a job at an interval until the job ends, as ``argosy top`` does.

    Parameters
    ----------
    every
        Seconds between two views; at least the polling interval of the site.
    hung_after
        Seconds without CPU use and output after which a rank counts as hung.
    """
    watch = JobWatch(use_session(session), job, hung_after=hung_after)
    return watch.follow(every)


def collect_stacks(job: str, *, session: Session | None = None) -> tuple[stacks.StackGroup, ...]:
    """Collect the Python stacks of all ranks of a running job, equal ones once, as ``argosy top --stacks`` does."""
    return stacks.collect_stacks(use_session(session), job)


def cancel_jobs(*jobs: str, session: Session | None = None) -> tuple[str, ...]:
    """Cancel jobs, as ``argosy cancel`` does, and return one line for each."""
    return cancel.cancel_jobs(use_session(session), jobs)


def attach(job: str, command: Sequence[str] = (), *, node: str = "", session: Session | None = None) -> int:
    """Run a command or a shell in the container of a running job, as ``argosy attach`` does."""
    return interactive.attach(use_session(session), job, tuple(command), node=node)


def list_queues(*, session: Session | None = None) -> tuple[queues.Queue, ...]:
    """List the partitions with limits and free nodes, as ``argosy queues`` does."""
    return queues.list_queues(use_session(session))


def list_accounts(*, session: Session | None = None) -> tuple[queues.Account, ...]:
    """List the accounts and QOS that you may use, as ``argosy queues`` does."""
    return queues.list_accounts(use_session(session))
