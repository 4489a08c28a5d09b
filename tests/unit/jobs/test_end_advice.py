"""The line to change, where a job was ended for its time or its memory."""

from __future__ import annotations

import pytest

from argosy.jobs.first_failure import advise_end, find_checkpoint, no_output, true_state

SCRIPT = "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --time=5:00\n"


def test_a_job_that_ran_out_of_time_names_the_line_to_change() -> None:
    assert advise_end("TIMEOUT", SCRIPT, {}).startswith("increase --time, which was 5:00 (line 3 of its script)")
    named = advise_end("TIMEOUT", SCRIPT, {"--time": "argosy.toml:6"})
    assert named.startswith("increase --time, which was 5:00 (argosy.toml:6); or use --resume")


def test_a_source_without_a_line_gives_no_line_to_change() -> None:
    assert "(line 3 of its script)" in advise_end("TIMEOUT", SCRIPT, {"--time": "option"})


def test_a_sign_behind_the_state_changes_no_advice() -> None:
    assert advise_end("TIMEOUT+", SCRIPT, {}) == advise_end("TIMEOUT", SCRIPT, {}) != ""


def test_advice_names_an_option_to_add_if_it_was_not_given() -> None:
    assert advise_end("OUT_OF_MEMORY", SCRIPT, {}) == "add --mem-per-gpu, which the job did not have"


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "NODE_FAIL", ""])
def test_other_causes_of_a_failure_name_no_line_to_change(state: str) -> None:
    assert advise_end(state, SCRIPT, {}) == ""


def test_a_rank_killed_for_its_memory_is_reported_as_out_of_memory() -> None:
    said = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    assert true_state("FAILED", said) == "OUT_OF_MEMORY"
    assert true_state("FAILED", "srun: error: n1: task 3: Out Of Memory") == "OUT_OF_MEMORY"
    for stepd in ("slurmstepd-n1:", "[2026-11-29T20:47:04.208]"):  # up to 24.11, and since 25.05
        assert true_state("FAILED", f"{stepd} error: Exceeded step memory limit at some point.") == "OUT_OF_MEMORY"
    assert true_state("FAILED", "a zoom killer feature") == "FAILED"
    assert true_state("TIMEOUT", said) == "TIMEOUT"


def test_an_output_that_a_node_could_not_open_is_named() -> None:
    told = no_output({"ExitCode": "0:53", "BatchHost": "node1"}, "/root/x.out")
    assert told.startswith("node1 could not open /root/x.out")
    assert not no_output({"ExitCode": "0:9"}, "/root/x.out")


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.OutOfMemoryError: HIP out of memory.",
        "failed to allocate 2.2G (2362232012 bytes): CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ],
)
def test_the_memory_of_a_gpu_is_not_that_of_the_job(line: str) -> None:
    assert true_state("FAILED", line) == "FAILED"


def test_a_job_that_resumes_has_a_checkpoint_and_no_advice_to_resume() -> None:
    script = f"{SCRIPT}    resume_from '/scratch/my run/last.pt' 5\n"
    assert find_checkpoint(script) == "/scratch/my run/last.pt"
    assert find_checkpoint(SCRIPT) == ""
    assert advise_end("TIMEOUT", script, {}) == "increase --time, which was 5:00 (line 3 of its script)"
