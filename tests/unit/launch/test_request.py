"""From options to a request: how paths and shapes are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import SiteError
from argosy.core.records import replace
from argosy.launch.interactive import plan_allocation
from argosy.launch.model import LaunchRequest, Purpose, job_name
from argosy.launch.option_checks import plan_notes
from argosy.launch.request import configured_settings, make_request, read_request
from argosy.launch.resolve import prepare_launch
from argosy.slurm.sbatch import join_dependencies, plan_sbatch
from tests.unit.machines import make_host, make_session

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


TWO_SITES = """\
[launch]
site = "lumi-g"
account = "project_1"
partition = "standard-g"
time = "10:00"

[job.train]
image = "my.sif"
command = ["./train"]

[job.small]
image = "my.sif"
command = ["./train"]
qos = "short"

[job.cpu]
image = "my.sif"
command = ["./train"]
site = "lumi-c"
partition = "small"
"""


def read_job(folder: Path, name: str, text: str = TWO_SITES, **given: str) -> LaunchRequest:
    (folder / "argosy.toml").write_text(text)
    return read_request({"image": name, **given}, make_host(cwd=str(folder)))


@pytest.mark.parametrize(
    ("job", "given", "found", "unused"),
    [
        ("train", {}, ("project_1", "standard-g", ""), []),
        ("train", {"site": "/p/lumi-g.toml"}, ("project_1", "standard-g", ""), []),
        ("train", {"site": "lumi-c"}, ("", "", ""), ["[launch] account", "[launch] partition"]),
        ("train", {"site": "lumi-c", "account": "x"}, ("x", "", ""), ["[launch] partition"]),
        ("small", {"site": "dawn"}, ("", "", ""), ["[launch] account", "[launch] partition", "[job.small] qos"]),
        ("cpu", {}, ("", "small", ""), ["[launch] account", "[launch] partition"]),
        ("cpu", {"site": "lumi-g"}, ("project_1", "standard-g", ""), ["[job.cpu] partition"]),
    ],
)
def test_the_queue_and_account_of_a_table_are_those_of_its_site(
    job: str, given: dict[str, str], found: tuple[str, str, str], unused: list[str], tmp_path: Path
) -> None:
    request = read_job(tmp_path, job, **given)
    options = request.options
    assert (options.account, options.partition, options.qos) == found
    assert options.time == "10:00", "it holds at every site"
    assert [choice.key for choice in request.choices] == unused


def test_a_value_for_another_site_is_noted_with_file_and_line(tmp_path: Path) -> None:
    session = make_session(tmp_path, make_host(cwd=str(tmp_path)))
    request = read_job(tmp_path, "train", site="lumi-c", account="x")
    plan = prepare_launch(request, session, purpose=Purpose.SHOW)
    why = "[launch] partition: not used: for the site lumi-g (argosy.toml:2)"
    assert why in list(plan_notes(plan.choices))
    assert "standard-g" not in " ".join(plan.directives)
    with pytest.raises(SiteError, match="rejects jobs without --account") as error:
        prepare_launch(read_job(tmp_path, "train", site="lumi-c"), session, purpose=Purpose.SHOW)
    assert "argosy.toml:3: [launch] account = project_1: not used: for the site lumi-g" in error.value.evidence
    settings = configured_settings(replace(session.host, environment={"ARGOSY_SITE": "lumi-c"}))
    assert set(settings) == {"site", "time"}


def test_an_unknown_partition_of_a_file_without_a_site_is_noted_with_file_and_line(tmp_path: Path) -> None:
    session = make_session(tmp_path, make_host(cwd=str(tmp_path)))
    text = TWO_SITES.replace('site = "lumi-g"\n', "")
    request = read_job(tmp_path, "train", text, site="lumi-c")
    notes = list(plan_notes(prepare_launch(request, session, purpose=Purpose.SHOW).choices))
    why = "not in the profile of lumi-c; did you mean standard?"
    assert f"partition = standard-g: {why} (argosy.toml:3)" in notes


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python examples/train.py", "train"),
        ("env A=1 python train.py", "train"),
        ("nice -n 5 python3.11 -u train.py", "train"),
        ("/opt/argosy/env/bin/python train.py", "train"),
        ("env A=1 ./a.out", "env"),
        ("python -c pass", "python"),
    ],
)
def test_a_job_has_the_name_of_its_program_behind_other_programs(command: str, name: str) -> None:
    assert job_name(LaunchRequest("x.sif", tuple(command.split()))) == name
