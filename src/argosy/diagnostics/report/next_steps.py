"""List the next steps of a report in their order, each with its command and cost, and other useful commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.findings import has_failed
from argosy.core.render import HOUR, count, render_duration
from argosy.core.shell import join, quote
from argosy.diagnostics.report.cause import (
    CARDS,
    changes_only_arguments,
    describe_difference,
    find_definitions,
    find_failed_check,
    find_known_error,
    find_settings,
    find_wrong_cards,
)
from argosy.diagnostics.report.model import Comparison, NextStep, ReportCase, Search
from argosy.diagnostics.report.source import describe_return
from argosy.diagnostics.report.summary import describe_writer, fill_names, join_names, sentence
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import SCRIPT, recording_command
from argosy.slurm.states import ENDED

TYPED = re.compile(r"^cd .+? && argosy launch(?!(?:(?! -- ).)* (?:--nodelist|-w)\b) ")
"""The beginning of a recorded command line that names no nodes."""

BILLED = ("--partition=", "--account=", "--qos=", "--reservation=")
"""Options that a job on the same nodes needs, too."""

DEVICES, CARD_NAMES = "/dev/infiniband", "/sys/class/infiniband"
"""The device files that a hint names, and the folder with the names of the cards."""


def list_steps(case: ReportCase) -> Iterator[NextStep]:
    """Yield the next steps after a job that failed, or whose checks failed; nothing for other jobs."""
    facts = case.facts
    if facts.kind != ENDED:
        return
    if facts.advice and facts.is_local:
        again = "The output was not recorded. Run the program again with its output in a file."
        yield NextStep(again, recording_command(Path(facts.record)), "Type it on this machine.")
    elif facts.advice:
        yield NextStep(f"{sentence(facts.advice)}.")
    elif facts.code:
        yield from _steps_of_failure(case)
    elif has_failed(case.findings):
        yield from _steps_of_check(case)


def _steps_of_failure(case: ReportCase) -> Iterator[NextStep]:
    """Yield the steps after a failure: first look at the evidence, then correct what explains it."""
    known, compared = find_known_error(case), case.compared
    target = "the program or its input"
    if known:
        yield NextStep(f"{sentence(fill_names(known.fix, case.facts))}.")
    elif case.raised and case.search:
        data = [f"{each.name}, line {each.line}" for each in find_definitions(case)]
        target = f"line {case.raised.frames[-1].line}, or {f'its data ({data[0]})' if data else 'its input'}"
        yield _look(case, case.search, f"line {case.raised.frames[-1].line} of {Path(case.search.path).name}")
    elif case.facts.last_lines:
        yield NextStep(f"Look at the last lines of {describe_writer(case)}, below.", section="failure")
    else:
        yield NextStep("Read the last lines of the output.", f"argosy logs {case.facts.id}", _free(case))
    again = f"{target}, then launch this job again. It fails again if nothing changed."
    if not case.plan or not case.plan.is_job:
        return
    if not compared.changes:
        yield NextStep(f"Correct {again}", *_launch_again(case))
        return
    what = f"the {describe_difference(compared)}" if changes_only_arguments(compared) else "the recorded differences"
    back = f"If you did not want {what}: {_launch_before(compared)}."
    yield NextStep(back, compared.repeat, _cost(case))
    yield NextStep(f"If you wanted {what}: correct {again}", *_launch_again(case), instead=True)


def _launch_before(compared: Comparison) -> str:
    """Say what to launch instead, for example ``launch with 'ib', as in job 5``."""
    if not changes_only_arguments(compared):
        return f"launch job {compared.job} again"
    return f"launch {describe_return(compared.changes[0])}, as in job {compared.job}"


def _steps_of_check(case: ReportCase) -> Iterator[NextStep]:
    """Yield the steps that separate a change since the last run that passed from a fault of the nodes or the image."""
    failed, compared, plan = find_failed_check(case), case.compared, case.plan
    if not plan or not plan.is_job:
        return
    steps = list(_steps_of_changes(case)) if compared.changes else []
    if not compared.changes and failed and DEVICES not in failed.hint:
        steps.append(NextStep(f"{sentence(fill_names(failed.hint, case.facts))}."))
    if "/" in plan.image:
        when = f"If the run of step {len(steps)} fails its checks: check" if compared.changes else "Check"
        line = f"argosy check {quote(plan.image)} --site {quote(case.profile)}"
        steps.append(NextStep(f"{when} the libraries of the image.", line, _free(case)))
    if failed and DEVICES in failed.hint:
        steps.append(_probe(case, plan, len(steps)))
    if not compared.changes:
        steps.append(NextStep("Launch the job again to find out if the fault is permanent.", *_launch_again(case)))
    yield from steps


def _steps_of_changes(case: ReportCase) -> Iterator[NextStep]:
    """Yield the steps that find and revert the change that is the cause."""
    compared = case.compared
    if changes_only_arguments(compared) and case.search:
        yield _look(case, case.search, _name_lines(case, Path(case.search.path).name))
    else:
        line = f"argosy jobs diff {compared.job} {case.facts.id}"
        yield NextStep("Compare the two jobs.", line, _free(case))
    repeat = add_nodes(compared.repeat, case.facts.nodes)
    nodes = ", on the nodes of this job" if repeat != compared.repeat else ""
    launch = f"{sentence(_launch_before(compared))}{nodes}. If it passes its checks, the cause is confirmed."
    yield NextStep(f"{launch}{_keep(case)}", repeat, _cost(case))


def _name_lines(case: ReportCase, name: str) -> str:
    """Name the lines of a program that explain a failed check."""
    found = next(iter(find_settings(case).values()), None)
    if found:
        return f"line {found.line} of {name}"
    return f"the lines of {name} that contain a new argument, or a variable of NCCL"


def _keep(case: ReportCase) -> str:
    """Say what to do after the run of the earlier arguments has passed."""
    compared, wrong = case.compared, find_wrong_cards(case.compared)
    if not changes_only_arguments(compared):
        return ""
    found = find_settings(case).get(wrong.name) if wrong else None
    passed = f" Then launch {describe_return(compared.changes[0])} from now on"
    if found:
        cards = join_names(compared.cards)
        return f"{passed}, or correct line {found.line} so that {CARDS} names your cards ({cards})."
    return f"{passed}, or correct what the {describe_difference(compared)} selects."


def _look(case: ReportCase, search: Search, what: str) -> NextStep:
    """Return the step that looks at lines of the program: on the page, or with a command if the page has none."""
    if case.excerpt and case.excerpt.lines:
        more = "" if search.words else ", and at the lines with ▶ that lead to it"
        return NextStep(f"Look at {what}, below{more}.", section="program")
    argv = ["sed", "-n", f"{search.first},{search.last}p"]
    if search.words:
        argv = ["grep", "-nF", *(word for each in search.words for word in ("-e", each))]
    inside = ("argosy", "run", case.plan.image, "--") if search.in_image and case.plan else ()
    line = join((*inside, *argv, search.path))
    return NextStep(f"Look at {what}.", join(("ssh", case.ssh, line)) if case.ssh else line, _free(case))


def _launch_again(case: ReportCase) -> tuple[str, str]:
    """Return the command that launches a job again, and what it costs."""
    return case.typed or f"sbatch {quote(str(Path(case.facts.record, SCRIPT)))}", _cost(case)


def _free(case: ReportCase) -> str:
    """Say where to type a command that starts no job."""
    unit = "GPU" if case.plan and case.plan.shape.gpus_per_node else "node"
    return f"Type it on {_place(case)}; costs no {unit} hours."


def _place(case: ReportCase) -> str:
    return "the machine from which you launched the job" if case.ssh else "a login node"


def _cost(case: ReportCase) -> str:
    if case.plan is None:
        return ""
    shape, compared = case.plan.shape, case.compared
    gpus = shape.nodes * shape.gpus_per_node
    size = count(shape.nodes, "node") + (f", {count(gpus, 'GPU')} in all" if gpus else "")
    if not compared.seconds:
        return f"Type it on {_place(case)}; submits a job: {size}."
    hours = compared.seconds / HOUR * (gpus or shape.nodes)
    unit = "GPU" if gpus else "node"
    took = f"{render_duration(compared.seconds)} in job {compared.job}"
    return f"Type it on {_place(case)}; costs about {hours:.2g} {unit} hours ({size}, {took})."


def add_nodes(line: str, nodes: str) -> str:
    """Return a command line that launches a job on these nodes; unchanged if the line names nodes already."""
    if nodes and line.startswith("sbatch "):
        return f"sbatch --nodelist={quote(nodes)} {line.removeprefix('sbatch ')}"
    found = TYPED.match(line) if nodes else None
    return f"{found[0]}--nodelist {quote(nodes)} {line[found.end() :]}" if found else line


def _probe(case: ReportCase, plan: LaunchPlan, number: int) -> NextStep:
    """Return the step after step `number` that lists the network cards in a container on the first node."""
    gpus, cards = plan.shape.gpus_per_node, case.compared.cards
    billed = [option for option in plan.directives if option.startswith(BILLED)]
    argv = [
        *("argosy", "launch", plan.image, "--site", case.profile),
        *("--nodes", "1", "--ranks", "1", *(("--gpus-per-node", str(gpus)) if gpus else ()), *billed),
        *(("--nodelist", case.facts.ranks[0].host) if case.facts.ranks else ()),
        *("--follow", "--", "ls", CARD_NAMES),
    ]
    when = f"If step {number} finds no fault: list" if number else "List"
    report = "If one is missing, report the node to the support of the site; if none is, send them this page."
    expected = f" Expected: {join_names(cards)}. {report}" if cards else ""
    node = case.facts.ranks[0].host if case.facts.ranks else "a node"
    size = f"1 node, {count(gpus, 'GPU')}" if gpus else "1 node"
    return NextStep(
        f"{when} the names of the network cards in a container on {node}.{expected}",
        join(argv),
        f"Type it on {_place(case)}; submits a job: {size}, for a few seconds.",
    )


def list_commands(case: ReportCase) -> Iterator[tuple[str, str]]:
    """Yield command lines, the most useful first: purpose and line."""
    facts, plan = case.facts, case.plan
    script = quote(str(Path(facts.record) / SCRIPT))
    if plan and not plan.is_job:
        yield "Run it again", f"sh {script}"
        return
    if facts.kind != ENDED:
        yield "Cancel the job", f"argosy cancel {facts.id}"
    elif plan and facts.record and not case.typed and not facts.code and not has_failed(case.findings):
        yield "Launch it again", f"sbatch {script}"
    yield "See the whole output", f"argosy logs {facts.id}"
    if not case.findings:
        yield "Check network, GPUs and cores", f"argosy verify {facts.id}"
    if plan:
        yield "Show why each setting has its value", f"argosy explain {facts.id}"
