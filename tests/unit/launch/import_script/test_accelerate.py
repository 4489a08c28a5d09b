"""``accelerate launch`` becomes torchrun: which of its options a job keeps, and what its configuration file loses."""

from __future__ import annotations

from typing import Any

import pytest

from argosy.launch.import_script.files import render_jobs
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import ImportedScript


def read(start: str) -> ImportedScript:
    return import_script("j.sh", f"#!/bin/bash\n#SBATCH --nodes=2\n{start}\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--max_restarts 1 --tee 3", ["--max-restarts=1", "--tee=3"]),
        ("-t 3 --monitor_interval=0.5", ["--tee=3", "--monitor-interval=0.5"]),
        ("--log_dir logs --role trainer", ["--log-dir=logs", "--role=trainer"]),
    ],
)
def test_the_options_of_torchrun_reach_torchrun(options: str, expected: list[str]) -> None:
    imported = read(f"srun accelerate launch {options} --mixed_precision bf16 a.py")
    keys: dict[str, Any] = dict(imported.jobs[0].keys)
    assert (keys["torchrun_arg"], keys["command"]) == (expected, ["python", "a.py"])
    assert keys["env"] == {"ACCELERATE_MIXED_PRECISION": "bf16"}
    assert not imported.untranslated


def test_an_option_of_torchrun_with_a_value_of_the_job_is_reported() -> None:
    (part,) = read("accelerate launch --log_dir=logs/$SLURM_JOB_ID a.py").untranslated[:1]
    assert part.note == "the job computes the value: write it into torchrun_arg"


def test_the_loss_of_the_configuration_file_is_reported_also_in_the_table() -> None:
    imported = read("srun accelerate launch --config_file zero3.yaml a.py")
    (part,) = imported.untranslated
    assert part.text == "--config_file=zero3.yaml"
    for name in ("DDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_MIXED_PRECISION"):
        assert name in part.note
    assert f"# {part.text}: {part.note}\n" in render_jobs(imported.jobs)
