"""Which MPI an image contains, and whether it fits the way in which a site connects ranks; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from argosy.recipes.lock import Lock

OPEN_MPI, MPICH, SEVERAL, NONE = "openmpi", "mpich", "several", "none"
"""The MPI of an image: one of these, or empty if it is not known. Intel MPI and MVAPICH have the ABI of MPICH."""

ONLY_MPICH: Mapping[str, str] = {"pmi2": "PMI-2", "mpiexec": "mpiexec of MPICH"}
"""How a site connects ranks, if Open MPI of distributions does not support it: it uses PMIx. Open MPI 4 supports PMI-2
only if it was built with Slurm's libraries, and Open MPI 5 does not."""

USE_MPICH = "use an image with MPICH; Open MPI needs PMIx ('srun --mpi=list' on the cluster shows whether Slurm has it)"


def family_of_name(name: str) -> str:
    """Return the MPI of a package, of a file or of the version that ``mpirun`` prints; empty if it is of neither."""
    text = name.lower().replace(" ", "").replace("-", "")
    if "openmpi" in text or "openrte" in text or "libmpi.so.40" in text:
        return OPEN_MPI
    is_mpich = any(word in text for word in ("mpich", "hydra", "impirt", "impi_rt", "intel(r)mpi", "libmpi.so.12"))
    return MPICH if is_mpich else ""


def _joined(families: Iterable[str]) -> str:
    found = {family for family in families if family}
    return SEVERAL if len(found) > 1 else next(iter(found), "")


def mpi_of_lock(lock: Lock) -> str:
    """Return the MPI of an image: of its packages, and of those added to a Debian base; ``none`` if it surely has none.

    Debian's mpi4py depends on Open MPI.  Conda's packages with an ``external`` build are replaced by the host's MPI.
    """
    base, *added = lock.base.reference.split("+")
    names = [package.name for package in lock.packages if not package.build.startswith("external")]
    families = [*map(family_of_name, (*names, *added)), OPEN_MPI if "python3-mpi4py" in added else ""]
    if found := _joined(families):
        return found
    other = any("mpi" in package.name for package in lock.packages if package.name != "mpi4py")
    is_plain = base.startswith("debian:") and not (added or lock.steps or lock.stages or other)
    return NONE if is_plain else ""


def describe_unfit_mpi(family: str, how: str, site: str) -> str:
    """Return why the ranks of this MPI are not connected at a site; empty if nothing speaks against it.

    Parameters
    ----------
    how
        The value of ``srun --mpi``, or ``mpiexec``.
    """
    if family != OPEN_MPI or how not in ONLY_MPICH:
        return ""
    return f"jobs of {site} use {ONLY_MPICH[how]}, and Open MPI of distributions uses PMIx: ranks fail, or run alone"


def advise_base(how: str) -> str:
    """Return which base to use for mpi4py; `how` is that of `describe_unfit_mpi`, or empty if it is not known."""
    return "use a base with MPICH" if how in ONLY_MPICH else ADD_LIBRARY


NO_LIBRARY = "mpi4py is in the image, and no MPI library is: 'from mpi4py import MPI' fails"
EXAMPLE_BASE = "debian:bookworm+libopenmpi3+openmpi-bin"
ADD_LIBRARY = f"use a base with an MPI, for example {EXAMPLE_BASE}"
