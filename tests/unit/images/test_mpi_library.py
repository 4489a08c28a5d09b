"""The MPI of an image, as its lock shows it."""

from __future__ import annotations

import pytest

from argosy.core.records import replace
from argosy.images.libraries import family_of_name, mpi_of_lock
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, LockedStep, PackageKind, Tools

MPI4PY = LockedPackage("mpi4py", "4.1.0")
LOCK = Lock(LockedBase("debian:bookworm", "sha256:" + "a" * 64, 1, "amd64"), Tools("0.1.0"), 1, "sha256:" + "b" * 64)


def conda(name: str, build: str = "h1") -> LockedPackage:
    return LockedPackage(name, "1", kind=PackageKind.CONDA, build=build)


@pytest.mark.parametrize(
    ("base", "packages", "family"),
    [
        ("debian:bookworm", (MPI4PY,), "none"),
        ("debian:bookworm+libopenmpi3+openmpi-bin", (MPI4PY,), "openmpi"),
        ("debian:bookworm+libhdf5-openmpi-dev", (), "openmpi"),
        ("debian:bookworm+python3-mpi4py", (), "openmpi"),
        ("debian:bookworm+mpich", (MPI4PY,), "mpich"),
        ("debian:bookworm+openmpi-bin+mpich", (MPI4PY,), "several"),
        ("debian:bookworm+git", (MPI4PY,), ""),
        ("docker://python:3.12", (MPI4PY,), ""),
        ("debian:bookworm", (MPI4PY, LockedPackage("mpich", "4.3")), "mpich"),
        ("debian:bookworm", (MPI4PY, LockedPackage("openmpi", "5.0")), "openmpi"),
        ("debian:bookworm", (MPI4PY, LockedPackage("impi-rt", "2021")), "mpich"),
        ("debian:bookworm", (conda("mpi4py"), conda("mpi"), conda("openmpi")), "openmpi"),
        ("debian:bookworm", (conda("mpi4py"), conda("mpich", "external_0")), ""),
    ],
)
def test_packages_show_the_mpi_of_an_image(base: str, packages: tuple[LockedPackage, ...], family: str) -> None:
    assert mpi_of_lock(replace(LOCK, base=replace(LOCK.base, reference=base), packages=packages)) == family


def test_steps_may_install_an_mpi() -> None:
    assert mpi_of_lock(replace(LOCK, packages=(MPI4PY,), steps=(LockedStep(("make install",)),))) == ""


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("mpirun (Open MPI) 5.0.6", "openmpi"),
        ("mpirun (OpenRTE) 4.0.3", "openmpi"),
        ("/usr/lib/libmpi.so.40.30", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "mpich"),
        ("/opt/lib/libmpi.so.12", "mpich"),
        ("mpi4py", ""),
        ("libmpi.so", ""),
        ("", ""),
    ],
)
def test_a_name_shows_the_mpi(text: str, family: str) -> None:
    assert family_of_name(text) == family
