"""The jobs of a script are reported in the order in which the script runs its programs."""

from __future__ import annotations

import pytest

from argosy.launch.import_script.files import render_jobs
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript


def read(*lines: str) -> ImportedScript:
    return import_script("s.sh", "\n".join(("#!/bin/bash", *lines, "")))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("go build", "./a &", "./b &", "wait", "srun ./c"), {"s-2": [2], "s-3": [2], "s-4": [3, 4]}),
        (("./a &", "./b &", "wait", "srun ./c"), {"s-3": [2, 3]}),
        (("./a &", "srun ./b"), {}),
        (("./a &", "./b", "wait", "./c", "./d"), {"s-3": [2, 3], "s-4": [5]}),
        (("./a &", "P=$!", "wait $P", "./c"), {"s-2": [2]}),
        (("./a &", "P=$!", "./b &", "Q=$!", 'wait $P "${Q}"', "./c"), {"s-3": [2, 4]}),
        (("./a &", "./b &", "for p in $(jobs -p); do wait $p; done", "./c"), {"s-3": [2, 3]}),
        (("./a && ./b",), {"s-2": [2]}),
    ],
)
def test_a_job_starts_after_those_that_the_script_waits_for(
    lines: tuple[str, ...], expected: dict[str, list[int]]
) -> None:
    notes = {each.text: each.note for each in read(*lines).untranslated if each.text.startswith("[job.")}
    assert set(notes) == {f"[job.{name}]" for name in expected}
    for name, after in expected.items():
        several = len(after) > 1
        place = f"line{'s' if several else ''} {' and '.join(map(str, after))}"
        numbers = "numbers of those jobs" if several else "number of that job"
        assert notes[f"[job.{name}]"] == f"it runs after {place}: launch {name} with --after and the {numbers}"


@pytest.mark.parametrize("wait", ["wait -n", "wait $P", "wait $!"])
def test_a_wait_for_one_of_several_programs_is_reported(wait: str) -> None:
    imported = read("./a &", "P=$!", "./b &", wait, "./c")
    assert [each.text for each in imported.untranslated if each.text != "&"] == [wait]


def test_a_path_with_the_number_of_the_job_is_not_that_of_another_job() -> None:
    imported = read("python prep.py --out=data_$SLURM_JOB_ID", 'srun python t.py --data "data_$SLURM_JOB_ID/x" --log o')
    note = "[job.s] has another job number: write the same name into both tables"
    found = [each for each in imported.untranslated if each.text == "data_${SLURM_JOB_ID}"]
    assert [(each.line, each.fate, each.note) for each in found] == [(3, Fate.UNTRANSLATED, note)]
    assert f"[job.s-2]\n# data_${{SLURM_JOB_ID}}: {note}\n" in render_jobs(imported.jobs)


def test_names_that_only_one_job_has_are_not_reported() -> None:
    imported = read("./a --out data_$SLURM_JOB_ID", "./b --out log_$SLURM_JOB_ID")
    assert not any("another job number" in each.note for each in imported.translations)
