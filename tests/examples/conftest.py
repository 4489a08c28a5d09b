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

from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import plan_uv_settings
from tests.kept import LAB

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
    LAB.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    venv = LAB / f"torch-venv-{digest}"
    with venv.with_name(venv.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not venv.exists():
            part = venv.with_name(venv.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            install(part, requirements, LAB / "cache" / "uv")
            part.rename(venv)
    return venv


def install(venv: Path, requirements: list[str], cache: Path) -> None:
    """Install by Argosy's uv from where pip does, as links to what its builds unpacked in their cache, or will take."""
    uv = Path(sys.executable).with_name("uv")
    settings = plan_uv_settings(read_pip_config(os.environ, Path.home()), Recipe())
    env = os.environ | dict(settings.environment) | {"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": "hardlink"}
    subprocess.run([uv, "venv", "--quiet", "--no-config", "--python", sys.executable, venv], env=env, check=True)
    words = (uv, "pip", "install", "--quiet", "--no-config", "--python", venv / "bin" / "python")
    subprocess.run([*words, *settings.arguments, *requirements], env=env, check=True)
    # Once, and not by each of the first program's ranks: the byte code of a thousand modules is written.
    modules = [
        "torch.distributed.run",
        *(["sklearn.datasets"] if any("scikit" in each for each in requirements) else []),
    ]
    subprocess.run([venv / "bin" / "python", "-c", f"import {', '.join(modules)}"], check=True)
