"""poetry.lock and Pipfile.lock: what comes out of them, and what is said of those that cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argosy.core.errors import UsageError
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import Recipe

SHA, OTHER = f"sha256:{'c' * 64}", f"sha256:{'a' * 64}"

POETRY = f"""\
[[package]]
name = "torch"
version = "2.6.0+cpu"
optional = true
groups = ["main"]
markers = "extra == \\"cpu\\" and extra != \\"cuda\\""
files = [{{file = "torch.whl", hash = "{SHA}"}}]

[package.source]
type = "legacy"
url = "https://download.pytorch.org/whl/cpu"
reference = "pytorch-cpu"

[[package]]
name = "torch"
version = "2.6.0+cu124"
optional = true
groups = ["main"]
markers = "extra != \\"cpu\\" and extra == \\"cuda\\""
files = [{{file = "torch.whl", hash = "{OTHER}"}}]

[[package]]
name = "Flask_Login"
version = "0.6.3"
optional = false
groups = ["main", "dev"]
markers = {{main = "sys_platform == \\"linux\\"", dev = "sys_platform == \\"win32\\""}}
files = [{{file = "a.whl", hash = "{OTHER}"}}, {{file = "a.tar.gz", hash = "{SHA}"}}]

[[package]]
name = "demo"
version = "0.1.2"
optional = false
groups = ["main"]
files = []

[package.source]
type = "git"
url = "https://example.org/demo.git"
reference = "master"
resolved_reference = "123456"
subdirectory = "sub"

[[package]]
name = "pytest"
version = "8.0.0"
optional = false
groups = ["dev"]
files = [{{file = "pytest.whl", hash = "{SHA}"}}]

[extras]
cpu = ["torch"]
cuda = ["torch"]

[metadata]
lock-version = "2.1"
python-versions = "^3.10"
content-hash = "0"
"""


def read(tmp_path: Path, name: str, text: str, asked: str = "") -> Recipe:
    (tmp_path / name).write_text(text)
    return read_recipe([f"{name}{asked}"], cwd=tmp_path, environment={"TOKEN": "word"})


def specs(recipe: Recipe) -> list[str]:
    return [line.requirement for line in recipe.pip]


def test_a_poetry_lock_gives_its_main_group_with_hashes(tmp_path: Path) -> None:
    recipe = read(tmp_path, "poetry.lock", POETRY)
    assert specs(recipe) == [
        'flask-login==0.6.3 ; sys_platform == "linux"',
        "demo @ git+https://example.org/demo.git@123456#subdirectory=sub",
    ]
    assert recipe.pip[0].hashes == (OTHER, SHA)
    assert recipe.python == ">=3.10,<4"
    assert [note.text for note in recipe.notes] == ["not requested and not installed: dev, cpu, cuda"]


def test_extras_and_groups_of_a_poetry_lock_are_chosen_in_brackets(tmp_path: Path) -> None:
    recipe = read(tmp_path, "poetry.lock", POETRY, "[cpu,dev]")
    assert specs(recipe)[0].startswith("torch==2.6.0+cpu ; ")
    assert specs(recipe)[-1] == "pytest==8.0.0"
    assert [line.hashes for line in recipe.pip if line.name == "torch"] == [(SHA,)]
    assert [option.value for option in recipe.options] == ["https://download.pytorch.org/whl/cpu"]


CONDITIONS = (
    ("python_version >= '3.6' and {}", False),
    ("({} or python_version < '3') and sys_platform == 'linux'", True),
    ("(sys_platform == 'linux' and {}) or ({} and python_version >= '3')", False),
    ("sys_platform != 'or (and)' and {}", False),
    ("python_version not in '3.8 3.9' and ({})", False),
)


@pytest.mark.parametrize(("condition", "kept"), CONDITIONS)
def test_a_package_of_an_extra_that_is_not_requested_is_left_out_whatever_else_it_needs(
    tmp_path: Path,
    condition: str,
    kept: bool,  # noqa: FBT001
) -> None:
    of_poetry = condition.replace("{}", "extra == 'cuda'")
    rows = POETRY.replace('markers = "extra != \\"cpu\\" and extra == \\"cuda\\""', f'markers = "{of_poetry}"')
    assert rows != POETRY
    assert any(line.name == "torch" for line in read(tmp_path, "poetry.lock", rows).pip) == kept
    of_pylock = condition.replace("{}", "'cuda' in extras")
    text = (
        'lock-version = "1.0"\nextras = ["cuda"]\n[[packages]]\nname = "b"\nversion = "1"\n'
        f'[[packages]]\nname = "a"\nversion = "1"\nmarker = "{of_pylock}"\n'
    )
    recipe = read(tmp_path, "pylock.toml", text)
    assert [line.name for line in recipe.pip] == (["b", "a"] if kept else ["b"])
    assert [note.text for note in recipe.notes] == (
        [] if kept else ["a is not installed: its extra or group was not requested"]
    )
    assert len(read(tmp_path, "pylock.toml", text, "[cuda]").pip) == 2


@pytest.mark.parametrize(
    ("number", "noted"),
    [
        (1, "p0 is not installed: its extra or group was not requested"),
        (2, "p0, p1 are not installed: their extras or groups were not requested"),
        (
            12,
            "p0, p1, p2, p3, p4, p5, p6, p7 and 4 more are not installed: their extras or groups were not requested",
        ),
    ],
)
def test_packages_of_a_pylock_that_are_left_out_have_one_note(tmp_path: Path, number: int, noted: str) -> None:
    rows = "".join(
        f'[[packages]]\nname = "p{one}"\nversion = "1"\nmarker = "\'dev\' in dependency_groups"\n'
        for one in range(number)
    )
    text = f'lock-version = "1.0"\n[[packages]]\nname = "b"\nversion = "1"\n{rows}'
    assert [str(note) for note in read(tmp_path, "pylock.toml", text).notes] == [f"pylock.toml:6: {noted}"]


def test_a_poetry_lock_without_groups_is_refused_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has version 2\.0") as error:
        read(tmp_path, "poetry.lock", POETRY.replace('"2.1"', '"2.0"'))
    assert "poetry export" in error.value.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("^3.10", ">=3.10,<4"),
        ("~3.11", "=3.11"),
        (">=3.10,<3.13", ">=3.10,<3.13"),
        (">=3.10, !=3.12.1", ">=3.10,!=3.12.1"),
        ("~3.9 || ^3.11", "=3.9|>=3.11,<4"),
        ("*", ""),
    ],
)
def test_poetrys_versions_of_python_are_understood(tmp_path: Path, written: str, meant: str) -> None:
    assert read(tmp_path, "poetry.lock", POETRY.replace("^3.10", written)).python == meant


def test_an_empty_poetry_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a Poetry lock file"):
        read(tmp_path, "poetry.lock", "")


def test_an_unknown_extra_of_a_poetry_lock_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no extra or group 'rocm'") as error:
        read(tmp_path, "poetry.lock", POETRY, "[rocm]")
    assert error.value.evidence == "known: cpu, cuda, dev"


def pipfile(**tables: dict[str, Any]) -> str:
    sources = [
        {"name": "pypi", "url": "https://pypi.org/simple", "verify_ssl": True},
        {"name": "own", "url": "https://ada:$TOKEN@example.org/simple", "verify_ssl": True},
    ]
    meta = {"hash": {"sha256": "0"}, "pipfile-spec": 6, "requires": {"python_version": "3.11"}, "sources": sources}
    return json.dumps({"_meta": meta, **tables}, indent=4)


LOCKED = {"six": {"hashes": [SHA, OTHER], "index": "pypi", "version": "==1.16.0", "markers": "python_version >= '3.8'"}}
MORE = {"pytest": {"hashes": [SHA], "version": "==8.0.0"}}


def test_a_pipfile_lock_gives_its_default_packages_with_hashes(tmp_path: Path) -> None:
    recipe = read(tmp_path, "Pipfile.lock", pipfile(default=LOCKED, develop=MORE))
    assert specs(recipe) == ['six==1.16.0 ; python_version >= "3.8"']
    assert recipe.pip[0].hashes == (OTHER, SHA)
    assert recipe.python == "=3.11"
    assert [(option.name, option.value) for option in recipe.options] == [
        ("extra-index-url", "https://ada:word@example.org/simple")
    ]
    assert [note.text for note in recipe.notes] == ["not requested and not installed: develop"]


def test_the_categories_of_a_pipfile_lock_are_chosen_in_brackets(tmp_path: Path) -> None:
    recipe = read(tmp_path, "Pipfile.lock", pipfile(default=LOCKED, develop=MORE), "[develop]")
    assert [line.name for line in recipe.pip] == ["six", "pytest"]
    assert recipe.notes == ()


@pytest.mark.parametrize(
    ("row", "spec"),
    [
        ({"git": "https://example.org/x.git", "ref": "abc"}, "mine @ git+https://example.org/x.git@abc"),
        (
            {"git": "https://example.org/x.git", "ref": "a", "extras": ["b"]},
            "mine[b] @ git+https://example.org/x.git@a",
        ),
        ({"file": "https://example.org/mine.tar.gz"}, "mine @ https://example.org/mine.tar.gz"),
    ],
)
def test_a_url_in_a_pipfile_lock_is_used(tmp_path: Path, row: dict[str, Any], spec: str) -> None:
    assert specs(read(tmp_path, "Pipfile.lock", pipfile(default={"mine": row}))) == [spec]


def test_the_project_of_a_pipfile_lock_is_a_local_package(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    recipe = read(tmp_path, "Pipfile.lock", pipfile(default={"mine": {"editable": True, "path": "."}}))
    assert recipe.pip[0].path == str(tmp_path)
    assert "copied into the image" in recipe.notes[0].text


@pytest.mark.parametrize(
    "text", ["{", "{}", "[]", '{"default": 3}', '{"default": {"six": {"version": 1}}}', '{"default": {"six": {}}}']
)
def test_a_pipfile_lock_of_another_form_is_one_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "Pipfile.lock", text)


@pytest.mark.parametrize(("name", "lock"), [("Pipfile", "Pipfile.lock"), ("pixi.toml", "pixi.lock")])
def test_a_project_that_leaves_its_versions_to_a_lock_names_it(tmp_path: Path, name: str, lock: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, name, "")
    assert lock in error.value.hint


def test_an_unused_poetry_lock_beside_a_project_is_noted(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text(POETRY)
    recipe = read(tmp_path, "pyproject.toml", '[project]\nname = "x"\ndependencies = ["six"]\n')
    assert "the versions of poetry.lock are not used; pass that file to use them" in [
        note.text for note in recipe.notes
    ]
