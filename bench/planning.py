"""Planning: what a launch plan costs inside one process, once image and machine are known."""

from __future__ import annotations

import time
from pathlib import Path

from argosy.core.session import Session
from argosy.launch.context import LaunchContext, choose_target
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.plan import plan_launch
from argosy.launch.resolve import prepare_launch
from argosy.runtimes.open_container import open_container
from argosy.sites.conditions import Facts
from argosy.sites.job_settings import choose_site_settings
from argosy.sites.read import parse_table, read_site, site_names
from bench.inputs import Inputs, bench_cache, bench_folder, open_session
from bench.records import Budget, Outcome, Row, many, one

COMMAND = ("python", "train.py", "--epochs", "20")
PLANS = 10_000
NODES = 10_000
LARGE_MS = Budget(100)
PROFILES_MS = Budget(50)
LARGE_SITE = """\
name = "large"
title = "a machine of 10,000 nodes"
scheduler = "slurm"

[node]
gpus = 8
gpu_vendor = "nvidia"
cores = 64

[runtime]
name = "apptainer"
"""
"""A site of the bench's own: nothing but its size matters."""


def run_planning(inputs: Inputs, *, quick: bool) -> Outcome:
    """Plan the same local job many times; a plan is its script too."""
    session = open_session(bench_cache())
    request = LaunchRequest(str(inputs.delta), COMMAND)
    container = open_container(request.container, request.image, session, command=COMMAND, dry=True)
    site = read_site("local")
    count = PLANS // 100 if quick else PLANS
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        target = choose_target(request, site, session.host)
        plan_launch(LaunchContext(request, target, container, session.host))
        taken.append(time.perf_counter() - start)
    return Outcome(
        (
            many("planning.local", "plan of a local job", [seconds * 1000 for seconds in taken], "ms"),
            one("planning.local.all", f"{count:,} of them", sum(taken), "s"),
            _large(session, times=5 if quick else 100),
            _profiles(times=3 if quick else 30),
        )
    )


def _profiles(*, times: int) -> Row:
    """Read every shipped profile from disk, check it, and settle the plainest job there."""
    names = site_names()
    taken = []
    for _ in range(times):
        parse_table.cache_clear()
        start = time.process_time()
        for name in names:
            choose_site_settings(read_site(name), Facts(nodes="2"), 1)
        taken.append((time.process_time() - start) * 1000)
    return many("planning.profiles", f"all {len(names)} profiles, CPU", taken, "ms", budget=PROFILES_MS)


def write_large_site() -> Path:
    """Write the profile of the large machine down; give its place."""
    profile = bench_folder() / "large.toml"
    profile.write_text(LARGE_SITE)
    return profile


def _large(session: Session, *, times: int) -> Row:
    """Plan a job on all nodes of a large machine, its profile read once, its script with it."""
    request = LaunchRequest(
        "/images/train.sif", COMMAND, str(write_large_site()), ResourceRequest(nodes=NODES, gpus_per_node=8)
    )
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        prepare_launch(request, session, purpose=Purpose.SHOW)
        taken.append((time.perf_counter() - start) * 1000)
    return many("planning.large", f"plan of a job on {NODES:,} nodes", taken, "ms", budget=LARGE_MS)
