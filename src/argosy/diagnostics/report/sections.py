"""Decide what the sections of a report's page say; the template only arranges the texts. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

import msgspec

from argosy.core.findings import Finding, State, has_failed
from argosy.core.parse import parse_cpulist
from argosy.core.redact import hide
from argosy.core.render import HOUR, count, render_duration
from argosy.diagnostics.report.cause import OF_PROGRAM
from argosy.diagnostics.report.model import NextStep, Phase, RankRow, Report, ReportCase
from argosy.diagnostics.report.summary import capitalise, describe_writer, fill_names, join_names
from argosy.diagnostics.report.timeline import render_time
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.slurm.sbatch import option_value
from argosy.slurm.states import ENDED

OTHERS = "ended-with-others"
"""Name of the known error that reports the end of the other ranks."""

LABELS = {"ranks": "ranks started"}
"""Subject of a finding -> its label on the page, if it is another one."""

EVIDENCE = {"network": "network-lines", "GPUs": "ranks", "cores": "ranks", "bandwidth": "measured", "ranks": "ranks"}
"""Subject of a finding -> the part of the page that has its evidence."""

MARKS = {State.OK: "✓", State.WARN: "!", State.FAIL: "✗", State.UNKNOWN: "?"}

SIGNALLED = 128
"""An exit code above this is 128 and the number of a signal."""

NO_LIMIT = {"UNLIMITED": "none", "365-00:00:00": "none"}
"""Forms in which Slurm shows a job without a time limit: before and after it starts."""


class CommandLine(msgspec.Struct, frozen=True):
    """A command line to copy: its words, and whether each is underlined as new."""

    text: str
    words: tuple[tuple[str, bool], ...]

    @property
    def has_new(self) -> bool:
        """Whether any word is new."""
        return any(new for _, new in self.words)


class ErrorText(msgspec.Struct, frozen=True):
    """A known error: class of the style sheet, its cause, the line of the output, and what to do or nothing."""

    level: str
    title: str
    line: str
    fix: str


class FindingText(msgspec.Struct, frozen=True):
    """The row of a check."""

    label: str
    state: str
    """Class of the style sheet."""
    badge: str
    evidence: str
    section: str
    """The part of the page that has the evidence of a failed check; else empty."""
    hint: str


def name_state(report: Report) -> str:
    """Return ``ok``, ``warn`` if a check failed, ``fail``, ``running``, or ``unknown`` if nothing recorded the end."""
    facts = report.case.facts
    if facts.kind != ENDED:
        return "running"
    if facts.code is None:
        return "unknown"
    if facts.code:
        return "fail"
    return "warn" if has_failed(report.case.findings) else "ok"


def describe_state(report: Report) -> str:
    """Return the end of a job in a few words."""
    findings = report.case.findings
    failed = sum(each.state is State.FAIL for each in findings)
    passed = findings and all(each.state is State.OK for each in findings)
    return {
        "ok": "✓ finished, all checks passed" if passed else "✓ finished",
        "warn": f"! finished, but {count(failed, 'check')} failed",
        "fail": "✗ failed",
        "running": "… not ended",
        "unknown": "? end not known",
    }[name_state(report)]


def list_facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the facts below the heading: name and value."""
    facts, plan = report.case.facts, report.case.plan
    if plan:
        shape = plan.shape
        gpus = f" and {count(shape.gpus_per_node, 'GPU')}" if shape.gpus_per_node else ""
        each = " on each" if shape.nodes > 1 else ""
        yield "Requested", f"{count(shape.nodes, 'node')}, {count(shape.ranks_per_node, 'rank')}{gpus}{each}"
        yield "Site profile", plan.site
    values = (
        ("GPU model", report.node.gpu_model if plan and plan.shape.gpus_per_node else ""),
        ("Partition", facts.partition or _option(plan, "partition")),
        ("Account", facts.account or _option(plan, "account")),
        ("Time limit", NO_LIMIT.get(facts.time_limit, facts.time_limit) or _option(plan, "time")),
        ("Nodes", facts.nodes),
    )
    yield from ((name, value) for name, value in values if value)
    if report.timeline:
        yield "Submitted" if facts.submitted else "Started", render_time(report.timeline[0].seconds)
    started = [each.seconds for each in report.timeline if each.phase is Phase.START]
    if started and facts.kind == ENDED:
        yield "Ran for", render_duration(report.timeline[-1].seconds - started[0])
    if facts.kind == ENDED:
        used = _resources(facts, plan)
        yield from [("Used", used)] if used else []
        yield "Exit code", _exit_codes(facts)
    yield "Report written", f"{render_time(report.written)} by {report.user}"
    yield from [("Output", facts.output)] if facts.output else []
    yield from [("Record", facts.record)] if facts.record else []


def _option(plan: LaunchPlan | None, name: str) -> str:
    """Return the value of an option of sbatch that the plan has; empty without it."""
    return option_value(plan.directives, f"--{name}") if plan else ""


def _resources(facts: JobFacts, plan: LaunchPlan | None) -> str:
    """Return the hours of nodes and GPUs that all runs of a job used; empty if their times are unknown."""
    seconds = sum(run.ended - run.started for run in facts.runs if run.started and run.ended)
    if not seconds or _has_tasks(facts) or plan is None or not plan.is_job:
        return ""
    hours = seconds * plan.shape.nodes / HOUR
    gpus = hours * plan.shape.gpus_per_node
    return f"{hours:.2g} node hours" + (f", {gpus:.2g} GPU hours" if gpus else "")


def _has_tasks(facts: JobFacts) -> bool:
    """Return whether the runs are those of several tasks of an array."""
    return len({run.job for run in facts.runs}) > 1


def _exit_codes(facts: JobFacts) -> str:
    """Return the exit code; that of the rank that failed first, and of the step if the other ranks changed it."""
    if facts.code is None:
        return "not known"
    step = facts.runs[-1].code if facts.runs and not _has_tasks(facts) else facts.code
    if facts.first is None or step == facts.code:
        return str(facts.code)
    stopped = f" (the other ranks were stopped by {_signal(step - SIGNALLED)})" if step > SIGNALLED else ""
    return f"rank {facts.first.rank}: {facts.code} (failed first); step: {step}{stopped}"


def _signal(number: int) -> str:
    """Return the name of a signal, for example ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def mark_words(line: str, before: str) -> tuple[tuple[str, bool], ...]:
    """Return the words of a command line, and whether each is new; the name of a job is not marked."""
    words, known = line.split(" "), set(before.split(" "))
    names = {number + 1 for number, word in enumerate(words) if word == "--name"}
    return tuple(
        (word, bool(before) and word not in known and number not in names and not word.startswith("--name="))
        for number, word in enumerate(words)
    )


def show_command(case: ReportCase, line: str, before: str = "") -> CommandLine:
    """Return a command line to copy, with the words underlined that `before` does not have."""
    return CommandLine(line, mark_words(hide(line, case.secrets), hide(before, case.secrets)))


def list_step_texts(report: Report) -> list[list[tuple[NextStep, CommandLine | None]]]:
    """Return the next steps with their command lines, each followed by its alternatives."""
    case, steps = report.case, list[list[tuple[NextStep, CommandLine | None]]]()
    for step in report.steps:
        before = case.typed if step.command != case.typed and step.command.startswith("cd ") else ""
        text = (step, show_command(case, step.command, before) if step.command else None)
        if step.instead and steps:
            steps[-1].append(text)
        else:
            steps.append([text])
    return steps


def list_errors(report: Report, levels: Sequence[str]) -> list[ErrorText]:
    """Return the known errors of some levels; without the exception, which the top of the page explains."""
    return [
        _show_error(each, report) for each in report.case.errors if each.level in levels and each.name != OF_PROGRAM
    ]


def _show_error(error: KnownError, report: Report) -> ErrorText:
    """Return the texts of an error; without advice that the top of the page gives already."""
    facts = report.case.facts
    fix = capitalise(fill_names(error.fix, facts))
    is_new = error.level != "symptom" and fix not in _told(report)
    line = f"{facts.output.rsplit('/', 1)[-1]}, line {error.line}: {error.text}"
    return ErrorText(error.level, capitalise(_consequence(error, report.case)), line, fix if is_new else "")


def _told(report: Report) -> str:
    """Return the advice at the top of the page."""
    return " ".join((report.cause, *(step.text for step in report.steps)))


def _consequence(error: KnownError, case: ReportCase) -> str:
    """Return the cause of a symptom, which is certain if the rank that failed first is known."""
    if error.name == OTHERS and case.facts.first:
        return f"the other ranks were stopped because rank {case.facts.first.rank} had failed"
    return error.cause


def title_last_lines(case: ReportCase) -> str:
    """Return the heading of the last lines of a failed job."""
    writer = describe_writer(case)
    return f"Last lines of {writer}" + (", which failed first" if writer != "the output" else "")


def describe_excerpt(case: ReportCase) -> str:
    """Say which lines of the program the page shows; empty if it shows none."""
    if not case.excerpt or not case.excerpt.lines:
        return ""
    lines = "the traceback names the lines with ▶"
    if case.search and case.search.words:
        lines = f"the lines that contain {join_names(case.search.words)}, and the lines that use what these define"
    return f"{case.excerpt.path}: {lines}. The file was not changed after the job started."


def title_changes(case: ReportCase) -> str:
    """Return the heading of the changes."""
    job = case.compared.job
    return f"Changes since job {job}, the last run that passed" if job else "Changes since the last run that passed"


def list_changes(case: ReportCase) -> list[tuple[str, str, str]]:
    """Return the differences from the last run that passed: name, value in that run, value in this run."""
    settings = [(each.name, each.before or "not set", each.now or "not set") for each in case.compared.changes]
    missing = "not mentioned"
    return settings + [(each.name, each.before or missing, each.now or missing) for each in case.compared.observed]


def describe_equal(report: Report) -> str:
    """Say what is equal to the last run that passed, or that there is none."""
    compared = report.case.compared
    if not compared.job:
        if name_state(report) in {"fail", "warn", "unknown"}:
            return "No earlier run of this command passed its checks, so there is nothing to compare."
        return "This is the first run of this command that passed its checks, so there is nothing to compare."
    verb = "has" if len(compared.files) == 1 else "have"
    sentences = (
        f"Equal at the launch: {join_names(compared.same)}." if compared.same else "",
        f"{join_names(compared.files)} {verb} the same content in both jobs." if compared.files else "",
        "Files that the command does not name, for example modules and data, are not recorded: they may have changed.",
    )
    return " ".join(filter(None, sentences))


def list_findings(report: Report) -> list[FindingText]:
    """Return the rows of the checks; without advice that the page gives already."""
    return [_show_finding(each, report) for each in report.case.findings]


def _show_finding(finding: Finding, report: Report) -> FindingText:
    hint = fill_names(finding.hint, report.case.facts)
    is_new = hint and hint not in _told(report) and not report.case.compared.changes
    return FindingText(
        label=LABELS.get(finding.what, finding.what),
        state=finding.state,
        badge=f"{MARKS[finding.state]} {finding.state}",
        evidence=finding.evidence,
        section=EVIDENCE.get(finding.what, "") if finding.state is State.FAIL else "",
        hint=f"{capitalise(hint)}." if is_new else "",
    )


def has_misplaced_rank(ranks: Sequence[RankRow]) -> bool:
    """Return whether a rank had other cores than planned."""
    return any(each.planned and parse_cpulist(each.planned) != parse_cpulist(each.cores) for each in ranks)


def list_ranks(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield the table of ranks, its head first."""
    first = report.case.facts.first
    yield ("Rank", "Node", "Cores", "Planned", "Visible GPUs", *(["End"] if first else []))
    for each in report.ranks:
        end = [each.end or f"stopped after rank {first.rank} had failed"] if first else []
        yield (str(each.rank), each.host, each.cores, each.planned, str(each.gpus), *end)


def list_moments(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield the table of events: time, time since the first one, and event."""
    moments = report.timeline
    yield "Time", "Since submission" if report.case.facts.submitted else "Since start", "Event"
    for number, each in enumerate(moments):
        since = render_duration(each.seconds - moments[0].seconds) if number else ""
        yield render_time(each.seconds), since, each.text
    for event, reason in report.unknown:
        yield "unknown", "", f"{event}: {reason}"


def list_plan(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    """Yield the main settings of a plan: name and value."""
    shape = plan.shape
    cores = f", {count(shape.cpus_per_rank, 'core')} for each rank" if shape.cpus_per_rank else ""
    each = f"{count(shape.ranks_per_node, 'rank')} and {count(shape.gpus_per_node, 'GPU')} on each{cores}"
    yield "Site profile", plan.site
    yield "Image", plan.image
    yield "Shape", f"{count(shape.nodes, 'node')}, {each}"
    yield from plan.versions.items()


def list_choices(plan: LaunchPlan) -> Iterator[tuple[str, str, str, str]]:
    """Yield the choices of a plan as rows: name, value, reason, source."""
    for each in plan.choices:
        checked = f"checked on {each.checked}" if each.checked else ""
        yield each.key, each.value, each.why, "; ".join(filter(None, (each.source, each.evidence, checked)))
