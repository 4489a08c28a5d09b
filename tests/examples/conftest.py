"""Give the example tests a Python that has torch; it never installs anything into the Python that runs the tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def torch_python() -> tuple[str, ...]:
    """Return the words that start a Python with the examples' packages.

    ``ARGOSY_TEST_TORCH_PYTHON`` names one (several words are a command: ``argosy run digits.sif -- python``); else a
    virtual environment is made once and kept in the lab's folder.
    """
    if named := os.environ.get("ARGOSY_TEST_TORCH_PYTHON"):
        return tuple(named.split())
    return (str(kept_venv(read_requirements()) / "bin" / "python"),)


def read_requirements() -> list[str]:
    """Collect the pip packages of all examples."""
    found = set((EXAMPLES / "pi" / "requirements.txt").read_text().splitlines())
    for file in sorted(EXAMPLES.glob("*/environment.yml")):
        for item in yaml.safe_load(file.read_text())["dependencies"]:
            found.update(item["pip"] if isinstance(item, dict) else ())
    return sorted(line for line in found if line and not line.startswith("#"))


def kept_venv(requirements: list[str]) -> Path:
    """Make the virtual environment for these requirements, or return the one made before.

    It is made beside its place and renamed, so that a kill leaves none; the lock goes with the process that holds it.
    A renamed environment keeps its Python, but not its console scripts: start those with ``python -m``.
    """
    lab = Path(os.environ.get("ARGOSY_LAB", "/var/tmp/argosy-lab"))  # noqa: S108 - kept between runs on purpose
    lab.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    venv = lab / f"torch-venv-{digest}"
    with venv.with_name(venv.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not venv.exists():
            part = venv.with_name(venv.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(part)], check=True)
            subprocess.run(
                [str(part / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile", *requirements], check=True
            )
            part.rename(venv)
    return venv
