"""Search for images by the packages in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.core.errors import UsageError
from argosy.images.describe import find_packages, parse_requirements
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, Tools

LOCK = Lock(
    LockedBase("debian:bookworm", "sha256:" + "0" * 64, 1, "x86_64"),
    Tools(argosy="0"),
    1,
    "sha256:" + "1" * 64,
    packages=(
        LockedPackage("Typing_Extensions", "4.12.2"),
        LockedPackage("pytorch", "2.9.0", kind=PackageKind.CONDA),
        LockedPackage("vendor", "2.10.0a0+git1"),
        LockedPackage("tzdata", "2025b", kind=PackageKind.CONDA),
    ),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (("typing-extensions",), ("Typing_Extensions 4.12.2",)),
        (("torch>=2.9", "typing.extensions<5"), ("pytorch 2.9.0", "Typing_Extensions 4.12.2")),
        (("pytorch",), ("pytorch 2.9.0",)),
        (("torch>=2.10",), ()),
        (("torch", "numpy"), ()),
        (("vendor>=2.9",), ("vendor 2.10.0a0+git1",)),
        (("tzdata",), ("tzdata 2025b",)),
        (("tzdata==2025b",), ("tzdata 2025b",)),
        (("tzdata>2026",), ()),
    ],
)
def test_packages_are_found_by_name_and_version_whoever_installed_them(
    wanted: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert find_packages(LOCK, parse_requirements(wanted)) == found


def test_an_invalid_requirement_is_refused_with_an_example() -> None:
    with pytest.raises(UsageError) as error:
        parse_requirements(("numpy>=",))
    assert "--has 'numpy>=2'" in error.value.hint


def test_images_without_a_package_list_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_IMAGES", str(tmp_path))
    (tmp_path / "a.sif").write_bytes(b"x")
    told = CliRunner().invoke(app, ["images", "ls", "--has", "torch", "--has", "numpy"])
    assert told.stdout == "no image contains torch and numpy\n"
    assert told.stderr.startswith("not searched: 1 image without a lock")
    assert json.loads(CliRunner().invoke(app, ["images", "ls", "--has", "torch", "--json"]).stdout) == []
