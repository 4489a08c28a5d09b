"""From options to a request: how paths and shapes are read."""

from __future__ import annotations

import pytest

from argosy.core.records import replace
from argosy.launch.interactive import plan_allocation
from argosy.launch.request import make_request
from argosy.slurm.sbatch import join_dependencies, plan_sbatch
from tests.unit.machines import make_host

HOST = make_host(cwd="/home/ada/50% done")


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"output": "logs/%j.out"}, "/home/ada/50%% done/logs/%j.out"),
        ({"output": "logs/%j.out", "chdir": "/scratch/5%"}, "/scratch/5%%/logs/%j.out"),
        ({"output": "logs/%j.out", "chdir": "runs"}, "/home/ada/50%% done/runs/logs/%j.out"),
        ({"output": "/x/%j.out", "chdir": "/scratch"}, "/x/%j.out"),
    ],
)
def test_a_relative_output_is_below_the_folder_of_the_job_as_sbatch_resolves_it(
    given: dict[str, str], output: str
) -> None:
    given = {"image": "/x.sif", **given}
    assert make_request(given, HOST).options.output == output
    assert make_request({**given, "error": given["output"]}, HOST).options.error == output


def test_a_shortened_sbatch_arg_has_its_whole_name_for_all_that_look_for_it() -> None:
    options = {
        "image": "/x.sif",
        "after": "7",
        "sbatch_arg": ("--dep afterany:5", "--gpu-bin=single:1", "--open append"),
    }
    request = make_request(options, HOST)
    assert request.extra == ("--dependency=afterany:5", "--gpu-bind=single:1", "--open-mode=append")
    asked = (*request.options.lines(), *request.extra)
    assert [*join_dependencies(asked)][-1] == "--dependency=afterok:7,afterany:5"
    assert plan_sbatch(("--output=%j.out", *request.extra)) == ("sbatch", "--parsable", "{script}")
    assert plan_allocation(request.extra) == ("salloc", *request.extra[:2])


def test_other_paths_stay_relative_to_the_folder_of_the_launch() -> None:
    options = {"image": "/x.sif", "chdir": "/scratch", "log_dir": "logs", "checkpoint": "last.pt"}
    request = make_request(options, replace(HOST, cwd="/home/ada"))
    assert (request.logs, request.checkpoint) == ("/home/ada/logs", "/home/ada/last.pt")
