from __future__ import annotations

import math

import pytest

from argosy.core.errors import SiteError
from argosy.slurm.times import describe_short_time, parse_minutes, slurm_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15", 15),
        ("15:30", 15.5),
        ("1:30:00", 90),
        ("2-00", 2880),
        ("2-01:30", 2970),
        ("1-00:00:30", 1440.5),
        ("0", math.inf),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, expected: float) -> None:
    assert parse_minutes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "x-1", "-5"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(SiteError):
        parse_minutes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", "1:00:00"),
        ("30m", "0:30:00"),
        ("90min", "1:30:00"),
        ("1 hour", "1:00:00"),
        ("2 days 3 hours", "2-03:00:00"),
        (" ", " "),
        ("1h30m", "1:30:00"),
        ("2d", "2-00:00:00"),
        ("45s", "0:00:45"),
        ("2-00:00:00", "2-00:00:00"),
        ("90", "90"),
        ("", ""),
        ("soon", "soon"),
    ],
)
def test_a_short_time_is_written_as_slurm_reads_it(text: str, expected: str) -> None:
    assert slurm_time(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1:00", "Slurm reads minutes:seconds, so this is 1 minute; write 1h for hours"),
        ("24:00", "Slurm reads minutes:seconds, so this is 24 minutes; write 24h for hours"),
        ("02", "Slurm reads minutes, so this is 2 minutes; write 2h for hours"),
        *((plain, "") for plain in ("", "10:00", "30", "60", "1:00:00", "0:01:00", "1-12", "UNLIMITED")),
    ],
)
def test_a_limit_of_minutes_that_looks_like_hours_is_explained(value: str, expected: str) -> None:
    assert describe_short_time(value) == expected
