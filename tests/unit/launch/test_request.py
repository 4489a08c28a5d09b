"""From options to a request: how paths and shapes are read."""

from __future__ import annotations

import pytest

from argosy.core.records import replace
from argosy.launch.request import make_request
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


def test_other_paths_stay_relative_to_the_folder_of_the_launch() -> None:
    options = {"image": "/x.sif", "chdir": "/scratch", "log_dir": "logs", "checkpoint": "last.pt"}
    request = make_request(options, replace(HOST, cwd="/home/ada"))
    assert (request.logs, request.checkpoint) == ("/home/ada/logs", "/home/ada/last.pt")
