"""What users write for a job, judged before sbatch sees it."""

from __future__ import annotations

import pytest

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.slurm.option_checks import parse_megabytes, parse_warning, refuse_invalid_options
from argosy.slurm.sbatch import JobOptions, choose_defaults, complete_argument


def options(name: str, value: str) -> JobOptions:
    return replace(JobOptions(), **{name: value})  # type: ignore[arg-type]  # the names are those of text fields


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("mem", "0 60G 60g 60GB 4000 500M 1T"),
        ("mem_per_gpu", "60G"),
        ("array", "0 0-9 1,3,5-7 1-9:2 0-15%4 [1-3]"),
        ("mail_type", "END end,FAIL TIME_LIMIT_90 ALL"),
        ("time", "30 30:00 1:30:00 1-2 1-2:30 2-00:00:00 UNLIMITED"),
        ("signal", "USR1 B:USR1@60 usr2@5 SIGTERM R:10@30"),
        ("dependency", "afterok:1 afterok:1:2 afterok:5_3 afterok:1+10 afterok:1,afterok:2"),
    ],
)
def test_values_that_sbatch_accepts_pass(option: str, values: str) -> None:
    for value in values.split():
        refuse_invalid_options(options(option, value))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("mem", "60", "--mem 60G for gigabytes; use --mem 60M if you mean megabytes"),
        ("mem_per_gpu", "60", "--mem-per-gpu 60G"),
        ("mem", "60Q", "invalid amount of memory"),
        ("mem", "1.5G", "invalid amount of memory"),
        ("array", "9-0x", "invalid list of array tasks"),
        ("array", "9" * 5000, "invalid list of array tasks"),
        ("mem", "9" * 5000, "invalid amount of memory"),
        ("signal", f"USR1@{'9' * 5000}", "invalid warning signal"),
        ("array", "9-0", "invalid list of array tasks"),
        ("array", "0-9%", "invalid list of array tasks"),
        ("array", "1-9:0", "invalid list of array tasks"),
        ("mail_type", "foo", "--mail-type END,FAIL"),
        ("mail_type", "ENDS,FAIL", "did you mean END?"),
        ("time", "9" * 5000, "invalid time limit"),
        ("time", "99x", "invalid time limit"),
        ("time", "1:2:3:4", "invalid time limit"),
        ("signal", "foo", "invalid warning signal"),
        ("signal", "USR3@60", "USR1, USR2"),
        ("signal", "USR1@99999", "at most 65535"),
        ("signal", "99", "invalid warning signal"),
        ("dependency", "afterok:abc", "--after 123:124"),
    ],
)
def test_values_that_sbatch_refuses_or_misreads_are_refused_with_the_right_form(
    option: str, value: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_invalid_options(options(option, value))
    assert said in str(caught.value)


def test_an_invalid_value_of_a_file_is_reported_with_file_and_line() -> None:
    with pytest.raises(UsageError, match="invalid time limit '1hh'") as caught:
        refuse_invalid_options(JobOptions(time="1hh"), sources={"time": ("1hh", "/home/ada/config.toml:3")})
    assert caught.value.evidence == "/home/ada/config.toml:3: time = 1hh"


def test_mem_and_mem_per_gpu_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="cannot be used together"):
        refuse_invalid_options(JobOptions(mem="60G", mem_per_gpu="10G"))
    assert choose_defaults(JobOptions(mem_per_gpu="10G"), {"SBATCH_MEM_PER_NODE": "60G"}) == {}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--nodes=4", "--nodes"),
        ("--nodes 4", "--nodes"),
        ("-N4", "--nodes"),
        ("-N 4", "--nodes"),
        ("--ntasks-per-node=2", "--ranks"),
        ("--gres=gpu:a100:2", "--gpus-per-node"),
        ("--gres=lustre:1,gpu:2", "--gpus-per-node"),
        ("--gres=gpu=2", "--gpus-per-node"),
        ("--gres=gres/gpu:a100:2", "--gpus-per-node"),
        ("--gpus-per-socket=1", "--gpus-per-node"),
        ("--tres-per-task=cpu=8,gres/gpu:1", "--gpus-per-node"),
        ("--tres-per-node=gres:gpu:2", "--gpus-per-node"),
        ("--job-name=x", "--name"),
        ("--exclusive", "--exclusive"),
        ("--dependency=afterok:1", "--after"),
        ("--wrap=true", "the command after --"),
        ("--requeue", "--requeue"),
        ("--part=debug", "--partition"),
        ("--tasks-per-node=2", "--ranks"),
        ("--exclusi", "--exclusive"),
        ("--depend afterok:1", "--after"),
    ],
)
def test_an_sbatch_arg_with_an_option_of_its_own_is_refused_with_the_option(word: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_invalid_options(JobOptions(), (word,))
    same = word.partition("=")[0] == said
    assert (f"use argosy's own {said}" if same else f"use {said} instead of {word!r}") in str(caught.value)


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("--mem", "--mem VALUE"),
        ("--mem=60G", "--mem 60G"),
        ("--requeue", "--requeue"),
        ("--gres=gpu:2", "--gpus-per-node VALUE"),
        ("--wrap=hostname", "the command after --"),
    ],
)
def test_an_option_of_argosy_is_suggested_with_the_value_that_it_needs(word: str, ours: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_invalid_options(JobOptions(), (word,))
    assert caught.value.hint == f"replace --sbatch-arg {word} with {ours}"


@pytest.mark.parametrize(
    ("word", "hint"), [("nodes=4", "--sbatch-arg=--nodes=4"), ("", "remove it"), ("--", "remove it")]
)
def test_an_sbatch_arg_without_dashes_is_refused(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_invalid_options(JobOptions(), (word,))
    assert hint in str(caught.value)


def test_a_separator_of_components_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match="heterogeneous") as caught:
        refuse_invalid_options(JobOptions(), (":",))
    assert "argosy run IMAGE --" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("word", "whole"),
    [
        ("--dep afterany:5", "--dependency=afterany:5"),
        ("--licens=a=b c", "--licenses=a=b c"),
        ("--comment  x", "--comment=x"),
        ("--comment= x", "--comment= x"),
        ("--hol", "--hold"),
        ("--par", "--par"),
        ("--own-plugin 1", "--own-plugin=1"),
        ("-dafterany:5", "-dafterany:5"),
        ("hold", "hold"),
    ],
)
def test_an_sbatch_arg_is_completed_as_sbatch_does(word: str, whole: str) -> None:
    assert complete_argument(word) == whole


@pytest.mark.parametrize("word", ["--clusters=cm4", "-Mcm4", "-M cm4", "--clusters cm4"])
def test_a_job_for_another_cluster_is_sent_there_by_the_variable_that_all_commands_read(word: str) -> None:
    with pytest.raises(UsageError, match="another cluster") as caught:
        refuse_invalid_options(JobOptions(), (word,))
    assert "SLURM_CLUSTERS=cm4" in str(caught.value.hint)


def test_other_options_of_sbatch_pass() -> None:
    words = (
        "--hold",
        "--comment=nodes=4",
        "-L matlab",
        "--gres=nvme:100",
        "--dependency=singleton",
        "--exclusive=user",
    )
    refuse_invalid_options(JobOptions(), words)


@pytest.mark.parametrize(
    ("text", "signal", "seconds"),
    [
        ("USR1", "USR1", 60),
        ("B:USR1@30", "USR1", 30),
        ("SIGTERM@5", "TERM", 5),
        ("RB:10@7", "10", 7),
        ("R:usr2@1", "USR2", 1),
    ],
)
def test_a_warning_is_read_as_sbatch_reads_it(text: str, signal: str, seconds: int) -> None:
    assert parse_warning(text) == (signal, seconds)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("60G", 61_440), ("512", 512), ("1T", 1_048_576), ("2048KB", 2), ("much", 0), ("9" * 5000, 0)],
)
def test_memory_is_parsed_in_slurms_units(text: str, megabytes: int) -> None:
    assert parse_megabytes(text) == megabytes


def test_alternatives_beside_another_dependency_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot combine dependencies"):
        refuse_invalid_options(JobOptions(dependency="afterok:1"), ("-d afterany:2?singleton",))
    refuse_invalid_options(JobOptions(), ("-d afterany:2?singleton",))
