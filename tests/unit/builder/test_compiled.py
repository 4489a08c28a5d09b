"""Packages that were compiled against another PyTorch than the vendor's are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.python.compiled import refuse_wheels_for_other_torch
from argosy.core.errors import CheckFailed

VENDOR = {"torch": "2.3.0a0+ebedce2.nv24.3"}


def install(folder: Path, name: str, library: bytes, origin: str = "") -> None:
    """Write an installed package with one extension module."""
    info = folder / f"{name}-2.3.0.dist-info"
    info.mkdir(parents=True)
    (folder / name).mkdir()
    (folder / name / "_C.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF" + library)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.3.0\n")
    record = f"{name}/_C.cpython-311-x86_64-linux-gnu.so,,\n"
    record += f"{info.name}/direct_url.json,,\n" if origin else ""
    (info / "RECORD").write_text(record)
    if origin:
        (info / "direct_url.json").write_text(origin)


def test_a_wheel_that_needs_the_public_torch_is_refused_over_a_vendors(tmp_path: Path) -> None:
    install(tmp_path, "torchaudio", b"libtorch.so\0libc10.so\0")
    with pytest.raises(CheckFailed, match="cannot install torchaudio") as caught:
        refuse_wheels_for_other_torch([tmp_path], VENDOR, ())
    assert "--no-build-isolation torchaudio" in caught.value.hint


@pytest.mark.parametrize(
    ("builds", "allowed"), [({}, ()), ({"torch": "2.6.0+cu124"}, ()), (VENDOR, ("torch",)), (VENDOR, ("torchaudio",))]
)
def test_other_bases_and_allowed_packages_are_not_refused(
    builds: dict[str, str], allowed: tuple[str, ...], tmp_path: Path
) -> None:
    install(tmp_path, "torchaudio", b"libc10.so")
    refuse_wheels_for_other_torch([tmp_path], builds, allowed)


def test_packages_without_torch_or_built_by_the_user_are_not_refused(tmp_path: Path) -> None:
    install(tmp_path, "numpy", b"libopenblas.so")
    install(tmp_path, "torchvision", b"libc10.so", origin='{"url": "https://example.org/vision.git"}')
    refuse_wheels_for_other_torch([tmp_path], VENDOR, ())
