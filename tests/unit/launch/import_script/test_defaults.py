"""Defaults of variables (``${NAME:-text}``) apply in the job as in the script, and what a job fixes is reported."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript

START = "srun ./a"


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))


def job(*lines: str) -> dict[str, Any]:
    (found,) = read(*lines).jobs
    return dict(found.keys)


def notes(*lines: str) -> dict[str, str]:
    return {each.text: each.note for each in read(*lines).untranslated}


def shown(keys: dict[str, Any], instead: str, **variables: str) -> str:
    """Return the output of the job's shell with these variables, if the program is `instead`."""
    shell, option, text = keys["command"]
    assert "exec ./a" in text
    command = (shell, option, text.replace("exec ./a", instead))
    environment = {"PATH": os.defpath, **keys.get("env", {}), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def arguments(*lines: str, **variables: str) -> str:
    return shown(job(*lines), "echo", **variables)


@pytest.mark.parametrize(
    ("word", "variables", "expected"),
    [
        ("${SLURM_ARRAY_TASK_ID:-0}", {"SLURM_ARRAY_TASK_ID": "7"}, "7"),
        ("${SLURM_ARRAY_TASK_ID:-0}", {}, "0"),
        ("runs/${SLURM_JOB_ID:-local}/x", {"SLURM_JOB_ID": "41"}, "runs/41/x"),
        ('"${SLURM_TMPDIR:-/tmp}"', {"SLURM_TMPDIR": "/local/my job"}, "/local/my job"),
        ("${TMPDIR:-/tmp}/x", {"TMPDIR": "/local"}, "/local/x"),
        ("${OUT:-/scratch/$USER}", {"USER": "ada"}, "/scratch/ada"),
        ("${OUT:-${SCRATCH:-/tmp}/out}", {"SCRATCH": "/s"}, "/s/out"),
        ("${EXTRA:-} end", {}, "end"),
        ("${EXTRA:-} end", {"EXTRA": "-v"}, "-v end"),
    ],
)
def test_a_default_that_only_the_job_decides_is_left_to_its_shell(
    word: str, variables: dict[str, str], expected: str
) -> None:
    assert arguments(f"{START} {word}", **variables) == expected
    assert not notes(f"{START} {word}")


@pytest.mark.parametrize(
    ("lines", "name", "variables", "expected"),
    [
        (("export WORKERS=${SLURM_CPUS_PER_TASK:-1}",), "WORKERS", {"SLURM_CPUS_PER_TASK": "8"}, "8"),
        (("export S=${S:-/scratch/$USER}", "export HF_HOME=$S/hf"), "HF_HOME", {"USER": "ada"}, "/scratch/ada/hf"),
        (("export S=${S:-/scratch/$USER}", "export HF_HOME=$S/hf"), "HF_HOME", {"S": "/s"}, "/s/hf"),
        (("B=/data", "export OUT=${O:-$B/$USER}/out"), "OUT", {"USER": "ada"}, "/data/ada/out"),
        (("export LD_LIBRARY_PATH=/o:${LD_LIBRARY_PATH:-}",), "LD_LIBRARY_PATH", {"LD_LIBRARY_PATH": "/l"}, "/o:/l"),
        (("export PYTHONPATH=/o:${PYTHONPATH:-}",), "PYTHONPATH", {"PYTHONPATH": "/l"}, "/o:/l"),
        (("export PYTHONPATH=/o:${PYTHONPATH:-}",), "PYTHONPATH", {}, "/o:"),
    ],
)
def test_an_exported_value_keeps_the_default_and_the_inherited_value(
    lines: tuple[str, ...], name: str, variables: dict[str, str], expected: str
) -> None:
    assert shown(job(*lines, START), f'echo "${name}"', **variables) == expected
    assert not notes(*lines, START)


def test_numbers_of_the_job_are_not_those_of_the_default() -> None:
    head = ("#SBATCH --nodes=2", "#SBATCH --gpus-per-node=4", "NGPU=${SLURM_GPUS_ON_NODE:-1}")
    lines = (*head, "srun torchrun --nnodes=${SLURM_NNODES:-1} --nproc_per_node=$NGPU t.py")
    assert "ranks_per_node" not in job(*lines)  # a rank for each of the four GPUs
    assert not notes(*lines)
    one = ("#SBATCH --ntasks=8", "srun -n ${SLURM_NTASKS:-1} ./a")
    assert job(*one)["ranks"] == 8
    assert not notes(*one)


@pytest.mark.parametrize(
    ("lines", "text", "remedy"),
    [
        ((f"{START} --lr ${{LR:-0.1}}",), "${LR:-0.1}", "in the table"),
        (("LR=${LR:-0.1}", f"{START} --lr $LR"), "${LR:-0.1}", "in the table"),
        (("LR=${LR:-0.1} srun ./a",), "${LR:-0.1}", "in the table"),
        ((f"bash -c '{START} --lr ${{LR:-0.1}}'",), "${LR:-0.1}", "in the table"),
        (("export LR=${LR:-0.1}", START), "${LR:-0.1}", "with --env LR=VALUE"),
        (("mkdir -p ${LR:-0.1}", START), "${LR:-0.1}", "in the table"),
        (("cd ${LR:-0.1}", START), "${LR:-0.1}", "in the table"),
        (("D=0", f"{START} ${{LR:-$D.1}}"), "${LR:-$D.1}", "in the table"),
    ],
)
def test_a_default_that_the_table_contains_is_reported(lines: tuple[str, ...], text: str, remedy: str) -> None:
    assert notes(*lines) == {text: f"fixed at 0.1, whatever LR is in your shell: change it {remedy}"}


@pytest.mark.parametrize(
    "line", ["UNUSED=${LR:-0.1}", "echo ${LR:-0.1}", "LR=1; A=${LR:-0.1}; echo $A", "export MASTER_PORT=${PORT:-29500}"]
)
def test_a_default_that_no_job_uses_is_not_reported(line: str) -> None:
    assert not notes(line, START)


def test_a_default_stands_for_an_empty_value_but_not_for_a_computed_one() -> None:
    assert job("A=", "srun ./a ${A:-5}")["command"] == ["./a", "5"]
    assert job("A=3", "srun bash -c './a ${A:-5}'")["command"] == ["./a", "5"]
    note = "the script computes it: write its value, or set it in the program"
    assert notes("read A", "srun ./a ${A:-5}") == dict.fromkeys(("read A", "$A"), note)


def test_a_command_in_a_default_is_reported() -> None:
    assert notes(f"{START} ${{A:-$(date)}}") == {"${A:-$(date)}": "a shell computes it in each rank"}
    assert "a command computes the value" in notes("export A=${A:-$(date)}", START)["export A=${A:-$(date)}"]


def test_the_folder_of_the_launch_has_no_other_default() -> None:
    found = read("cd ${SLURM_SUBMIT_DIR:-$PWD}", START)
    assert [each.fate for each in found.translations] == [Fate.REPLACED, Fate.KEPT]


@pytest.mark.parametrize(
    "lines",
    [
        (": ${CONFIG:=base.yaml}", "srun ./a --config $CONFIG"),
        (': "${CONFIG:=base.yaml}"', 'srun ./a --config "$CONFIG"'),
        (": ${CONFIG:=base.yaml} ${LR:=1}", "srun ./a --config $CONFIG"),
        ("srun ./a --config ${CONFIG:=base.yaml}",),
        ("echo ${CONFIG:=base.yaml}", "srun ./a --config $CONFIG"),
        ("CONFIG=base.yaml", ": ${CONFIG:=other.yaml}", "srun ./a --config $CONFIG"),
    ],
)
def test_a_default_that_a_command_assigns_is_the_value_of_the_variable(lines: tuple[str, ...]) -> None:
    assert job(*lines)["command"] == ["./a", "--config", "base.yaml"]
    expected = {} if lines[0].startswith("CONFIG") else {"${CONFIG:=base.yaml}"}
    assert {*notes(*lines)} - {"${LR:=1}"} == {*expected}


def test_an_assigned_default_is_an_image_an_exported_value_or_left_to_the_shell() -> None:
    assert job(": ${IMAGE:=/p/x.sif}", "srun apptainer exec $IMAGE ./a")["image"] == "/p/x.sif"
    assert job(": ${LR:=0.1}", "export LR", START)["env"] == {"LR": "0.1"}
    assert arguments(": ${OUT:=/scratch/$USER}", "srun ./a $OUT/x", USER="ada") == "/scratch/ada/x"
    found = read(": ${IMAGE:=/p/x.sif} ${UNUSED:=1}", "srun apptainer exec $IMAGE ./a").translations
    assert [(each.text, each.note) for each in found if each.line == 2] == [
        (": ${IMAGE:=/p/x.sif} ${UNUSED:=1}", "its value is put where it is used"),
        ("${IMAGE:=/p/x.sif}", "fixed at /p/x.sif, whatever IMAGE is in your shell: change it in the table"),
        (": ${IMAGE:=/p/x.sif} ${UNUSED:=1}", "the script does not use it"),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("srun ./a ${Z:-\"q r\"} ${Z:-'s t'} ${Z:-q r}",), ["q r", "s t", "q", "r"]),
        (('srun ./a "${Z:-\'s\'}" "${Z:-"d e"}"',), ["'s'", "d e"]),
        (('srun ./a ${Z:--x "a b"}',), ["-x", "a b"]),
        (("Y=${Z:-'s t'}", "W=\"${Z:-'s'}\"", 'srun ./a "$Y" "$W"'), ["s t", "'s'"]),
        (("V=${SLURM_X:-'s t'}", "export V", 'srun ./a "$V" ${SLURM_X:-"s t"}'), ["s t", "s t"]),
        (("A=${X:=set}", "srun ./a $A $X"), ["set", "set"]),
        (("export A=${X:=set}-1", "srun ./a $A $X"), ["set-1", "set"]),
        (("X=", "A=${X:=set}", "srun ./a $A $X"), ["set", "set"]),
        (("X=7", "A=${X:=set}", "srun ./a $A $X"), ["7", "7"]),
    ],
)
def test_a_default_has_its_words_and_is_assigned(lines: tuple[str, ...], expected: list[str]) -> None:
    keys = job(*lines)
    found = keys["command"][1:] if keys["command"][0] == "./a" else shown(keys, r"printf '%s\n'").splitlines()
    assert found == expected
    assert "X" not in keys.get("env", {})
