"""List the next steps of a report in their order: each is one action with its command, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.findings import has_failed
from argosy.core.plural import count
from argosy.core.shell import join, quote
from argosy.diagnostics.report.cause import (
    changes_only_arguments,
    describe_difference,
    find_failed_check,
    find_known_cause,
)
from argosy.diagnostics.report.drawings import render_seconds
from argosy.diagnostics.report.model import Case, Search, Step
from argosy.diagnostics.report.summary import fill_names, sentence
from argosy.slurm.text import ENDED

HERE = "Runs on this machine, for example a login node, and uses no time of a job."

TYPED = re.compile(r"^cd .+? && argosy launch (?!.*(?:--nodelist|-w)\b)")
"""The beginning of a recorded command line that names no nodes."""

BILLED = ("--partition=", "--account=", "--qos=", "--reservation=")
"""Options that a job on the same nodes needs, too."""

DEVICES = "/dev/infiniband"


def list_steps(case: Case) -> Iterator[Step]:
    """Yield the next steps after a job that failed, or whose checks failed; nothing for other jobs."""
    facts = case.facts
    if facts.kind != ENDED:
        return
    if facts.advice:
        yield Step(f"{sentence(facts.advice)}.")
    elif facts.code:
        yield from _steps_of_failure(case)
    elif has_failed(case.findings):
        yield from _steps_of_check(case)


def _steps_of_failure(case: Case) -> Iterator[Step]:
    """Yield the steps after a failure: first read the evidence, then correct what explains it."""
    known, compared = find_known_cause(case), case.compared
    if known:
        yield Step(f"{sentence(fill_names(known.fix, case.facts))}.")
    elif case.raised and case.search:
        lines = f"lines {case.search.first} to {case.search.last}"
        raised = f"line {case.raised.frames[-1].line} raised the error"
        yield Step(f"Read {lines} of {case.search.path}; {raised}.", *_read(case, case.search))
    else:
        yield Step("Read the last lines of the output.", f"argosy logs {case.facts.id}", HERE)
    again = "Correct the program or its input, then launch this job again."
    if not case.plan or not case.plan.is_job:
        return
    if not compared.changes:
        yield Step(again, *_launch_again(case))
        return
    what = f"the {describe_difference(compared)}" if changes_only_arguments(compared) else "the recorded differences"
    yield Step(f"If you did not want {what}: launch job {compared.job} again.", compared.repeat, _cost(case))
    command, where = _launch_again(case)
    yield Step(f"If you did: {again[:1].lower()}{again[1:]}", command, where, instead=True)


def _steps_of_check(case: Case) -> Iterator[Step]:
    """Yield the steps that separate a change since the last run that passed from a fault of the nodes or the image."""
    failed, compared = find_failed_check(case), case.compared
    if not case.plan or not case.plan.is_job:
        return
    if compared.changes:
        yield from _steps_of_changes(case)
        check = "If its checks fail, too: check the libraries of the image."
    else:
        if failed and DEVICES not in failed.hint:
            yield Step(f"{sentence(fill_names(failed.hint, case.facts))}.")
        check = "Check the libraries of the image."
    if "/" in case.plan.image:
        profile = case.profile or case.plan.site
        yield Step(check, f"argosy check {quote(case.plan.image)} --site {quote(profile)}", HERE)
    if failed and DEVICES in failed.hint:
        yield Step("If the image is right: list the network cards that a container on a node has.", *_probe(case))
    if not compared.changes:
        yield Step("Launch the job again to find out if the fault is permanent.", *_launch_again(case))


def _steps_of_changes(case: Case) -> Iterator[Step]:
    """Yield the steps that find and confirm the change that is the cause."""
    compared = case.compared
    if changes_only_arguments(compared) and case.search:
        what = f"the {describe_difference(compared)}"
        yield Step(f"Find what {what} sets in {case.search.path}.", *_read(case, case.search))
    else:
        what = "the difference"
        yield Step("Compare the two jobs.", f"argosy jobs diff {compared.job} {case.facts.id}", HERE)
    repeat = add_nodes(compared.repeat, case.facts.nodes)
    nodes = " on the nodes of this job" if repeat != compared.repeat else ""
    yield Step(
        f"Launch job {compared.job} again{nodes}. If it passes its checks, {what} is the cause.", repeat, _cost(case)
    )


def _read(case: Case, search: Search) -> tuple[str, str]:
    """Return the command that prints lines of the program, and where it runs."""
    argv = ["sed", "-n", f"{search.first},{search.last}p"]
    if search.words:
        argv = ["grep", "-nF", *(word for each in search.words for word in ("-e", each))]
    inside = ("argosy", "run", case.plan.image, "--") if search.in_image and case.plan else ()
    line = join((*inside, *argv, search.path))
    return (join(("ssh", case.ssh, line)), f"Runs on {case.ssh}.") if case.ssh else (line, HERE)


def _launch_again(case: Case) -> tuple[str, str]:
    """Return the command that launches a job again, and what it costs."""
    return case.typed or f"sbatch {quote(str(Path(case.facts.record, 'job.sh')))}", _cost(case)


def _cost(case: Case) -> str:
    """Say what a job of this shape costs."""
    if case.plan is None:
        return ""
    shape, compared = case.plan.shape, case.compared
    gpus = f" with {count(shape.nodes * shape.gpus_per_node, 'GPU')}" if shape.gpus_per_node else ""
    took = f"; job {compared.job} took {render_seconds(compared.seconds)}" if compared.seconds else ""
    return f"Submits a job: {count(shape.nodes, 'node')}{gpus}{took}."


def add_nodes(line: str, nodes: str) -> str:
    """Return a command line that launches a job on these nodes; unchanged if the line names nodes already."""
    if nodes and line.startswith("sbatch "):
        return f"sbatch --nodelist={quote(nodes)} {line.removeprefix('sbatch ')}"
    found = TYPED.match(line) if nodes else None
    return f"{found[0]}--nodelist {quote(nodes)} {line[found.end() :]}" if found else line


def _probe(case: Case) -> tuple[str, str]:
    """Return the command that lists the network cards in a container on the first node, and what it costs."""
    if case.plan is None:
        return "", ""
    gpus = case.plan.shape.gpus_per_node
    billed = [option for option in case.plan.directives if option.startswith(BILLED)]
    argv = [
        *("argosy", "launch", case.plan.image, "--site", case.profile or case.plan.site),
        *("--nodes", "1", "--ranks", "1", *(("--gpus-per-node", str(gpus)) if gpus else ()), *billed),
        *(("--nodelist", case.facts.ranks[0].host) if case.facts.ranks else ()),
        *("--follow", "--", "ls", "-l", DEVICES),
    ]
    with_gpus = f" with {count(gpus, 'GPU')}" if gpus else ""
    return join(argv), f"Submits a job: 1 node{with_gpus}, for a few seconds."
