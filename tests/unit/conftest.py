"""What all unit tests share: an example may take as long as the machine likes, since time is no property of code.

A run of all unit tests tries the same sample of examples each time, so that its result depends on the code alone;
``make soak`` tries many, other ones each time. Slurm's commands are hidden, so that the tests pass on a login node.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.without_slurm import path_without_slurm

settings.register_profile("sample", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=1000)
settings.load_profile("soak" if os.environ.get("ARGOSY_SOAK") else "sample")


@pytest.fixture(scope="session")
def own_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the PATH of unit tests."""
    return path_without_slurm(tmp_path_factory.mktemp("programs"))


@pytest.fixture(autouse=True)
def _without_slurm(own_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", own_path)
