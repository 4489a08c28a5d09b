"""The recipe of the changes of a writable image: what it contains, and how it is written."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.recipes.project_file import read_project
from argosy.runtimes.dev_recipe import (
    LIST_REQUESTED,
    DevRecipe,
    Installed,
    base_of,
    plan_recipe,
    refuse_existing,
    render_recipe,
)

BEFORE = Installed(apt={"bash": "bash"}, pip={"torch": "torch==2.9.0", "rich": "rich==13.0"})


def test_a_recipe_has_added_and_changed_packages_and_names_removed_ones() -> None:
    after = Installed(
        apt={"bash": "bash", "graphviz": "graphviz"}, pip={"torch": "torch==2.10.0", "mine": "-e /home/ada/mine"}
    )
    recipe = plan_recipe(BEFORE, after, "my.sif")
    assert recipe.apt == ("graphviz",)
    assert recipe.pip == ("-e /home/ada/mine", "torch==2.10.0")
    assert recipe.removed == ("rich",)


def test_a_recipe_is_a_valid_project_without_a_key_that_it_does_not_need(tmp_path: Path) -> None:
    files = render_recipe(DevRecipe("../my 'own\".sif", ("graphviz", "git"), ()))
    assert list(files) == ["argosy.toml"]
    (tmp_path / "argosy.toml").write_text(files["argosy.toml"])
    table = read_project(tmp_path / "argosy.toml").table
    assert table.image.base == "../my 'own\".sif"
    assert str(table.step[0].run).endswith("--no-install-recommends graphviz git")
    packages = render_recipe(DevRecipe("my.sif", (), ("einops==0.8.1",)))
    assert packages["requirements.txt"] == "einops==0.8.1\n"
    assert "step" not in tomllib.loads(packages["argosy.toml"])


def test_the_base_is_a_path_from_the_recipe_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "my.sif").touch()
    assert base_of("my.sif", Path("a/b"), str(tmp_path)) == "../../my.sif"
    assert base_of("docker://debian:bookworm", Path("a"), str(tmp_path)) == "docker://debian:bookworm"


@pytest.mark.parametrize("name", ["argosy.toml", "requirements.txt"])
def test_a_recipe_replaces_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match="already exists"):
        refuse_existing(tmp_path)


def test_the_program_that_lists_packages_needs_nothing_but_python(tmp_path: Path) -> None:
    for name, origin in (
        ("mine", '{"url": "file:///home/ada/my%20code", "dir_info": {"editable": true}}'),
        ("rich", ""),
    ):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "REQUESTED").touch()
        if origin:
            (info / "direct_url.json").write_text(origin)
    command = (sys.executable, "-S", "-c", LIST_REQUESTED)
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["pip mine -e /home/ada/my code", "pip rich rich==1.0"]
