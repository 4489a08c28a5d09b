"""Commands that cannot work are refused before a container starts."""

from __future__ import annotations

import pytest

from argosy.core.errors import UsageError
from argosy.runtimes.command_check import refuse_host_program, refuse_no_image


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
