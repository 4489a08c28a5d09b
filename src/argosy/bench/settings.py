"""Compare settings of a user's program: run it with different variables, alternately, in one job.

Each variant has its own job script, which runs as steps of the one job. A round runs each variant once.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.bench.result import VariantResult, compare_rounds
from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Variable
from argosy.core.parse import parse_float, parse_json
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import SCRIPT, find_record, new_record_folder
from argosy.launch.model import LaunchRequest
from argosy.launch.resolve import prepare_launch
from argosy.launch.submit import Launched, start_launch, write_record
from argosy.runtimes.container_plan import parse_variable
from argosy.sites.load import load_profile

AS_PLANNED = "as planned"
MARK = "argosy-variant"
"""First word of each line in the file of runs: round, variant, exit code and value of a run."""

RUN_LINE = re.compile(rf"^{MARK} (\d+) (\d+) (\d+) (\S+)$", re.MULTILINE)
NOTE, RUNS = "variants.json", "runs.txt"
"""Files in a record: the names of the variants, and a line for each run."""

LOOP = Path(__file__).with_name("data") / "settings.sh"


class Variant(msgspec.Struct, frozen=True):
    """A variant of a launch: its name and the variables that it sets."""

    name: str
    variables: tuple[Variable, ...] = ()


class ComparedRun(msgspec.Struct, frozen=True):
    """One run: round and variant, the exit code, and the value to compare; None if the program printed none."""

    round: int
    variant: int
    code: int
    value: float | None


def parse_variants(texts: Sequence[str], environment: Mapping[str, str]) -> tuple[Variant, ...]:
    """Parse variants as a user writes them, ``"NAME=VALUE NAME=VALUE"``; the first one is the unchanged plan.

    Raises
    ------
    UsageError
        If there is none, one sets no variable, or two are the same.
    """
    variants = [Variant(AS_PLANNED)]
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"invalid --try {text}: {error}", hint='for example --try "NCCL_PROTO=LL NCCL_ALGO=Ring"'
            ) from error
        if not words or not all("=" in word for word in words):
            raise UsageError(
                f"--try {text!r} sets no variable", hint='write NAME=VALUE, several with blanks: --try "A=1 B=2"'
            )
        variants.append(Variant(" ".join(words), tuple(parse_variable(word, environment) for word in words)))
    if len(variants) == 1:
        raise UsageError("no setting to compare is given", hint="add --try NAME=VALUE, once or several times")
    names = [variant.name for variant in variants]
    repeated = next((name for name in names if names.count(name) > 1), "")
    if repeated:
        raise UsageError(f"{repeated} is given twice", hint="remove one --try")
    return tuple(variants)


def with_variant(request: LaunchRequest, variant: Variant) -> LaunchRequest:
    """Return a request with the variables of a variant; they replace those of the request."""
    own = {variable.name for variable in variant.variables}
    kept = tuple(each for each in request.container.variables if each.name not in own)
    choice = Choice(ChoiceKey.VARIANT, variant.name, "compared with other settings", "bench settings")
    container = replace(request.container, variables=(*kept, *variant.variables))
    return replace(request, container=container, choices=(*request.choices, choice))


def launch_variants(
    request: LaunchRequest, variants: Sequence[Variant], session: Session, *, rounds: int, phrase: str
) -> Launched:
    """Submit or start a job that runs all variants alternately.

    Parameters
    ----------
    rounds
        Number of runs of each variant.
    phrase
        Text before the number to compare in the program's output; empty compares the seconds of a run.
    """
    folder = new_record_folder(session)
    folders = [folder / f"variant-{number}" for number in range(len(variants))]
    profile = load_profile(request.site, session.host)
    plans = [
        prepare_launch(with_variant(request, variant), session, profile=profile, record=str(record))
        for variant, record in zip(variants, folders, strict=True)
    ]
    scripts = [str(record / SCRIPT) for record in folders]
    script = render_job(plans[0], variants, scripts, rounds=rounds, phrase=phrase, runs=str(folder / RUNS))
    write_record(replace(plans[0], script=script), folder, session)
    for plan, record in zip(plans, folders, strict=True):
        write_record(plan, record, session)
    note = {"variants": [variant.name for variant in variants], "what": _value_name(phrase)}
    write_text(folder / NOTE, json.dumps(note) + "\n")
    return start_launch(plans[0], folder, session, request)


SECONDS = "seconds of a run"
"""Name of the compared value without --metric."""


def _value_name(phrase: str) -> str:
    return f"the number after {phrase!r}" if phrase else SECONDS


def render_job(
    first: LaunchPlan, variants: Sequence[Variant], scripts: Sequence[str], *, rounds: int, phrase: str, runs: str
) -> str:
    """Render the job script that runs the variants alternately.

    Parameters
    ----------
    first
        The plan of the first variant; its options for Slurm are those of the job.
    scripts
        The script of each variant; the output of its runs is written next to it.
    phrase
        Text before the number to compare; empty compares the seconds of a run.
    runs
        File that gets a line for each run.
    """
    names = [ascii(variant.name)[1:-1] for variant in variants]
    numbers = [str(number) for number in range(len(variants))]
    choices: list[str] = []
    for number, name, script in zip(numbers, names, scripts, strict=True):
        choices += [f"    {number}) name={quote(name)} script={quote(script)}", ";;"]
    lines = (
        "#!/bin/sh",
        *(line for line in first.script.splitlines() if line.startswith("#SBATCH ")),
        f"# Runs {len(variants)} variants of a program in {rounds} rounds, and compares {_value_name(phrase)}.",
        *(f"#   {number}: {name}" for number, name in zip(numbers, names, strict=True)),
        "# Written by Argosy, which this script does not need.",
        f"rounds={rounds} metric={quote(phrase)} unit={quote('' if phrase else ' s')} runs={quote(runs)}",
        f"forwards={quote(' '.join(numbers))} backwards={quote(' '.join(reversed(numbers)))}",
        "choose() {",
        "    case $1 in",
        *choices,
        "    esac",
        "}",
    )
    return "\n".join(lines) + "\n" + LOOP.read_text(encoding="utf-8")


def parse_runs(text: str) -> tuple[ComparedRun, ...]:
    """Return the runs in a file of runs; other lines are ignored."""
    return tuple(
        ComparedRun(int(number), int(variant), int(code), parse_float(value))
        for number, variant, code, value in RUN_LINE.findall(text)
    )


def compare(variants: Sequence[str], runs: Sequence[ComparedRun]) -> tuple[VariantResult, ...]:
    """Compare each variant with the first one."""
    values: list[dict[int, float]] = [{} for _ in variants]
    for run in runs:
        if not run.code and run.value is not None:
            values[run.variant][run.round] = run.value
    rounds = len({run.round for run in runs})
    return tuple(
        compare_rounds(name, values[number], values[0] if number else {}, rounds)
        for number, name in enumerate(variants)
    )


def read_runs(record: Path) -> tuple[tuple[str, ...], tuple[ComparedRun, ...], str]:
    """Return the names of the variants, the runs in a record, and the name of the compared value.

    Raises
    ------
    UsageError
        If the job compares nothing, or no run has ended yet.
    """
    try:
        note = parse_json((record / NOTE).read_text(encoding="utf-8"))
        runs = parse_runs((record / RUNS).read_text(encoding="utf-8"))
        return tuple(note["variants"]), runs, str(note["what"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            "there is nothing to compare yet",
            evidence=str(error),
            hint="wait for the first round; only jobs of 'argosy bench settings' compare settings",
        ) from error


def read_report(record: Path) -> tuple[tuple[VariantResult, ...], str]:
    """Return the comparison of the runs in a record, and the name of the compared value; see `read_runs`."""
    variants, runs, what = read_runs(record)
    return compare(variants, runs), what


def report_of(job: str, session: Session) -> tuple[tuple[VariantResult, ...], str]:
    """Return the comparison of a job by its number, as `read_report` does."""
    record = find_record(session, job)
    if record is None:
        raise UsageError(f"there is no record of job {job}", hint="see your jobs with 'argosy jobs --past 20'")
    return read_report(record)


def render_comparison(rows: Sequence[VariantResult], what: str) -> str:
    """Render a comparison as a table.

    Parameters
    ----------
    what
        Name of the compared value.
    """
    width = max(len(row.variant) for row in rows)
    lines = [f"{'setting':<{width}}  runs  {'median':>10}  {'ratio':>6}  difference ({what})"]
    for row in rows:
        middle = "-" if row.median is None else f"{row.median:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        between = "" if row.low is None or row.high is None else f"{row.low:+.3g} to {row.high:+.3g}: "
        failed = f" ({row.failed} failed)" if row.failed else ""
        line = f"{row.variant:<{width}}  {row.runs:>4}  {middle:>10}  {ratio:>6}  {between}{row.verdict}{failed}"
        lines.append(line.rstrip())
    return "\n".join(lines)
