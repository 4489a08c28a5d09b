"""Which MPI and which torch an image contains, and whether they fit a site, its GPUs and their driver; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.core.model import Image
from argosy.core.parse import parse_json
from argosy.recipes.lock import Lock

OPEN_MPI, MPICH, SEVERAL, NONE = "openmpi", "mpich", "several", "none"
"""The MPI of an image: one of these, or empty if it is not known. Intel MPI and MVAPICH have the ABI of MPICH."""

ONLY_MPICH: Mapping[str, str] = {"pmi2": "PMI-2", "mpiexec": "mpiexec of MPICH"}
"""How a site connects ranks, if Open MPI of distributions does not support it: it uses PMIx. Open MPI 4 supports PMI-2
only if it was built with Slurm's libraries, and Open MPI 5 does not."""

USE_MPICH = "use an image with MPICH; Open MPI needs PMIx ('srun --mpi=list' on the cluster shows whether Slurm has it)"

NO_LIBRARY = "mpi4py is in the image, and no MPI library is: 'from mpi4py import MPI' fails"
EXAMPLE_BASE = "debian:bookworm+libopenmpi3+openmpi-bin"
ADD_LIBRARY = f"use a base with an MPI, for example {EXAMPLE_BASE}"

BACKENDS: Mapping[str, str] = {"nvidia": "cuda", "amd": "hip", "intel": "xpu"}
"""GPU vendor -> the back end's name in ``torch/version.py``. The value there is None if torch was built without it."""

ASK_TORCH = """\
import importlib.util, json, pathlib
spec = importlib.util.find_spec("torch")
found = {}
if spec and spec.origin:
    file = pathlib.Path(spec.origin).with_name("version.py")
    if file.is_file():
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), found)
        found = {name: str(found.get(name) or "") for name in ("__version__", "cuda", "hip", "xpu")}
print(json.dumps(found))
"""
"""Program for the image's Python. It does not import torch, which takes seconds and may need a driver.

A torch without ``version.py`` counts as missing.
"""

GPU_OF_JAX = re.compile(r"jax-(cuda|rocm)|intel-extension-for-openxla")
"""Beginning of the packages by which JAX uses GPUs; old releases and conda have builds of jaxlib for them instead."""

JAX_FOR: Mapping[str, str] = {
    "nvidia": "install jax[cuda12] or jax[cuda13], whichever the driver supports",
    "amd": "install AMD's plugin of JAX for ROCm",
    "intel": "install intel-extension-for-openxla",
}
"""GPU vendor -> how JAX gets its GPUs."""

BUILD = re.compile(r"\+(?:(cu)\d+|(rocm)[\d.]+|(xpu)|(cpu))\Z")
OF_BUILD = {"cu": "cuda", "rocm": "hip", "xpu": "xpu"}


def family_of_name(name: str) -> str:
    """Return the MPI of a package, of a file or of the version that ``mpirun`` prints; empty if it is of neither."""
    text = name.lower().replace(" ", "").replace("-", "")
    if "openmpi" in text or "openrte" in text or "libmpi.so.40" in text:
        return OPEN_MPI
    is_mpich = any(word in text for word in ("mpich", "hydra", "impirt", "impi_rt", "intel(r)mpi", "libmpi.so.12"))
    return MPICH if is_mpich else ""


def mpi_of_lock(lock: Lock) -> str:
    """Return the MPI of an image: of its packages, and of those added to a Debian base; ``none`` if it surely has none.

    Debian's mpi4py depends on Open MPI.  Conda's packages with an ``external`` build are replaced by the host's MPI.
    """
    base, *added = lock.base.reference.split("+")
    names = [package.name for package in lock.packages if not package.build.startswith("external")]
    found = {*map(family_of_name, (*names, *added)), OPEN_MPI if "python3-mpi4py" in added else ""} - {""}
    if found:
        return SEVERAL if len(found) > 1 else found.pop()
    other = any("mpi" in package.name for package in lock.packages if package.name != "mpi4py")
    is_plain = base.startswith("debian:") and not (added or lock.steps or lock.stages or other)
    return NONE if is_plain else ""


def cpu_jax_of_lock(lock: Lock) -> str:
    """Return the version of a jaxlib for the CPU; empty if the lock has none, or shows support of GPUs."""
    if any(GPU_OF_JAX.match(package.name) for package in lock.packages):
        return ""
    found = (package for package in lock.packages if package.name == "jaxlib")
    return next((each.version for each in found if not re.search("cuda|rocm", f"{each.version} {each.build}")), "")


def describe_cpu_jax(image: Image, vendor: str) -> str:
    """Describe a JAX that does not find the GPUs of a vendor; empty if the image has none, or may have more."""
    if not image.cpu_jax or not image.complete or vendor not in JAX_FOR:
        return ""
    return f"jaxlib {image.cpu_jax} has no plugin for GPUs"


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


def parse_torch(text: str) -> dict[str, str]:
    """Parse the last line that `ASK_TORCH` prints; return nothing if there is no torch or no valid line."""
    try:
        torch = parse_json(text.strip().rpartition("\n")[2])
    except ValueError:
        return {}
    return torch if isinstance(torch, dict) else {}


def torch_of_version(version: str) -> dict[str, str]:
    """Return the content of ``torch/version.py`` for a version such as ``2.6.0+cu124``; empty without such a suffix."""
    match = BUILD.search(version)
    if match is None:
        return {}
    backend = OF_BUILD.get(match[0][1:].rstrip("0123456789."), "")
    return {"__version__": version} | ({backend: match[0][1:]} if backend else {})


def torch_of_packages(image: Image) -> dict[str, str]:
    """Return the content of ``torch/version.py`` for a torch with NVIDIA's packages, as PyPI has it; else nothing."""
    names = (re.fullmatch(r"nvidia-nccl-(cu\d+)", name) for name in image.packages)
    cuda = next((match[1] for match in names if match), "")
    return {"__version__": image.torch, "cuda": cuda} if image.torch and cuda else {}


def describe_wrong_build(torch: Mapping[str, str], vendor: str) -> str:
    """Describe the build of a torch without a back end for these GPUs; empty if it has one or is missing."""
    if not torch.get("__version__") or vendor not in BACKENDS or torch.get(BACKENDS[vendor]):
        return ""
    others = ", ".join(name for name in BACKENDS.values() if torch.get(name)) or "the CPU only"
    return f"torch {torch['__version__']} was built for {others}"


def describe_old_driver(torch: Mapping[str, str], newest: str) -> str:
    """Describe a torch whose CUDA has a newer major version than the driver supports; empty if there is none.

    A driver runs every CUDA of its own major version (docs.nvidia.com/deploy/cuda-compatibility, "Minor Version
    Compatibility"). A newer major version needs the package cuda-compat in the image.

    Parameters
    ----------
    newest
        Newest CUDA that the driver supports, for example ``12.2``; empty if unknown.
    """
    major = re.match(r"(?:cu)?(\d\d)", torch.get("cuda", ""))
    if major is None or not newest or int(major[1]) <= int(newest.partition(".")[0]):
        return ""
    return f"torch {torch['__version__']} needs a driver for CUDA {major[1]}, and the driver supports CUDA {newest}"
