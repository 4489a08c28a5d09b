"""The state of a script's shell reaches its job: variables, folders, limits, and what the grammar of bash misreads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate

START = "srun apptainer exec i.sif python t.py"


def job(*lines: str) -> dict[str, Any]:
    jobs = import_script("job.sh", "\n".join(("#!/bin/bash", "#SBATCH -N 2", *lines, ""))).jobs
    assert len(jobs) == 1
    return dict(jobs[0].keys)


def untranslated(*lines: str) -> dict[str, str]:
    parts = import_script("job.sh", "\n".join(("#!/bin/bash", "#SBATCH -N 2", *lines, ""))).untranslated
    return {each.text: each.note for each in parts}


def arguments(*lines: str) -> list[str]:
    """Return the arguments that the program of the job gets, of which a shell expands some."""
    command = job(*lines)["command"]
    if command[0] == "sh":
        shown = command[2].replace("exec python t.py", "printf '%s\\n'")
        return subprocess.run(("/bin/sh", "-c", shown), capture_output=True, text=True, check=True).stdout.split("\n")[
            :-1
        ]
    assert command[:2] == ["python", "t.py"]
    return [str(each) for each in command[2:]]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("A=(--lr 1)", "A+=(--epochs 'a b')", f'{START} "${{A[@]}}"'), ["--lr", "1", "--epochs", "a b"]),
        (("A+=(--epochs 3)", f'{START} "${{A[@]}}"'), ["--epochs", "3"]),
        (("A=x", "A+=y", f"{START} $A"), ["xy"]),
        (("A=1 B=2", f"{START} $A $B"), ["1", "2"]),
        (("A=1 B=2  # both", "C=3 D=4", f"{START} $A $B $C $D"), ["1", "2", "3", "4"]),
        (("B=b", 'A="--a 1 \\\n  $B \\\n  $B \\\n"', f"{START} $A"), ["--a", "1", "b", "b"]),
        (("N=2", "G=4", "W=$((N * G))", "P=$(echo $W)", f"{START} $W $P ${{N#2}}x"), ["8", "8", "x"]),
        (("B=x$HOST_UNSET", "HOST_UNSET=1", f"{START} $B $HOST_UNSET"), ["x", "1"]),
        (("N=2", f'{START} "first\n$N$HOST_UNSET"'), ["first", "2"]),
        ((f'{START} $HOST_UNSET last "$HOST_UNSET"',), ["last", ""]),
        (('A="-x $HOST_UNSET"', f'{START} $A "$A"'), ["-x", "-x "]),
        (("A=outside", "srun bash -c 'export A=inside; python t.py $A'"), ["inside"]),
        ((f"{START} '{{1,2}}'x {{a}}",), ["{1,2}x", "{a}"]),
    ],
)
def test_the_program_gets_the_arguments_of_the_script(lines: tuple[str, ...], expected: list[str]) -> None:
    assert arguments(*lines) == expected


@pytest.mark.parametrize("text", ["m_{a,b}.pt", "{1..3}", 'm{"a b",c}'])
def test_braces_are_expanded_by_bash(text: str) -> None:
    line = f"{START} {text}"
    program, *rest = job(line)["command"]
    assert (program, rest) == ("bash", ["-c", f"exec python t.py {text}"])
    assert not untranslated(line)


def test_a_value_with_the_folder_of_its_line_stays_after_cd() -> None:
    start = "srun apptainer exec $W/i.sif python t.py $W $D"
    keys = job("export W=$PWD", "cd sub", "D=$(pwd)/data", "cd deep", start)
    assert keys["image"] == "./i.sif"
    assert keys["command"][-1].startswith('export W="${SLURM_SUBMIT_DIR}"; cd "sub" || exit; cd "deep" || exit; ')
    assert keys["command"][-1].endswith(" t.py ${SLURM_SUBMIT_DIR} ${SLURM_SUBMIT_DIR}/sub/data")


def test_a_variable_that_is_exported_after_unset_is_not_unset_in_the_job() -> None:
    keys = job("unset NCCL_NET NCCL_DEBUG", "export NCCL_NET=Socket", START)
    assert keys["env"] == {"NCCL_NET": "Socket"}
    assert keys["command"] == ["sh", "-c", "unset NCCL_DEBUG; exec python t.py"]


@pytest.mark.parametrize("first", ["cd sub", "cd $SLURM_SUBMIT_DIR/sub"])
def test_a_folder_above_is_entered_after_the_folder_below(tmp_path: Path, first: str) -> None:
    (tmp_path / "sub").mkdir()
    keys = job(first, "cd ..", START)
    *shell, text = keys["command"]
    reply = subprocess.run(
        (*shell, text.replace("exec python t.py", "pwd -P")),
        cwd=tmp_path / keys.get("chdir", "."),
        capture_output=True,
        text=True,
        check=True,
    )
    assert reply.stdout.strip() == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("W=/data", "export W", "V=1; U=2", "export V U"), {"W": "/data", "V": "1", "U": "2"}),
        (("export W=1", "W=2"), {"W": "2"}),
        (("export W=$X", "export W=1"), {"W": "1"}),
        (("export W=1 V=2", "unset W"), {"V": "2"}),
        (("typeset -x V=1", "declare -a W=(a b)", "declare -i N=3"), {"V": "1"}),
        (("export INHERITED",), None),
        (("export A", "A=1"), {"A": "1"}),
        (("set -a", "A=1", "set +a", "B=2"), {"A": "1"}),
        (("set -o allexport", "A=1", "set -e", "B=2", "set +o allexport", "C=3"), {"A": "1", "B": "2"}),
    ],
)
def test_exported_variables_are_those_at_the_start_of_the_program(
    lines: tuple[str, ...], expected: dict[str, str] | None
) -> None:
    imported = job(*lines, START)
    assert imported.get("env") == expected
    assert "export" not in imported["command"][-1]


def test_variables_before_a_command_are_read_like_exported_ones() -> None:
    found = job("L=3", f"APPTAINERENV_FOO=1 SINGULARITY_BIND=/data,/x:/y A=$L {START}")
    assert (found["env"], found["bind"]) == ({"FOO": "1", "A": "3"}, ["/data", "/x:/y"])


def test_limits_reach_the_ranks() -> None:
    found = job("ulimit -s unlimited", "umask 002", START)
    assert found["command"] == ["sh", "-c", "ulimit -s unlimited; umask 002; exec python t.py"]


def test_the_arguments_of_a_shell_text_are_kept() -> None:
    text = 'cd /x; python t.py "$@"'
    assert job(f"srun bash -lc '{text}' name --lr 1")["command"] == ["bash", "-lc", text, "name", "--lr", "1"]


def test_cd_without_a_folder_leads_home() -> None:
    assert job("cd", "srun apptainer exec /i.sif python t.py")["command"] == [
        "sh",
        "-c",
        "cd || exit; exec python t.py",
    ]


def test_each_task_of_an_array_job_chooses_its_element_of_the_scripts_array() -> None:
    lines = ("D='my data'", 'M=("$D/a" 0.01)', "L=${M[$SLURM_ARRAY_TASK_ID]}", f"{START} $L")
    shell, option, text = job(*lines)["command"]
    text = text.replace("exec python t.py", "echo")
    for task, element in enumerate(("my data/a", "0.01")):
        environment = {"SLURM_ARRAY_TASK_ID": str(task), "PATH": os.defpath}
        reply = subprocess.run((shell, option, text), env=environment, capture_output=True, text=True, check=True)
        assert reply.stdout == f"{element}\n"
    assert "${M[$SLURM_ARRAY_TASK_ID]}" not in untranslated(*lines)


def test_elements_of_unknown_arrays_and_other_dependencies_are_reported() -> None:
    assert "does not set the array" in untranslated(f"{START} ${{M[$K]}}")["${M[$K]}"]
    assert "--dependency=afterok:1,afterany:2" in untranslated("#SBATCH -d afterok:1,afterany:2", START)
    assert job("#SBATCH -d afterok:1:2", START)["after"] == "1:2"


def test_paths_of_the_host_are_set_only_without_a_container() -> None:
    lines = ("export LD_LIBRARY_PATH=/a/lib:$LD_LIBRARY_PATH", "export LD_LIBRARY_PATH=/b/lib:$LD_LIBRARY_PATH")
    assert job(*lines, START)["command"] == ["python", "t.py"]
    expected = "; ".join(f'export LD_LIBRARY_PATH="/{each}/lib:${{LD_LIBRARY_PATH}}"' for each in "ab")
    assert job(*lines, "srun python t.py")["command"] == ["sh", "-c", f"{expected}; exec python t.py"]


@pytest.mark.parametrize("start", ["srun ./a", "srun python t.py", "./a"])
def test_path_is_set_for_a_program_of_the_host_and_is_not_taken_for_an_environment(start: str) -> None:
    keys = job("export PATH=/opt/soft/bin:$PATH", "export PATH=/opt/two/bin:$PATH", start)
    assert keys["image"] == "bare:"
    assert keys["command"][-1].startswith('export PATH="/opt/soft/bin:${PATH}"; export PATH="/opt/two/bin:${PATH}"; ')


def test_torchrun_starts_the_python_that_path_names_first_and_the_report_says_so() -> None:
    lines = ("export PATH=/a/bin:$PATH", "export PATH=/envs/b/bin:$PATH", "srun torchrun t.py")
    assert job(*lines)["image"] == "bare:/envs/b"
    imported = import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))
    notes = {each.note for each in imported.translations if each.text.startswith("export PATH")}
    assert notes == {'image = "bare:/envs/b": if it has no bin/python, choose another environment'}


@pytest.mark.parametrize(
    ("line", "image"),
    [
        (". /etc/profile.d/modules.sh", "bare:"),
        ("source /home/ada/.bashrc", "bare:"),
        ("source /opt/conda/etc/profile.d/conda.sh", "bare:"),
        ("source /opt/conda/bin/activate env", "bare:"),
        ("source /opt/conda/bin/activate\nconda activate mine", "bare:"),
        ("source /opt/conda/bin/activate\nconda activate", "bare:/opt/conda"),
        ("source /opt/conda/bin/activate /envs/own", "bare:/envs/own"),
        ("source /venv/bin/activate", "bare:/venv"),
        ("conda activate /envs/own", "bare:/envs/own"),
    ],
)
def test_only_an_activated_environment_is_the_prefix_of_a_job(line: str, image: str) -> None:
    assert job(line, "srun python t.py")["image"] == image


@pytest.mark.parametrize(
    ("lines", "image", "bind"),
    [
        (("cd sub",), "i.sif", "sub/d:/d"),
        (("cd /data",), "/i.sif", "/data/d:/d"),
        (("cd $SLURM_SUBMIT_DIR/sub",), "i.sif", "sub/d:/d"),
        (("cd sub", "cd $SLURM_SUBMIT_DIR"), "../i.sif", "d:/d"),
        (("cd sub", 'cd "$PWD/more"'), "sub/i.sif", "sub/more/d:/d"),
    ],
)
def test_relative_paths_begin_in_the_folder_of_the_shell(lines: tuple[str, ...], image: str, bind: str) -> None:
    found = job(*lines, "srun apptainer exec -B d:/d ../i.sif python t.py")
    assert (found["image"], found["bind"]) == (image, [bind])


def test_a_relative_path_in_an_unknown_folder_is_reported() -> None:
    assert "image ${PROJECT}/i.sif" in untranslated("cd $PROJECT", START)


def test_shifter_without_an_option_has_the_image_of_the_job() -> None:
    assert job("#SBATCH --image=docker:ada/x:1", "srun shifter python t.py")["image"] == "docker://ada/x:1"
    assert "image docker://${SHIFTER_IMAGE}" in untranslated("srun shifter python t.py")


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (('srun bash -c "a $1; b $(date)"',), ("$1", "$(date)")),
        (("A=$(date)", "srun bash -c \"python t.py '$A'\""), ("$(date)",)),
        (("while getopts m: o; do case $o in m) M=$OPTARG ;; esac; done", f"{START} ${{M:-x}}"), ("while getopts",)),
        (("N=1", "if [ -d x ]; then echo x; N=2; fi", f"{START} $N"), ("if [ -d x ]",)),
        (("unset $(compgen -v SLURM_)", START), ("unset $(compgen",)),
        (("read -r A B < list", f"{START} $A"), ("$A",)),
        (("mapfile -t A < list", f"{START} $A"), ("$A",)),
        (("printf -v A %03d 7", f"{START} $A"), ("$A",)),
        (("let A=2*4", f"{START} $A"), ("$A",)),
        (("((A=2*4))", f"{START} $A"), ("$A",)),
        (("case $X in 1) F=a ;; esac", "mkdir -p $F", START), ("mkdir -p $F",)),
        (("D=run_$T\\_$R", f"{START} $D"), ("D=run_", "$D")),
        (("A=`hostname` srun python t.py",), ("A=`hostname`",)),
        (("srun torchrun --nproc_per_node=$2 --role `date`: t.py",), ("--nproc_per_node=$2", "--role=`date`:")),
        (("srun torchrun --nnodes=4 t.py",), ("--nnodes=4",)),
        (("torchrun t.py",), ("nodes = 2",)),
    ],
)
def test_what_the_job_cannot_know_is_reported(lines: tuple[str, ...], reported: tuple[str, ...]) -> None:
    found = untranslated(*lines)
    for text in reported:
        assert any(each.startswith(text) for each in found), found


@pytest.mark.parametrize(
    ("options", "start", "cores"),
    [
        ("--cpus-per-gpu=2 --gres=gpu:4", "srun torchrun t.py", 2),
        ("--cpus-per-gpu=2 --gres=gpu:4 --ntasks-per-node=2", "srun python t.py", 4),
        ("--cpus-per-gpu=2 --gpus=8", "python t.py", 8),
    ],
)
def test_cores_for_each_gpu_become_cores_for_each_rank(options: str, start: str, cores: int) -> None:
    assert job(f"#SBATCH {options}", start)["cpus_per_rank"] == cores


def test_an_option_that_a_launch_refuses_is_reported() -> None:
    assert "instead of" in untranslated("#SBATCH --wrap=x", START)["--wrap=x"]


def test_a_value_that_a_program_computes_is_named_where_it_is_assigned() -> None:
    lines = ("#!/bin/bash", "OUT=$(srun python eval.py)", 'echo "$OUT"', START, "")
    imported = import_script("job.sh", "\n".join(lines))
    assert [(each.line, each.lost_programs) for each in imported.lost] == [(2, "eval.py")]


def test_each_computed_part_is_reported_once() -> None:
    imported = import_script("job.sh", f"#!/bin/bash\n{START} $(date) $(date) $1 $1\n")
    assert [each.text for each in imported.untranslated] == ["$(date)", "$1"]


def test_commands_of_two_lines_are_two() -> None:
    imported = import_script("job.sh", f"#!/bin/bash\nif [ 1 ]; then A=1 B=2\nelif [ 2 ]; then B=3\nfi\n{START} $B\n")
    assert not imported.lost
    assert "$B" in {each.text for each in imported.translations if each.fate is Fate.UNTRANSLATED}


def test_long_chains_and_values_that_grow_without_end_need_no_stack_and_little_memory() -> None:
    chain = "\n".join(f"B{number}=$((B{number - 1} + 1))" for number in range(1, 1200))
    assert len(import_script("job.sh", f"#!/bin/bash\nB0=1\n{chain}\n{START} $B1199\n").jobs) == 1
    grown = "#!/bin/bash\nA=$X\n" + "A=$A$A\n" * 40
    assert "A=$A$A" in {each.text for each in import_script("job.sh", f"{grown}{START} $A\n").untranslated}
