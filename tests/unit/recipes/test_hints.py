# ruff: noqa: S108 - paths of other machines
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


CONDA = "name: x\ndependencies:\n- numpy\n"


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        (
            "Requirements.TXT",
            "numpy\nscipy\n",
            "it looks like a list of packages for pip; rename it to Requirements.txt",
        ),
        ("requirements.text", "numpy\n", "it looks like a list of packages for pip; rename it to requirements.txt"),
        ("requirements.old", "numpy\n", "it looks like a list of packages for pip; rename it to requirements.old.txt"),
        ("ENV.YML", CONDA, "it looks like a conda environment; rename it to ENV.yml"),
        ("Env.Yaml", CONDA, "it looks like a conda environment; rename it to Env.yaml"),
        ("env.yml.txt", CONDA, "rename it to env.yml"),
        ("env.YAML.txt", CONDA, "rename it to env.yaml"),
        ("env.v2.txt", CONDA, "rename it to env.v2.yml"),
        ("mine.DEF", "Bootstrap: docker\nFrom: debian:12\n", "it looks like a definition file; rename it to mine.def"),
    ],
)
def test_a_file_is_renamed_to_a_name_with_one_suffix(tmp_path: Path, name: str, text: str, hint: str) -> None:
    assert hint_for(tmp_path, name, text) == hint


@pytest.mark.parametrize(
    "line", ["from torch import nn", "from . import nn", "    from torch.nn  import (", "from x import y as z"]
)
def test_a_python_program_is_not_taken_for_a_dockerfile(tmp_path: Path, line: str) -> None:
    assert hint_for(tmp_path, "train.py", f"import os\n{line}\n").startswith("supported: ")


def test_a_dockerfile_with_a_stage_is_recognised(tmp_path: Path) -> None:
    assert "a Dockerfile" in hint_for(tmp_path, "image", "FROM debian:12 AS import\n")


def test_a_python_environment_of_mlflow_is_named(tmp_path: Path) -> None:
    text = "python: 3.10.4\nbuild_dependencies:\n- pip==23.1\ndependencies:\n- -r requirements.txt\n"
    assert (
        hint_for(tmp_path, "python_env.yaml", text) == "pass its requirements.txt, or the conda.yaml of the same model"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("dependencies: [numpy]\ndependancies: [scipy]\n", "move its entries to 'dependencies:', or remove it"),
        ("dependancies: [scipy]\n", "did you mean dependencies?"),
        ("dependencies:\n- numpy\n- pips:\n  - rich\n", "did you mean 'pip:'?"),
        ("dependencies:\n- numpy\n- Pip:\n  - rich\n", "did you mean 'pip:'?"),
        ("dependencies:\n- numpy\n- test:\n  - rich\n", ""),
        ("dependencies:\n- numpy: 1.26\n", "did you mean numpy=1.26?"),
        ("dependencies:\n- pip: rich\n  numpy:\n", "did you mean numpy?"),
    ],
)
def test_an_unknown_key_has_a_hint_that_can_be_followed(tmp_path: Path, text: str, hint: str) -> None:
    assert hint_for(tmp_path, "environment.yml", text) == hint


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///${PROJECT_ROOT}/../core", "../core"),
        ("file:///${PROJECT_ROOT}/", "."),
        ("{root:uri}/pkg", "pkg"),
        ("{root:parent:uri}/core", "../core"),
        ("{root:parent:parent:uri}", "../.."),
    ],
)
def test_a_folder_of_pdm_or_hatch_gets_the_form_of_uv(tmp_path: Path, address: str, path: str) -> None:
    text = f"[project]\nname = 'x'\ndependencies = ['My_Core[a] @ {address}']\n"
    hint = hint_for(tmp_path, "pyproject.toml", text)
    assert hint == f'write my-core without the address, and below [tool.uv.sources]: my-core = {{ path = "{path}" }}'


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/build/80754af9/attrs_1604765588209/work",
        "/private/tmp/build/80754af9/attrs_1604765588209/work",
        "/C:/ci/attrs_1/work/attrs",
        "/C:/b/abs_3f7co0w/croot/attrs/work",
        "/D:/bld/attrs_1/work",
        "/home/conda/feedstock_root/build_artifacts/attrs_1/work",
        "/opt/concourse/worker/volumes/live/7/volume/asn1crypto_1/work",
        "/opt/conda/conda-bld/attrs_1/work",
        "/croot/attrs_1/work",
    ],
)
def test_a_path_of_a_conda_build_is_explained(tmp_path: Path, path: str) -> None:
    hint = hint_for(tmp_path, "requirements.txt", f"attrs @ file://{path}\n")
    assert hint.startswith("the path is from the machine that built the conda package")


def test_an_unrelated_path_is_not_explained_by_conda(tmp_path: Path) -> None:
    assert hint_for(tmp_path, "requirements.txt", "mine @ file:///home/me/mine\n").endswith("write mine==VERSION")
