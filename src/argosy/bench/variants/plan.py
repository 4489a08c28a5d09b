"""Ways to run a program, and the script that runs them in turns; pure.

Each way is a job script of its own, which runs as steps of the one job.  A round runs each way once, every second one
in the other order, so that what drifts (heat, neighbours, a cache that fills) meets all of them; one run before the
first round warms the caches and is not counted.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Variable
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.runtimes.container_plan import parse_variable

AS_PLANNED = "as planned"
LINE = "argosy-way"
"""What the lines of the kept file begin with: each tells round, way, exit code and the compared number of a run."""

READ_METRIC = """\
# The first number after the last "$1" in the file $2.
metric() { phrase=$1 awk 'at = index($0, ENVIRON["phrase"]) {
    rest = substr($0, at + length(ENVIRON["phrase"]))
    if (match(rest, /[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?/)) found = substr(rest, RSTART, RLENGTH)
} END { print found }' "$2"; }"""

READ_CLOCK = """\
# Seconds since $1, which `date` gave.
since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.3f\\n", b - a }'; }"""


class Variant(msgspec.Struct, frozen=True):
    """One way to run a program: what it is called, and the variables that it sets."""

    name: str
    variables: tuple[Variable, ...] = ()


def parse_variants(texts: Sequence[str], environment: Mapping[str, str]) -> tuple[Variant, ...]:
    """Read ways as a user writes them, ``"NAME=VALUE NAME=VALUE"``; the first is the plan as it is.

    Raises
    ------
    UsageError
        When there is none, one sets nothing, or two are the same.
    """
    variants = [Variant(AS_PLANNED)]
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--try {text}: {error}", hint='as in --try "NCCL_PROTO=LL NCCL_ALGO=Ring"') from error
        if not words or not all("=" in word for word in words):
            raise UsageError(
                f"--try {text!r} sets no variable", hint='write NAME=VALUE, several with blanks: --try "A=1 B=2"'
            )
        variants.append(Variant(" ".join(words), tuple(parse_variable(word, environment) for word in words)))
    if len(variants) == 1:
        raise UsageError("there is nothing to try", hint="add --try NAME=VALUE, as often as you like")
    names = [variant.name for variant in variants]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UsageError(f"{twice} is tried twice", hint="leave one out")
    return tuple(variants)


def with_variant(request: LaunchRequest, variant: Variant) -> LaunchRequest:
    """Give the request that sets what a way sets, whatever was set before."""
    own = {variable.name for variable in variant.variables}
    kept = tuple(each for each in request.container.variables if each.name not in own)
    told = Choice(ChoiceKey.VARIANT, variant.name, "tried beside others", "bench settings")
    container = replace(request.container, variables=(*kept, *variant.variables))
    return replace(request, container=container, choices=(*request.choices, told))


def render_driver(
    first: LaunchPlan, variants: Sequence[Variant], scripts: Sequence[str], *, rounds: int, phrase: str, runs: str
) -> str:
    """Render the job script that runs the ways in turns.

    Parameters
    ----------
    first
        The plan of the first way: its lines for Slurm hold for all.
    scripts
        Where the script of each way lies; what its runs print lies beside it.
    phrase
        What the compared number follows in the output; empty compares the seconds of a run.
    runs
        File that gets a line for each run, for programs; the output gets one for people.
    """
    numbers = " ".join(map(str, range(len(variants))))
    backwards = " ".join(map(str, reversed(range(len(variants)))))
    measured = f'value=$(metric {quote(phrase)} "$out")' if phrase else 'value=$(since "$began")'
    what = f"the number after {phrase!r}" if phrase else "the seconds of a run"
    kept = f'echo "{LINE} $round $way $code ${{value:--}}" >> {quote(runs)}'
    unit = "" if phrase else " s"
    told = f'printf "%s\\n" "round $round of {rounds}: $name: ${{value:--}}{unit}$failed"'
    lines = (
        "#!/bin/sh",
        *(line for line in first.script.splitlines() if line.startswith("#SBATCH ")),
        f"# {len(variants)} ways to run one program, {rounds} rounds; compared is {what}.",
        *(f"#   {number}: {ascii(variant.name)[1:-1]}" for number, variant in enumerate(variants)),
        "# Made by Argosy; it needs no Argosy where it runs.",
        "set -u",
        READ_METRIC if phrase else READ_CLOCK,
        "step=''; trap '[ -z \"$step\" ] || kill -s TERM \"$step\" 2>/dev/null; exit 143' TERM INT",
        "worst=0",
        "# Words: round, way.",
        "run() {",
        "    case $2 in",
        *(
            f"    {number}) name={quote(ascii(variant.name)[1:-1])} script={quote(script)} ;;"
            for number, (variant, script) in enumerate(zip(variants, scripts, strict=True))
        ),
        "    esac",
        "    out=${script%.sh}-$1.out code=0" + ("" if phrase else " began=$(date +%s.%N)"),
        '    sh "$script" > "$out" 2>&1 & step=$!',
        '    wait "$step" || code=$?',
        f"    step='' {measured}",
        '    failed=""; [ "$code" -eq 0 ] || { worst=$code failed=" (code $code)"; tail -n 5 "$out"; }',
        "}",
        "run 0 0  # warms the caches; not counted",
        'round=1; while [ "$round" -le ' + f"{rounds} ]; do",
        f'    order="{numbers}"; [ $((round % 2)) -eq 1 ] || order="{backwards}"',
        f'    for way in $order; do run "$round" "$way"; {kept}; {told}; done',
        "    round=$((round + 1))",
        "done",
        'exit "$worst"',
    )
    return "\n".join(lines) + "\n"
