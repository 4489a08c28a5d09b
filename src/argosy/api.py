"""The Python interface: the stories of the command line as functions; nothing is possible in one and not in the other.

    from argosy import api

    session = api.open_session()
    report = api.build(api.BuildRequest((Path("environment.yml"),), "debian:bookworm", Path("my.sif")), session)
    request = api.LaunchRequest("my.sif", ("python", "train.py"), wanted=api.Wanted(ranks=2))
    print(api.plan_launch(request, session).script)
    code = api.launch(request, session).code
    job = api.launch_job("train", session, nodes=4).job
    print(api.follow_job(session, job, pause=5).verdict)

Every function raises `argosy.core.errors.ArgosyError` with what happened, the evidence and a hint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from argosy.bench.variants.compare import Compared
from argosy.bench.variants.launch import launch_variants, read_report
from argosy.bench.variants.plan import Variant, parse_variants
from argosy.builder.build import build_image as build
from argosy.builder.bundle import BundleReport, build_bundle, bundle
from argosy.builder.compare import Comparison, compare_images
from argosy.builder.freeze import freeze
from argosy.builder.lock import LockReport, LockRequest, check_lock, lock
from argosy.builder.report import BuildReport, BuildRequest
from argosy.core.errors import UsageError
from argosy.core.model import Bind, ContainerRequest, GpuMode, Variable
from argosy.core.process import Command, FakeRunner, RealRunner, Reply
from argosy.core.session import Session
from argosy.core.ssh import Remote, parse_remote
from argosy.diagnostics.verify.earlier import EarlierRun, list_earlier
from argosy.host.session_factory import open_session
from argosy.images.send import SendReport, send_image
from argosy.images.signatures import Signer, verify_image
from argosy.jobs.cancel import cancel_jobs
from argosy.jobs.follow import follow_job
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.logs import read_output
from argosy.jobs.query import JobFacts, find_job, list_jobs, read_plan
from argosy.jobs.queues import list_accounts, list_queues
from argosy.launch.explain import Explained, explain_plan
from argosy.launch.interactive import attach, launch_interactive
from argosy.launch.model import LaunchRequest
from argosy.launch.request import make_request, with_defaults, with_job
from argosy.launch.resolve import prepare_launch as plan_launch
from argosy.launch.shape import Wanted
from argosy.launch.submit import Launched, launch, launch_after_smoke, write_script
from argosy.launch.submit_ssh import launch_by_ssh
from argosy.recipes.project_file import find_project, read_project
from argosy.recipes.project_tables import Project
from argosy.runtimes.run import RunRequest, plan_run, run
from argosy.slurm.text import JobOptions

__all__ = [
    "Bind",
    "BuildReport",
    "BuildRequest",
    "BundleReport",
    "Command",
    "Compared",
    "Comparison",
    "ContainerRequest",
    "EarlierRun",
    "Explained",
    "FakeRunner",
    "GpuMode",
    "JobFacts",
    "JobOptions",
    "LaunchPlan",
    "LaunchRequest",
    "Launched",
    "LockReport",
    "LockRequest",
    "Project",
    "RealRunner",
    "Remote",
    "Reply",
    "RunRequest",
    "SendReport",
    "Session",
    "Signer",
    "Variable",
    "Variant",
    "Wanted",
    "attach",
    "build",
    "build_bundle",
    "bundle",
    "cancel_jobs",
    "check_lock",
    "compare_images",
    "explain_plan",
    "find_job",
    "find_project",
    "follow_job",
    "freeze",
    "launch",
    "launch_after_smoke",
    "launch_by_ssh",
    "launch_interactive",
    "launch_job",
    "launch_variants",
    "list_accounts",
    "list_earlier",
    "list_jobs",
    "list_queues",
    "lock",
    "make_request",
    "open_session",
    "parse_remote",
    "parse_variants",
    "plan_launch",
    "plan_run",
    "read_output",
    "read_plan",
    "read_project",
    "read_report",
    "run",
    "send_image",
    "verify_image",
    "with_defaults",
    "with_job",
    "write_script",
]


def launch_job(name: str, session: Session, **options: Any) -> Launched:
    """Launch a job of the ``argosy.toml`` in the current folder, as ``argosy launch NAME`` does.

    Parameters
    ----------
    options
        Options of `argosy launch` by name, with ``_`` for ``-``; each wins over the file's value.

    Raises
    ------
    UsageError
        When there is no project file here, or no such job in it.
    """
    project = find_project(Path(session.host.cwd))
    if project is None:
        raise UsageError("there is no argosy.toml here", evidence=session.host.cwd, hint="write one, with [job.NAME]")
    return launch(make_request(with_job(project, name, options), session.host), session)
