"""The project file: what it says becomes records, and what it cannot mean is said with its line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from argosy.builder.inputs import read_inputs
from argosy.builder.records import BuildRequest
from argosy.cli.cmd_launch import launch
from argosy.core.errors import UsageError
from argosy.images.find import fetch_or_find_image
from argosy.recipes.launch_options import LAUNCH
from argosy.recipes.project_file import (
    JobTable,
    Project,
    ProjectTable,
    find_project,
    project_schema,
    read_project,
)
from tests.unit.machines import make_host, make_session

DIGEST = "5" * 64
WHOLE = f"""\
[image]
base = "debian:bookworm"
conda = "environment.yml"
pip = ["requirements.txt", "more.txt"]

[[step]]
run = "apt-get install -y libgomp1"
before = "packages"

[[step]]
copy = ["data", "run.sh"]
to = "/opt/data/"

[[step]]
fetch = {{ url = "https://example.org/model.bin", sha256 = "{DIGEST}" }}
to = "/opt/model.bin"

[[stage]]
name = "compile"
base = "debian:bookworm+gcc"
copy = "nbody.c"
run = ["cc -O3 nbody.c -o nbody", "./nbody 1"]
results = {{ "nbody" = "/usr/local/bin/nbody" }}

[job.train]
command = ["python", "train.py", "50 epochs"]
nodes = 2
gpus_per_node = 8
launcher = "torchrun"
time = "00:15:00"
resume = true
env = {{ OMP_NUM_THREADS = "1" }}

[job."fine tune"]
command = ["python", "tune.py"]
"""


def project(folder: Path, text: str) -> Project:
    (folder / "argosy.toml").write_text(text)
    return read_project(folder / "argosy.toml")


def refusal(folder: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        project(folder, text)
    return caught.value


def test_a_whole_project_file_becomes_records(tmp_path: Path) -> None:
    read = project(tmp_path, WHOLE)
    table = read.table
    assert table.image.files == ("environment.yml", "requirements.txt", "more.txt")
    assert read.output == tmp_path / f"{tmp_path.name}.sif"
    assert [step.before for step in table.step] == ["packages", "", ""]
    assert table.step[2].fetch
    assert table.step[2].fetch.sha256 == DIGEST
    assert table.stage[0].results == {"nbody": "/usr/local/bin/nbody"}
    assert table.job["train"].command == ("python", "train.py", "50 epochs")
    assert sorted(table.job) == ["fine tune", "train"]


def test_a_job_has_only_its_written_keys(tmp_path: Path) -> None:
    given = project(tmp_path, "[job.a]\ncommand = ['true']\nnodes = 2\n").table.job["a"].given()
    assert given == {"command": ("true",), "nodes": 2}


def test_a_key_is_found_on_its_line_among_tables_of_one_name(tmp_path: Path) -> None:
    read = project(tmp_path, WHOLE)
    lines = WHOLE.splitlines()
    assert read.where("step", 2, "fetch") == f"argosy.toml:{lines.index('[[step]]', 10) + 2}"
    assert read.where("job", "train", "nodes") == f"argosy.toml:{lines.index('nodes = 2') + 1}"


def test_a_folder_without_a_project_file_has_no_project(tmp_path: Path) -> None:
    assert find_project(tmp_path) is None


def test_every_option_of_launch_that_describes_a_job_is_a_key_of_a_job() -> None:
    not_of_the_job = {"command", "image", "dry_run", "script", "in_allocation", "follow", "as_json", "verbose"}
    not_of_the_job |= {"interactive", "packages", "smoke", "smoke_first", "ssh"}
    assert {option.name for option in launch.params} - not_of_the_job == set(LAUNCH)
    assert set(LAUNCH) <= set(JobTable.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[image]\nbase = 'x'\ncodna = 'e.yml'\n", 3, "'conda'"),
        ("[job.a]\ncommand = ['x']\n\n[job.b]\ncommand = ['x']\nnode = 2\n", 6, "'nodes'"),
        ("[[step]]\nrun = 'a'\n[[step]]\nruns = 'b'\n", 4, "'run'"),
        ("[imgae]\n", 1, "'image'"),
        ("[job.a]\ncommand = 'python train.py'\n", 2, "write a list"),
        ("[job.a]\ncommand = ['x']\ntime = 00:15:00\n", 3, "in quotes"),
        ("[job.a]\ncommand = ['x']\nnodes = '2'\n", 3, "expected a whole number"),
        ("[job.a]\ncommand = ['x']\nnodes = -1\n", 3, "negative"),
        ("[job.a]\ncommand = ['x']\nntasks = 2\n", 3, "did you mean 'ranks'?"),
        ("[job.a]\ncommand = ['x']\ntime = 30\n", 3, 'write the value in quotes, for example time = "30"'),
        ("[job.a]\ncommand = ['x']\nenv = ['A=1']\n", 3, "pairs in braces"),
        ("[job.a]\nname = \u201cx\u201d\n", 2, "replace the typographic quotes"),
        ("[image]\nformat = 'sfi'\n", 2, "did you mean sif?"),
        ("[image]\nbuild_backend = 'sudo'\n", 2, "known: root, userns"),
        ("[launch]\nsite = 'lumi-g'\nenter = 'shell'\n", 3, "known: exec, run"),
        ("[job.a]\ncommand = ['x']\ncontainer_per = 'nodes'\n", 3, "did you mean node?"),
        ("[job.a]\ncommand = ['x']\nlauncher = 'torch-run'\n", 3, "did you mean torchrun?"),
        ("[image]\nbase = debian:bookworm\n", 2, "quotes"),
        ("[image\n", 1, "TOML"),
        ("[[step]]\nrun = 'a'\ncopy = 'b'\n", 1, "run and copy"),
        ("[[step]]\n", 1, "found none"),
        ("[[step]]\ncopy = 'b'\n", 2, "absolute path"),
        ("[[step]]\ncopy = 'b'\nto = 'opt'\n", 3, "absolute path"),
        ("[[step]]\nrun = 'b'\nto = '/opt'\n", 3, "cannot have 'to'"),
        ("[[step]]\nfetch = { url = 'https://x.org/a' }\nto = '/a'\n", 2, "sha256"),
        (f"[[step]]\nfetch = {{ url = 'x.org/a', sha256 = '{DIGEST}' }}\nto = '/a'\n", 2, "address"),
        ("[[stage]]\nname = 'a'\nbase = 'b'\nrun = 'c'\n", 1, "results"),
        ("[[stage]]\nname = 'a'\nbase = 'b'\nrun = 'c'\nresults = { a = 'b' }\n", 5, "absolute path"),
        (
            "[job.a]\ncommand=['x']\nnodes=1\n[job.'b.c']\ncommand=['x']\nnodes='1'\n",
            6,
            "expected a whole number",
        ),
        ("[[stage]]\nname='a'\nbase='b'\nrun='c'\nresults={a='/b'}\n" * 2, 7, "two stages"),
        ("[step]\nrun = 'a'\n", 1, "[[step]]"),
        ("[image]\nbuild_arg = { A = 1 }\n", 2, "image.build_arg.A: expected text in quotes"),
    ],
)
def test_an_impossible_value_is_refused_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    error = refusal(tmp_path, text)
    assert f"argosy.toml:{line}:" in error.evidence
    assert said in str(error)


def test_a_broken_link_to_a_project_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").symlink_to("gone.toml")
    with pytest.raises(UsageError, match=r"is a broken link to gone\.toml"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("kind", "more"), [("step", "to = '/x'\n"), ("stage", "name='a'\nbase='b'\nrun='c'\nresults={a='/b'}\n")]
)
def test_a_missing_file_to_copy_is_reported_before_the_build(tmp_path: Path, kind: str, more: str) -> None:
    (tmp_path / "argosy.toml").write_text(f"[[{kind}]]\ncopy = ['there', 'gone']\n{more}")
    (tmp_path / "there").touch()
    project = read_project(tmp_path / "argosy.toml")
    request = BuildRequest((), "debian:bookworm", tmp_path / "x.sif", project=project)
    with pytest.raises(UsageError, match="no such file: gone") as caught:
        read_inputs(request, make_session(tmp_path), None)
    assert caught.value.evidence.startswith("argosy.toml:2:")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_bytes(b"\xff\xfe\x00[")
    with pytest.raises(UsageError, match="cannot read"):
        read_project(tmp_path / "argosy.toml")


def test_the_projects_missing_image_is_reported_with_the_command_to_build_it(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text('[image]\nbase = "debian:bookworm"\noutput = "my own.sif"\n')
    session = make_session(tmp_path, make_host(cwd=str(tmp_path)))
    for word in (str(tmp_path / "my own.sif"), "my own.sif"):
        with pytest.raises(UsageError, match=f"there is no image '{word}'") as caught:
            fetch_or_find_image(word, session)
        assert caught.value.hint == "build it as described in argosy.toml: argosy build"


def test_the_schema_gives_the_meaning_of_every_key() -> None:
    definitions = project_schema()["$defs"]
    assert set(definitions["ProjectTable"]["properties"]) == set(ProjectTable.__struct_fields__)
    assert set(definitions["JobTable"]["properties"]) == {field.name for field in msgspec.structs.fields(JobTable)}
    for definition in definitions.values():
        assert definition["additionalProperties"] is False
        assert all(key["description"] for key in definition["properties"].values())
