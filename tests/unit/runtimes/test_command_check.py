"""Commands that cannot work are refused before a container starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.runtimes.command_check import refuse_host_program, refuse_missing_variable_binds, refuse_no_image


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
