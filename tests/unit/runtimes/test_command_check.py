"""Commands that cannot work are refused before a container starts."""

from __future__ import annotations

import pytest

from argosy.core.errors import UsageError
from argosy.runtimes.command_check import refuse_starter


@pytest.mark.parametrize("command", [("srun", "python", "a.py"), ("/usr/bin/singularity", "exec", "x.sif", "a")])
def test_a_command_that_starts_ranks_or_containers_itself_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"the command begins with .*, but Argosy starts the"):
        refuse_starter(command)
    refuse_starter(("python", "srun"))
    refuse_starter(())
