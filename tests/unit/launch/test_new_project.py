"""`argosy init` writes files that Argosy reads, and never changes an existing one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from argosy.builder.records import BuildRequest
from argosy.builder.request import request_of_project
from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.launch.new_project import TEMPLATE_NAMES, NewProject, write_project
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


def test_a_project_that_has_requirements_is_told_how_to_build_them(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    with pytest.raises(UsageError) as refused:
        write_project(NewProject(tmp_path, "ddp", read_site("local")))
    assert "to build the image of this project: cd " in refused.value.hint
    assert " && argosy build requirements.txt -o my.sif; or choose" in refused.value.hint


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
