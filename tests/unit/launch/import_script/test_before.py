"""The commands on files run before the program, in the folder and with the effect that they have in the script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))


def jobs(*lines: str) -> list[dict[str, Any]]:
    return [dict(job.keys) for job in read(*lines).jobs]


def run_job(keys: dict[str, Any], folder: Path) -> str:
    """Run what a job does before its program, and return the folder in which the program starts."""
    environment = {"PATH": os.defpath, "SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7", "HOME": f"{folder}/home"}
    start = folder / keys.get("chdir", ".")
    before = ("/bin/sh", "-e", "-c", "\n".join(keys.get("before", ())))
    subprocess.run(before, env=environment, cwd=start, check=True)
    shell = keys["command"]
    command = (*shell[:-1], shell[-1].replace("exec ./a", "pwd -P")) if shell[0] == "sh" else ("pwd", "-P")
    reply = subprocess.run(command, env=environment, cwd=start, check=True, capture_output=True, text=True)
    return reply.stdout.strip().split("\n")[-1]


def files_below(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("lines", "written", "folder"),
    [
        (("mkdir -p run && cd run", "cp ../in ."), "run/in", "run"),
        (("D=$SLURM_SUBMIT_DIR/run_$SLURM_JOB_ID", "mkdir -p $D", "cd $D", "cp $SLURM_SUBMIT_DIR/in ."),
         "run_7/in", "run_7"),
        (("cd $HOME/proj", "mkdir -p out", "touch out/x"), "home/proj/out/x", "home/proj"),
        (("cd ~/proj", "touch x"), "home/proj/x", "home/proj"),
        (("cd", "touch x"), "home/x", "home"),
        (("cd sub", "touch x"), "sub/x", "sub"),
        (("cd sub", "cd deep", "touch x", "cd ..", "touch ../y"), "y", "sub"),
        (("cd sub", "touch x", "cd $SLURM_SUBMIT_DIR", "touch y"), "y", ""),
        (("cd sub", "touch x", "cd -", "touch y"), "y", ""),
        (("touch y", "cd FOLDER/sub", "touch x"), "y", "sub"),
        (("cd FOLDER/sub", "touch x", "cd deep", "touch y"), "sub/deep/y", "sub/deep"),
        (("cd FOLDER/sub", "touch x", "cd FOLDER/home", "touch y"), "sub/x", "home"),
        (("cd FOLDER/sub", "touch x", "cd $HOME", "touch y"), "sub/x", "home"),
        (("#SBATCH --chdir=FOLDER/sub", "touch x", "cd deep", "touch y"), "sub/deep/y", "sub/deep"),
        (("#SBATCH --chdir=FOLDER/sub", "touch x", "cd $HOME", "touch y"), "sub/x", "home"),
        (("#SBATCH --chdir=FOLDER/sub", "touch x", "cd FOLDER/home", "touch y"), "sub/x", "home"),
    ],
)  # fmt: skip
def test_a_command_on_files_runs_in_its_folder(
    tmp_path: Path, lines: tuple[str, ...], written: str, folder: str
) -> None:
    for each in ("sub/deep", "home/proj"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "in").touch()
    (keys,) = jobs(*(each.replace("FOLDER", str(tmp_path)) for each in lines), "srun ./a")
    assert run_job(keys, tmp_path) == str((tmp_path / folder).resolve())
    assert written in files_below(tmp_path)


def test_a_job_that_starts_in_the_folder_of_a_command_needs_no_cd() -> None:
    assert before("cd $SLURM_SUBMIT_DIR", "mkdir out", "srun ./a") == [["mkdir -p out"]]
    assert before("cd /data", "mkdir out", "cd deep", "srun ./a") == [["mkdir -p out"]]
    assert before("cd /data", "cd $SLURM_SUBMIT_DIR", "mkdir out", "srun ./a") == [["mkdir -p out"]]


def test_a_command_in_an_unknown_folder_is_reported() -> None:
    imported = read("cd $(dirname $0)", "mkdir out", "srun ./a")
    assert "before" not in imported.jobs[0].keys
    outcomes = {each.text: (each.fate, each.note) for each in imported.translations}
    assert outcomes["mkdir out"] == (Fate.UNTRANSLATED, "a command computes the folder: do it in the program")


def before(*lines: str) -> list[list[str]]:
    return [keys.get("before", []) for keys in jobs(*lines)]


def test_a_folder_that_exists_does_not_stop_a_job(tmp_path: Path) -> None:
    (keys,) = jobs("mkdir out", "mkdir -m 700 -v b", "mkdir -pv c", "srun ./a")
    assert keys["before"] == ["mkdir -p out", "mkdir -p -m 700 -v b", "mkdir -pv c"]
    run_job(keys, tmp_path)
    run_job(keys, tmp_path)


def test_a_later_job_does_not_repeat_what_an_earlier_one_prepares() -> None:
    assert before("mkdir out", "cp in work", "srun ./a", "srun ./b") == [["mkdir -p out", "cp in work"], []]


def test_jobs_that_run_at_the_same_time_prepare_the_same_files() -> None:
    lines = ("mkdir out", "srun ./a &", "cp in out", "srun ./b &", "wait", "touch out/x", "srun ./c")
    first = ["mkdir -p out"]
    assert before(*lines) == [first, [*first, "cp in out"], ["touch out/x"]]


def test_the_next_job_does_what_the_script_does_between_two_programs() -> None:
    lines = ("cd sub", "srun ./a", "mkdir o2", "cp in.txt o2/", "srun ./b o2/in.txt")
    assert before(*lines) == [[], ['cd "sub"', "mkdir -p o2", "cp in.txt o2/"]]
    assert [each.text for each in read(*lines).untranslated] == ["[job.job-2]"]


def test_what_a_script_does_after_its_last_program_is_reported() -> None:
    imported = read("touch a", "srun ./a", "cp out /archive")
    assert imported.jobs[0].keys["before"] == ["touch a"]
    (late,) = imported.untranslated
    assert (late.text, late.note) == (
        "cp out /archive",
        "it runs after the program: make it a separate job with --after",
    )
