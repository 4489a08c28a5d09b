"""`argosy init` writes files that Argosy reads, and never changes an existing one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.builder.records import BuildRequest
from argosy.builder.request import request_of_project
from argosy.cli.app import app
from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.launch.new_project import TEMPLATE_NAMES, NewProject, holds_project, write_project
from argosy.recipes.project_file import read_project
from argosy.sites.profile_parts import SiteBase
from argosy.sites.read import read_site, site_names


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
@pytest.mark.parametrize("site", site_names())
def test_the_project_of_each_template_and_site_is_valid(template: str, site: str, tmp_path: Path) -> None:
    if template == "mpi" and not read_site(site).has_slurm:
        pytest.skip("mpi needs Slurm")
    write_project(NewProject(tmp_path / "my project", template, read_site(site), "p1"))
    project = read_project(tmp_path / "my project" / "argosy.toml")
    assert project.table.job["train"].command == ("python", "train.py")
    assert project.table.launch.site == site
    assert project.table.image.output == "my-project.sif"
    ast.parse((tmp_path / "my project" / "train.py").read_text())


def test_an_existing_file_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    with pytest.raises(UsageError, match=r"train\.py already exists"):
        write_project(NewProject(tmp_path, "ddp", read_site("local")))
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_template_in_a_folder_with_requirements_is_told_to_leave_out_the_template(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    with pytest.raises(UsageError) as refused:
        write_project(NewProject(tmp_path, "ddp", read_site("local")))
    assert "for a project file that names the files of this folder: cd " in refused.value.hint
    assert " && argosy init, without --template; or choose" in refused.value.hint


def test_an_existing_project_is_told_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(NewProject(Path("one"), "ddp", read_site("local")))
    with pytest.raises(UsageError, match=r"one/argosy\.toml already exists") as refused:
        write_project(NewProject(Path("one"), "ddp", read_site("local")))
    assert refused.value.hint == "to build the image of this project: cd one && argosy build; or choose another folder"
    monkeypatch.chdir("one")
    with pytest.raises(UsageError) as refused:
        write_project(NewProject(Path(), "ddp", read_site("local")))
    assert refused.value.hint == "to build the image of this project: argosy build; or choose another folder"


def test_a_site_that_requires_an_account_gets_a_line_to_fill_in(tmp_path: Path) -> None:
    site = next(site for name in site_names() if "account" in (site := read_site(name)).slurm.required)
    write_project(NewProject(tmp_path, "ddp", site))
    assert f'# account = "…"  # {site.name} requires it' in (tmp_path / "argosy.toml").read_text()


def test_mpi_needs_a_site_with_slurm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a site with Slurm"):
        write_project(NewProject(tmp_path, "mpi", read_site("local")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("template", "site", "gpus", "backend"),
    [
        ("ddp", "local", "none", "cpu"),
        ("ddp", "local", "two", ""),
        ("hello", "local", "none", ""),
        ("ddp", "lumi-g", "none", ""),
    ],
)
def test_a_machine_without_gpus_takes_the_small_build_of_torch(
    template: str, site: str, gpus: str, backend: str, tmp_path: Path
) -> None:
    write_project(NewProject(tmp_path, template, read_site(site), has_gpus=gpus != "none"))
    assert getattr(read_project(tmp_path / "argosy.toml").table.image, "torch_backend", "") == backend


def test_the_build_of_a_project_without_gpus_takes_torch_from_the_index_for_the_cpu(tmp_path: Path) -> None:
    write_project(NewProject(tmp_path, "ddp", read_site("local"), has_gpus=False))
    project, plain = read_project(tmp_path / "argosy.toml"), BuildRequest((), "", tmp_path / "x.sif")
    assert request_of_project(project, plain).torch_backend == "cpu"
    assert request_of_project(project, replace(plain, torch_backend="cu128")).torch_backend == "cu128"


def test_the_build_of_a_new_project_may_choose_a_base_of_the_site(tmp_path: Path) -> None:
    for template in ("ddp", "hello"):
        write_project(NewProject(tmp_path / template, template, read_site("local"), has_gpus=False))
        text = (tmp_path / template / "argosy.toml").read_text()
        assert "\nbase = " not in text  # with a base, the build takes no other one
        assert "debian:bookworm" in text


def test_a_project_of_mpi_names_the_bases_of_the_site_with_an_mpi_library(tmp_path: Path) -> None:
    site = read_site("lumi-g")
    bases = (SiteBase(name="/apps/mpi.sif", holds=("python", "mpi")), SiteBase(name="/apps/plain.sif"))
    write_project(NewProject(tmp_path, "mpi", replace(site, images=replace(site.images, bases=bases))))
    text = (tmp_path / "argosy.toml").read_text()
    assert 'base = "debian:bookworm+openmpi-bin"\n' in text
    assert '# base = "/apps/mpi.sif"  # contains mpi\n' in text
    assert "plain.sif" not in text


# A folder that has programs already


def render_existing(folder: Path, **names: str) -> str:
    for name, text in names.items():
        (folder / name.replace("_", ".")).write_text(text)
    before = {path.name for path in folder.iterdir()}
    assert holds_project(folder)
    assert write_project(NewProject(folder, "", read_site("local"), has_gpus=False)) == (folder / "argosy.toml",)
    assert {path.name for path in folder.iterdir()} == before | {"argosy.toml"}
    return (folder / "argosy.toml").read_text()


@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", "pyproject.toml"])
def test_a_folder_with_an_environment_file_gets_only_a_project_file_that_names_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    render_existing(tmp_path, main_py="", setup_py="")
    project = read_project(tmp_path / "argosy.toml")
    assert project.table.image.files == (name,)
    assert project.table.job["train"].command == ("python", "main.py")


def test_a_folder_with_only_programs_gets_a_line_for_its_packages_to_fill_in(tmp_path: Path) -> None:
    text = render_existing(tmp_path, train_py="import torch")
    assert '# sources = "requirements.txt"  # a file with the packages of the program' in text
    assert '# torch_backend = "cpu"' in text
    assert read_project(tmp_path / "argosy.toml").table.image.files == ()


def test_other_environment_files_of_the_folder_are_named(tmp_path: Path) -> None:
    text = render_existing(tmp_path, environment_yml="", requirements_txt="")
    assert 'sources = "environment.yml"  # also here: requirements.txt' in text


def test_an_empty_or_new_folder_holds_no_project(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("")
    assert not holds_project(tmp_path)
    assert not holds_project(tmp_path / "new")


def test_init_writes_only_the_project_file_beside_existing_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("mine")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "--site", "local"])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "argosy.toml")
    assert "next: set the command in argosy.toml, then: argosy build && argosy launch train" in done.output
    assert (tmp_path / "train.py").read_text() == "mine"
    again = CliRunner().invoke(app, ["init", "--site", "local", "--template", "ddp"])
    assert isinstance(again.exception, UsageError)
