"""What all unit tests share: an example may take as long as the machine likes, since time is no property of code.

A run of all unit tests tries a sample of examples, other ones each time; ``make soak`` tries many. Slurm's commands are
hidden: with them, a machine is a login node, where for example an image of a registry is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("sample", deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=1000)
settings.load_profile("soak" if os.environ.get("ARGOSY_SOAK") else "sample")


@pytest.fixture(scope="session")
def programs_without_slurm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with links to all programs but Slurm's."""
    folder = tmp_path_factory.mktemp("programs")
    folders = [Path(each) for each in reversed(os.get_exec_path()) if Path(each).is_dir()]
    for program in (program for each in folders for program in each.iterdir()):
        link = folder / program.name
        if not re.fullmatch(r"s(alloc|batch|cancel|control|info|queue|run|acct|acctmgr|trigger)", program.name):
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    return folder


@pytest.fixture(autouse=True)
def _without_slurm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("sbatch"):
        monkeypatch.setenv("PATH", str(request.getfixturevalue("programs_without_slurm")))
