"""Options of sbatch as text."""

from __future__ import annotations

import pytest

from argosy.slurm.sbatch import join_dependencies, join_gres


@pytest.mark.parametrize(
    ("options", "joined"),
    [
        (("--nodes=1", "--gres=gpu:a100:1", "--time=5", "--gres=nvme:100"), ("--gres=gpu:a100:1,nvme:100", "--time=5")),
        (("--gres=gpu:4", "--gres=gpu:v100:1,gpu:a100:1"), ("--gres=gpu:v100:1,gpu:a100:1",)),
        (("--gpus-per-node=4", "--gres=nvme:1"), ("--gpus-per-node=4", "--gres=nvme:1")),
        (("--time=5",), ("--time=5",)),
    ],
)
def test_the_resources_of_several_gres_options_become_one(options: tuple[str, ...], joined: tuple[str, ...]) -> None:
    """sbatch uses the last --gres only: a second one for a local disk would take the GPUs away."""
    assert tuple(each for each in join_gres(options) if each != "--nodes=1") == joined


@pytest.mark.parametrize("other", ["--dependency=singleton", "--dependency singleton", "-dsingleton", "-d singleton"])
def test_all_dependencies_are_joined_because_sbatch_uses_the_last_one(other: str) -> None:
    options = ("--dependency=afterok:1:2", "--nodes=1", other)
    assert tuple(join_dependencies(options)) == ("--nodes=1", "--dependency=afterok:1:2,singleton")
    assert tuple(join_dependencies((other, "--nodes=1"))) == (other, "--nodes=1")
