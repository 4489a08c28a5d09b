"""What the report of an import says about options, variables and commands is true, and its advice fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", "#SBATCH --ntasks=2", *lines, "")))


def fate(imported: ImportedScript, text: str) -> tuple[Fate, str]:
    found = [each for each in imported.translations if each.text.startswith(text)]
    assert found, f"{text} is lost"
    return found[0].fate, found[0].note


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("1", "1"),
        ("${N:-4}", "4"),
        ("$SLURM_CPUS_PER_TASK", None),
        ("${SLURM_CPUS_PER_TASK:-1}", None),
        ("$(nproc)", None),
    ],
)
def test_a_number_of_threads_is_kept_unless_it_is_that_of_the_cores(value: str, threads: str | None) -> None:
    line = f"OMP_NUM_THREADS={value}"
    for lines in ((f"export {line}", "srun ./a"), (line, "export OMP_NUM_THREADS", "srun ./a")):
        imported = read("#SBATCH --cpus-per-task=8", *lines)
        (job,) = imported.jobs
        assert job.keys.get("env", {}).get("OMP_NUM_THREADS") == threads
        replaced = (Fate.REPLACED, "Argosy sets it to the cores of a rank")
        assert (fate(imported, lines[0]) == replaced) is (threads is None)
    (job,) = read(f"srun bash -c 'export {line}; ./a'").jobs
    assert (line in job.keys["command"][-1]) is (threads is not None)


def test_values_of_mail_type_are_added_and_other_options_replaced_as_slurm_does() -> None:
    head = ("#SBATCH --mail-type=NONE", "#SBATCH --mail-type=BEGIN", "#SBATCH --mail-type=FAIL,BEGIN", "#SBATCH -t 1:0")
    imported = read(*head, "#SBATCH --gres=gpu:2", "#SBATCH --time=2:0", "#SBATCH --gres=gpu:4", "srun ./a")
    job = imported.jobs[0].keys
    assert (job["mail_type"], job["time"], job["gpus_per_node"]) == ("BEGIN,FAIL", "2:0", 4)
    assert fate(imported, "--mail-type=FAIL") == (Fate.KEPT, 'mail_type = "BEGIN,FAIL"')
    for text in ("--time=1:0", "--gres=gpu:2"):
        assert fate(imported, text) == (Fate.LEFT_OUT, "a later option replaces it")


def test_cores_for_each_gpu_of_a_job_without_gpus_are_reported() -> None:
    expected = (Fate.UNTRANSLATED, "the script requests no number of GPUs: set cpus_per_rank")
    assert fate(read("#SBATCH --cpus-per-gpu=6", "srun ./a"), "--cpus-per-gpu=6") == expected
    assert fate(read("srun --cpus-per-gpu=6 ./a"), "--cpus-per-gpu=6") == expected
    assert fate(read("#SBATCH --cpus-per-gpu=6", "srun --gpus=4 ./a"), "--cpus-per-gpu=6")[0] is Fate.KEPT


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("cat > c_$SLURM_JOB_ID.json <<EOF\nx\nEOF", "only the job knows: add the command to before = [...]"),
        ("echo ${SLURM_NTASKS} > ranks.txt", "only the job knows: add the command to before = [...]"),
        ("cat > c.json <<EOF\nx\nEOF", "write it before the launch"),
        (
            "sbatch <<EOF\n#!/bin/bash\nsrun ./b\nEOF",
            "the text is a job script: save it in a file, and import that file",
        ),
        ("./b <<EOF\nx\nEOF", "put the text into a file: the program reads it by < FILE"),
    ],
)
def test_a_here_document_has_the_advice_that_fits_its_use(line: str, advice: str) -> None:
    assert fate(read(line, "srun ./a"), line.split("\n", maxsplit=1)[0])[1].endswith(advice)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--num_nodes 2", None),
        ("--hostfile hosts", None),
        ("", ("nodes = 2", "the script starts the program on one node; the job starts it on all")),
        ("--num_nodes 4", ("--num_nodes=4", "the job has 2 nodes: correct nodes")),
    ],
)
def test_deepspeed_itself_starts_a_program_on_several_nodes(options: str, expected: tuple[str, str] | None) -> None:
    imported = read("#SBATCH --nodes=2", f"deepspeed {options} t.py")
    assert [(each.text, each.note) for each in imported.untranslated] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("options", "lost", "is_replaced"),
    [
        ("--interleave=all", ["numactl --interleave=all"], False),
        ("--cpunodebind=0 --membind=0", ["numactl --cpunodebind=0 --membind=0"], False),
        ("-N 0 -m 0", ["numactl -N 0 -m 0"], False),
        ("--cpunodebind=0 --localalloc", [], True),
    ],
)
def test_a_memory_policy_is_not_taken_for_a_binding_to_cores(
    options: str, lost: list[str], *, is_replaced: bool
) -> None:
    imported = read(f"srun numactl {options} ./a")
    assert [each.text for each in imported.untranslated] == lost
    assert any(each.text == "numactl" and each.fate is Fate.REPLACED for each in imported.translations) is is_replaced


@pytest.mark.parametrize("line", ["module list", "module -t avail", "ml", "ml spider gcc"])
def test_a_module_command_that_only_prints_is_left_out(line: str) -> None:
    assert fate(read(line, "srun ./a"), line) == (Fate.LEFT_OUT, "it only prints")


def test_options_that_are_replaced_for_one_reason_take_one_entry() -> None:
    imported = read("srun torchrun --nnodes=1 --rdzv_id=3 --max-restarts=1 --rdzv_backend=c10d t.py")
    replaced = [(each.text, each.note) for each in imported.translations if each.fate is Fate.REPLACED]
    assert replaced == [("--nnodes=1 --rdzv_id=3 --rdzv_backend=c10d", "Argosy chooses the rendezvous")]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("apptainer run \N{EN DASH}nv x.sif python t.py", "\N{EN DASH}nv begins with a dash of a text, not with '-'"),
        ("$SOLVER -i x.in", "the script does not say which program ${SOLVER} is: write its name"),
    ],
)
def test_a_program_that_is_lost_has_the_reason(line: str, note: str) -> None:
    [lost] = read(line).lost
    assert note in lost.note


@pytest.mark.parametrize(("start", "says"), [("python t.py", True), ("apptainer exec x.sif python t.py", False)])
def test_a_job_without_a_container_is_pointed_out(tmp_path: Path, start: str, *, says: bool) -> None:
    script, project = tmp_path / "job.sh", tmp_path / "argosy.toml"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=1\n{start}\n")
    said = CliRunner().invoke(app, ("import", str(script), "--site", "lumi-g", "-o", str(project)))
    assert said.exit_code == 0
    assert ("The jobs run without a container" in said.output) is says
