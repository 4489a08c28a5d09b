"""Job scripts of the field become jobs of argosy.toml, and no line is lost silently."""

from __future__ import annotations

import shlex
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from argosy.cli.app import app
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.locks import hold_lock
from argosy.core.records import replace
from argosy.launch.import_script.files import read_script_text, render_jobs, write_jobs
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript
from argosy.recipes.project_file import ProjectTable
from argosy.sites.profile import Site
from argosy.sites.profile_parts import Setting
from argosy.sites.read import read_site
from argosy.slurm.option_checks import SAME_NAME
from argosy.slurm.sbatch import JobOptions
from argosy.slurm.script_reader import parse_job_script

LUMI = """#!/bin/bash
#SBATCH --account=project_1
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56   # seven cores for each GCD
#SBATCH --mem-per-gpu=60G
#SBATCH --time=00:10:00

module purge
module load LUMI partition/G
CONTAINER=/project/project_1/pytorch.sif
export NCCL_SOCKET_IFNAME=hsn0,hsn1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
ARGS="--epochs 10 --data '$SCRATCH/set'"
echo "starting on $SLURM_JOB_NODELIST"
srun --cpu-bind=none singularity exec -B /flash,/scratch:/data --rocm $CONTAINER \\
    torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --max-restarts=3 \\
    --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py $ARGS > out.log 2>&1
"""


def keys(text: str, **options: Any) -> dict[str, Any]:
    jobs = import_script("job.sh", text, **options).jobs
    assert len(jobs) == 1
    return dict(jobs[0].keys)


def fate(imported: ImportedScript, text: str) -> tuple[Fate, str]:
    found = [each for each in imported.translations if each.text.startswith(text)]
    assert found, f"{text} is lost"
    return found[0].fate, found[0].note


def test_a_torchrun_job_in_a_container_keeps_shape_binds_and_arguments() -> None:
    job = keys(LUMI)
    assert job["image"] == "/project/project_1/pytorch.sif"
    assert job["launcher"] == "torchrun"
    assert job["torchrun_arg"] == ["--max-restarts=3"]
    assert (job["nodes"], job["gpus_per_node"], job["ranks_per_node"], job["cpus_per_rank"]) == (2, 8, 8, 7)
    assert job["bind"] == ["/flash", "/scratch:/data"]
    assert job["env"] == {"NCCL_SOCKET_IFNAME": "hsn0,hsn1"}
    assert (job["account"], job["partition"], job["time"], job["mem_per_gpu"]) == (
        "project_1", "standard-g", "00:10:00", "60G",
    )  # fmt: skip
    assert job["command"][:2] == ["sh", "-c"]
    assert "exec python train.py --epochs 10 --data" in job["command"][2]


def test_each_line_has_a_translation_with_its_reason() -> None:
    imported = import_script("job.sh", LUMI)
    lines = {each.line for each in imported.translations}
    assert lines == {number for number, text in enumerate(LUMI.splitlines(), 1) if number > 1 and text.strip()} - {
        20,
        21,
    }
    assert fate(imported, "module load")[0] is Fate.LEFT_OUT
    assert fate(imported, "export MASTER_ADDR")[0] is Fate.REPLACED
    assert fate(imported, "echo")[0] is Fate.LEFT_OUT
    assert fate(imported, "--cpu-bind=none")[0] is Fate.REPLACED
    assert fate(imported, "> out.log 2>&1")[0] is Fate.LEFT_OUT


@pytest.mark.parametrize("start", ["mpiexec -n ${WORLD_SIZE} -ppn ${PER_NODE}", "srun -n $WORLD_SIZE"])
def test_a_number_of_ranks_that_the_script_computes_is_reported_and_left_to_the_site(start: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsource setup_mpi.sh\n{start} ./a.out\n"
    job = keys(script)
    assert not {"ranks", "ranks_per_node"} & set(job)
    told, note = fate(import_script("j", script), "--ntasks")
    assert told is Fate.UNTRANSLATED
    assert "set ranks" in note


def test_an_option_of_mpiexec_is_not_explained_by_srun() -> None:
    imported = import_script("j", "#!/bin/bash\nmpiexec -n 4 --hosts a,b ./a.out\n")
    assert "srun" not in fate(imported, "--hosts")[1]


def test_variables_that_the_profile_sets_are_left_out() -> None:
    site = Site(name="s", settings=(Setting(name="NCCL_SOCKET_IFNAME", value="hsn0,hsn1", why="w", source="s"),))
    job = keys(LUMI, site=site)
    assert "env" not in job
    assert job["site"] == "s"
    assert fate(import_script("j", LUMI, site=site), "export NCCL")[0] is Fate.REPLACED


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun python a.py", {"launcher": "srun", "command": ["python", "a.py"], "image": "bare:"}),
        ("srun -K -m block:cyclic -l --x11 python a.py", {"command": ["python", "a.py"], "label": True}),
        ("torchrun --nn=2 --nproc=4 --stand --no-pyth a.py --x 1",
         {"launcher": "torchrun", "ranks_per_node": 4, "command": ["a.py", "--x", "1"]}),
        ("python -m torch.distributed.run --nproc_per_node 4 -m pkg.train --x 1",
         {"launcher": "torchrun", "ranks_per_node": 4, "command": ["python", "-m", "pkg.train", "--x", "1"]}),
        ("apptainer exec --nv x.sif python a.py", {"image": "x.sif", "launcher": "none"}),
        ("mpirun -np 8 --bind-to core ./a.out -v", {"launcher": "mpi", "ranks": 8, "command": ["./a.out", "-v"]}),
        ("mpiexec -n 16 -ppn 8 --hosts a,b ./a.out", {"launcher": "mpi", "ranks": 16, "command": ["./a.out"]}),
        ("mpirun -npernode 8 ./a.out", {"launcher": "mpi", "ranks_per_node": 8}),
        ("mpirun --map-by ppr:8:node ./a.out", {"launcher": "mpi", "ranks_per_node": 8}),
        ("mpirun --map-by=ppr:8:node:PE=4 ./a.out", {"launcher": "mpi", "ranks_per_node": 8}),
        ("mpirun -pernode ./a.out", {"launcher": "mpi", "ranks_per_node": 1}),
        ("mpirun --np=4 --bind-to core ./a.out", {"launcher": "mpi", "ranks": 4}),
        ("srun --mpi=pmix -n 16 apptainer exec x.sif ./a", {"launcher": "mpi", "mpi": "pmix", "ranks": 16}),
        ("srun --container-image=nvcr.io#nvidia/pytorch:24.01-py3 --container-mounts=/a:/b,/c:/d python a.py",
         {"image": "docker://nvcr.io/nvidia/pytorch:24.01-py3", "bind": ["/a:/b", "/c:/d"]}),
        ("podman-hpc run --rm --gpu -v /a:/b -e X=1 img:1 python a.py",
         {"image": "docker://img:1", "bind": ["/a:/b"], "env": {"X": "1"}}),
        ("shifter --image=docker:org/img:2 python a.py", {"image": "docker://org/img:2"}),
        ("accelerate launch --num_processes 8 --mixed_precision bf16 a.py --y",
         {"launcher": "torchrun", "command": ["python", "a.py", "--y"], "env": {"ACCELERATE_MIXED_PRECISION": "bf16"}}),
        ("deepspeed --num_gpus 2 a.py --deepspeed ds.json", {"launcher": "torchrun", "ranks_per_node": 2}),
        ("srun apptainer exec x.sif bash -c 'source /opt/env/bin/activate; python a.py --n 2'",
         {"image": "x.sif", "command": ["python", "a.py", "--n", "2"]}),
        ("srun apptainer exec x.sif bash -c '$WITH_CONDA; python a.py'",
         {"command": ["bash", "-c", "$WITH_CONDA; python a.py"]}),
        ("OUT=run1\npython a.py --out $OUT", {"command": ["python", "a.py", "--out", "run1"]}),
        ("A=(--x 'y z')\npython a.py \"${A[@]}\"", {"command": ["python", "a.py", "--x", "y z"]}),
        ("python a.py --id $SLURM_ARRAY_TASK_ID",
         {"command": ["sh", "-c", "exec python a.py --id ${SLURM_ARRAY_TASK_ID}"]}),
        ("PYTHON=~/conda/bin/python\n$PYTHON -m mine.train --n 2",
         {"command": ["sh", "-c", 'exec "${HOME}"/conda/bin/python -m mine.train --n 2']}),
        ("cd $SCRATCH/run\npython a.py", {"command": ["sh", "-c", 'cd "${SCRATCH}/run" || exit; exec python a.py']}),
        ("source /p/venv/bin/activate\npython a.py", {"image": "bare:/p/venv", "command": ["python", "a.py"]}),
        ("mkdir -p out/$SLURM_JOB_ID\npython a.py", {"before": ["mkdir -p out/${SLURM_JOB_ID}"]}),
        ("numactl --cpunodebind=0 python a.py | tee log", {"command": ["python", "a.py"]}),
    ],
)  # fmt: skip
def test_forms_that_the_field_uses(line: str, expected: dict[str, Any]) -> None:
    job = keys(f"#!/bin/bash\n#SBATCH --nodes=1\n{line}\n")
    assert {name: job.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("#SBATCH --output=$HOME/x", "sbatch expands no variables"),
        ("#SBATCH --nodse=2", "did you mean --nodes?"),
        ("#SBATCH --time=soon", "invalid time limit"),
        pytest.param(f"#SBATCH --nodes={'1' * 5000}", "not one number", id="5000 digits"),
        ("export TOKEN=$(cat token)", "a command computes the value"),
        ("source env.sh", "put its variables into env"),
        ("pip install x", "environment file"),
        ("for i in 1 2; do python a.py $i; done", "job array"),
    ],
)
def test_parts_that_cannot_be_translated_are_named_with_advice(line: str, note: str) -> None:
    imported = import_script("job.sh", f"#!/bin/bash\n{line}\npython b.py\n")
    assert any(each.line == 2 and note in each.note for each in imported.untranslated)


def test_a_value_that_a_condition_sets_is_not_guessed() -> None:
    text = "#!/bin/bash\nif [ $1 = a ]; then\n  X=1\nelse\n  X=2\nfi\npython a.py $X\n"
    imported = import_script("job.sh", text)
    assert fate(imported, "$X")[0] is Fate.UNTRANSLATED


def test_directives_below_the_first_command_are_not_read_by_sbatch() -> None:
    imported = import_script("job.sh", "#!/bin/bash\n#SBATCH -N 2\necho x\n#SBATCH -t 10\npython a.py\n")
    assert fate(imported, "--time=10")[0] is Fate.LEFT_OUT
    assert "time" not in imported.jobs[0].keys


def test_several_programs_become_several_jobs() -> None:
    text = "#!/bin/bash\n#SBATCH -J prep\nsrun python a.py\nsrun -n 4 python b.py\n"
    assert [(job.name, job.keys["command"][-1]) for job in import_script("j.sh", text).jobs] == [
        ("prep", "a.py"),
        ("prep-2", "b.py"),
    ]


def test_the_table_is_added_to_a_project_file_and_valid() -> None:
    jobs = import_script("job.sh", LUMI, name="train").jobs
    text = render_jobs(jobs, "# mine\n[launch]\nsite = 'lumi-g'   # kept\n")
    assert text.startswith("# mine\n[launch]\nsite = 'lumi-g'   # kept\n")
    assert msgspec.convert(tomllib.loads(text), ProjectTable).job["train"].nodes == 2
    with pytest.raises(UsageError, match="already has a job 'train'"):
        render_jobs(jobs, text)


@given(st.text(st.sampled_from("#SBATCH -nN=$(){}\"'\\\n;&|<>xab1 srun python torchrun for do done [ ]"), max_size=200))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    imported = import_script("job.sh", text)
    msgspec.convert(tomllib.loads(render_jobs(imported.jobs)), ProjectTable)


def test_quotes_continued_lines_and_comments_are_read_as_the_shell_reads_them() -> None:
    script = parse_job_script("#!/bin/sh\n#SBATCH --job-name='a b' # name\npython \\\n  a.py 'x y' \"z\" # end\n")
    assert str(script.options[0]) == "--job-name=a b"
    assert [each.line for each in script.statements] == [3]


@pytest.mark.parametrize(
    ("data", "evidence"),
    [
        (b"\x7fELF\0\0", "a binary file"),
        (b"#!/usr/bin/env python3\nprint(1)\n", "python3"),
        (b"", "first line: ''"),
        (b"#!/bin/tcsh\n", "tcsh"),
    ],
)
def test_a_file_that_is_not_a_shell_script_is_refused(data: bytes, evidence: str, tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(data)
    with pytest.raises(UsageError, match="is not a job script of sh or bash") as caught:
        read_script_text(tmp_path / "job")
    assert evidence in caught.value.evidence


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("\ufeff#!/bin/bash\n", "begins with a byte order mark", "sed -i"),
        ("#!/bin/bash\n#SBATCH \u2013-nodes=2\n", "sbatch rejects line 2 of", "two hyphens"),
    ],
)
def test_a_script_that_sbatch_rejects_because_of_a_character_is_refused(
    text: str, what: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "job").write_text(text)
    with pytest.raises(UsageError, match=what) as caught:
        read_script_text(tmp_path / "job")
    assert hint in caught.value.hint


@pytest.mark.parametrize("line", ["#!/bin/bash", "#!/bin/sh -e", "#! /usr/bin/env bash", "#!/usr/bin/env -S bash -l"])
def test_shells_are_recognised_by_the_first_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "job").write_text(f"{line}\npython a.py\n")
    assert "python a.py" in read_script_text(tmp_path / "job")


def test_an_invalid_project_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "argosy.toml"
    file.write_text("x = [\n")
    with pytest.raises(UsageError, match="is not valid TOML") as caught:
        write_jobs(file, import_script("a.sh", LUMI).jobs, waiting=print)
    assert "Invalid" in caught.value.evidence
    assert file.read_text() == "x = [\n"


def test_an_activation_in_the_container_is_reported() -> None:
    script = "srun apptainer exec x.sif bash -c 'source /opt/env/bin/activate; python a.py'"
    untranslated = import_script("job.sh", script).untranslated
    assert [each.text for each in untranslated] == ["source /opt/env/bin/activate"]
    assert "does not activate it in the container" in untranslated[0].note


def test_values_that_the_shell_computes_are_not_copied_as_text() -> None:
    line = "srun apptainer exec -B $PWD:/work,$DATA:/data --env SEED=$SLURM_ARRAY_TASK_ID --env A=1 my.sif python x.py"
    text = f"#!/bin/bash\n{line}\n"
    assert keys(text)["bind"] == [".:/work"]
    assert keys(text)["env"] == {"A": "1"}
    imported = import_script("job.sh", text)
    assert fate(imported, "bind ${DATA}:/data")[0] is Fate.UNTRANSLATED
    assert fate(imported, "SEED=${SLURM_ARRAY_TASK_ID}") == (Fate.KEPT, "the shell of each rank sets it")
    assert keys(text)["command"][-1] == 'export SEED="${SLURM_ARRAY_TASK_ID}"; exec python x.py'


@pytest.mark.parametrize(
    ("head", "start", "ranks"),
    [
        ("", "srun python", 1),
        ("", "python", 1),
        ("#SBATCH --ntasks-per-node=2\n", "srun python", 2),
        ("", "srun torchrun --nproc_per_node=2", 2),
    ],
)
def test_a_script_without_a_number_of_tasks_starts_one_as_slurm_does(head: str, start: str, ranks: int) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=2\n{head}{start} python x.py\n"
    assert (
        keys(text.replace("torchrun --nproc_per_node=2 python", "torchrun --nproc_per_node=2"))["ranks_per_node"]
        == ranks
    )


@pytest.mark.parametrize(
    ("site", "line", "fate_and_note"),
    [
        (
            "lumi-g",
            "module load singularity-userfilesystems singularity-CPEbits",
            (Fate.REPLACED, "mounts the folders"),
        ),
        ("lumi-g", "module load PyTorch/2.7", (Fate.LEFT_OUT, "the image has the software")),
        ("nvidia-apptainer", "module load apptainer", (Fate.UNTRANSLATED, "add it to load in [modules]")),
        ("mn5-acc", "module load singularity", (Fate.REPLACED, "loads it")),
    ],
)
def test_a_module_has_the_reason_that_fits_the_site(site: str, line: str, fate_and_note: tuple[Fate, str]) -> None:
    text = f"#!/bin/bash\n{line}\nsrun singularity exec my.sif python x.py\n"
    found, note = fate(import_script("job.sh", text, site=read_site(site)), line)
    assert found is fate_and_note[0]
    assert fate_and_note[1] in note


@pytest.mark.parametrize(("nodes", "result"), [("2", Fate.REPLACED), ("1", Fate.KEPT)])
def test_a_condition_that_the_options_of_the_script_decide_is_decided(nodes: str, result: Fate) -> None:
    text = LUMI.replace("--nodes=2", f"--nodes={nodes}").replace("hsn0,hsn1", "hsn0,hsn1,hsn2,hsn3")
    assert fate(import_script("job.sh", text, site=read_site("lumi-g")), "export NCCL")[0] is result


def test_a_variable_that_the_profile_sets_only_under_a_condition_is_kept() -> None:
    setting = Setting(
        name="NCCL_NET_GDR_LEVEL", value="PHB", when={"rocm": "< 6.2"}, why="", source="https://x.example"
    )
    site = replace(read_site("lumi-g"), settings=(setting,))
    text = "#!/bin/bash\nexport NCCL_NET_GDR_LEVEL=PHB\nsrun singularity exec my.sif python x.py\n"
    imported = import_script("job.sh", text, site=site)
    result, note = fate(imported, "export NCCL")
    assert result is Fate.KEPT
    assert note.endswith("but only if rocm < 6.2")
    assert imported.jobs[0].keys["env"] == {"NCCL_NET_GDR_LEVEL": "PHB"}


@pytest.mark.parametrize(
    ("line", "folder"),
    [("cd $SLURM_SUBMIT_DIR/run", "./run"), ("cd ${SLURM_SUBMIT_DIR}", ""), ("cd $PWD/a/b", "./a/b"), ("cd /x", "/x")],
)
def test_a_folder_below_that_of_the_launch_is_kept(line: str, folder: str) -> None:
    assert keys(f"#!/bin/bash\n{line}\nsrun apptainer exec my.sif python x.py\n").get("chdir", "") == folder


def test_paths_with_several_variables_stay_whole_and_are_reported() -> None:
    start = "srun apptainer exec --pwd $PWD/src $PROJECT/$USER/my.sif python train.py --data $SCRATCH/$USER/data"
    imported = import_script("job.sh", f"#!/bin/bash\n{start}\n")
    ((job,),) = (imported.jobs,)
    assert job.keys["image"] == "${PROJECT}/${USER}/my.sif"
    assert job.keys["command"][-1].endswith("/data")
    assert "workdir" not in job.keys
    assert fate(imported, "image ")[0] is Fate.UNTRANSLATED
    assert fate(imported, "workdir ")[0] is Fate.UNTRANSLATED


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ("#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --nodes=2\nsrun python a.py", "line 3: #SBATCH hetjob"),
        ("#SBATCH -N1\n#SBATCH packjob\n#SBATCH -N2\nsrun python a.py", "line 3: #SBATCH packjob"),
        ("if true; then\n    srun --het-group=0,1 python a.py\nfi", "line 3: srun --het-group=0,1 python a.py"),
        ("srun -n1 a.out : \\\n    -n2 b.out", "line 2: srun -n1 a.out :"),
    ],
)
def test_a_heterogeneous_job_is_refused_as_a_whole(lines: str, shown: str) -> None:
    with pytest.raises(UsageError, match="heterogeneous job") as caught:
        import_script("job.sh", f"#!/bin/bash\n{lines}\n")
    assert caught.value.evidence == shown
    assert "launch each component as a job of its own" in str(caught.value.hint)


def test_a_colon_inside_a_word_separates_no_components() -> None:
    assert keys("#!/bin/bash\nsrun python a.py a:b ': c'\n")["command"] == ["python", "a.py", "a:b", ": c"]


LOOP = """#!/bin/bash
#SBATCH --nodes=2
for lr in 1e-3 1e-4; do
  echo $lr
  srun singularity exec x.sif torchrun --nnodes=2 train.py --lr $lr
done
srun singularity exec x.sif python eval.py
"""


def test_a_loop_that_starts_a_program_is_reported_as_lost_and_named_in_the_table() -> None:
    imported = import_script("llm.sh", LOOP)
    assert [each.loss for each in imported.lost] == ["lines 3-6 start train.py in a loop and are NOT translated"]
    assert [(job.line, job.program) for job in imported.jobs] == [(7, "eval.py")]
    text = render_jobs(imported.jobs, comments=[each.loss for each in imported.lost])
    assert text.startswith("[job.llm]\n# lines 3-6 start train.py in a loop")


@pytest.mark.parametrize(
    ("part", "starts"),
    [
        ("if [ $1 ]; then python -u a.py --n 1; else python -m pkg.b; fi", "a.py and pkg.b in a condition"),
        ("run() { srun ./solver $1; }", "./solver"),
        ("srun bash <<EOF\npython a.py\nEOF", "bash"),
        ("python a.py | grep -v x", "a.py"),
        ("parallel srun python ::: a.py b.py", "parallel"),
        ("conda run -n env python a.py", "conda"),
        ("python a.py <<< x", "a.py"),
        ("( cd sub && ./go.x )", "./go.x"),
        ("if ! srun python a.py; then echo bad; fi", "a.py in a condition"),
        ("trap 'python save.py' EXIT", "trap"),
        ('echo "acc $(python eval.py)"', "eval.py"),
        ("ACC=$(python eval.py)", "eval.py"),
        ("N=$(python -c 'print(1)')", ""),
        ("find . -name '*.in' -exec ./solver {} ';'", "find"),
        ("find . -name core -exec rm {} ';'", ""),
        ("ls | xargs -n1 -P4 python conv.py", "xargs"),
        ("ls | xargs -n1 gzip", ""),
        ("ssh node2 python a.py", "ssh"),
        ('eval "$CMD"', "eval"),
        ("${LAUNCHER} ./x.out", "${LAUNCHER}"),
        ("sbatch next.sh", "sbatch"),
        ("srun ray start --head --block &", "ray"),
        ("test -f data.bin || python prepare.py", "prepare.py"),
        ("[ -f model.pt ] && python a.py", "a.py"),
        ("grep -q done log && echo x && ./a.out", "./a.out"),
        ("tail log | grep -q done && ./a.out", "./a.out"),
        ("srun --multi-prog programs.conf", "a program"),
        ("mpirun -np 2 ./a : -np 2 ./b", "a program"),
        ("mpirun --frobnicate ./a.out in.txt", "a program"),
        ("accelerate launch --shiny a.py", "a program"),
        ("deepspeed --shiny a.py", "a program"),
        ("deepspeed --no_ssh", "a program"),
        ("srun --shiny python a.py", "a program"),
        ("apptainer exec --shiny i.sif python a.py", "a program"),
        ("docker run --shiny img:1 python a.py", "a program"),
        ("srun ./d\n\\python e.py", "./d"),
        ("cleanup() { rm -rf x; }\ntrap cleanup EXIT", ""),
        ("run() { srun ./a; }\ntrap run EXIT", "./atrap"),
        ("python -m pip install x", ""),
        ("uv pip install x", ""),
        ("python --version", ""),
        ("scontrol show job 1", ""),
        ("singularity pull docker://x", ""),
        ("ray stop", ""),
        ("conda create -n env python numpy", ""),
        ("for n in $(scontrol show hostnames); do srun -w $n hostname; done", ""),
        ("for i in 1 2; do gzip $i; done", ""),
    ],
)
def test_parts_that_start_a_program_are_told_from_others(part: str, starts: str) -> None:
    imported = import_script("j.sh", f"#!/bin/bash\n{part}\npython b.py\n")
    assert "".join(each.lost_programs for each in imported.lost) == starts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun pw.x -nk 4 < scf.in > scf.out", {"command": ["sh", "-c", "exec pw.x -nk 4 < scf.in"]}),
        ("srun pw.x < scf.in | tee scf.out", {"command": ["sh", "-c", "exec pw.x < scf.in"]}),
        ("IN=a.in\nmpirun -np 4 lmp < $IN -var x 1", {"command": ["sh", "-c", "exec lmp -var x 1 < a.in"]}),
        ("srun -i scf.in pw.x", {"command": ["sh", "-c", "exec pw.x < scf.in"]}),
        ("srun bash -c 'pw.x < scf.in > scf.out'", {"command": ["bash", "-c", "pw.x < scf.in > scf.out"]}),
        ("srun python a.py > log --lr 1", {"command": ["python", "a.py", "--lr", "1"]}),
        ("timeout 3h python -u a.py", {"command": ["python", "-u", "a.py"]}),
        ("nice -n 10 stdbuf -oL python ./a.py", {"command": ["python", "./a.py"]}),
        ("env -u FOO A=1 ./a.out", {"command": ["sh", "-c", "unset FOO; exec ./a.out"], "env": {"A": "1"}}),
        ("gmx mdrun -deffnm md", {"command": ["gmx", "mdrun", "-deffnm", "md"], "launcher": "none"}),
        ("deepspeed --bind_cores_to_rank a.py --lr 1", {"command": ["python", "a.py", "--lr", "1"]}),
        ("deepspeed --no_ssh a.py", {"command": ["python", "a.py"]}),
        ("python -m deepspeed.launcher.runner --num_gpus 4 a.py", {"ranks_per_node": 4, "command": ["python", "a.py"]}),
        ("deepspeed --module pkg.train", {"command": ["python", "-m", "pkg.train"]}),
        ("accelerate launch --cpu a.py", {"command": ["python", "a.py"], "env": {"ACCELERATE_USE_CPU": "true"}}),
        ("accelerate launch --debug a.py", {"command": ["python", "a.py"]}),
        ("accelerate launch --use_megatron_lm a.py", {"command": ["python", "a.py"]}),
        ("mpiexec -l ./a.out in.txt", {"launcher": "mpi", "command": ["./a.out", "in.txt"]}),
        ("mpirun -np 4 --quiet python a.py", {"ranks": 4, "command": ["python", "a.py"]}),
        ("mpiexec -n 8 --ppn 4 --depth=8 --cpu-bind depth --env A=8 ./a",
         {"ranks": 8, "command": ["./a"], "env": {"A": "8"}}),
        ("mpiexec.hydra -genv A 5 -n 2 ./a", {"ranks": 2, "command": ["./a"], "env": {"A": "5"}}),
        ("srun bash -c 'python -u -m torch.distributed.run --nproc_per_node 4 a.py'",
         {"launcher": "torchrun", "ranks_per_node": 4, "command": ["python", "a.py"]}),
        ("apptainer exec --no-eval i.sif python a.py", {"image": "i.sif", "command": ["python", "a.py"]}),
        ("podman run --read-only img:1 python a.py", {"image": "docker://img:1", "command": ["python", "a.py"]}),
        ("podman run -P -e X -e Y=1 img:1 python a.py", {"image": "docker://img:1", "env": {"Y": "1"}}),
        ("shifter --env A=1 --image=x:1 python a.py", {"image": "docker://x:1", "env": {"A": "1"}}),
        ("srun --export=ALL,A=1,B=x python a.py", {"env": {"A": "1", "B": "x"}}),
        ('A=1\nB=2\nCMD="python a.py $A $B"\nsrun $CMD', {"command": ["python", "a.py", "1", "2"]}),
    ],
)  # fmt: skip
def test_the_program_of_a_command_keeps_its_arguments_and_its_input(line: str, expected: dict[str, Any]) -> None:
    job = keys(f"#!/bin/bash\n#SBATCH --nodes=1\n{line}\n")
    assert {name: job.get(name) for name in expected} == expected


def test_a_variable_that_a_container_inherits_is_reported() -> None:
    imported = import_script("j.sh", "#!/bin/bash\npodman run -e TOKEN img:1 python a.py\n")
    assert "start the job with --env TOKEN" in fate(imported, "--env TOKEN")[1]


def test_variables_of_export_become_variables_of_the_job() -> None:
    text = "#!/bin/bash\n#SBATCH --export=ALL,LR=0.1\nsrun --export=ALL,STEPS=$N,SEED=1 python a.py\n"
    assert keys(text)["env"] == {"LR": "0.1", "SEED": "1"}
    assert fate(import_script("j.sh", text), "--export=ALL,LR=0.1") == (Fate.KEPT, 'env.LR = "0.1"')
    assert fate(import_script("j.sh", text), "STEPS=")[0] is Fate.UNTRANSLATED


@pytest.mark.parametrize("between", ["\n", " && "])
def test_the_order_of_programs_is_reported(between: str) -> None:
    imported = import_script("s.sh", f"#!/bin/bash\nsrun python a.py{between}srun python b.py\n")
    assert fate(imported, "[job.s-2]") == (
        Fate.UNTRANSLATED, "it runs after line 2: launch s-2 with --after and the number of that job",
    )  # fmt: skip
    assert not imported.lost


@pytest.mark.parametrize(
    "line", ["srun a.out || scontrol requeue $SLURM_JOB_ID", "mkdir x || cd y", "test -f x && MODE=fast"]
)
def test_a_command_under_a_condition_is_reported(line: str) -> None:
    imported = import_script("s.sh", f"#!/bin/bash\n{line}\npython b.py\n")
    assert any("depends on the result of the command before it" in each.note for each in imported.untranslated)


def test_a_program_that_sbatch_starts_once_is_not_started_on_each_node() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=8\n#SBATCH --gpus=16\npython driver.py\n"
    job, imported = keys(text), import_script("j.sh", text)
    assert (job["nodes"], job["gpus"], "ranks" in job) == (1, 8, False)
    assert fate(imported, "nodes = 1")[0] is Fate.UNTRANSLATED
    assert job["cpus_per_rank"] == 4
    assert fate(imported, "--nodes=2") == (Fate.LEFT_OUT, "the script starts its program once, on the first node")


@pytest.mark.parametrize(
    ("line", "shape"),
    [("srun -n 1 ./real.exe", (1, 1, None)), ("srun --ntasks=8 ./a", (2, 8, None)), ("srun ./a", (2, None, 64))],
)
def test_a_number_of_ranks_of_srun_overrides_that_of_the_job(
    line: str, shape: tuple[int, int | None, int | None]
) -> None:
    job = keys(f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=64\n{line}\n")
    assert (job["nodes"], job.get("ranks"), job.get("ranks_per_node")) == shape


@pytest.mark.parametrize(
    "line", ["cat > in.txt << EOF\nsteps 1\nEOF", "echo 'steps 1' > in.txt", "for i in 1 2; do echo $i >> in.txt; done"]
)
def test_a_file_that_the_script_writes_is_reported(line: str) -> None:
    imported = import_script("j.sh", f"#!/bin/bash\n{line}\n./a.out < in.txt\n")
    assert [each.line for each in imported.untranslated if "it writes a file" in each.note] == [2]
    assert not imported.lost


def test_a_call_of_a_function_has_the_programs_of_the_function() -> None:
    text = "#!/bin/bash\nlog() { echo $1; }\nrun() { srun python a.py; }\nlog x\nfor i in 1 2; do log $i; done\nrun\n"
    lost = import_script("j.sh", text).lost
    assert [(each.line, each.lost_programs) for each in lost] == [(3, "a.py"), (6, "a.py")]


def test_commands_in_each_other_are_read_once() -> None:
    nested = "echo $(" * 40 + "python a.py" + ")" * 40
    assert [each.lost_programs for each in import_script("j.sh", f"#!/bin/bash\n{nested}\n").lost] == ["a.py"]


def test_a_folder_of_an_earlier_program_is_not_kept() -> None:
    text = "#!/bin/bash\ncd /data\nsrun ./a\ncd $SLURM_SUBMIT_DIR\nsrun ./b\n"
    assert [job.keys.get("chdir") for job in import_script("j.sh", text).jobs] == ["/data", None]


def test_concurrent_imports_into_one_file_lose_no_table(tmp_path: Path) -> None:
    file, jobs = tmp_path / "argosy.toml", import_script("a.sh", LUMI).jobs
    waited = threading.Event()
    with ThreadPoolExecutor() as pool:
        with hold_lock(tmp_path / ".argosy.toml.lock", what="test", waiting=print):
            writer = pool.submit(write_jobs, file, jobs, waiting=lambda _: waited.set())
            assert waited.wait(60)
            file.write_text("[job.other]\ncommand = ['x']\n")
        writer.result(60)
    assert set(tomllib.loads(file.read_text())["job"]) == {"a", "other"}


@pytest.mark.parametrize(
    ("data", "what"), [(b"# caf\xe9\n", "is not valid TOML"), (b"job = 3\n", "a key 'job' that is not a table")]
)
def test_a_project_file_that_cannot_hold_a_table_is_refused(data: bytes, what: str, tmp_path: Path) -> None:
    file = tmp_path / "argosy.toml"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=what):
        write_jobs(file, import_script("a.sh", LUMI).jobs, waiting=print)
    assert file.read_bytes() == data


def argosy_import(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *options: str) -> Result:
    (folder / "llm.sh").write_text(text)
    monkeypatch.chdir(folder)
    return CliRunner().invoke(app, ["import", "llm.sh", *options])


def test_the_command_fails_if_a_job_lacks_a_program_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = argosy_import(tmp_path, monkeypatch, LOOP)
    assert isinstance(result.exception, CheckFailed)
    assert result.exception.evidence.splitlines() == [
        "lines 3-6 start train.py in a loop and are NOT translated",
        "[job.llm] contains only line 7 (eval.py)",
    ]
    assert "lines 3-6 start train.py in a loop" in result.output.splitlines()[0]
    assert "next:" not in result.output
    assert argosy_import(tmp_path, monkeypatch, LOOP, "--json").exit_code == CheckFailed.code


def test_the_next_command_names_a_site_if_this_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARGOSY_SITE", raising=False)
    result = argosy_import(tmp_path, monkeypatch, LUMI)
    assert "next: argosy launch llm --site NAME --dry-run\n" in result.output
    other = argosy_import(tmp_path, monkeypatch, LUMI, "--site", "lumi-g", "--name", "other")
    assert "next: argosy launch other --dry-run\n" in other.output


def test_a_profile_that_was_named_by_its_path_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\ntitle = "Mine"\n')
    argosy_import(tmp_path, monkeypatch, LUMI, "--site", "mine.toml")
    assert f'site = "{tmp_path}/mine.toml"\n' in (tmp_path / "argosy.toml").read_text()


def test_a_job_that_exists_is_refused_before_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argosy_import(tmp_path, monkeypatch, LUMI)
    again = argosy_import(tmp_path, monkeypatch, LUMI)
    assert "already has a job 'llm'" in str(again.exception)
    assert again.output == ""


@pytest.mark.parametrize(
    ("line", "start", "expected"),
    [
        (
            "source venv/bin/activate",
            "srun apptainer exec x.sif",
            (Fate.UNTRANSLATED, "must contain the packages of venv"),
        ),
        ("source activate env", "srun apptainer exec x.sif", (Fate.UNTRANSLATED, "must contain the packages of env")),
        ("conda activate env", "srun apptainer exec x.sif", (Fate.UNTRANSLATED, "must contain the packages of env")),
        ("conda activate env", "srun", (Fate.UNTRANSLATED, "activate it in your shell")),
        ("source /p/venv/bin/activate", "srun", (Fate.KEPT, 'image = "bare:/p/venv"')),
        ("source ~/.bashrc", "srun", (Fate.LEFT_OUT, "prepares the shell")),
    ],
)
def test_an_activated_environment_is_not_assumed_in_the_image(
    line: str, start: str, expected: tuple[Fate, str]
) -> None:
    found, note = fate(import_script("j.sh", f"#!/bin/bash\n{line}\n{start} python a.py\n"), line)
    assert found is expected[0]
    assert expected[1] in note


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("set -euo pipefail", "it controls the shell of the script"),
        ("echo start", "it only prints"),
        ("UNUSED=1", "the script does not use it"),
        ("LOOPED=1", "only loops and conditions use it"),
        ("USED=1", "its value is put where it is used"),
        ("ip=$(srun -w $head hostname --ip-address)", "Argosy finds the nodes of the job"),
    ],
)
def test_what_only_the_script_needs_has_its_reason(line: str, note: str) -> None:
    text = f"#!/bin/bash\n{line}\nif true; then echo $LOOPED; fi\npython a.py $USED\n"
    assert fate(import_script("j.sh", text), line)[1] == note


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("trap 'touch stop' USR1", "the job passes USR1 to each rank: handle it in the program"),
        ("trap 'echo end' SIGTERM USR2 EXIT", "the job passes TERM and USR2 to each rank: handle it in the program"),
        ("trap '' USR1", "it controls the shell of the script"),
        ("trap 'rm -f lock' EXIT", "it controls the shell of the script"),
    ],
)
def test_a_handled_signal_is_not_dropped(line: str, note: str) -> None:
    found = import_script("s.sh", f"#!/bin/bash\n{line}\nsrun ./a.out\n").translations
    assert [each.note for each in found if each.line == 2] == [note]


@pytest.mark.parametrize(
    ("lines", "start", "expected"),
    [
        ("#SBATCH --gpus-per-task=1", "srun", ["--gpu-bind=single:1"]),
        ("#SBATCH --gpus-per-task=a100:2", "srun", ["--gpu-bind=per_task:2"]),
        ("#SBATCH --gpus-per-node=2", "srun --gpu-bind=closest", ["--gpu-bind=closest"]),
        ("#SBATCH --gres=gpu:2,nvme:9\n#SBATCH --gpu-bind=none", "srun", ["--gres=nvme:9", "--gpu-bind=none"]),
        ("#SBATCH --gpus-per-task=2", "srun torchrun", None),
    ],
)
def test_ranks_keep_their_own_gpus(lines: str, start: str, expected: list[str] | None) -> None:
    text = f"#!/bin/bash\n#SBATCH --ntasks-per-node=2\n{lines}\n{start} python a.py\n"
    found = import_script("s.sh", text)
    assert found.jobs[0].keys.get("sbatch_arg") == expected
    for note in (each.note for each in found.translations if each.text.startswith("--gpus-per-task")):
        assert note == "see gpus_per_node in the table" + (", and --gpu-bind in sbatch_arg" if expected else "")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("gpu:1g.10gb:1", (1, "1g.10gb")),
        ("gpu:a100_1g.5gb", (1, "a100_1g.5gb")),
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:2", (2, None)),
        ("gpu", (1, None)),
        ("gpu:a100:2,gpu:v100:2", (None, None)),
    ],
)
def test_a_request_for_gpus_keeps_its_number_and_type(asked: str, expected: tuple[int | None, str | None]) -> None:
    keys = import_script("s.sh", f"#!/bin/bash\n#SBATCH --gres={asked}\nsrun ./a\n").jobs[0].keys
    assert (keys.get("gpus_per_node"), keys.get("gpu_type")) == expected


@pytest.mark.parametrize("name", sorted(SAME_NAME))
def test_an_option_that_launch_and_sbatch_share_becomes_a_key(name: str) -> None:
    values = {"mem": "60G", "mem-per-gpu": "60G", "array": "0-9", "mail-type": "END", "time": "1:00", "signal": "USR2"}
    is_flag = isinstance(getattr(JobOptions(), name.replace("-", "_")), bool)
    value = "" if is_flag else f"={values.get(name, 'x')}"
    keys = import_script("s.sh", f"#!/bin/bash\n#SBATCH --{name}{value}\nsrun ./a\n").jobs[0].keys
    assert keys[name.replace("-", "_")] == (value[1:] or True)


def test_nodes_for_one_user_are_not_whole_nodes_for_one_job() -> None:
    keys = import_script("s.sh", "#!/bin/bash\n#SBATCH --exclusive=user\nsrun ./a\n").jobs[0].keys
    assert "exclusive" not in keys
    assert keys["sbatch_arg"] == ["--exclusive=user"]


RDZV = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
srun apptainer run --nv x.sif torchrun --nnodes 2 --nproc_per_node 4 --rdzv_id $RANDOM \\
    --rdzv_backend c10d --rdzv_endpoint $head_node_ip:29500 train.py 50 10
"""


def test_a_launcher_behind_the_runscript_of_an_image_is_replaced() -> None:
    job = keys(RDZV)
    assert (job["image"], job["launcher"], job["command"]) == ("x.sif", "torchrun", ["python", "train.py", "50", "10"])
    result, note = fate(import_script("j.sh", RDZV), "apptainer run")
    assert result is Fate.UNTRANSLATED
    assert "runscript" in note


@pytest.mark.parametrize("program", ["./solve --n 3", "python train.py", "bash -c 'a; b'"])
def test_a_runscript_before_another_program_is_kept(program: str) -> None:
    job = keys(f"#!/bin/bash\nsrun apptainer run x.sif {program}\n")
    assert job["command"] == ["/.singularity.d/runscript", *shlex.split(program)]


def test_commands_of_slurm_in_a_container_are_reported() -> None:
    text = '#!/bin/bash\nsrun apptainer exec x.sif ./solve --host $(srun -w "$head" hostname)\n'
    assert "each rank would run srun" in fate(import_script("j.sh", text), "$(srun")[1]


def test_a_wrapper_before_a_container_is_reported_and_the_container_is_kept() -> None:
    text = "#!/bin/bash\nsrun --ntasks=8 ./select_gpu singularity exec my.sif python train.py\n"
    job = keys(text)
    assert (job["image"], job["command"]) == ("my.sif", ["python", "train.py"])
    result, note = fate(import_script("j.sh", text), "./select_gpu")
    assert result is Fate.UNTRANSLATED
    assert "--gpu-bind=single:1" in note


def test_a_file_of_the_nodes_and_a_clean_environment_are_left_to_the_user() -> None:
    text = "#!/bin/bash\n#SBATCH --export=NONE\nscontrol show hostnames > hosts\nsrun ./a.out\n"
    imported = import_script("j.sh", text)
    assert fate(imported, "--export=NONE")[0] is Fate.UNTRANSLATED
    assert fate(imported, "scontrol show hostnames")[0] is Fate.UNTRANSLATED


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        ("$(if ((SLURM_PROCID)); then echo other; else echo first; fi)", "bash"),
        ("$([[ $SLURM_PROCID = 0 ]] && echo first)", "bash"),
        ("$((SLURM_PROCID + 1))", "sh"),
        ("$(echo ${A:-1})", "sh"),
        ("$SLURM_PROCID", "sh"),
    ],
)
def test_syntax_of_bash_is_run_by_bash(text: str, shell: str) -> None:
    script = f"#!/bin/bash\nsrun apptainer exec x.sif bash -c 'python train.py --host {text}'\n"
    assert keys(script)["command"][0] == shell


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", "#SBATCH --ntasks=2", *lines, "")))


def command(*lines: str) -> list[str]:
    (job,) = read(*lines).jobs
    return list(job.keys["command"])


def test_an_inner_shell_sees_only_exported_variables() -> None:
    assert command("A=5", "srun bash -c 'python t.py --a \"$A\"'") == ["python", "t.py", "--a", ""]
    assert fate(read("A=5", "srun bash -c 'python t.py $A'"), "$A") == (
        Fate.UNTRANSLATED, "the script does not export it, so that the inner shell has no value",
    )  # fmt: skip
    for lines in (("export A=5",), ("A=5", "export A"), ("set -a", "A=5")):
        assert command(*lines, "srun bash -c 'python t.py $A'") == ["python", "t.py", "5"]
    assert command("A=5", 'srun bash -c "python t.py $A"') == ["python", "t.py", "5"]
    assert command("A=5", "srun bash -c 'A=6; python t.py $A'")[-1] == "A=6; exec python t.py ${A}"


def test_a_variable_before_a_command_is_expanded_before_it_is_set() -> None:
    assert command("A=5", "A=1 srun python t.py $A") == ["python", "t.py", "5"]
    assert fate(read("A=1 srun python t.py $A"), "$A") == (
        Fate.UNTRANSLATED, "bash expands it before it sets A: write its value",
    )  # fmt: skip


def test_set_a_in_a_condition_is_not_translated() -> None:
    imported = read("if [ -e env ]; then", "  set -a", "fi", "B=3", "srun python t.py")
    assert fate(imported, "if [") == (
        Fate.UNTRANSLATED,
        "a condition decides whether later variables are exported: export those that the program needs",
    )


def test_an_exported_value_keeps_the_value_that_another_variable_had() -> None:
    line = command("export A=$B/x", "export B=2", "srun python t.py")[-1]
    assert line == 'export A="${B}/x"; export B="2"; exec python t.py'


def test_the_rendezvous_of_an_inner_shell_is_reported_once() -> None:
    host = "$(scontrol show hostnames | head -n1)"
    imported = read(f'srun bash -c "torchrun --rdzv_endpoint={host}:29500 t.py"')
    found = [each.text for each in imported.translations if "rdzv" in each.text and "srun" not in each.text]
    assert found == ["--rdzv_endpoint=${MASTER_ADDR}:29500"]
    imported = read(f"srun bash -c 'export MASTER_ADDR={host}; python t.py'")
    assert imported.jobs[0].keys["command"] == ["python", "t.py"]
    assert fate(imported, "export MASTER_ADDR") == (Fate.REPLACED, "Argosy sets it for each rank")


def test_one_program_in_the_background_is_waited_for() -> None:
    assert fate(read("srun python t.py &", "wait"), "&")[0] is Fate.LEFT_OUT
    assert "separate job" in fate(read("srun python t.py &", "srun python u.py &", "wait"), "&")[1]


SELECT_GPU = """\
cat << EOF > {file}
#!/bin/bash

export ROCR_VISIBLE_DEVICES=\\$SLURM_LOCALID
exec \\$*
EOF
chmod +x {file}
srun --cpu-bind=map_cpu:49,57 {file} singularity exec my.sif python t.py
rm -rf {file}"""


@pytest.mark.parametrize("file", ["./select_gpu", "select_gpu", "${SCRATCH}/select_gpu"])
def test_the_script_by_which_ranks_select_their_gpu_is_translated(file: str) -> None:
    imported = read(SELECT_GPU.format(file=file))
    (job,) = imported.jobs
    assert job.keys["image"] == "my.sif"
    assert job.keys["command"] == ["sh", "-c", "export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID; exec python t.py"]
    assert [each.text for each in imported.untranslated] == []
    for text in ("cat <<", "chmod", "rm -rf"):
        assert fate(imported, text) == (Fate.REPLACED, "the shell of each rank selects its GPU, as this script does")


def test_a_script_that_does_more_than_select_a_gpu_is_not_translated() -> None:
    imported = read(SELECT_GPU.format(file="./select_gpu").replace("\nexec ", "\nmodule load rocm\nexec "))
    assert fate(imported, "cat <<")[0] is Fate.UNTRANSLATED
    assert fate(imported, "./select_gpu")[0] is Fate.UNTRANSLATED


def test_the_name_of_an_array_is_its_first_element() -> None:
    line = 'srun python t.py $A ${A} "${A[@]}" ${A[*]}'
    assert command("A=(1 2)", line)[2:] == ["1", "1", "1", "2", "1", "2"]
    assert command("A=(1 2)", "A+=(3)", 'srun python t.py "${A[@]}"')[2:] == ["1", "2", "3"]
    assert command("A=(1 2)", 'B="${A[*]}"', "srun python t.py $B")[-1] == "A=(1 2); exec python t.py ${A[*]}"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('srun -l "${ARGS[@]}" torchrun a.py', "${ARGS[@]}"),
        ("mpirun ${FLAG} ${HOSTS} --mca btl self ./a", "${FLAG}"),
        ("mpirun -np 4 $OPTIONS ./a", "${OPTIONS}"),
        ("srun $PROGRAM --fast", "${PROGRAM}"),
        ('srun "$@"', "$@"),
        ('srun --mpi=pmix "$1" a', "$1"),
        ("srun $A$B ./a", "${A}${B}"),
        ("time srun $EXTRA python a.py", "${EXTRA}"),
    ],
)
def test_a_step_that_begins_with_a_variable_of_unknown_value_is_not_translated(line: str, word: str) -> None:
    imported = import_script("job.sh", f"#!/bin/bash\n{line}\n./b\n")
    assert [each.program for each in imported.jobs] == ["./b"]
    (lost,) = imported.lost
    assert (lost.line, lost.text) == (2, line)
    assert lost.note == f"the script does not say whether {word} is an option or the program: write its value"


@pytest.mark.parametrize(
    "start", ["srun $P a", "mpirun ${P} a", "srun ~/run a", "srun $HOME/run a", "srun ${P:-./run} a", "srun $(which a)"]
)
def test_a_step_whose_program_is_known_is_translated(start: str) -> None:
    imported = import_script("job.sh", f"#!/bin/bash\nP=./run\n{start}\n")
    assert len(imported.jobs) == 1
    assert not imported.lost
