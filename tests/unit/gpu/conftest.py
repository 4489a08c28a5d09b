"""GPU drivers without a GPU, compiled from C."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile ``fake_NAME.c`` to a library, and return its folder."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    made: dict[tuple[str, ...], Path] = {}

    def compile_library(name: str, file: str, *flags: str) -> Path:
        key = (name, file, *flags)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"fake-{name}")
            words = ("gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O2", *flags)
            subprocess.run((*words, "-o", str(folder / file), str(HERE / f"fake_{name}.c")), check=True)
            made[key] = folder
        return made[key]

    return compile_library
