"""Expressions of a script have their values in the job, and the report says which ones it cannot have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript

START = "srun ./a"
KEPT = (Fate.KEPT, "the shell of each rank expands it")


def read(*lines: str) -> ImportedScript:
    return import_script("job.sh", "\n".join(("#!/bin/bash", "#SBATCH -n 4", *lines, "")))


def job(*lines: str) -> dict[str, Any]:
    (found,) = read(*lines).jobs
    return dict(found.keys)


def outcomes(*lines: str) -> dict[str, tuple[Fate, str]]:
    return {each.text: (each.fate, each.note) for each in read(*lines).translations}


def value_in_job(name: str, *lines: str, **variables: str) -> str:
    """Return a variable of the program's environment in a job with these variables."""
    keys = job(*lines) if "srun" in lines[-1] else job(*lines, START)
    shell, option, text = keys["command"]
    text = text.replace("exec ./a", f"exec env | grep '^{name}='")
    environment = {"PATH": os.defpath, "HOME": "/home/ada", **keys.get("env", {}), **variables}
    shown = subprocess.run((shell, option, text), env=environment, capture_output=True, text=True, check=True).stdout
    return shown.strip().partition("=")[2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("CORES=8", "export X=$(( CORES / SLURM_NTASKS_PER_NODE ))"), "2"),
        (("N=2", "export A=$((N * 2))", "N=3", "export X=$((N * 2))"), "6"),
        (("N=4", "export N=$((N * 2))", "export X=$N"), "8"),
        (("export X=${SLURM_JOB_NAME%%.*}",), "train"),
        (("NAME=gpt", "export X=${NAME^^}"), "GPT"),
        (("export X=${UNSET-/tmp}/c",), "/tmp/c"),  # noqa: S108
        (("export X=~/x",), "/home/ada/x"),
        (("export X=~/x:~/y",), "/home/ada/x:/home/ada/y"),
        (("export X=/x:~/y:~",), "/x:/home/ada/y:/home/ada"),
        (("export X=*.none",), "*.none"),
        (("export X=/a${LIST:+:$LIST}",), "/a:/l"),
        (("export X=/a${UNSET:+:$UNSET}",), "/a"),
        (("export X=/a", "export X=/b${X:+:$X}", "export X=/c:$X"), "/c:/b:/a"),
        (("X=/a", "export X=/b${X:+:$X}"), "/b:/a"),
        (("export X=/a", "export X=/b${X:+:$X}", "export X=/c${X:+:$X}"), "/c:/b:/a"),
        (("M=(p q)", "export X=${M[$SLURM_ARRAY_TASK_ID]}"), "q"),
    ],
)
def test_an_exported_expression_has_its_value(lines: tuple[str, ...], expected: str) -> None:
    variables = {
        "SLURM_NTASKS_PER_NODE": "4", "SLURM_JOB_NAME": "train.v1", "LIST": "/l", "SLURM_ARRAY_TASK_ID": "1",
    }  # fmt: skip
    assert value_in_job("X", *lines, **variables) == expected
    assert not read(*lines, START).untranslated


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PYTHONPATH"])
def test_a_path_before_an_inherited_one_is_kept(name: str) -> None:
    lines = (f"export {name}=/a${{{name}:+:${name}}}", f"export {name}=/b${{{name}:+:${name}}}")
    assert value_in_job(name, *lines, **{name: "/l"}) == "/b:/a:/l"
    assert value_in_job(name, *lines) == "/b:/a"


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("export X=$(date)", "a command computes the value: set the variable yourself, and pass it with --env X"),
        ("export X=${1:-gpt2}", "an argument of the script: pass the value with --env X=VALUE"),
        ("export X=${M[0]}", "the script does not set the array: write its value, or choose it in the program"),
    ],
)
def test_an_exported_value_that_a_rank_cannot_compute_has_its_reason(line: str, note: str) -> None:
    assert outcomes(line, START)[line] == (Fate.UNTRANSLATED, note)


def test_only_commands_and_the_like_differ_in_each_rank() -> None:
    equal = ("$((SLURM_CPUS_PER_TASK / SLURM_GPUS_PER_NODE))", "~/x", "*.txt", "${EXTRA:+--x $EXTRA}", "{a,b}")
    differing = ("$(date)", "`date`", "$((RANDOM % 2))", "$$")
    found = outcomes(" ".join((START, *equal, *differing)))
    assert {text: found[text] for text in equal} == dict.fromkeys(equal, KEPT)
    for text in differing:
        assert found[text] == (Fate.UNTRANSLATED, "a shell computes it in each rank")


@pytest.mark.parametrize("use", ["$(( CORES / 2 ))", "$((CORES))", "${M[CORES - 1]}"])
def test_a_variable_in_an_expression_without_a_dollar_sign_is_used(use: str) -> None:
    assert outcomes("M=(1 2)", "CORES=2", f"{START} {use}")["CORES=2"][1] == "its value is put where it is used"


@pytest.mark.parametrize(
    ("start", "text", "expected"),
    [
        ('srun bash -c "RANK=\\$SLURM_PROCID ./a"', "RANK=${SLURM_PROCID}",
         (Fate.REPLACED, "Argosy sets it for each rank")),
        ("MASTER_ADDR=n1 srun ./a", "MASTER_ADDR=n1", (Fate.REPLACED, "Argosy sets it for each rank")),
        ("srun --export=ALL,T=$T ./a", "T=${T}", (Fate.UNTRANSLATED, "your shell has the value: launch with --env T")),
        ("srun --export=ALL,T=$U/x ./a", "T=${U}/x",
         (Fate.UNTRANSLATED, "your shell completes the value: launch with --env T=VALUE")),
        ("T=$SLURM_JOB_ID srun ./a", "T=${SLURM_JOB_ID}", (Fate.KEPT, "the shell of each rank sets it")),
    ],
)  # fmt: skip
def test_variables_of_one_command_have_their_outcome(start: str, text: str, expected: tuple[Fate, str]) -> None:
    assert outcomes(start)[text] == expected
    assert "env" not in job(start)


def test_a_variable_of_one_command_that_slurm_completes_is_set() -> None:
    assert value_in_job("T", "export U=1", "T=run-$SLURM_JOB_ID srun ./a", SLURM_JOB_ID="7") == "run-7"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("N=4", "M=$((N * 2))", "mkdir -p run_$M", "srun ./a $M"), "run_8"),
        (("OUT=${OUT:-runs/$SEED}", "export OUT", "mkdir -p $OUT", "srun ./a"), "runs/7"),
        (("OUT=~/res", 'mkdir -p "$OUT/a b"', "srun ./a"), "home/res/a b"),
    ],
)
def test_a_command_on_files_has_the_values_of_its_line(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    (line,) = job(*lines)["before"]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path / "home"), "DATA": "data", "SEED": "7"}
    subprocess.run(("/bin/sh", "-e", "-c", line), env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / expected).is_dir()


def test_a_value_that_a_rank_adds_to_is_not_added_twice() -> None:
    command = job("export DATA=$DATA/sub", "srun ./a $DATA ${DATA%/}")["command"]
    assert command[-1] == 'export DATA="${DATA}/sub"; exec ./a ${DATA} ${DATA%/}'


@pytest.mark.parametrize(
    "value",
    [
        "$(hostname)",
        "`hostname -s`",
        '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "$(scontrol show hostname ${SLURM_NODELIST} | head -n1)",
        "$(scontrol show hostnames | head -1)",
    ],
)
def test_a_variable_of_the_user_with_the_first_node_has_it_in_each_rank(value: str) -> None:
    line = f"export MYSQL_HOST={value}"
    assert value_in_job("MYSQL_HOST", line, MASTER_ADDR="n1") == "n1"
    assert value_in_job("URL", "H=$(hostname)", "export URL=tcp:$H:1", MASTER_ADDR="n1") == "tcp:n1:1"
    note = "the shell of each rank sets it to MASTER_ADDR, the first node"
    assert next(each for text, each in outcomes(line, START).items() if text[:20] == line[:20]) == (Fate.KEPT, note)


@pytest.mark.parametrize("value", ["$(scontrol show hostnames)", "$(hostname -i)"])
def test_a_variable_of_the_user_with_other_nodes_is_reported(value: str) -> None:
    fate, note = outcomes(f"export HOSTS={value}", START)[f"export HOSTS={value}"]
    assert (fate, "MASTER_ADDR" in note) == (Fate.UNTRANSLATED, True)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["", "-1"])
def test_gpus_that_the_script_hides_are_hidden_in_the_job(name: str, value: str) -> None:
    line = f'export {name}="{value}"'
    assert job(line, START)["env"] == {name: value}
    assert outcomes(line, START)[line][0] is Fate.KEPT
    assert "env" not in job(f"export {name}=0,1", START)


def arguments_in_job(folder: Path, *lines: str, **variables: str) -> list[str]:
    """Return the arguments that a job's only program gets in a folder, with these variables."""
    keys = job(*lines)
    environment = {"PATH": os.defpath, "HOME": "/home/ada", **keys.get("env", {}), **variables}
    command = [each.replace("exec ./a", r"exec printf '%s\n'") for each in keys["command"]]
    command = ["printf", r"%s\n", *command[1:]] if command[0] == "./a" else command
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("A=(*.txt)", "srun ./a ${A[1]}"), ["b.txt"]),
        (("A=(*.txt)", 'srun ./a "${A[@]}" $A'), ["a.txt", "b.txt", "a.txt"]),
        (('A=("*.txt")', 'srun ./a "${A[0]}"'), ["*.txt"]),
        (('IN="./*.txt"', 'srun ./a $IN "$IN"'), ["./a.txt", "./b.txt", "./*.txt"]),
        (('O="-i *.txt \\$HOME ~ \'"', "srun ./a $O"), ["-i", "a.txt", "b.txt", "$HOME", "~", "'"]),
        (("srun ./a [a-b].txt x[0-9].txt '[a]'.txt \\[a].txt l=[1,2]",),
         ["a.txt", "b.txt", "x[0-9].txt", "[a].txt", "[a].txt", "l=[1,2]"]),
        (("A=()", "A+=(--lr 1)", 'A+=("p q")', 'srun ./a "${A[@]}"'), ["--lr", "1", "p q"]),
        (("A=()", 'srun ./a "${A[@]}" ${A[@]} "x${A[@]}" ""'), ["x", ""]),
        (("A=()", 'srun ./a $A "x${A[0]}"'), ["x"]),
        (("B=a", 'srun ./a $B[.]txt "$B"* ./$B* $B~/x'), ["a.txt", "a.txt", "./a.txt", "a~/x"]),
        (('L="p q r"', "A=($L)", 'srun ./a ${A[2]} "${A[@]}" $A'), ["r", "p", "q", "r", "p"]),
        (('L="p q"', 'A=("$L" "s t")', 'srun ./a "${A[@]}"'), ["p q", "s t"]),
        (("A=(p)", "A+=(*.txt $EXTRA)", "srun ./a ${A[3]} ${A[4]}"), ["x", "y"]),
        (
            ("nodes=$(scontrol show hostnames $SLURM_JOB_NODELIST)", "A=($nodes)", "head=${A[0]}", "srun ./a $head"),
            ["n7"],
        ),
        (("O=~/r", 'srun ./a --out=$O "$O/l" ~/x ~ "~/y" --z=~/z $O"/m"'),
         ["--out=/home/ada/r", "/home/ada/r/l", "/home/ada/x", "/home/ada", "~/y", "--z=~/z", "/home/ada/r/m"]),
        (('A=($(scontrol show hostnames "$SLURM_NODELIST"))', "srun ./a --addr=${A[0]}:29500 $A"),
         ["--addr=n7:29500", "n7"]),
    ],
)  # fmt: skip
def test_an_array_has_the_elements_that_the_shell_makes(
    tmp_path: Path, lines: tuple[str, ...], expected: list[str]
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    assert arguments_in_job(tmp_path, *lines, EXTRA="x y", MASTER_ADDR="n7") == expected
    assert not read(*lines).untranslated


NO_SCONTROL = (
    "each rank would run scontrol, which a container does not have: use MASTER_ADDR and MASTER_PORT, which Argosy sets"
)


@pytest.mark.parametrize(
    ("lines", "text", "note"),
    [
        (("A=($(cat in.txt))", "srun ./a ${A[2]}"), "${A[2]}", "a shell computes it in each rank"),
        (("A=($(scontrol show hostnames))", "srun ./a ${A[1]}"), "${A[1]}",
         NO_SCONTROL),
    ],
)  # fmt: skip
def test_elements_that_a_command_computes_are_reported(lines: tuple[str, ...], text: str, note: str) -> None:
    assert outcomes(*lines)[text] == (Fate.UNTRANSLATED, note)


CHANGED = "the script computes it: write its value, or set it in the program"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("N=4", "M=$((N*2))", "N=5", "srun ./a $M"), "$M"),
        (("N=4", "M=$((N*2))", "N=5", "srun ./a $((N + M))"), "$((N + M))"),
        (("F=a.tar.gz", "B=${F%%.*}", "F=b.txt", "srun ./a $B"), "$B"),
        (("N=4", "M=$((N*2))", "unset N", "srun ./a $M"), "$M"),
        (("A=(p q)", "M=${A[1]}", "A=(r s)", "srun ./a $M"), "$M"),
        (("X=/b${X:+:$X}", "X=/c${X:+:$X}", "srun ./a $X"), "${X:+:$X}"),
        (("t=$SLURM_ARRAY_TASK_ID", "t=$((t / 2))", "srun ./a $t"), "$((t / 2))"),
        (("E=2", "M=$((E*2))", "if true; then E=1; fi", "srun ./a $M"), "$M"),
    ],
)
def test_an_expression_with_a_variable_that_changes_later_is_reported(lines: tuple[str, ...], text: str) -> None:
    assert outcomes(*lines)[text] == (Fate.UNTRANSLATED, CHANGED)


def test_an_exported_expression_has_the_values_of_its_line(tmp_path: Path) -> None:
    lines = ("export N=2", "export M=$((N+1))", "export N=7", 'srun ./a $N "$(printenv N M)"')
    assert arguments_in_job(tmp_path, *lines) == ["7", "7", "3"]
    twice = ("export N=$((N + 1))", "export N", "srun ./a $N")
    assert arguments_in_job(tmp_path, *twice, N="1") == ["2"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("t=$SLURM_ARRAY_TASK_ID", "A=(x y z)", "a=${A[$((t % 2))]}", "srun ./a $a"), ["y"]),
        (("t=$SLURM_ARRAY_TASK_ID", "A=(x y z)", "srun ./a ${A[t%2]} ${A[(t+1)%2]}"), ["y", "x"]),
        (("A=(x y)", "P=${A[$SLURM_ARRAY_TASK_ID - 2]}", "Q=${P}.txt", "srun ./a ${P%x} ${Q%.*}"), ["y", "y"]),
        (("N=(p q)", "srun ./a $(( ${#N[@]} - 1 ))"), ["1"]),
        (("S=abcd", "i=1", "srun ./a ${S:i:2}"), ["bc"]),
    ],
)  # fmt: skip
def test_variables_of_an_index_are_defined(tmp_path: Path, lines: tuple[str, ...], expected: list[str]) -> None:
    assert arguments_in_job(tmp_path, *lines, SLURM_ARRAY_TASK_ID="3") == expected
    assert not read(*lines).untranslated


@pytest.mark.parametrize(
    ("start", "text", "note"),
    [
        ("srun env -i X=1 ./a", "env -i", "put it before the program in command, if the image has it"),
        ("srun nice -n 5 ./a", "nice -n 5", "put it before the program in command, if the image has it"),
        ("stdbuf -oL srun ./a", "stdbuf -oL", "put it before the program in command, if the image has it"),
    ],
)
def test_the_options_of_a_command_before_the_program_are_reported(start: str, text: str, note: str) -> None:
    assert outcomes(start)[text] == (Fate.UNTRANSLATED, note)


def test_env_changes_the_environment_of_the_program() -> None:
    lines = ("export X=1", "srun env -u X Y=2 ./a $X")
    assert job(*lines)["command"] == ["sh", "-c", "unset X; exec ./a 1"]
    assert job(*lines)["env"] == {"X": "1", "Y": "2"}
    assert not read(*lines).untranslated
    assert outcomes("srun env -C sub ./a")["env -C sub"][0] is Fate.UNTRANSLATED


SET_BY_IF = ("if true; then E=1; else E=10; fi",)
ARGUMENT = "an argument of the script: write its value"
DIFFERS = "a shell computes it in each rank"
BY_SCRIPT = "the script computes it: write its value, or set it in the program"


@pytest.mark.parametrize(
    ("lines", "text", "note"),
    [
        ((*SET_BY_IF, "S=$((E*100))", "srun ./a $S"), "$((E*100))", BY_SCRIPT),
        ((*SET_BY_IF, "S=$((E*100))", "T=$((S+1))", "srun ./a $T"), "$((S+1))", BY_SCRIPT),
        (("CFG=$1", "NAME=${CFG%.yaml}", "srun ./a $NAME"), "${CFG%.yaml}", ARGUMENT),
        (('NAME=$(basename "$0")', "B=${NAME%.*}", "srun ./a $B"), "${NAME%.*}", DIFFERS),
        (("SEED=$RANDOM", "S=$((SEED+1))", "srun ./a $S"), "$((SEED+1))", DIFFERS),
        (("T=$(date +%s%N)", "X=${T%%0*}", "srun ./a $X"), "${T%%0*}", DIFFERS),
        (("srun ./a --seed $RANDOM",), "$RANDOM", DIFFERS),
        (("srun ./a --seed $((10 + $1))",), "$((10 + $1))", ARGUMENT),
        ((*SET_BY_IF, "export T=$((E+1))", START), "export T=$((E+1))",
         "the script computes the value: set it yourself, and pass it with --env T"),
        ((*SET_BY_IF, "export T=$E", START), "export T=$E",
         "the script computes the value: set it yourself, and pass it with --env T"),
        ((*SET_BY_IF, "mkdir -p run_$((E*2))", START), "mkdir -p run_$((E*2))",
         "a command computes a part of it: do it in the program"),
    ],
)  # fmt: skip
def test_an_expression_of_a_value_that_is_not_known_is_reported(lines: tuple[str, ...], text: str, note: str) -> None:
    assert outcomes(*lines)[text] == (Fate.UNTRANSLATED, note)


def test_a_value_behind_one_that_is_not_known_is_kept(tmp_path: Path) -> None:
    lines = (*SET_BY_IF, "E=3", "srun ./a $((E*2))")
    assert arguments_in_job(tmp_path, *lines) == ["6"]
    assert [each.line for each in read(*lines).untranslated] == [[*lines].index(SET_BY_IF[0]) + 3]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("i=$SLURM_ARRAY_TASK_ID", "B=$((10#$i + 1))", "srun ./a $B"), ["9"]),
        (("N=3", "srun ./a $((2**N)) $((N++)) $((N))"), ["8", "3", "4"]),
        (("N=3", "srun ./a $[N+3] $((N==3)) $((N<=2))"), ["6", "1", "0"]),
        (("x=5", "n=x", "srun ./a ${!n}"), ["5"]),
        (("export X=$'p\\tq'", "srun ./a --sep $'\\t' \"$X\" $'it\\'s'"), ["--sep", "\t", "p\tq", "it's"]),
    ],
)
def test_syntax_that_only_bash_has_keeps_its_meaning(
    tmp_path: Path, lines: tuple[str, ...], expected: list[str]
) -> None:
    assert arguments_in_job(tmp_path, *lines, SLURM_ARRAY_TASK_ID="08") == expected
    assert not read(*lines).untranslated


def test_arithmetic_that_sh_has_needs_no_bash() -> None:
    assert job("N=3", "srun ./a $((N==3)) $((N * 2)) ${N%3}")["command"][0] == "sh"


def test_a_variable_whose_name_is_not_known_is_reported() -> None:
    note = "P has the name of the variable: write its value"
    assert outcomes("P=$1", "srun ./a ${!P}")["${!P}"] == (Fate.UNTRANSLATED, note)


@pytest.mark.parametrize("line", ["((T = N * 8))", "((T++))", 'let "T = 3 * 4"', "printf -v T %03d 7", "read -r T < f"])
def test_a_command_that_sets_a_used_variable_is_reported(line: str) -> None:
    found = outcomes("N=4", line, "srun ./a $T")
    assert {found[line], found["$T"]} == {(Fate.UNTRANSLATED, BY_SCRIPT)}
    assert outcomes(line, START)[line] == (Fate.LEFT_OUT, "the script does not use it")
