"""Make every choice of a launch that its context leaves open: launcher, options, variables; with its reason; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark, Variable
from argosy.core.records import replace
from argosy.images.libraries import NO_LIBRARY, NONE, USE_MPICH, advise_base, describe_unfit_mpi
from argosy.jobs.launch_plan import JobShape
from argosy.launch.context import LaunchContext, facts_of
from argosy.launch.image_checks import FRAMEWORKS, TORCH_RANKS, adds_packages
from argosy.launch.launchers.launcher import (
    MPIEXEC,
    choose_launcher,
    find_python,
    refuse_starter_program,
    refuse_without_package,
    refuse_without_slurm,
    suggest_mpirun,
)
from argosy.launch.model import LaunchRequest, ProgramImports, as_pattern, file_name, job_name
from argosy.launch.option_checks import (
    NEEDS_MPI,
    check_launcher_options,
    choose_container_per,
    is_per_node,
    refuse_label,
)
from argosy.launch.request import with_sources
from argosy.launch.shape import choose_masks, plan_binding, plan_job_threads, plan_local_threads
from argosy.launch.site_settings import (
    DEFAULT_MPI,
    choose_mpi,
    explain_container,
    launcher_at_site,
    plan_site_settings,
    refuse_launch,
    refuse_missing_options,
    with_home_of_nodes,
    with_runtime_options,
    with_site_binds,
    with_variables,
)
from argosy.launch.variables import plan_variables
from argosy.runtimes.container_plan import ContainerPlan, refuse_outside_jobs
from argosy.sites.binding import ONE_THREAD, gives_threads
from argosy.sites.job_settings import SLINGSHOT, SiteSettings, describe_missing_plugin
from argosy.sites.profile import Site
from argosy.slurm.sbatch import JobOptions


class LaunchFacts(msgspec.Struct, frozen=True):
    """A launch with every choice made; only rendering is left."""

    context: LaunchContext
    name: str
    launcher: str
    container: ContainerPlan
    """The container, with the variables, bind mounts and options that the launch adds."""
    options: JobOptions
    """Options of the job, completed by the defaults of the user and the site."""
    mpi: str
    """Program or PMI type that connects the ranks of MPI, as `choose_mpi` returns it; empty for other launchers."""
    site_settings: SiteSettings
    """Settings, paths and options that the site's profile adds to the job."""
    choices: tuple[Choice, ...]
    rank_python: str = ""
    """Python of the image that starts the ranks of a node in one container; empty: the launcher does not need it."""

    @property
    def request(self) -> LaunchRequest:
        """The completed request."""
        return self.context.request

    @property
    def site(self) -> Site:
        """The site in the job's mode and partition."""
        return self.context.target.site

    @property
    def shape(self) -> JobShape:
        """Nodes, ranks, GPUs and cores of the job."""
        return self.context.target.shape


def choose_local_facts(context: LaunchContext) -> LaunchFacts:
    """Make every choice of a launch on this machine; errors as `choose_job_facts`."""
    request, target = context.request, context.target
    launcher = _choose_launcher(context)
    refuse_without_slurm(launcher.value)
    refuse_label(request, launcher.value, copies=target.shape.ranks)
    refuse_outside_jobs(context.container)
    settings = _settings_of_site(context, launcher.value)
    threads = plan_local_threads(context.host, target.shape)
    variables, why_variables = plan_variables(context, settings, threads, launcher=launcher.value)
    refuse_launch(context.container, settings, target.site, mpi="")
    why_container = explain_container(context.container.choices, request.container, target.site, has_gpus=True)
    doubts = _warn_of_program(context, launcher.value)
    choices = (*request.choices, *target.choices, launcher, *why_container, *why_variables, *doubts)
    return LaunchFacts(
        context=context,
        name=job_name(request),
        launcher=launcher.value,
        container=_with_settings(context.container, variables, settings),
        options=target.options,
        mpi="",
        site_settings=settings,
        choices=with_sources(choices, request.sources),
    )


def choose_job_facts(context: LaunchContext) -> LaunchFacts:
    """Make every choice of a job that is not made in its context.

    Raises
    ------
    UsageError, SiteError
        If there is no command or no such launcher, if the launcher, the runtime or the site does not support the
        request, or if the site requires an option that was not given.
    """
    request, target = context.request, context.target
    options = _complete_options(context)
    launcher = _choose_launcher(context)
    why_options = (
        *check_launcher_options(request, context.container, target.site, launcher.value),
        *plan_binding(target.shape, target.site, launcher.value, target.why_unbound),
        *_warn_of_tcp(context),
        *_warn_of_threads(context),
        *_warn_of_own_folder(context),
        *_warn_of_program(context, launcher.value),
    )
    settings = _settings_of_site(context, launcher.value)
    threads = plan_job_threads(target.site, target.shape)
    variables, why_variables = plan_variables(context, settings, threads, launcher=launcher.value)
    mpi = choose_mpi(launcher.value, request.mpi, target.site)
    refuse_launch(context.container, settings, target.site, mpi)
    rank_python, why_start = _choose_start(context, settings, launcher.value, mpi)
    has_gpus = bool(target.shape.gpus_per_node)
    why_container = explain_container(context.container.choices, request.container, target.site, has_gpus=has_gpus)
    choices = (*request.choices, *target.choices, launcher, *why_start, *why_container, *why_options, *why_variables)
    container, settings = with_home_of_nodes(_with_settings(context.container, variables, settings), settings)
    return LaunchFacts(
        context=context,
        name=job_name(request),
        launcher=launcher.value,
        container=container,
        options=options,
        mpi=mpi,
        site_settings=settings,
        choices=with_sources(choices, request.sources),
        rank_python=rank_python,
    )


def _settings_of_site(context: LaunchContext, launcher: str) -> SiteSettings:
    runtime = context.container.runtime.name
    return plan_site_settings(context.target, launcher=launcher, runtime=runtime, versions=context.versions)


def _with_settings(container: ContainerPlan, variables: tuple[Variable, ...], settings: SiteSettings) -> ContainerPlan:
    """Return the container with the variables of the launch, and the bind mounts and options of the site."""
    return with_runtime_options(with_site_binds(with_variables(container, variables), settings.binds), settings)


def _choose_start(
    context: LaunchContext, settings: SiteSettings, launcher: str, mpi: str
) -> tuple[str, tuple[Choice, ...]]:
    """Choose how srun starts the ranks: one container per rank or per node, and the PMI type of MPI.

    Returns
    -------
    tuple
        The Python that starts the ranks in the container of their node, empty if srun starts each rank; the reasons.
    """
    request, container = context.request, context.container
    each = choose_container_per(request, container, settings.srun, launcher, context.target.shape.ranks_per_node)
    why_mpi = (*_explain_mpi(request, context.target.site, mpi), *_doubt_mpi(context, mpi, settings))
    why = (each, *why_mpi) if each else why_mpi
    return (find_python(request.command, container.entry.image) if is_per_node(why) else ""), why


def _warn_of_tcp(context: LaunchContext) -> tuple[Choice, ...]:
    """Return a doubtful choice for a job on several nodes whose collectives lack the plugin of the network."""
    site, shape = context.target.site, context.target.shape
    missing = describe_missing_plugin(site)
    if not missing or shape.nodes == 1 or not shape.gpus_per_node:
        return ()
    why = f'{missing}; use an image with the plugin, and add use = ["{SLINGSHOT[site.node.gpu_vendor]}"] to the profile'
    return (Choice("network", "probably TCP", why, f"site {site.name}", mark=Mark.DOUBTFUL),)


def _warn_of_threads(context: LaunchContext) -> tuple[Choice, ...]:
    """Return a doubtful choice if ranks are bound to cores, and Slurm gives the job hardware threads."""
    site, shape = context.target.site, context.target.shape
    is_bound = context.target.is_job and choose_masks(shape, site)
    if not is_bound or not gives_threads(site) or any(map(ONE_THREAD.fullmatch, context.request.extra)):
        return ()
    why = "Slurm counts hardware threads; for the cores of the ranks: --sbatch-arg=--threads-per-core=1"
    return (Choice("cores", "may be threads", why, f"site {site.name}", mark=Mark.DOUBTFUL),)


OWN_FOLDERS = re.compile(r"/(tmp|var/tmp|dev/shm)/")
"""Beginning of paths that are usually different on each node."""


def _warn_of_own_folder(context: LaunchContext) -> tuple[Choice, ...]:
    """Return a doubtful choice for an image that other nodes probably cannot read."""
    found = OWN_FOLDERS.match(context.container.entry.image.path)
    if not found or context.target.shape.nodes == 1:
        return ()
    why = f"each node usually has its own {found[0].rstrip('/')}; copy the image to a folder that all nodes can read"
    return (Choice("image", context.container.entry.image.path, why, "option", mark=Mark.DOUBTFUL),)


def _warn_of_program(context: LaunchContext, launcher: str) -> tuple[Choice, ...]:
    """Return doubtful choices for a program that starts ranks itself, or gives all of them a fixed address."""
    program, shape = context.program, context.target.shape
    whys: list[str] = []
    if program.address and shape.nodes > 1 and launcher in {"torchrun", "srun", "mpi"}:
        whys.append(
            f"it sets MASTER_ADDR to {program.address}, where the ranks of other nodes may not find "
            "rank 0; remove that, since Argosy sets the address of the first node"
        )
    if program.spawns and shape.ranks_per_node > 1 and launcher in {"torchrun", "srun"}:
        one = "--ranks-per-node 1" if context.target.is_job else "--ranks 1"
        whys.append(
            f"it calls spawn of torch.multiprocessing; if that starts its ranks, each rank of this launch "
            f"would start all of them again and hang: use --launcher none {one}"
        )
    return tuple(Choice("program", program.name, why, "program", mark=Mark.DOUBTFUL) for why in whys)


def _choose_launcher(context: LaunchContext) -> Choice:
    """Choose the launcher: the user's, else that of the image and the command, the site, or the program's MPI."""
    request, image = context.request, context.container.entry.image
    launcher = choose_launcher(request.launcher, image, request.command, context.target.shape)
    if context.target.is_job and not (request.launcher or request.resources.ranks):
        refuse_starter_program(request.command)
    launcher = _launcher_of_mpi(launcher_at_site(launcher, context.target.site), context)
    if not adds_packages(request.container):
        refuse_without_package(launcher.value, image, needs_torch=request.needs_torch)
    return launcher


def _explain_mpi(request: LaunchRequest, site: Site, mpi: str) -> tuple[Choice, ...]:
    """Explain the PMI type of a job that srun starts with MPI, if the user did not give it."""
    if mpi in {"", MPIEXEC} or request.mpi:
        return ()
    if site.launcher.mpi:
        return (Choice("--mpi", site.launcher.mpi, "the site's PMI type", f"site {site.name}"),)
    why = f"the profile of {site.name} names no PMI type; 'srun --mpi=list' on the cluster shows them"
    return (Choice(ChoiceKey.ASSUMED, f"--mpi={DEFAULT_MPI}", why, "default"),)


def _complete_options(context: LaunchContext) -> JobOptions:
    """Return the options of a job with its output file; refuse a job without an option that the site requires."""
    request, target = context.request, context.target
    if not request.in_allocation:
        facts = facts_of(target, launcher="", runtime=context.container.runtime.name, versions=context.versions)
        refuse_missing_options(target.options, target.site, facts)
    output = request.options.output or _output_file(target.options, job_name(request), context.host)
    return replace(target.options, output=output)


def _output_file(options: JobOptions, name: str, host: Host) -> str:
    """Return the default output file of a job, in its folder; Slurm replaces the number."""
    folder = options.chdir or host.cwd
    folder = folder if folder.startswith("/") else ""  # Slurm resolves a relative output file from --chdir
    # Slurm gives each task a number of its own when it starts; without Slurm, nobody can tell which task has it.
    number = "%A_%a" if options.array else "%j"
    return str(Path(as_pattern(folder), f"{file_name(name)}-{number}.out"))


OVER_TORCH = frozenset({"accelerate", "deepspeed", "lightning", "pytorch_lightning"})
"""Packages that connect their ranks by torch.distributed."""


def _launcher_of_mpi(choice: Choice, context: LaunchContext) -> Choice:
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


def _doubt_mpi(context: LaunchContext, how: str, settings: SiteSettings) -> Iterator[Choice]:
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
