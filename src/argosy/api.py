"""The Python interface: the stories of the command line as functions; nothing is possible in one and not in the other.

    from argosy import api

    session = api.open_session()
    report = api.build(api.BuildRequest((Path("environment.yml"),), "debian:bookworm", Path("my.sif")), session)
    request = api.LaunchRequest("my.sif", ("python", "train.py"), wanted=api.Wanted(ranks=2))
    print(api.plan_launch(request, session).script)
    code = api.launch(request, session).code

Every function raises `argosy.errors.ArgosyError` with what happened, the evidence and the way out.
"""

from __future__ import annotations

from argosy.build import BuildReport, BuildRequest, build
from argosy.launch import Launched, LaunchPlan, LaunchRequest, Wanted, launch
from argosy.launch import plan_here as plan_launch
from argosy.model import Bind, ContainerRequest, GpuWay, Variable
from argosy.opening import open_session
from argosy.process import Command, FakeRunner, RealRunner, Reply
from argosy.running import RunRequest, plan_run, run
from argosy.session import Session

__all__ = [
    "Bind",
    "BuildReport",
    "BuildRequest",
    "Command",
    "ContainerRequest",
    "FakeRunner",
    "GpuWay",
    "LaunchPlan",
    "LaunchRequest",
    "Launched",
    "RealRunner",
    "Reply",
    "RunRequest",
    "Session",
    "Variable",
    "Wanted",
    "build",
    "launch",
    "open_session",
    "plan_launch",
    "plan_run",
    "run",
]
