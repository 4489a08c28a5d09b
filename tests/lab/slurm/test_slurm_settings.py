"""Settings that are tried on a program, in turns, in one real job on two nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

TWO = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--time", "10:00")
TOLD = 'test "$SLURM_PROCID" != 0 || echo it took: ${TAKES:-4} s'


def words(desk: Desk, *options: str) -> tuple[str, ...]:
    return ("bench", "settings", desk.image, "--site", desk.site, *TWO, *options)


def test_a_setting_that_makes_a_program_faster_is_found(desk: Desk) -> None:
    tries = ("--try", "TAKES=3", "--try", "TAKES='4.0' OTHER=$(date)")
    metric = ("--metric", "it took:", "--env", "TAKES=4", "--json")
    done = desk.argosy(*words(desk, *tries, *metric, "--follow"), "--", "sh", "-c", TOLD)
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["compared"] == "the number after 'it took:'"
    assert [(row["runs"], row["failed"], row["median"], row["verdict"]) for row in told["variants"]] == [
        (6, 0, 4.0, ""),
        (6, 0, 3.0, "less"),
        (6, 0, 4.0, "no difference shown"),
    ]
    job = done.stderr.split("job ")[-1].split()[0]
    again = desk.argosy("bench", "settings", "--of", job)
    assert "TAKES=3" in again.stdout
    assert "less" in again.stdout


def test_a_failing_setting_ends_the_job_with_its_code_after_all_have_run(desk: Desk) -> None:
    run = ("--", "sh", "-c", "exit ${CODE:-0}")
    done = desk.argosy(
        *words(desk, "--try", "CODE=3", "--rounds", "1", "--follow", "--nodes", "1", "--ranks", "1"), *run, check=False
    )
    assert done.code == 3
    assert "CODE=3" in done.stdout
    assert "(1 failed)" in done.stdout


def test_settings_that_cannot_be_compared_are_refused(desk: Desk) -> None:
    for options, said in (
        ((), "add --try NAME=VALUE"),
        (("--try", "A"), "sets no variable"),
        (("--try", "A=1", "--dry-run"), "which has several scripts"),
        (("--of", "999999"), "there is no record of job 999999"),
    ):
        done = desk.argosy(*words(desk, *options), "--", "true", check=False)
        assert done.code in {2, 125}
        assert said in done.stderr
