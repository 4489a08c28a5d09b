"""A program that imports a framework which its image lacks is refused before the queue."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from argosy.core.errors import CheckFailed
from argosy.core.model import Bind, ContainerRequest, Image, ImageKind, Variable
from argosy.core.records import replace
from argosy.launch.image_checks import (
    note_changed_files,
    note_missing_import,
    note_missing_program,
    read_program,
    refuse_missing_import,
)
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.option_checks import doubtful_choices
from argosy.runtimes.container_plan import plan_container
from tests.unit.machines import make_host

IMAGE = Image("/project/mine.sif", ImageKind.SIF, "", "amd64", packages=frozenset({"numpy"}), complete=True)
REQUEST = LaunchRequest(IMAGE.path, ("python", "train.py"))


def check(
    folder: Path, image: Image = IMAGE, request: LaunchRequest = REQUEST, purpose: Purpose = Purpose.START
) -> list[str]:
    container = plan_container(ContainerRequest(runtime="apptainer"), image, make_host("apptainer"))
    if purpose is Purpose.START:
        refuse_missing_import(request, container, str(folder))
        container = note_missing_program(request, container, str(folder))
    else:
        container = note_missing_import(request, container, str(folder))
    return [*doubtful_choices(container.choices)]


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("import torch\n", "torch"),
        ("import numpy, torch.distributed as dist\n", "torch"),
        ("from jax import numpy\n", "jax"),
        ("import pytorch_lightning as pl\n", "pytorch-lightning"),
        ("import os\nos.environ['A'] = os.path.join('a', 'b')\nimport torch\n", "torch"),
    ],
)
def test_a_program_that_imports_what_the_image_lacks_is_refused(tmp_path: Path, text: str, package: str) -> None:
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(CheckFailed, match=r"train.py imports \w+, but mine.sif does not contain it") as caught:
        check(tmp_path)
    assert caught.value.hint == f"add {package} to the image's environment and build again; or use --no-check"
    check(tmp_path, replace(IMAGE, packages=frozenset({package})))
    check(tmp_path, replace(IMAGE, complete=False))
    check(tmp_path, request=replace(REQUEST, no_check=True))


def test_a_plan_that_is_only_shown_warns(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (warning,) = check(tmp_path, purpose=Purpose.SHOW)
    assert "train.py imports torch, but mine.sif does not contain it, so a launch would be refused" in warning
    assert "--no-check" in warning


@pytest.mark.parametrize(
    "text",
    [
        "import numpy\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "def train():\n    import torch\n",
        "from .torch import nn\n",
        "import torch(\n",
        "import sys\nsys.path.insert(0, '/shared/packages')\nimport torch\n",
        "import site\nsite.addsitedir('/shared/packages')\nimport torch\n",
        "import sys\nif not sys.argv[1:]:\n    sys.exit('usage: train.py DATA')\nimport torch\n",
        "import torch\n" + "#" * (1 << 20),
        "\0",
    ],
)
def test_a_program_that_may_run_without_a_framework_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert check(tmp_path) == []


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "train"),
        ("python",),
        ("sh", "train.py"),
        ("python", "-u"),
        ("./a.out",),
        (),
        ("/shared/venv/bin/python", "train.py"),
    ],
)
def test_other_commands_pass(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert check(tmp_path, request=replace(REQUEST, command=command)) == []


def test_packages_from_outside_the_image_pass(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    bound = ContainerRequest(binds=(Bind("/shared/venv", "/shared/venv"),))
    named = ContainerRequest(variables=(Variable("PYTHONPATH", "/shared/packages"),))
    for container in (bound, named):
        assert check(tmp_path, request=replace(REQUEST, container=container)) == []
    (tmp_path / "torch.py").touch()
    assert check(tmp_path) == []


def test_the_program_is_read_in_the_folder_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("import torch\n")
    assert check(tmp_path) == [f"program = train.py: no such file in {tmp_path}"]
    inside = replace(REQUEST, command=("python3", "-u", "code/train.py"))
    for python in ("python3", "/usr/bin/python3"):
        with pytest.raises(CheckFailed):
            check(tmp_path, request=replace(inside, command=(python, *inside.command[1:])))
    with pytest.raises(CheckFailed):
        check(tmp_path, request=replace(REQUEST, options=replace(REQUEST.options, chdir=str(tmp_path / "code"))))


def test_a_program_that_does_not_exist_is_named_when_a_launch_starts(tmp_path: Path) -> None:
    typo = replace(REQUEST, command=("python", "trian.py"))
    assert check(tmp_path, request=typo) == [f"program = trian.py: no such file in {tmp_path}"]
    assert check(tmp_path, request=typo, purpose=Purpose.SHOW) == []
    absolute = replace(REQUEST, command=("python", str(tmp_path / "trian.py")))
    doubt = f"program = trian.py: no such file in {tmp_path} of this machine; the image may contain it"
    assert check(tmp_path, request=absolute) == [doubt]
    assert check(tmp_path, request=replace(REQUEST, command=("python", "/opt/trian.py"))) == []
    bound = ContainerRequest(binds=(Bind("/shared/code", str(tmp_path)),))
    assert check(tmp_path, request=replace(absolute, container=bound)) == []
    in_image = replace(typo, container=ContainerRequest(workdir=str(tmp_path)))
    assert check(tmp_path, request=in_image) == []


def test_files_of_the_project_that_changed_since_its_image_was_built_are_named(tmp_path: Path) -> None:
    def doubts(sources: dict[str, str], name: str = "own.sif") -> list[str]:
        image = replace(IMAGE, path=str(tmp_path / name), sources=frozenset(sources.items()))
        container = plan_container(ContainerRequest(runtime="apptainer"), image, make_host("apptainer"))
        return [*doubtful_choices(note_changed_files(container, str(tmp_path)).choices)]

    built = {name: hashlib.sha256(f"{name}\n".encode()).hexdigest() for name in ("a.txt", "b.yml")}
    assert doubts(built) == [], "without a project file, nothing is compared"
    (tmp_path / "argosy.toml").write_text('[image]\npip = "a.txt"\nconda = "b.yml"\noutput = "own.sif"\n')
    for name in built:
        (tmp_path / name).write_text(f"{name}\n")
    assert doubts(built) == []
    (tmp_path / "a.txt").write_text("numpy\n")
    (doubt,) = doubts(built)
    assert "a.txt changed since it was built; 'argosy build' builds it again" in doubt
    assert doubts(built, "other.sif") == [], "the image is not that of the project"
    assert doubts({}) == [], "its lock names no files"
    assert "b.yml" in doubts({"a.txt": "0" * 64})[0], "a file was added to the project"


def test_files_of_one_name_and_names_with_extras_are_compared(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text(
        '[image]\npip = ["a/r.txt", "b/r.txt", "pyproject.toml[gpu]"]\noutput = "own.sif"\n'
    )
    files = [tmp_path / "a/r.txt", tmp_path / "b/r.txt", tmp_path / "pyproject.toml"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(file))
    sources = frozenset((file.name, hashlib.sha256(str(file).encode()).hexdigest()) for file in files)
    image = replace(IMAGE, path=str(tmp_path / "own.sif"), sources=sources)
    container = plan_container(ContainerRequest(runtime="apptainer"), image, make_host("apptainer"))
    assert note_changed_files(container, str(tmp_path)).choices == container.choices
    files[2].write_text("other")
    assert "pyproject.toml changed" in note_changed_files(container, str(tmp_path)).choices[-1].why
    (tmp_path / "argosy.toml").write_text("[")
    assert note_changed_files(container, str(tmp_path)).choices == container.choices


def test_a_program_of_deeply_nested_calls_is_read_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import torch\nx = q{'.a()' * 300}\n")
    assert read_program(REQUEST, str(tmp_path)).modules == {"torch"}
