"""Cores, ranks and the variables of Slurm that count them are those of the script, or the report says what is lost."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from argosy.core.errors import UsageError
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript
from argosy.sites.read import read_site


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))


def job(*lines: str) -> dict[str, Any]:
    (found,) = read(*lines).jobs
    return dict(found.keys)


def outcomes(*lines: str) -> dict[str, tuple[Fate, str]]:
    return {each.text: (each.fate, each.note) for each in read(*lines).translations}


def shown(*lines: str, **variables: str) -> str:
    """Return what the command of the job prints in a step with these variables."""
    programs = {"./a": "/bin/echo", "./show": "/usr/bin/printenv"}
    command = [programs.get(each, each) for each in job(*lines)["command"]]
    command[-1] = command[-1].replace("./a", "/bin/echo").replace("./show", "/usr/bin/printenv")
    environment = {"PATH": os.defpath, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("options", "cores"),
    [
        ("--ntasks=16", 16),
        ("--nodes=1 --ntasks-per-node=16", 16),
        ("--ntasks=2 --cpus-per-task=4", 8),
        ("--ntasks=1", None),
        ("--nodes=2 --ntasks=16", 8),
    ],
)
def test_a_program_without_srun_has_the_cores_of_all_tasks(options: str, cores: int | None) -> None:
    lines = (f"#SBATCH {options}", "./a")
    assert job(*lines).get("cpus_per_rank") == cores
    for text, outcome in outcomes(*lines).items():
        if text.startswith("--ntasks") and cores:
            assert outcome == (Fate.KEPT, "see cpus_per_rank in the table: the program has the cores of all tasks")


@pytest.mark.parametrize(
    ("options", "lines", "expected"),
    [
        ("-n 16", ("./a -t $SLURM_NTASKS ${SLURM_NPROCS:-1}",), "-t 16 16"),
        ("-n 16", ("N=$SLURM_NTASKS", "./a $N $((SLURM_NTASKS * 2)) $((N/2))"), "16 32 8"),
        ("-n 16", ('export T="$SLURM_NTASKS"', "./show T"), "16"),
        ("-n 16", ("T=$SLURM_NTASKS ./show T",), "16"),
        ("-N 1 --ntasks-per-node=4 -c 2", ("./a $SLURM_NTASKS_PER_NODE $SLURM_CPUS_PER_TASK",), "4 2"),
        ("-n 1 -c 2", ("./a $SLURM_CPUS_PER_TASK",), "9"),
    ],
)
def test_a_program_without_srun_sees_the_number_of_tasks(options: str, lines: tuple[str, ...], expected: str) -> None:
    step = {"SLURM_NTASKS": "1", "SLURM_NPROCS": "1", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "9"}
    assert shown(f"#SBATCH {options}", *lines, **step) == expected


COMPUTED = "the script computes the number: write it into the table as "


@pytest.mark.parametrize(
    ("options", "step", "text", "outcome", "key"),
    [
        ("-n 4 -c 2", "-c $SLURM_CPUS_PER_TASK", "--cpus-per-task=${SLURM_CPUS_PER_TASK}",
         (Fate.REPLACED, "the job's own number"), ("cpus_per_rank", 2)),
        ("-n 4", "-c $NT", "--cpus-per-task=${NT}", (Fate.UNTRANSLATED, f"{COMPUTED}cpus_per_rank"),
         ("cpus_per_rank", None)),
        ("-N 1", "-n ${SLURM_NTASKS:-4}", "--ntasks=${SLURM_NTASKS:-4}",
         (Fate.KEPT, "see ranks in the table"), ("ranks", 4)),
        ("-n 8", "-n ${SLURM_NTASKS:-4}", "--ntasks=${SLURM_NTASKS:-4}",
         (Fate.REPLACED, "the job's own number"), ("ranks", 8)),
        ("-N 2 --ntasks-per-node=4", "-n $SLURM_NNODES", "--ntasks=${SLURM_NNODES}",
         (Fate.KEPT, "see ranks in the table"), ("ranks", 2)),
        ("-n 8", "-n $((SLURM_NTASKS / 2))", "--ntasks=$((SLURM_NTASKS / 2))",
         (Fate.UNTRANSLATED, f"{COMPUTED}ranks"), ("ranks", 8)),
        ("-N 2 -n 8", "-N $SLURM_JOB_NUM_NODES", "--nodes=${SLURM_JOB_NUM_NODES}",
         (Fate.REPLACED, "the job's own number"), ("nodes", 2)),
        ("-n 8", "--gpus=$NG", "--gpus=${NG}", (Fate.UNTRANSLATED, f"{COMPUTED}gpus_per_node"),
         ("gpus_per_node", None)),
    ],
)  # fmt: skip
def test_a_number_of_srun_that_the_shell_computes_is_that_of_the_job_or_is_reported(
    options: str, step: str, text: str, outcome: tuple[Fate, str], key: tuple[str, int | None]
) -> None:
    lines = (f"#SBATCH {options}", f"srun {step} ./a")
    assert job(*lines).get(key[0]) == key[1]
    shown = {name.replace(" ", "="): each for name, each in outcomes(*lines).items()}
    if outcome[0] is not Fate.KEPT:
        assert outcomes(*lines)[text] == outcome, shown


@pytest.mark.parametrize("value", ["$SRUN_CPUS_PER_TASK", "${SRUN_CPUS_PER_TASK:-1}"])
def test_the_cores_of_srun_are_known_where_the_script_uses_them(value: str) -> None:
    lines = ("#SBATCH -c 4", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", f"export OMP_NUM_THREADS={value}")
    found = outcomes(*lines, f"srun ./a {value}")
    assert found[f"export OMP_NUM_THREADS={value}"] == (Fate.REPLACED, "Argosy sets it to the cores of a rank")
    assert shown(*lines, f"srun ./a {value}", SLURM_CPUS_PER_TASK="4") == "4"


def test_a_number_of_cores_for_srun_becomes_cores_of_a_rank() -> None:
    lines = ("export SRUN_CPUS_PER_TASK=8", "export OMP_NUM_THREADS=$SRUN_CPUS_PER_TASK", "srun ./a")
    assert (job(*lines)["cpus_per_rank"], job(*lines)["env"]) == (8, {"OMP_NUM_THREADS": "8"})
    assert outcomes(*lines)["export SRUN_CPUS_PER_TASK=8"] == (Fate.KEPT, "see cpus_per_rank in the table")
    assert job("#SBATCH -c 4", *lines[:1], "srun -c 2 ./a")["cpus_per_rank"] == 2


GPU_OPTIONS = ("#SBATCH -N 2 --gpus-per-node=4 --cpus-per-gpu=8 --gpus=8 --ntasks-per-node=4",)


@pytest.mark.parametrize("start", ["srun ./a {}", "export N='x' M={}; srun ./a $M", "srun sh -c './a {}; true'"])
def test_variables_of_options_that_the_job_does_not_have_become_numbers(start: str) -> None:
    use = "$SLURM_GPUS:$((SLURM_CPUS_PER_GPU * 2)):${SLURM_GPUS_PER_NODE}"
    lines = (*GPU_OPTIONS, start.replace("{}", use))
    assert shown(*lines, SLURM_GPUS="") == "8:16:4"
    note = (Fate.REPLACED, "the script's value 8 is put where it is used")
    assert outcomes(*lines)["$SLURM_GPUS"] == note


def test_a_number_of_gpus_stays_a_variable_where_the_site_sets_it() -> None:
    text = "\n".join(("#!/bin/bash", *GPU_OPTIONS, "srun ./a $SLURM_GPUS_PER_NODE", ""))
    by_site = {name: import_script("j", text, site=read_site(name)).jobs[0].keys for name in ("lumi-g", "mn5-acc")}
    assert by_site["mn5-acc"]["command"] == ["./a", "4"]
    assert by_site["lumi-g"]["command"] == ["sh", "-c", "exec ./a ${SLURM_GPUS_PER_NODE}"]


def test_the_report_names_the_key_of_the_gpus_that_the_table_has() -> None:
    assert outcomes(*GPU_OPTIONS, "srun ./a")["--gpus=8"] == (Fate.KEPT, "see gpus_per_node in the table")
    assert outcomes("#SBATCH -N 2 --gpus=8", "./a")["--gpus=8"] == (Fate.KEPT, "see gpus in the table")
    assert outcomes("#SBATCH --gpus=8", "srun ./a")["--gpus=8"] == (Fate.KEPT, "gpus = 8")


@pytest.mark.parametrize("line", ["#SBATCH --export==x", "#SBATCH --export=1A=2", "srun --export==x ./a"])
def test_an_export_of_no_variable_is_reported_and_not_put_into_the_table(line: str) -> None:
    assert all("env" not in each.keys for each in read(line, "srun ./b").jobs)
    told = [fate for text, (fate, _) in outcomes(line, "srun ./b").items() if text.startswith("--export")]
    assert told == [Fate.UNTRANSLATED]


def test_text_with_brackets_without_end_is_refused_without_a_traceback() -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        read("(" * 5000 + "a" + ")" * 5000, "srun ./a")


@pytest.mark.parametrize(
    ("options", "step", "expected"),
    [
        ("--ntasks-per-node=4 -n 8", "", {"nodes": 2, "ranks_per_node": 4}),
        ("--ntasks-per-node=4 -n 6", "", {"nodes": 2, "ranks": 6}),
        ("-N 3 --ntasks-per-node=4 -n 6", "", {"nodes": 3, "ranks": 6}),
        ("-N 2 --ntasks-per-node=4 -n 8", "", {"nodes": 2, "ranks_per_node": 4}),
        ("--gpus=16 --gpus-per-node=8", "", {"nodes": 2, "ranks_per_node": 1, "gpus_per_node": 8}),
        ("--gpus=16 --gpus-per-node=8 -n 16", "", {"nodes": 2, "ranks": 16, "gpus_per_node": 8}),
        ("-t 5", "-n 8 --ntasks-per-node=4", {"nodes": 2, "ranks_per_node": 4}),
        ("-n 8", "--ntasks-per-node=4", {"nodes": 2, "ranks_per_node": 4}),
        ("-t 5", "--gpus=16 --gpus-per-node=8 -n 16", {"nodes": 2, "ranks": 16, "gpus_per_node": 8}),
        ("--ntasks-per-node=4 -n 8", "-n 4", {"nodes": 2, "ranks": 4}),
        ("--ntasks-per-node=4", "", {"ranks_per_node": 4}),
        ("-n 8", "", {"ranks": 8}),
    ],
)
def test_the_nodes_follow_from_a_number_in_all_and_one_on_each_node(
    options: str, step: str, expected: dict[str, int]
) -> None:
    keys = job(f"#SBATCH {options}", f"srun {step} ./a")
    shape = ("nodes", "ranks", "ranks_per_node", "gpus", "gpus_per_node")
    assert {key: keys[key] for key in shape if key in keys} == expected


def test_a_program_of_torchrun_or_without_a_launcher_gets_the_nodes_of_the_tasks() -> None:
    lines = ("#SBATCH --ntasks-per-node=1 -n 2 --gpus-per-node=4", "srun torchrun --nnodes 2 a.py")
    assert (job(*lines)["nodes"], job(*lines)["launcher"]) == (2, "torchrun")
    alone = ("#SBATCH --ntasks-per-node=4 -n 8", "./a")
    assert job(*alone)["nodes"] == 1
    assert outcomes(*alone)["nodes = 1"][0] is Fate.UNTRANSLATED


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ("--ntasks=8 --ntasks-per-node=4", ("see nodes in the table", "see ranks_per_node in the table")),
        ("--ntasks=6 --ntasks-per-node=4", ("see nodes and ranks in the table", "see nodes in the table")),
        ("--gpus=16 --gpus-per-node=8", ("see nodes in the table", "gpus_per_node = 8")),
    ],
)
def test_the_report_names_the_nodes_that_follow_from_two_numbers(options: str, notes: tuple[str, str]) -> None:
    found = outcomes(f"#SBATCH {options}", "srun ./a")
    assert tuple(found[each] for each in options.split()) == tuple((Fate.KEPT, note) for note in notes)


ONE_TASK = (Fate.KEPT, "the script names neither tasks nor GPUs: Slurm starts one task on each node")


@pytest.mark.parametrize("options", ["--nodes=4 --exclusive", "--nodes=4", "--exclusive"])
@pytest.mark.parametrize("start", ["srun python a.py", "mpirun ./a"])
def test_without_a_number_of_tasks_each_node_has_one_rank(options: str, start: str) -> None:
    lines = (f"#SBATCH {options}", start)
    assert job(*lines)["ranks_per_node"] == 1
    assert outcomes(*lines)["ranks_per_node = 1"] == ONE_TASK


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH --nodes=4 --exclusive", "srun -n 8 ./a"),
        ("#SBATCH --nodes=4 --exclusive", "mpirun -np 8 ./a"),
        ("#SBATCH --nodes=4 --exclusive", "srun -n $COUNT ./a"),
        ("#SBATCH --nodes=4 --exclusive", "srun torchrun a.py"),
        ("srun ./a",),
    ],
)
def test_a_number_of_ranks_is_added_only_where_the_script_means_one(lines: tuple[str, ...]) -> None:
    assert "ranks_per_node" not in job(*lines)
    assert "ranks_per_node = 1" not in outcomes(*lines)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--nodes=1 --gpus=8 --ntasks-per-gpu=1", {"nodes": 1, "gpus": 8, "ranks": 8}),
        ("--nodes=2 --gpus-per-node=4 --ntasks-per-gpu=2", {"nodes": 2, "gpus_per_node": 4, "ranks_per_node": 8}),
        ("--ntasks=6 --ntasks-per-gpu=2", {"gpus": 3, "ranks": 6}),
    ],
)
def test_tasks_for_each_gpu_give_the_ranks_and_their_binding(options: str, expected: dict[str, int]) -> None:
    keys = job(f"#SBATCH {options}", "srun ./a")
    assert {
        key: keys[key] for key in ("nodes", "gpus", "gpus_per_node", "ranks", "ranks_per_node") if key in keys
    } == expected
    assert keys["sbatch_arg"] == [f"--gpu-bind=single:{options[-1]}"]
    assert all(fate is Fate.KEPT for fate, _ in outcomes(f"#SBATCH {options}", "srun ./a").values())
