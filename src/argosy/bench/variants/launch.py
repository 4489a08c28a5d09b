"""Carry a comparison out: plan each way, write all scripts down, start or submit the one that runs them in turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from argosy.bench.variants.compare import Compared, compare, parse_runs
from argosy.bench.variants.plan import Variant, render_driver, with_variant
from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.jobs.record import find_record
from argosy.launch.model import LaunchRequest
from argosy.launch.resolve import prepare_launch
from argosy.launch.submit import Launched, new_record_folder, start_launch, write_record
from argosy.sites.load import load_profile

NOTE, RUNS = "ways.json", "ways.txt"
"""In a record: what is compared, and a line for each run."""


def launch_variants(
    request: LaunchRequest, variants: Sequence[Variant], session: Session, *, rounds: int, phrase: str
) -> Launched:
    """Run a program in several ways, in turns; as `argosy.launch.submit.launch` does one.

    Parameters
    ----------
    rounds
        How often each way runs.
    phrase
        What the compared number follows in the program's output; empty compares the seconds of a run.
    """
    folder = new_record_folder(session)
    paths = [folder / f"way-{number}" for number in range(len(variants))]
    profile = load_profile(request.site, session.host)
    plans = [
        prepare_launch(with_variant(request, variant), session, profile=profile, record=str(place))
        for variant, place in zip(variants, paths, strict=True)
    ]
    scripts = [str(place / "job.sh") for place in paths]
    driver = render_driver(plans[0], variants, scripts, rounds=rounds, phrase=phrase, runs=str(folder / RUNS))
    write_record(replace(plans[0], script=driver), folder)
    for plan, place in zip(plans, paths, strict=True):
        write_record(plan, place)
    what = f"the number after {phrase!r}" if phrase else "seconds of a run"
    write_text(folder / NOTE, json.dumps({"ways": [variant.name for variant in variants], "what": what}) + "\n")
    return start_launch(plans[0], folder, session, request)


def read_report(record: Path) -> tuple[tuple[Compared, ...], str]:
    """Compare the ways of a run, as far as it has come; give the rows and what was compared.

    Raises
    ------
    UsageError
        When it compared nothing, or no run has ended.
    """
    try:
        told = json.loads((record / NOTE).read_text(encoding="utf-8"))
        return compare(told["ways"], parse_runs((record / RUNS).read_text(encoding="utf-8"))), str(told["what"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            "there is nothing to compare yet",
            evidence=str(error),
            hint="wait for a first round; 'argosy bench settings' submits jobs that compare",
        ) from error


def report_of(job: str, session: Session) -> tuple[tuple[Compared, ...], str]:
    """Compare the ways of a job by its number; as `read_report`."""
    record = find_record(session, job)
    if record is None:
        raise UsageError(f"there is no record of a job {job}", hint="see your jobs with 'argosy jobs --past 20'")
    return read_report(record)
