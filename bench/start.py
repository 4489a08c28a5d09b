"""Start: how long until a program runs in a container, for each kind of image and each runtime."""

from __future__ import annotations

from collections.abc import Iterator

from bench.inputs import Inputs, bench_cache
from bench.place import HERE, Place, lab, open_folder, run_task, why_no_lab
from bench.records import Budget, Outcome, Row, many
from bench.tasks import RANK, Batch, Series, StartAnswer, StartTask

MILLI = 1000
DELTA_TO_FLAT = Budget(1.1)
LINE_TO_BARE = Budget(1.05)
RANKS = 8
RANKS_TO_SHELL = Budget(1.3)
"""Not to one rank: that grows with the ranks for each core of the machine, whoever starts them."""

FULL_BATCHES = (Batch(1, 30), Batch(8, 7), Batch(64, 3))
QUICK_BATCHES = (Batch(1, 3), Batch(8, 1))

KINDS = {
    "native": "no container",
    "bare": "the bare runtime",
    "plain": "plain image",
    "delta": "delta image",
    "bind": "delta, layer bound",
    "flat": "flat image",
}


def run_start(inputs: Inputs, *, quick: bool) -> Outcome:
    """Time starts under bubblewrap here, and under Apptainer in the lab where there is one."""
    missing = why_no_lab()
    batches = QUICK_BATCHES if quick else FULL_BATCHES
    rows = _measured("bwrap", HERE, inputs, batches)
    if missing:
        return Outcome(tuple(rows), (f"start: nothing of Apptainer: {missing}",))
    rows += _measured("apptainer", lab(), inputs, batches)
    remark = (
        "start: bwrap as this user over unpacked trees, apptainer as an ordinary user over SIF files (squashfuse); "
        "cases interleaved, proportions taken round by round; apptainer's bare line starts the delta image, bwrap's an "
        "unpacked tree without joining a layer or mounting a home"
    )
    ranks = (
        "start: each rank is python -c pass. More ranks than cores take turns, whoever starts them, so the budget "
        "compares ranks in one container with the same programs, started in one container by a shell"
    )
    return Outcome(tuple(rows), (remark, ranks))


def _measured(runtime: str, place: Place, inputs: Inputs, batches: tuple[Batch, ...]) -> list[Row]:
    with open_folder() as folder:
        cache = bench_cache() if place is HERE else folder / "cache"
        task = StartTask(
            runtime=runtime,
            plain=str(inputs.base),
            delta=str(inputs.delta),
            flat=str(inputs.flat),
            cache=str(cache),
            ranks=2 if batches is QUICK_BATCHES else RANKS,
            batches=batches,
        )
        answer = run_task(place, task, StartAnswer)
    started = [series for series in answer.series if series.command == RANK]
    others = tuple(series for series in answer.series if series.command != RANK)
    return [*_series_rows(runtime, others), *_proportions(runtime, others), *_rank_rows(runtime, task.ranks, started)]


def _series_rows(runtime: str, series: tuple[Series, ...]) -> Iterator[Row]:
    for each in series:
        key = f"start.{runtime}.{each.command}.{each.at_once}"
        what = f"{runtime}: {each.command}, {KINDS[each.case]}" + (f", {each.at_once} at once" * (each.at_once > 1))
        values = [seconds * MILLI for seconds in each.seconds]
        yield many(f"{key}.{each.case}", what, values, "ms", against="" if each.case == "flat" else f"{key}.flat")


def _rank_rows(runtime: str, ranks: int, series: list[Series]) -> Iterator[Row]:
    """Give the rows of a node's ranks, until all have ended: in one container, by Argosy and by a shell, and apart."""
    taken = {each.case: each.seconds for each in series}
    key, one_rank = f"start.{runtime}.ranks", f"start.{runtime}.ranks.one"
    for case, what in (
        ("one", "1 rank"),
        ("together", f"{ranks} ranks, one container"),
        ("shell", f"{ranks} ranks by a shell, one container"),
        ("apart", f"{ranks} ranks, {ranks} containers"),
    ):
        values = [seconds * MILLI for seconds in taken[case]]
        yield many(f"{key}.{case}", f"{runtime}: {what}", values, "ms", against="" if case == "one" else one_rank)
    what = f"{runtime}: {ranks} ranks in one container to 1 rank"
    yield many(f"{key}.together_to_one", what, pairwise(taken["together"], taken["one"]), "x")
    what = f"{runtime}: {ranks} ranks in one container to {ranks} by a shell"
    # A start of bubblewrap takes less time than Python, which starts the ranks.
    budget = None if runtime == "bwrap" else RANKS_TO_SHELL
    yield many(f"{key}.together_to_shell", what, pairwise(taken["together"], taken["shell"]), "x", budget=budget)


def _proportions(runtime: str, series: tuple[Series, ...]) -> Iterator[Row]:
    """Set cases in proportion round by round: what else ran then slowed both of a pair."""
    taken = {(s.command, s.at_once, s.case): s.seconds for s in series}
    for command, at_once in dict.fromkeys((s.command, s.at_once) for s in series):
        what = f"{runtime}: {command}" + (f", {at_once} at once" * (at_once > 1))
        delta = taken[command, at_once, "delta"]
        key = f"start.{runtime}.{command}.{at_once}"
        to_flat = pairwise(delta, taken[command, at_once, "flat"])
        yield many(f"{key}.delta_flat", f"{what}: delta to flat", to_flat, "x", budget=DELTA_TO_FLAT)
        if at_once == 1 and runtime != "bwrap":
            to_bare = pairwise(delta, taken[command, at_once, "bare"])
            yield many(f"{key}.line_bare", f"{what}: Argosy's line to the bare one", to_bare, "x", budget=LINE_TO_BARE)


def pairwise(values: tuple[float, ...], others: tuple[float, ...]) -> list[float]:
    """Divide the figures of two series that were taken in turns."""
    return [value / other for value, other in zip(values, others, strict=True)]
