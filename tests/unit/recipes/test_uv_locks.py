"""uv's locks and workspaces: versions that exclude each other, and projects that are locked together."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.recipes.pip_settings import PipConfig
from argosy.recipes.pyproject import NOT_INSTALLED
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import PipKind, Recipe
from argosy.recipes.uv_options import plan_uv_settings

TWO_TORCHES = """\
[project]
name = "train"
dependencies = ["einops"]
[project.optional-dependencies]
cpu = ["torch"]
cu128 = ["torch"]
[tool.uv]
conflicts = [[{extra = "cpu"}, {extra = "cu128"}]]
"""
LOCKED_TWICE = """\
version = 1
[[package]]
name = "einops"
version = "0.8"
source = { registry = "https://pypi.org/simple" }
dependencies = [
    { name = "numpy", version = "1.26", marker = "extra == 'extra-5-train-cpu'" },
    { name = "numpy", version = "2.1", marker = "extra != 'extra-5-train-cpu'" },
]
[[package]]
name = "numpy"
version = "1.26"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "numpy"
version = "2.1"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "torch"
version = "2.7.0"
source = { registry = "https://download.example/cpu" }
resolution-markers = ["sys_platform == 'darwin'"]
[[package]]
name = "torch"
version = "2.7.0+cpu"
source = { registry = "https://download.example/cpu" }
[[package]]
name = "torch"
version = "2.7.0+cu128"
source = { registry = "https://download.example/cu128" }
[[package]]
name = "train"
source = { virtual = "." }
dependencies = [{ name = "einops" }]
[package.optional-dependencies]
cpu = [
    { name = "torch", version = "2.7.0", marker = "sys_platform == 'darwin'" },
    { name = "torch", version = "2.7.0+cpu", marker = "sys_platform != 'darwin'" },
]
cu128 = [{ name = "torch", version = "2.7.0+cu128" }]
"""


@pytest.mark.parametrize(
    ("asked", "versions"),
    [
        ("[cpu]", ["einops==0.8", "numpy==1.26", "torch==2.7.0+cpu"]),
        ("[cu128]", ["einops==0.8", "numpy==2.1", "torch==2.7.0+cu128"]),
        ("", ["einops==0.8", "numpy==2.1"]),
    ],
)
def test_the_requested_extra_chooses_among_conflicting_versions(
    tmp_path: Path, asked: str, versions: list[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(TWO_TORCHES)
    (tmp_path / "uv.lock").write_text(LOCKED_TWICE)
    recipe = read_recipe([f"pyproject.toml{asked}"], cwd=tmp_path)
    assert [line.spec for line in recipe.constraints] == versions


def test_a_marker_that_does_not_parse_leaves_no_version_out(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(TWO_TORCHES)
    (tmp_path / "uv.lock").write_text(LOCKED_TWICE.replace("extra != 'extra-5-train-cpu'", "what?"))
    recipe = read_recipe(["pyproject.toml[cpu]"], cwd=tmp_path)
    assert [line.spec for line in recipe.constraints if line.name == "numpy"] == ["numpy==1.26", "numpy==2.1"]


ROOT = """\
[project]
name = "app"
dependencies = ["my-lib[fast]"]
[tool.uv.sources]
my-lib = { workspace = true }
helper = { workspace = true }
tools = { path = "vendor/tools" }
[[tool.uv.index]]
url = "https://download.example/cu128"
[tool.uv.workspace]
members = ["packages/*"]
exclude = ["packages/old"]
"""
LIB = """\
[project]
name = "My_Lib"
dependencies = ["helper", "tools", "six"]
optional-dependencies = {fast = ["numba"]}
[tool.uv.sources]
six = { git = "https://git.example/six" }
"""
LOCK = """\
version = 1
[[package]]
name = "six"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
"""
OTHERS = '[[package]]\nname = "tools"\n[[package]]\nname = "tqdm"\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder, text in (
        (".", ROOT),
        ("packages/lib", LIB),
        ("packages/helper", '[project]\nname = "helper"\ndependencies = ["tqdm"]\n[tool.uv]\npackage = false\n'),
        ("packages/old", "[project]\nname = 'old'\n"),
        ("vendor/tools", "[project]\nname = 'tools'\n"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "pyproject.toml").write_text(text)
    (tmp_path / "packages/no-project").mkdir()
    return tmp_path


def installed(recipe: Recipe, folder: Path) -> list[str]:
    return [line.requirement.replace(str(folder.resolve()), "") for line in recipe.pip]


def test_projects_of_a_workspace_are_installed_with_their_dependencies(workspace: Path) -> None:
    recipe = read_recipe(["pyproject.toml"], cwd=workspace)
    assert installed(recipe, workspace) == [
        "my-lib[fast] @ file:///packages/lib",
        "tools @ file:///vendor/tools",
        "six @ git+https://git.example/six",
        "numba",
        "tqdm",
    ]
    assert all(not line.editable for line in recipe.pip if line.kind is PipKind.LOCAL)
    assert [note.text for note in recipe.notes] == [NOT_INSTALLED]
    planned = plan_uv_settings(PipConfig(), recipe).arguments
    assert planned[-4:] == ("--no-sources-package", "my-lib", "--no-sources-package", "tools")


def test_a_member_is_built_with_the_lock_and_the_index_of_its_workspace(workspace: Path) -> None:
    (workspace / "uv.lock").write_text(LOCK + OTHERS)
    recipe = read_recipe(["packages/lib/pyproject.toml"], cwd=workspace)
    assert installed(recipe, workspace) == [
        "tools @ file:///vendor/tools",
        "six @ git+https://git.example/six",
        "tqdm",
    ]
    assert [line.spec for line in recipe.constraints] == ["six==1.0"]
    assert {option.value for option in recipe.options} == {"https://download.example/cu128"}
    assert [source.path for source in recipe.sources] == [
        "packages/lib/pyproject.toml",
        "packages/helper/pyproject.toml",
        "uv.lock",
    ]


def test_an_excluded_project_of_a_workspace_is_independent(workspace: Path) -> None:
    (workspace / "uv.lock").write_text(LOCK)
    assert read_recipe(["packages/old/pyproject.toml"], cwd=workspace).constraints == ()


def test_an_unknown_project_of_a_workspace_is_refused_with_its_line(workspace: Path) -> None:
    (workspace / "packages/lib/pyproject.toml").write_text("[project]\nname = 'other'\n")
    with pytest.raises(UsageError, match="the workspace has no such project") as error:
        read_recipe(["pyproject.toml"], cwd=workspace)
    assert error.value.evidence == "pyproject.toml:3: my-lib[fast]"
    assert error.value.hint == "its projects: app, helper, other"


@pytest.mark.parametrize(
    ("added", "stale"),
    [('"idna>=3"', True), ("\"idna; python_version < '3.9'\"", False), ('"Six"', False)],
)
def test_a_dependency_that_the_lock_lacks_is_refused(tmp_path: Path, added: str, stale: bool) -> None:  # noqa: FBT001
    """uv leaves out a dependency whose marker no supported Python fulfils."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "x"\ndependencies = [\n"six",\n{added}]\n')
    (tmp_path / "uv.lock").write_text(LOCK)
    if not stale:
        assert [line.spec for line in read_recipe(["pyproject.toml"], cwd=tmp_path).constraints] == ["six==1.0"]
        return
    with pytest.raises(UsageError, match=r"uv\.lock does not contain idna") as error:
        read_recipe(["pyproject.toml"], cwd=tmp_path)
    assert "idna>=3" in error.value.evidence
    assert error.value.hint == "the lock is older than the project: run 'uv lock', and build again"


def test_an_override_may_remove_a_dependency_from_the_lock(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["six", "idna"]\n'
        "[tool.uv]\noverride-dependencies = [\"idna; sys_platform == 'never'\"]\n"
    )
    (tmp_path / "uv.lock").write_text(LOCK)
    assert [line.spec for line in read_recipe(["pyproject.toml"], cwd=tmp_path).constraints] == ["six==1.0"]
