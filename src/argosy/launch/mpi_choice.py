"""Choose the launcher of programs that use MPI: with another one, each rank would run the whole program alone; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Mark
from argosy.core.records import replace
from argosy.images.libraries import NO_LIBRARY, NONE, USE_MPICH, advise_base, describe_unfit_mpi
from argosy.launch.context import LaunchContext
from argosy.launch.image_checks import FRAMEWORKS, TORCH_RANKS, adds_packages
from argosy.launch.launchers.launcher import suggest_mpirun
from argosy.launch.model import ProgramImports
from argosy.launch.option_checks import NEEDS_MPI
from argosy.sites.job_settings import SiteSettings

OVER_TORCH = frozenset({"accelerate", "deepspeed", "lightning", "pytorch_lightning"})
"""Packages that connect their ranks by torch.distributed."""


def launcher_of_mpi(choice: Choice, context: LaunchContext) -> Choice:
    """Return the launcher of a launch: ``mpi`` if its program imports mpi4py, else this choice, with a note if needed.

    Raises
    ------
    UsageError
        If the program imports mpi4py, and several ranks of it were requested on this machine, without Slurm.
    """
    request, shape = context.request, context.target.shape
    # Options of torchrun choose it, and the programs of Argosy's benchmarks do not use MPI.
    is_chosen = request.launcher or request.launcher_arguments or request.elastic
    if is_chosen or shape.ranks == 1 or request.needs_torch or request.independent_ranks:
        return choice
    module = _imported(context)
    if not module:
        return _noted(choice, context)
    program = context.program
    if _uses_torch(program):
        why = (
            f"{program.name} uses torch.distributed and imports {module}, for which each rank is rank 0 of 1; "
            f"if MPI connects the ranks, {_way(context)}"
        )
        return replace(choice, why=why, mark=Mark.DOUBTFUL)
    if not context.target.is_job:
        raise UsageError(
            f"each of the {shape.ranks} ranks would run the whole program alone, without MPI",
            evidence=f"{program.name} imports {module}, and the mpi launcher needs Slurm",
            hint=f"use the image's mpirun: {suggest_mpirun(request.command, shape.ranks)}; "
            "or --launcher none for independent ranks",
        )
    return Choice(ChoiceKey.LAUNCHER, "mpi", f"{program.name} imports {module}", "program")


def _imported(context: LaunchContext) -> str:
    """Return the package of MPI that the program imports, unless the image certainly lacks it."""
    image = context.container.entry.image
    known = image.complete and not adds_packages(context.request.container)
    found = (name for name in NEEDS_MPI if name in context.program.packages)
    return next((name for name in found if name in image.packages or not known), "")


def _noted(choice: Choice, context: LaunchContext) -> Choice:
    """Return the choice with a note if the image has a package of MPI, and the program may be one that uses it."""
    name = next((name for name in NEEDS_MPI if name in context.container.entry.image.packages), "")
    if not name or context.program.packages & FRAMEWORKS:
        return choice
    why = f"{choice.why}; the image has {name}: if the program uses MPI, {_way(context)}"
    return replace(choice, why=why, mark=Mark.DOUBTFUL)


def _way(context: LaunchContext) -> str:
    """Return how to start the program by MPI."""
    if context.target.is_job:
        return "add --launcher mpi"
    return f"use {suggest_mpirun(context.request.command, context.target.shape.ranks)}"


def _uses_torch(program: ProgramImports) -> bool:
    """Return whether the program connects its ranks by torch.distributed."""
    is_named = any(f"{module}.".startswith(f"{TORCH_RANKS}.") for module in program.modules)
    return is_named or bool(program.packages & OVER_TORCH)


def doubt_mpi(context: LaunchContext, how: str, settings: SiteSettings) -> Iterator[Choice]:
    """Yield a doubtful choice if the MPI of the image does not fit the site, or is missing.

    Parameters
    ----------
    how
        The value of ``srun --mpi``, or ``mpiexec``; empty if the ranks use no MPI.
    """
    image, site = context.container.entry.image, context.target.site
    if how and (unfit := describe_unfit_mpi(image.mpi, how, site.name)):
        yield Choice("MPI", "Open MPI", f"{unfit}; {USE_MPICH}", "image", mark=Mark.DOUBTFUL)
    # A site may bind its own MPI; then the image needs none.
    is_bound = any("mpi" in f"{bind.source}{bind.target}".lower() for bind in settings.binds)
    if how and image.mpi == NONE and "mpi4py" in image.packages and not is_bound:
        yield Choice("MPI", "none", f"{NO_LIBRARY}; {advise_base(how)}", "image", mark=Mark.DOUBTFUL)
