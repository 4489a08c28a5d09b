"""A job does what the script does, or the import reports the part that it does not translate."""

from __future__ import annotations

from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript

COMPUTED = "the script computes it: write its value, or set it in the program"
ENDS = "the script can end here: check the condition before the launch, or in the program"
SIGNS = "it changes how the shell reads * and other signs"


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", *lines, "")))


def jobs(*lines: str) -> list[dict[str, Any]]:
    return [dict(job.keys) for job in read(*lines).jobs]


def commands(*lines: str) -> list[list[str]]:
    return [keys["command"] for keys in jobs(*lines)]


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (("N=1", "srun ./a $((N++))", "srun ./b $N"), ("$N", COMPUTED)),
        (("N=1", "echo $((N += 2))", "srun ./b $N"), ("$N", COMPUTED)),
        (("f() { echo x; A=2; }", "A=3", "f", "srun ./b $A"), ("f", COMPUTED)),
        (("L=(1 ${L[0]})", 'srun ./b "${L[@]}"'), ("${L[0]}", COMPUTED)),
        (("if [ -e done ]; then", "exit 0", "fi", "srun ./a"), ("if [ -e done ]; then", ENDS)),
        (("[ -e done ] && exit", "srun ./a"), ("exit", ENDS)),
        (("[ -e x ] || { echo no; exit 1; }", "srun ./a"), ("{ echo no; exit 1; }", ENDS)),
        (("f() { echo x; exit 0; }", "f", "srun ./a"), ("f", ENDS)),
        (("shopt -s nullglob", "srun ./a *.x"), ("shopt -s nullglob", SIGNS)),
        (("alias go='srun ./a'", "go x"),
         ("alias go='srun ./a'", "it gives a command another name: write the command where the script uses the name")),
        (("L=(1 2)", "L[0]=z", 'srun ./a "${L[@]}"'), ("L[0]=z", COMPUTED)),
        (("mpirun -wdir /x -np 2 ./a",), ("-wdir /x", "the folder of the program: set chdir")),
        (("mpirun --map-by ppr:2:socket ./a",), ("--map-by ppr:2:socket", "set ranks_per_node")),
        (("set -f", "srun ./a *.x"), ("set -f", SIGNS)),
        (("mkdir -p out/{a,b}", "srun ./a"),
         ("mkdir -p out/{a,b}", "a command computes a part of it: do it in the program")),
        (("echo x | tee note.txt", "srun ./a note.txt"),
         ("echo x | tee note.txt", "it writes a file: if the job needs the file, write it before the launch")),
        (("srun --chdir=sub ./a",),
         ("--chdir=sub", "the folder of this step: set chdir to its path from the folder of the launch")),
        (("if true; then export A=$(hostname); fi", "srun ./a"),
         ("if true; then export A=$(hostname); fi", "translate this line yourself")),
        (("export B=x`echo \\`hostname\\``z", "srun ./a"),
         ("export B=x`echo \\`hostname\\``z", "translate this line yourself")),
        (("if [ $N -gt 1 ]; then export A=1; fi", "srun ./a"),
         ("if [ $N -gt 1 ]; then export A=1; fi", "translate this line yourself")),
        (("export A=1", "if [ -e x ]; then A=2; fi", "srun ./a"),
         ("if [ -e x ]; then A=2; fi", "translate this line yourself")),
        (("f() { echo x; export A=2; }", "f", "srun ./a"),
         ("f", "the function sets variables: set those that the program needs")),
        (("for i in 1 2; do echo $i; done", "srun ./a $i"),
         ("for i in 1 2; do echo $i; done", "translate this line yourself; a loop over runs is a job array: --array")),
        (("srun apptainer exec --pwd /w i.sif python a.py < in.txt",),
         ("< in.txt", "the container starts in another folder: write the whole path")),
        (("export A=1", "export -n A", "srun ./a"),
         ("export -n A", "the program does not get the variable: unset it in the program")),
    ],
)  # fmt: skip
def test_what_a_job_does_not_do_is_reported(lines: tuple[str, ...], reported: tuple[str, str]) -> None:
    assert reported in [(each.text, each.note) for each in read(*lines).untranslated]


@pytest.mark.parametrize(
    "lines",
    [
        ("cd sub || exit 1", "srun ./a"),
        ("mkdir -p x || { echo no; exit 1; }", "srun ./a"),
        ("for i in 1 2; do export MASTER_ADDR=$(hostname); done", "srun ./a"),
        ("N=1", "srun ./a $((N++))"),
    ],
)
def test_a_guard_is_not_reported(lines: tuple[str, ...]) -> None:
    assert not read(*lines).untranslated


def test_a_job_stops_if_it_cannot_change_the_folder() -> None:
    assert commands("cd sub", "srun ./a") == [["sh", "-c", 'cd "sub" || exit; exec ./a']]


def test_what_follows_the_end_of_the_script_is_left_out() -> None:
    imported = read("srun ./a", "exit 0", "export A=1", "srun ./b")
    assert [job.line for job in imported.jobs] == [2]
    assert {each.note for each in imported.translations if each.line > 3} == {"the script ends before it"}
    assert commands("exec ./a", "./b") == [["./a"]]
    assert commands("exec > all.log", "./b") == [["./b"]]


def test_text_on_both_sides_of_a_command_in_backquotes_stays() -> None:
    (keys,) = jobs("export A=tcp:`hostname -s`:1", "srun ./a x`hostname`y")
    assert keys["command"] == ["sh", "-c", 'export A="tcp:${MASTER_ADDR}:1"; exec ./a x"${MASTER_ADDR}"y']


def test_a_program_with_the_name_of_a_function_is_a_program() -> None:
    script = ("prog() { echo x; }", "srun prog", "bash -c 'prog 1'", "prog")
    imported = read(*script)
    assert [job.line for job in imported.jobs] == [3, 4]
    outcomes = {each.line: (each.fate, each.note) for each in imported.translations if each.text == "prog"}
    assert outcomes[5] == (Fate.LEFT_OUT, "the function prog starts no program")


@pytest.mark.parametrize("start", ["mpirun -np 4 ./sort", "./test", "mpirun -np 4 hash", "/home/ada/bin/stat x"])
def test_a_program_with_the_name_of_a_tool_is_a_program(start: str) -> None:
    assert len(jobs(start)) == 1
    assert jobs("srun ./a", "/usr/bin/date", "srun hostname", "test -e x")[1:] == []


def test_the_tasks_of_the_script_are_not_those_of_torchrun() -> None:
    numbers = "$SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_CPUS_PER_TASK"
    options = ("#SBATCH -N 2", "#SBATCH --ntasks-per-node=4", "#SBATCH -c 8")
    assert commands(*options, f"srun torchrun t.py {numbers}") == [["python", "t.py", "8", "4", "8"]]
    (job,) = commands("#SBATCH -N 2", "#SBATCH -n 2", "srun torchrun t.py $SLURM_NTASKS")
    assert job == ["sh", "-c", "exec python t.py ${SLURM_NTASKS}"]


@pytest.mark.parametrize("start", ["srun -n 2 ./a", "mpirun -np 2 ./a", "./a"])
def test_the_nodes_of_the_script_are_not_those_of_a_smaller_job(start: str) -> None:
    assert commands("#SBATCH -N 4", f"{start} $SLURM_NNODES ${{SLURM_JOB_NUM_NODES}}") == [["./a", "4", "4"]]


def test_pushd_and_popd_are_reported_with_what_needs_the_folder() -> None:
    lines = ("pushd sub", "touch x", "export P=$PWD/src", "srun ./a", "popd")
    assert [each.text for each in read(*lines).untranslated] == ["pushd sub", "touch x", "export P=$PWD/src", "popd"]


@pytest.mark.parametrize("lines", [('srun apptainer exec --pwd /w i.sif ./a "$PWD"',),
                                   ("export P=$PWD", 'srun apptainer exec --pwd /w i.sif ./a "$P"')])  # fmt: skip
def test_the_folder_of_the_script_is_not_that_of_a_container(lines: tuple[str, ...]) -> None:
    assert commands(*lines)[0][-1].endswith('exec ./a "${SLURM_SUBMIT_DIR}"')


def test_a_variable_of_containers_is_left_out_without_one() -> None:
    imported = read("export SINGULARITYENV_X=1", "srun ./a")
    assert imported.translations[0].note == "the script starts no container"
    assert "env" not in imported.jobs[0].keys
    assert jobs("export SINGULARITYENV_X=1", "srun singularity exec i.sif ./a")[0]["env"] == {"X": "1"}


def test_an_assignment_changes_a_variable_that_the_users_shell_exports() -> None:
    text = "#!/bin/bash\nX=1\nsrun ./a\n"
    assert "env" not in import_script("job.sh", text).jobs[0].keys
    assert import_script("job.sh", text, exported=["X"]).jobs[0].keys["env"] == {"X": "1"}


def test_a_variable_that_a_cd_uses_is_not_added_twice() -> None:
    (command,) = commands("export BASE=$BASE/sub", "cd $BASE", "srun ./a")
    assert command[-1] == 'export BASE="${BASE}/sub"; cd "${BASE}" || exit; exec ./a'


def test_the_folder_of_a_container_is_not_that_of_the_script() -> None:
    (keys,) = jobs("cd sub", "touch x", "srun apptainer exec --pwd /work i.sif python a.py")
    assert keys["command"] == ["python", "a.py"]
    assert keys["before"] == ['cd "${SLURM_SUBMIT_DIR}"', 'cd "sub"', "touch x"]


def test_a_relative_path_begins_in_the_folder_of_the_option_chdir() -> None:
    (keys,) = jobs("#SBATCH -D sub", "srun apptainer exec -B data:/d my.sif python a.py")
    assert (keys["chdir"], keys["image"], keys["bind"]) == ("sub", "sub/my.sif", ["sub/data:/d"])
    (keys,) = jobs("#SBATCH -D sub", "cd deep", "srun apptainer exec my.sif python a.py")
    assert (keys["image"], keys["command"][-1]) == ("sub/deep/my.sif", 'cd "deep" || exit; exec python a.py')


def test_a_value_with_a_variable_that_adds_to_itself_is_computed_once() -> None:
    (command,) = commands('export A="$A more"', 'export B="$A/x"', "srun ./a $B")
    assert command[-1] == 'export A="${A} more"; export B="${A}/x"; exec ./a ${A}/x'
    (command,) = commands('export A="$A 1"', 'export A="$A 2"', ": ${A:=3}", "srun ./a")
    assert command[-1] == 'export A="${A} 1"; export A="${A} 2"; exec ./a'


def test_arrays_are_not_exported() -> None:
    (keys,) = jobs("set -a", "E=()", "L=(1 2)", "A=1", "srun ./a")
    assert keys["env"] == {"A": "1"}


def test_a_variable_that_is_itself_is_not_exported() -> None:
    assert "env" not in jobs("N=$N", "N=3", "srun ./a")[0]


def test_all_elements_between_quotes_are_one_argument() -> None:
    (keys,) = jobs("L=(1 'b c')", "E=()", 'srun ./a "${L[*]}" "${L[@]}" "${E[*]}"')
    assert keys["command"] == ["bash", "-c", "L=(1 'b c'); exec ./a \"${L[*]}\" 1 'b c' \"${E[*]}\""]


def test_a_variable_that_was_unset_has_no_value() -> None:
    lines = ("unset A", 'export A="$A more"', 'srun ./a "$A" ${B:-x}')
    (keys,) = jobs(*lines)
    assert (keys["command"], keys["env"]) == (["./a", " more", "x"], {"A": " more"})
    assert commands("A=1", "unset A", "srun ./a ${A:-gone} $A") == [["./a", "gone"]]
    assert commands("A=1", "unset -f A", "srun ./a $A") == [["./a", "1"]]


def test_a_variable_of_every_environment_stays_exported() -> None:
    (keys,) = jobs("TMPDIR=/fast", "TMP=/fast", "srun ./a")
    assert keys["env"] == {"TMPDIR": "/fast"}


def test_the_name_of_the_job_is_that_of_the_script() -> None:
    assert commands("srun ./a $SLURM_JOB_NAME") == [["./a", "job.sh"]]
    (keys,) = jobs("#SBATCH -J train", "srun ./a $SLURM_JOB_NAME")
    assert keys["command"] == ["sh", "-c", "exec ./a ${SLURM_JOB_NAME}"]


@pytest.mark.parametrize("use", [': "${G:=$((D * 576))}"', 'echo "${G:-$((D * 576))}"', 'echo "${G:-$(( (D) * 2 ))}"'])
def test_arithmetic_in_a_default_starts_no_program(use: str) -> None:
    lines = f"#!/bin/bash\nD=3\nif [ $D = 2 ]; then\n    {use}\nfi\nsrun ./a $G\n"
    imported = import_script("job.sh", lines)
    assert not imported.lost
    if ":=" in use:
        notes = {each.text: each.fate for each in imported.translations}
        assert notes["$G"] is Fate.UNTRANSLATED


def test_a_command_in_a_default_starts_its_program() -> None:
    imported = import_script("job.sh", '#!/bin/bash\nif true; then\n    : "${G:=$(python a.py)}"\nfi\n./b\n')
    assert [each.lost_programs for each in imported.lost] == ["a.py in a condition"]


@pytest.mark.parametrize(
    ("lines", "text", "note"),
    [
        ("OUT=$2\nmkdir -p $OUT\n./a", "mkdir -p $OUT", "an argument of the script: write its value"),
        ("mkdir -p ${1}/x\n./a", "mkdir -p ${1}/x", "an argument of the script: write its value"),
        ("mkdir -p $(date +%F)\n./a", "mkdir -p $(date +%F)", "a command computes a part of it: do it in the program"),
        (
            'CSV=x.csv\necho "a,$(hostname),b" >> $CSV\n./a',
            'echo "a,$(hostname),b" >> $CSV',
            "it writes a file whose name or text only the job knows: add the command to before = [...]",
        ),
        (
            'echo "$(hostname) slots=4" > hostfile\n./a',
            'echo "$(hostname) slots=4" > hostfile',
            "it writes a file of the nodes: Argosy's launchers do not need it; if the program does, write it there",
        ),
    ],
)
def test_the_reason_why_a_command_on_files_is_not_translated_is_the_right_one(lines: str, text: str, note: str) -> None:
    imported = import_script("job.sh", f"#!/bin/bash\n{lines}\n")
    assert [each.note for each in imported.translations if each.text == text] == [note]


@pytest.mark.parametrize("end", [" \\\n", " \\", "\n\\\n", " \\\n\n", " \\\n  \n", " \\\n    --x 1 \\\n"])
def test_a_backslash_at_the_end_of_a_script_continues_no_line(end: str) -> None:
    imported = import_script("job.sh", f"#!/bin/bash\nsrun ./a{end}")
    assert [each.program for each in imported.jobs] == ["./a"]
    assert [each.fate for each in imported.translations] == [Fate.KEPT]
    assert imported.jobs[0].keys["command"] == ["./a", *end.replace("\\", "").split()]
