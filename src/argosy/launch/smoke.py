"""A smoke run: the same plan on at most two nodes, for three minutes, in the site's queue for short tests; pure.

What still runs when the three minutes are nearly over has shown that it works: it is ended, and the job ends well.
"""

from __future__ import annotations

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey
from argosy.core.records import replace
from argosy.launch.model import LaunchRequest
from argosy.sites.profile import Site
from argosy.sites.resolve import evident_choice

NODES, TIME, SECONDS = 2, "00:03:00", 120
"""Nodes and time limit of a smoke run, and the seconds after which what still runs is ended: torchrun takes 30 more."""


def as_smoke(request: LaunchRequest, site: Site) -> LaunchRequest:
    """Return the request of a smoke run: fewer nodes with as many ranks on each, the debug queue, no restarts.

    Raises
    ------
    UsageError
        Where there is no queue.
    """
    if not site.has_slurm:
        raise UsageError("--smoke needs a site with Slurm", hint="here, launch it as it is: there is no queue")
    wanted = request.wanted
    nodes = min(NODES, wanted.nodes or 1)
    asked = wanted.nodes or 1
    smaller = replace(wanted, nodes=nodes, ranks=wanted.ranks // asked * nodes, gpus=wanted.gpus // asked * nodes)
    queue, why = _debug_queue(request, site)
    options = replace(request.options, **queue, time=TIME, array="", dependency="", signal="", requeue=False)  # type: ignore[arg-type]  # the names are those of text fields
    return replace(
        request,
        wanted=smaller,
        options=options,
        name=f"{request.name}-smoke" if request.name else "",
        restarts=0,
        elastic="",
        checkpoint="",
        smoke=True,
        choices=(*request.choices, *why, Choice("--time", TIME, "long enough to start and to meet", "option --smoke")),
    )


def _debug_queue(request: LaunchRequest, site: Site) -> tuple[dict[str, str], tuple[Choice, ...]]:
    """Return partition or QOS for short tests: the profile's; where it names none, the job's own, and it is said."""
    debug = next((each for each in site.partitions if each.debug), None)
    if debug:
        why = "the site's partition for short tests"
        return {"partition": debug.name}, (evident_choice(site, debug, ChoiceKey.PARTITION, debug.name, why=why),)
    if site.slurm.debug_qos:
        why = "the site's QOS for short tests"
        row = evident_choice(site, site.slurm, "--qos", site.slurm.debug_qos, field="debug_qos", why=why)
        return {"qos": site.slurm.debug_qos}, (row,)
    queue = request.options.partition or "the usual one"
    return {}, (
        Choice(ChoiceKey.QUEUE, queue, "the profile names no partition or QOS for short tests", f"site {site.name}"),
    )


def render_timer() -> str:
    """End a smoke run that works, before Slurm's time limit does."""
    return f"end_smoke_run_after {SECONDS}"


def render_enough() -> str:
    """Count a smoke run that was ended by its timer as good."""
    return "judge_smoke_run"
