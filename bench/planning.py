"""Planning: what a launch plan costs inside one process, once image and machine are known."""

from __future__ import annotations

import time

from argosy.entering import enter
from argosy.launch import LaunchRequest, plan_launch
from argosy.sites import read_site
from bench.inputs import Inputs, bench_folder, open_session
from bench.records import Outcome, many, one

COMMAND = ("python", "train.py", "--epochs", "20")
PLANS = 10_000


def run_planning(inputs: Inputs, *, quick: bool) -> Outcome:
    """Plan the same local job many times; a plan is its script too."""
    session = open_session(bench_folder() / "cache")
    request = LaunchRequest(str(inputs.delta), COMMAND)
    container = enter(request.container, request.image, session, command=COMMAND, dry=True)
    site = read_site("local")
    count = PLANS // 100 if quick else PLANS
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        plan_launch(request, container, site, session.host)
        taken.append(time.perf_counter() - start)
    return Outcome(
        (
            many("planning.local", "plan of a local job", [seconds * 1000 for seconds in taken], "ms"),
            one("planning.local.all", f"{count:,} of them", sum(taken), "s"),
        )
    )
