"""Choosing versions from a folder of wheels: uv itself runs, on this machine instead of in a base."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.backends.plan import RootfsSpec
from argosy.builder.downloads import installed_uv
from argosy.builder.python.base_python import BasePython
from argosy.builder.python.installer import Installer
from argosy.builder.python.packages import resolve
from argosy.core.errors import CheckFailed, ToolFailed
from argosy.core.model import Choice
from argosy.core.process import OnLine, Reply
from argosy.core.records import replace
from argosy.core.session import QuietReporter, Step
from argosy.recipes.read import read_recipe
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_host, make_session

UV = str(installed_uv(make_host()))


class Notes(QuietReporter):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class HereInstaller(Installer, frozen=True):
    """Runs uv on this machine."""

    def uv(self, *arguments: str, on_line: OnLine | None = None) -> Reply:
        del on_line
        words = [word.replace(WORK_INSIDE, str(self.work)) for word in arguments]
        environment = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(self.work / "cache"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run((UV, *words), check=False, capture_output=True, text=True, env=environment)
        return Reply(done.returncode, done.stdout, done.stderr)


def write_wheel(folder: Path, name: str, *more: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "\n".join(("Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *more))
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


class Wheelhouse(msgspec.Struct, frozen=True):
    """A folder of wheels without an index, and a Python without packages."""

    folder: Path
    wheels: Path
    notes: list[str]

    def choose(self, requirements: str) -> list[str]:
        """Return the names of the packages that would be installed."""
        (self.folder / "r.txt").write_text(requirements)
        reporter = Notes()
        step = Step("packages", "", lambda _: None)
        pins = resolve(self.installer(reporter), read_recipe(["r.txt"], cwd=self.folder), step)
        self.notes.extend(reporter.notes)
        return [pin.package.name for pin in pins]

    def installer(self, reporter: Notes) -> Installer:
        session = replace(make_session(self.folder), reporter=reporter)
        container = BuildContainer(Choice("build-backend", "root", "", ""), RootfsSpec("", 0), "", session)
        python = BasePython("3.11.2", str(self.folder / "venv/bin/python"), (), ())
        settings = UvSettings(("--no-index", "--find-links", f"file://{self.wheels}"), local_paths=(str(self.wheels),))
        return HereInstaller(container, python, settings, self.folder / "layer", self.folder / "work")

    def install(self, package: str) -> None:
        installer = self.installer(Notes())
        target = ("--python", installer.python.executable, "--target", str(self.folder / "layer"))
        installer.uv_checked("pip", "install", *target, *installer.choosing, package, doing="installing")


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Wheelhouse:
    (tmp_path / "wh").mkdir()
    (tmp_path / "work").mkdir()
    write_wheel(tmp_path / "wh", "six")
    subprocess.run((UV, "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")), check=True)
    return Wheelhouse(tmp_path, tmp_path / "wh", [])


def test_a_wheelhouse_without_pip_gives_an_image_without_pip_and_a_note(wheelhouse: Wheelhouse) -> None:
    """``pip download -r`` never fetches pip itself, and ``pip install`` from such a folder works."""
    assert wheelhouse.choose("six\n") == ["six"]
    assert len(wheelhouse.notes) == 1
    assert wheelhouse.notes[0].startswith("the image has no pip: it cannot be found where packages are searched; ")


def test_pip_is_installed_from_a_wheelhouse_that_has_it(wheelhouse: Wheelhouse) -> None:
    write_wheel(wheelhouse.wheels, "pip")
    assert wheelhouse.choose("six\n") == ["pip", "six"]
    assert wheelhouse.notes == []


def test_a_pip_that_does_not_suit_the_base_is_left_out(wheelhouse: Wheelhouse) -> None:
    write_wheel(wheelhouse.wheels, "pip", "Requires-Python: >=3.99")
    assert wheelhouse.choose("six\n") == ["six"]
    assert len(wheelhouse.notes) == 1


def test_a_missing_package_is_named_although_pip_is_missing_too(wheelhouse: Wheelhouse) -> None:
    with pytest.raises(CheckFailed, match="'nosuch'"):
        wheelhouse.choose("six\nnosuch\n")


@pytest.mark.parametrize("asked", ["pip", "pip==99"])
def test_a_pip_that_the_user_asks_for_is_not_left_out(wheelhouse: Wheelhouse, asked: str) -> None:
    with pytest.raises(CheckFailed, match="pip"):
        wheelhouse.choose(f"six\n{asked}\n")
    assert wheelhouse.notes == []


BACKEND = """\
def build_wheel(*_):
    raise SystemExit("RuntimeError: Broken toolchain: cannot link a simple C program.")
"""


def write_sdist(folder: Path, name: str, version: str) -> None:
    """Write a source archive whose build fails."""
    top = f"{name}-{version}"
    texts = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "mine"\nbackend-path = ["."]\n',
        "mine.py": BACKEND,
    }
    with tarfile.open(folder / f"{top}.tar.gz", "w:gz") as archive:
        for file, text in texts.items():
            entry = tarfile.TarInfo(f"{top}/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def test_a_failed_build_names_the_pythons_that_have_a_wheel(wheelhouse: Wheelhouse) -> None:
    write_sdist(wheelhouse.wheels, "old", "1.0")
    for tag in ("cp38-none", "cp39-none"):
        write_wheel(wheelhouse.wheels, "old")
        (wheelhouse.wheels / "old-1.0-py3-none-any.whl").rename(wheelhouse.wheels / f"old-1.0-{tag}-any.whl")
    with pytest.raises(ToolFailed, match=r"cannot build old==1\.0") as caught:
        wheelhouse.install("old==1.0")
    assert caught.value.hint.startswith("old 1.0 has wheels only for Python 3.8, 3.9: use another version of it, ")
    assert "--base docker://python:3.9-slim" in caught.value.hint


def test_a_failed_build_without_wheels_for_any_python_asks_for_compilers(wheelhouse: Wheelhouse) -> None:
    write_sdist(wheelhouse.wheels, "old", "1.0")
    with pytest.raises(ToolFailed, match=r"cannot build old==1\.0") as caught:
        wheelhouse.install("old==1.0")
    assert caught.value.hint.startswith("use a version that has a wheel, or a base with the Python, compilers")
