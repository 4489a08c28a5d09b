"""Ways to run a program: what users write, the script that runs them in turns, what came of it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.bench.result import sign_interval
from argosy.bench.settings import (
    MARK,
    ComparedRun,
    Variant,
    compare,
    parse_runs,
    parse_variants,
    render_comparison,
    render_job,
    with_variant,
)
from argosy.core.errors import UsageError
from argosy.core.model import ContainerRequest, Variable
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch.model import LaunchRequest

Ended = subprocess.CompletedProcess[str]
PHRASE = "it took:"
PLAN = LaunchPlan(
    name="x",
    site="lab",
    scheduler="slurm",
    image="x.sif",
    digest="",
    shape=JobShape(nodes=2, ranks_per_node=1),
    choices=(),
    script="#!/bin/sh\n#SBATCH --nodes=2\nset -eu\necho 1\n",
    submit=("sbatch", "{script}"),
)


def test_settings_are_parsed_and_the_first_is_the_plan_itself() -> None:
    variants = parse_variants(["A=1", "B='two words' C="], {})
    assert variants[0] == Variant("as planned")
    assert variants[1] == Variant("A=1", (Variable("A", "1"),))
    assert variants[2].variables == (Variable("B", "two words"), Variable("C", ""))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "no setting to compare"),
        (["A"], "sets no variable"),
        ([""], "sets no"),
        (["A='"], "--try"),
        (["A=1", "A=1"], "twice"),
    ],
)
def test_an_invalid_setting_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_variants(texts, {})


def test_a_setting_overrides_earlier_values() -> None:
    before = ContainerRequest(variables=(Variable("A", "0"), Variable("K", "kept")))
    request = with_variant(LaunchRequest("x.sif", ("true",), container=before), Variant("A=1", (Variable("A", "1"),)))
    assert request.container.variables == (Variable("K", "kept"), Variable("A", "1"))
    assert request.choices[-1].value == "A=1"


def complaints(text: str) -> str:
    """Give what shellcheck says of a script."""
    words = (shutil.which("shellcheck") or "shellcheck", "-s", "sh", "-")
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False).stdout


def driver(folder: Path, programs: list[str], *, rounds: int, phrase: str = "") -> tuple[Ended, str]:
    """Render and run a driver of these programs; give how it ended, and its text."""
    scripts = [folder / f"it's way {number}.sh" for number in range(len(programs))]
    for script, program in zip(scripts, programs, strict=True):
        script.write_text(program)
    variants = [Variant(f"way {number}\nof some") for number in range(len(programs))]
    names = [str(script) for script in scripts]
    text = render_job(PLAN, variants, names, rounds=rounds, phrase=phrase, runs=str(folder / "runs"))
    done = subprocess.run(["/bin/sh"], input=text, capture_output=True, text=True, check=False, cwd=folder)
    return done, text


def test_the_driver_alternates_settings_after_one_uncounted_run(tmp_path: Path) -> None:
    done, text = driver(tmp_path, ["echo 0 >> order", "echo 1 >> order"], rounds=3)
    assert (tmp_path / "order").read_text().split() == ["0", "0", "1", "1", "0", "0", "1"]
    runs = parse_runs((tmp_path / "runs").read_text())
    assert [(run.round, run.variant, run.code) for run in runs] == [
        *((1, 0, 0), (1, 1, 0), (2, 1, 0), (2, 0, 0), (3, 0, 0), (3, 1, 0)),
    ]
    assert all(run.value is not None for run in runs)
    shown = [re.sub(r"[0-9.]+ s$", "N s", line) for line in done.stdout.splitlines()]
    assert shown[:2] == [r"round 1 of 3: way 0\nof some: N s", r"round 1 of 3: way 1\nof some: N s"]
    assert "#SBATCH --nodes=2" in text
    assert complaints(text) == ""


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("it took: 12.5 s", 12.5),
        ("it took:7", 7.0),
        ("it took: 1 s\nit took: -2e-3 s", -0.002),
        ("loss 3, it took: 4", 4.0),
        ("it took: .5", 0.5),
        ("nothing", None),
        ("it took: long", None),
    ],
)
def test_the_number_after_a_phrase_is_read(printed: str, value: float | None, tmp_path: Path) -> None:
    done, text = driver(tmp_path, [f"printf '%s\\n' '{printed}'"], rounds=1, phrase=PHRASE)
    assert [run.value for run in parse_runs((tmp_path / "runs").read_text())] == [value]
    assert done.stdout.startswith(r"round 1 of 1: way 0\nof some: ")
    assert complaints(text) == ""


def test_a_failing_setting_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    done, _ = driver(tmp_path, ["exit 0", "echo broken; exit 3"], rounds=2)
    assert done.returncode == 3
    assert "broken" in done.stdout
    assert re.search(r"^round 2 of 2: way 1\\nof some: \S+ s \(code 3\)$", done.stdout, re.MULTILINE)
    rows = compare(["first", "second"], parse_runs((tmp_path / "runs").read_text()))
    assert (rows[0].runs, rows[0].failed) == (2, 0)
    assert (rows[1].runs, rows[1].failed, rows[1].verdict) == (0, 2, "no run to compare")
    assert "(2 failed)" in render_comparison(rows, "seconds")


def runs_of(first: list[float], second: list[float]) -> list[ComparedRun]:
    told = [ComparedRun(n, 0, 0, value) for n, value in enumerate(first)]
    return told + [ComparedRun(n, 1, 0, value) for n, value in enumerate(second)]


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        ([9.0, 9.1, 9.2, 9.0, 9.1, 9.2], "less"),
        ([11.0, 11.1, 11.2, 11.0, 11.1, 11.2], "more"),
        ([9.0, 11.0, 9.0, 11.0, 9.0, 11.0], "no difference shown"),
        ([9.0, 9.0, 9.0, 9.0, 9.0], "6 rounds are needed for 95 %"),
    ],
)
def test_settings_are_compared_with_the_first_round_by_round(second: list[float], verdict: str) -> None:
    _, row = compare(["first", "second"], runs_of([10.0] * 6, second))
    assert row.verdict == verdict
    assert row.ratio == pytest.approx(median(second) / 10)


def test_drift_that_affects_both_settings_hides_no_difference() -> None:
    first = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    _, row = compare(["first", "second"], runs_of(first, [value - 0.5 for value in first]))
    assert (row.low, row.high, row.verdict) == (-0.5, -0.5, "less")


@given(st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_an_interval_is_within_the_values(values: list[float]) -> None:
    found = sign_interval(values)
    assert (found is None) == (len(values) < 6)
    if found:
        assert min(values) <= found[0] <= median(values) <= found[1] <= max(values)


def test_the_interval_contains_the_median_as_often_as_promised() -> None:
    chance = random.Random(7)  # noqa: S311 - a simulation
    for count in (6, 9, 20):
        held = 0
        for _ in range(2000):
            found = sign_interval([chance.expovariate(1) for _ in range(count)])
            held += bool(found and found[0] <= 0.6931 <= found[1])
        assert held / 2000 > 0.94


def test_other_lines_are_ignored() -> None:
    assert parse_runs(f"{MARK} 1 0 0 2.5\nx {MARK} 1 0 0 3\n{MARK} 1 0 0\n{MARK} 2 1 9 -\n") == (
        ComparedRun(1, 0, 0, 2.5),
        ComparedRun(2, 1, 9, None),
    )
