"""The Python interface: the functions that a program needs to build, launch, follow and check.

    from argosy import api

    report = api.build("environment.yml", base="debian:bookworm", output="my.sif")
    plan = api.plan_launch("my.sif", ["python", "train.py"], ranks=2)
    print(plan.script)
    launched = api.launch("my.sif", ["python", "train.py"], ranks=2, site="my-site", time="1h")
    end = api.follow_job(launched.job)
    evidence, verdict = api.verify_run(launched.job)

The interface is small on purpose. All other commands that report something print JSON with ``--json``.

Every function takes its options as keyword arguments with the names of the command line, and an optional ``session``:
`open_session` opens one with your own reporter or runner. Options that are not given come from the same variables and
files as on the command line. Every function raises `ArgosyError`, which holds the cause, the evidence and a hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Unpack

from argosy.builder.build import build_image
from argosy.builder.bundle import build_bundle
from argosy.builder.one_off import add_packages, extend_launch
from argosy.builder.records import BuildReport
from argosy.builder.request import resolve_build_request
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.findings import Finding
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Runner
from argosy.core.records import replace
from argosy.core.session import Reporter, Session
from argosy.core.ssh import parse_remote
from argosy.diagnostics import check as image_checks
from argosy.diagnostics.verify.rules import Verdict
from argosy.diagnostics.verify.verify import Evidence, exclude_bad_nodes_of, verify_runs
from argosy.diagnostics.why.explain import Explained, explain_log
from argosy.host import probe
from argosy.images import describe
from argosy.images.find import open_reference
from argosy.jobs import cancel, logs, scheduler
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.local_run import find_run
from argosy.jobs.names import resolve_name
from argosy.jobs.query import JobFacts
from argosy.launch import submit, submit_ssh
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.option_checks import refuse_with_ssh
from argosy.launch.request import read_request
from argosy.launch.resolve import prepare_launch
from argosy.launch.submit import Launched
from argosy.recipes.build_options import BuildOptions
from argosy.recipes.launch_options import ContainerOptions, LaunchOptions
from argosy.recipes.user_config import choose_site, configure_folders
from argosy.runtimes.run import RunRequest, read_container_request
from argosy.runtimes.run import run as run_in_image
from argosy.slurm.queries import JobRow

__all__ = [
    "ArgosyError",
    "Session",
    "build",
    "cancel_jobs",
    "check_image",
    "describe_image",
    "explain_failure",
    "find_job",
    "follow_job",
    "launch",
    "list_jobs",
    "open_session",
    "plan_launch",
    "read_logs",
    "run",
    "verify_run",
]

_ELSEWHERE = "output, work_dir, ARGOSY_CACHE or ARGOSY_STATE"
_explained = translate_os_errors(Path(), _ELSEWHERE)
"""Raises errors of the operating system as `ArgosyError`."""


@_explained
def open_session(*, reporter: Reporter | None = None, runner: Runner | None = None, work: str = "") -> Session:
    """Probe this machine, and return a session with the folders of the configuration files.

    Parameters
    ----------
    reporter
        Receives progress reports. Default: they are dropped.
    runner
        Starts programs. Default: programs start on this machine.
    work
        Folder for work files; empty means TMPDIR or the cache.
    """
    return configure_folders(probe.open_session(reporter=reporter, runner=runner, work=work))


@_explained
def build(
    *sources: str | Path, output: str | Path | None = None, session: Session | None = None,
    **options: Unpack[BuildOptions],
) -> BuildReport:  # fmt: skip
    """Build an image from environment files over a base image on this machine, as ``argosy build`` does.

    Parameters
    ----------
    sources
        Environment files, a definition file or Dockerfile; none: the ``argosy.toml`` of the current folder.
    output
        The image file; None: the project file names it.
    options
        The options of `argosy build` (see `BuildOptions`).
    """
    here = session or open_session()
    if work := options.get("work_dir", ""):
        here = replace(here, work=work)
    path = Path(output).absolute() if output else None
    request = resolve_build_request(tuple(map(str, sources)), path, options, here.host)
    return build_bundle(request.bundle, request, here) if request.bundle else build_image(request, here)


@_explained
def run(
    image: str | Path, command: Sequence[str], *, packages: Sequence[str] = (), session: Session | None = None,
    **options: Unpack[ContainerOptions],
) -> int:  # fmt: skip
    """Run a command in an image on this machine, as ``argosy run`` does, and return its exit code.

    The command uses the standard streams of this process. In the main thread, signals are passed on to it.

    Parameters
    ----------
    image
        A file, a name of the catalog, or a reference such as ``docker://debian:bookworm``.
    command
        The program and its arguments.
    packages
        Python packages to add for this start, as ``--with`` does.
    options
        The options of `argosy run` (see `ContainerOptions`).
    """
    here = session or open_session()
    argv = _argv(command)
    if not argv:
        raise UsageError("no command is given", hint="give a list of arguments, for example ['python', 'train.py']")
    container = read_container_request(options, here)
    extended = add_packages(str(image), tuple(packages), here, runtime=container.runtime)
    return run_in_image(RunRequest(extended, argv, container), here, wait=True)


@_explained
def plan_launch(
    image: str | Path, command: Sequence[str] = (), *, in_allocation: bool = False, smoke: bool = False, ssh: str = "",
    packages: Sequence[str] = (), session: Session | None = None, **options: Unpack[LaunchOptions],
) -> LaunchPlan:  # fmt: skip
    """Return the plan of a launch, as ``argosy launch --dry-run`` does; ``plan.script`` is the job script.

    Parameters are those of `launch`.
    """
    here = session or open_session()
    _refuse_by_ssh(ssh, packages, in_allocation=in_allocation)
    request = replace(_read_launch(image, command, options, here), in_allocation=in_allocation, smoke=smoke)
    request = extend_launch(request, tuple(packages), here, dry=True)
    return (
        submit_ssh.preview(request, here, parse_remote(ssh))
        if ssh
        else prepare_launch(request, here, purpose=Purpose.SHOW)
    )


@_explained
def launch(
    image: str | Path, command: Sequence[str] = (), *, in_allocation: bool = False, smoke: bool = False, ssh: str = "",
    packages: Sequence[str] = (), session: Session | None = None, **options: Unpack[LaunchOptions],
) -> Launched:  # fmt: skip
    """Launch a program, as ``argosy launch`` does: submit a job, or run it on this machine (site ``local``).

    Parameters
    ----------
    image
        An image, or the name of a job of ``argosy.toml``; a job needs no command.
    command
        The program and its arguments.
    in_allocation
        Whether it starts in the current allocation, not as a new job; not with `ssh`.
    smoke
        Whether it is a short test: at most 2 nodes for 3 minutes.
    ssh
        ``HOST[:DIR]`` where the job is submitted; empty: this machine.
    packages
        Python packages to add for this launch, as ``--with`` does; not with `ssh`.
    options
        The options of `argosy launch` (see `LaunchOptions`).

    Returns
    -------
    Launched
        The job's id and record; without a job, the exit code of the program.
    """
    here = session or open_session()
    _refuse_by_ssh(ssh, packages, in_allocation=in_allocation)
    request = replace(_read_launch(image, command, options, here), in_allocation=in_allocation, smoke=smoke)
    request = extend_launch(request, tuple(packages), here)
    return submit_ssh.launch_by_ssh(request, here, parse_remote(ssh)) if ssh else submit.launch(request, here)


def _refuse_by_ssh(ssh: str, packages: Sequence[str], *, in_allocation: bool) -> None:
    if ssh:
        refuse_with_ssh(ssh, in_allocation=in_allocation, packages=bool(packages))


def _read_launch(
    image: str | Path, command: Sequence[str], options: Mapping[str, Any], session: Session
) -> LaunchRequest:
    given = {name: value for name, value in options.items() if value} | {"image": str(image)}
    if command:  # a job of the project file has its own
        given["command"] = _argv(command)
    return exclude_bad_nodes_of(read_request(given, session.host), session)


def _argv(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command as a tuple; a text is refused, because it would be divided into its letters."""
    if isinstance(command, str):
        raise UsageError(
            "the command is a text, not a list of arguments",
            evidence=f"command={command!r}",
            hint="divide it with shlex.split",
        )
    return tuple(command)


@_explained
def list_jobs(*, session: Session | None = None) -> tuple[JobRow, ...]:
    """List your jobs that wait or run, as ``argosy jobs`` does."""
    return scheduler.list_jobs(session or open_session())


@_explained
def find_job(job: str, *, session: Session | None = None) -> JobFacts:
    """Return state, nodes, exit code and output files of a job, as ``argosy jobs show`` does.

    Parameters
    ----------
    job
        The number or name of a job, the record of a run on this machine, or ``last``.
    """
    return find_run(session or open_session(), job)


@_explained
def follow_job(
    job: str, *, every: float | None = None, stream: BinaryIO | None = None, rank: int | None = None,
    session: Session | None = None,
) -> JobFacts:  # fmt: skip
    """Wait for a job, write its output to a stream, and return its end, as ``argosy logs -f`` does.

    Parameters
    ----------
    every
        Seconds between two queries; None: the polling interval of the site.
    stream
        Takes the output; None: standard output.
    rank
        Only the output of this rank; see `read_logs`.
    """
    here = session or open_session()
    return logs.follow_job(here, resolve_name(here, job), pause=every, stream=stream, rank=rank)


def read_logs(job: str, *, rank: int | None = None, session: Session | None = None) -> Iterator[bytes]:
    """Yield the output of a job in blocks, as ``argosy logs`` prints it.

    Parameters
    ----------
    rank
        Only the output of this rank, of a job with ``label`` or ``log_dir``.
    """
    with translate_os_errors(Path(), _ELSEWHERE):
        yield from logs.read_output(find_job(job, session=session), rank=rank)


@_explained
def cancel_jobs(*jobs: str, session: Session | None = None) -> tuple[str, ...]:
    """Cancel jobs, as ``argosy cancel`` does, and return one line for each."""
    return cancel.cancel_jobs(session or open_session(), jobs)


@_explained
def check_image(image: str | Path, *, site: str = "", session: Session | None = None) -> tuple[Finding, ...]:
    """Check whether an image will work at a site, as ``argosy check`` does.

    Parameters
    ----------
    site
        A name or a ``.toml`` file; empty: the configured site.
    """
    here = session or open_session()
    return image_checks.check_image(here, str(image), choose_site(site, here.host.environment))


@_explained
def describe_image(image: str | Path, *, session: Session | None = None) -> describe.ImageDescription:
    """Return base, layers, sizes and packages of an image, as ``argosy images info`` does."""
    here = session or open_session()
    return describe.describe_image(open_reference(str(image), here))


@_explained
def verify_run(*runs: str, site: str = "", nodes: int = 0, session: Session | None = None) -> tuple[Evidence, Verdict]:
    """Check what a run used: network, GPUs and cores, as ``argosy verify`` does.

    Parameters
    ----------
    runs
        The id of one job, or log files.
    site
        Profile to compare with; empty: the site of the job.
    nodes
        Number of nodes, if log files do not show it.

    Raises
    ------
    CheckFailed
        If the output contains nothing that can be checked.
    """
    return verify_runs(session or open_session(), runs, site=site, nodes=nodes)


@_explained
def explain_failure(log: str, *, session: Session | None = None) -> Explained:
    """Return the known errors in a log file or in the output of a job, as ``argosy why`` does."""
    return explain_log(session or open_session(), log)
