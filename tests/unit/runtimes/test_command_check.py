"""Commands that cannot work are refused before a container starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.core.model import Bind, ContainerRequest, Image, ImageKind
from argosy.runtimes.command_check import (
    refuse_host_program,
    refuse_missing_variable_binds,
    refuse_no_image,
    refuse_unusable_binds,
)
from argosy.runtimes.container_plan import parse_bind, plan_container
from tests.unit.machines import make_host


@pytest.mark.parametrize("command", [("srun", "python", "a.py"), ("/usr/bin/singularity", "exec", "x.sif", "a")])
def test_a_command_that_starts_ranks_or_containers_itself_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"the command begins with .*, but Argosy starts the"):
        refuse_host_program(command)
    refuse_host_program(("python", "srun"))
    refuse_host_program(())


def test_an_interpreter_in_the_place_of_the_image_is_refused() -> None:
    with pytest.raises(UsageError, match="no image is given") as caught:
        refuse_no_image("python", ("train.py", "--lr", "1"))
    assert caught.value.hint == "write: IMAGE -- python train.py --lr 1"
    refuse_no_image("python", ("hostname",))
    refuse_no_image("train.sif", ("train.py",))


def test_a_mount_of_a_variable_is_refused_with_the_variable_if_its_source_is_missing(tmp_path: Path) -> None:
    environment = {"APPTAINER_BIND": str(tmp_path), "SINGULARITY_BINDPATH": f"{tmp_path}:/x,{tmp_path}/gone:/y:ro"}
    with pytest.raises(UsageError, match=f"cannot bind {tmp_path}/gone: it does not exist") as caught:
        refuse_missing_variable_binds(environment)
    assert caught.value.evidence == f"SINGULARITY_BINDPATH={environment['SINGULARITY_BINDPATH']}"
    assert "unset SINGULARITY_BINDPATH" in caught.value.hint
    refuse_missing_variable_binds({"APPTAINER_BIND": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "argosy", "is_refused"),
    [
        (".:/opt/argosy", True, True),
        (".:/opt/", True, True),
        (".:/opt/argosy", False, False),
        (".:/opt/argosy/env/data", True, False),
        (".:/opt/argosy-data", True, False),
        (".:/", False, True),
        ("/:/.", False, True),
        ("/:/host", True, False),
    ],
)
def test_a_mount_that_hides_the_image_is_refused(text: str, argosy: bool, is_refused: bool) -> None:  # noqa: FBT001
    image = Image("/x.sif", ImageKind.SIF, "", "", argosy=argosy)
    request = ContainerRequest(binds=(parse_bind(text),))
    if not is_refused:
        plan_container(request, image, make_host("apptainer"))
        return
    with pytest.raises(UsageError, match=r"cannot mount .* it would hide") as caught:
        plan_container(request, image, make_host("apptainer"))
    assert caught.value.hint == "choose another folder in the container: --bind SRC:DST"


def test_a_file_on_a_folder_of_every_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    with pytest.raises(UsageError, match=r"cannot bind .*a.py to /etc: it is a file, and /etc is a folder") as caught:
        refuse_unusable_binds(ContainerRequest(binds=(Bind(f"{tmp_path}/a.py", "/etc/"),)))
    assert caught.value.hint == f"name the file in the folder: --bind {tmp_path}/a.py:/etc/a.py"
    refuse_unusable_binds(ContainerRequest(binds=(Bind(f"{tmp_path}/a.py", "/etc/a.py"), Bind(str(tmp_path), "/etc"))))
