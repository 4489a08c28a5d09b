"""Hints and notes for environment files with mistakes that people often make."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.recipes.read import read_recipe


def hint_for(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_recipe([name], cwd=folder)
    return caught.value.hint


@pytest.mark.parametrize("text", ["dependencies:\n- numpy\npip:\n- rich\n", "name: x\npip:\n  - rich\n"])
def test_a_list_of_pip_packages_at_the_top_is_refused(tmp_path: Path, text: str) -> None:
    assert hint_for(tmp_path, "environment.yml", text) == "move it below 'dependencies:', as '- pip:'"


def test_an_empty_list_of_pip_packages_is_noted(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies:\n- numpy\n- pip:\n- rich\n")
    recipe = read_recipe(["environment.yml"], cwd=tmp_path)
    assert [spec.name for spec in recipe.conda] == ["numpy", "rich"]
    assert [str(note) for note in recipe.notes] == [
        "environment.yml:3: 'pip:' is empty: indent the packages that pip installs below it"
    ]


@pytest.mark.parametrize("empty", ["pip:\n", "pip: []\n"])
def test_an_empty_list_at_the_top_is_ignored(tmp_path: Path, empty: str) -> None:
    (tmp_path / "environment.yml").write_text(f"dependencies:\n- numpy\n{empty}")
    assert [note.text for note in read_recipe(["environment.yml"], cwd=tmp_path).notes] == ["the key 'pip' is ignored"]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "torch==2.6.0 --index-url https://download.pytorch.org/whl/cu118",
            "remove it, and pass --torch-backend cu118 to argosy",
        ),
        ("torch -i https://download.pytorch.org/whl/rocm6.4/", "remove it, and pass --torch-backend rocm6.4 to argosy"),
        (
            "mine --index-url https://own.example/simple",
            "write --extra-index-url https://own.example/simple on its own line: --index-url replaces PyPI for all",
        ),
        ("torch --extra-index-url https://download.pytorch.org/whl/cu118", "write it on its own line"),
        ("mine --pre", "write it on its own line"),
        (
            "pip install torch torchvision --index-url https://download.pytorch.org/whl/cu118",
            "this is a command; write each package on its own line, and the index on another: --extra-index-url URL",
        ),
        ("pip3 install -i https://own.example/simple mine", "index on another: --extra-index-url URL"),
        ("pip install -e . --no-deps", "each option and package on its own line"),
    ],
)
def test_an_index_behind_a_package_does_not_become_the_only_index(tmp_path: Path, line: str, hint: str) -> None:
    assert hint in hint_for(tmp_path, "requirements.txt", f"numpy\n{line}\n")


def test_a_login_of_an_index_is_not_repeated(tmp_path: Path) -> None:
    said = hint_for(tmp_path, "requirements.txt", "mine --index-url https://me:secret@own.example/simple\n")
    assert "secret" not in said
    assert "--extra-index-url https://***@own.example/simple" in said


@pytest.mark.parametrize(
    "line",
    [
        "_libgcc_mutex             0.1                        main",
        "_libgcc_mutex             0.1                 conda_forge    conda-forge",
        "_openmp_mutex             4.5                       2_gnu    conda-forge",
        "blas                      1.0                         mkl",
        "ca-certificates           2024.7.2             h06a4308_0",
        "zlib                      1.2.13                        0    https://conda.example/t",
        "rich                      13.7                     pypi_0    pypi",
    ],
)
def test_a_line_of_conda_list_is_recognised(tmp_path: Path, line: str) -> None:
    expected = "this is a line of 'conda list'; use 'conda env export' to write an environment.yml"
    assert hint_for(tmp_path, "requirements.txt", f"# packages in environment at /x:\n{line}\n") == expected


@pytest.mark.parametrize(
    ("line", "guess"),
    [
        ("pytorch = 1.3.0", "torch==1.3.0"),
        ("PyTorch 1.3.0", "torch==1.3.0"),
        ("sklearn = 1.0", "scikit-learn==1.0"),
        ("numpy = 1.2", "numpy==1.2"),
    ],
)
def test_a_corrected_line_has_the_name_that_the_index_has(tmp_path: Path, line: str, guess: str) -> None:
    assert hint_for(tmp_path, "requirements.txt", f"{line}\n") == f"did you mean {guess}?"
