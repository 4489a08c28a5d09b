"""Components of a heterogeneous job that the user wrote start programs in an image, as the message of import says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = [pytest.mark.lab, pytest.mark.soak]

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --output=out
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks=2
srun --het-group=0 argosy run {image} -- sh -c 'echo "server $SLURM_PROCID"' : \\
    --het-group=1 argosy run {image} -- sh -c 'echo "worker $SLURM_PROCID"'
"""


def test_each_component_runs_its_program_in_the_image(desk: Desk) -> None:
    script = desk.write("job.sh", SCRIPT.format(image=desk.image))
    refused = desk.argosy("import", script, check=False)
    assert "argosy run IMAGE --" in refused.stderr
    said = desk.sh(f"sbatch --wait --quiet {script}; cat out").stdout
    assert sorted(said.splitlines()) == ["server 0", "worker 1", "worker 2"]
