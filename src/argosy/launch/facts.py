"""Make every choice of a launch, each with its reason: launcher, name, container, variables; pure."""

from __future__ import annotations

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ContainerRequest, Host, Variable
from argosy.jobs.launch_plan import Shape
from argosy.launch.context import LaunchContext
from argosy.launch.cores import NAME as THREADS
from argosy.launch.cores import plan_threads
from argosy.launch.launchers.launcher import (
    LABEL_FORM,
    NEED_SLURM,
    LauncherCommand,
    choose_launcher,
    refuse_without_torch,
)
from argosy.launch.model import LaunchRequest
from argosy.launch.names import file_name, name_of
from argosy.launch.script.local import ScriptFacts
from argosy.launch.site_settings import (
    caller_variables,
    explain_container,
    launcher_at_site,
    plan_demands,
    refuse_launch,
    with_runtime_options,
    with_site_binds,
    with_variables,
)
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Site
from argosy.sites.resolve import SiteDemands
from argosy.slurm.text import JobOptions


class LaunchFacts(msgspec.Struct, frozen=True):
    """A launch with every choice made; rendering decides nothing more.

    Attributes
    ----------
    container
        With the variables, bind mounts and options that the launch adds.
    options
        Of the job, completed by the user's and the site's defaults.
    demands
        What the site's profile adds to the job.
    """

    context: LaunchContext
    name: str
    launcher: str
    container: ContainerPlan
    options: JobOptions
    demands: SiteDemands
    choices: tuple[Choice, ...]

    @property
    def request(self) -> LaunchRequest:
        """The completed request."""
        return self.context.request

    @property
    def site(self) -> Site:
        """The site in the job's mode and partition."""
        return self.context.target.site

    @property
    def shape(self) -> Shape:
        """Nodes, ranks, GPUs and cores of the job."""
        return self.context.target.shape


def choose_facts(context: LaunchContext, options: JobOptions, why_options: tuple[Choice, ...] = ()) -> LaunchFacts:
    """Make every choice of a launch that is not made in its context.

    Parameters
    ----------
    options, why_options
        The job's options, and the reasons of those that the user did not give.

    Raises
    ------
    UsageError, SiteError
        When there is no such launcher, or the launcher, the runtime or the site cannot do what was asked for.
    """
    request, target, container = context.request, context.target, context.container
    site, shape, image = target.site, target.shape, context.container.entry.image
    launcher = choose_launcher(request.launcher, image, request.command, shape)
    launcher = launcher_at_site(launcher, site)
    if not _adds_packages(request.container):
        refuse_without_torch(launcher.value, image, needed=request.needs_torch)
    why_launcher_options = _check_launcher_options(request, container, site, launcher.value)
    if not site.has_slurm:
        _refuse_without_slurm(request, launcher.value, shape)
    demands = plan_demands(target, launcher=launcher.value, runtime=container.runtime.name, versions=context.versions)
    variables, why_variables = _plan_variables(context, demands, launcher=launcher.value)
    refuse_launch(container, launcher.value, demands, site, mpi=mpi_of(request, site))
    why_container = explain_container(container.choices, request.container, site, gpus=shape.gpus_per_node)
    own = (*target.choices, launcher, *why_container, *why_launcher_options, *why_options, *why_variables)
    whole = with_runtime_options(with_site_binds(with_variables(container, variables), demands.binds), demands)
    return LaunchFacts(
        context=context,
        name=job_name(request),
        launcher=launcher.value,
        container=whole,
        options=options,
        demands=demands,
        choices=_with_project_sources((*request.choices, *own), request),
    )


def script_facts(facts: LaunchFacts, container: ContainerPlan, started: LauncherCommand) -> ScriptFacts:
    """Return what a script is rendered from, with a container and a command of its own."""
    before = facts.request.before
    return ScriptFacts(facts.name, facts.site.name, container, started, facts.shape, facts.choices, before)


def job_name(request: LaunchRequest) -> str:
    """Return the job's name: the one given, else the program's.

    Raises
    ------
    UsageError
        When there is no command to take a name from.
    """
    if not any(request.command[:1]):
        raise UsageError("no command to launch", hint="write it after --, for example: -- python train.py")
    return request.name or name_of(request.command)


def mpi_of(request: LaunchRequest, site: Site) -> str:
    """Return the value of ``srun --mpi``: the user's, else the site's, else ``pmix``."""
    return request.mpi or site.launcher.mpi or "pmix"


def _adds_packages(request: ContainerRequest) -> bool:
    """Return whether Python may find packages in the container that are not in the image."""
    return bool(request.binds) or any(variable.name in {"PATH", "PYTHONPATH"} for variable in request.variables)


def _refuse_without_slurm(request: LaunchRequest, launcher: str, shape: Shape) -> None:
    if launcher in NEED_SLURM:
        raise UsageError(f"the launcher {launcher} needs Slurm", hint="use --launcher torchrun or none")
    if request.label:
        from argosy.launch.option_checks import refuse_label  # noqa: PLC0415 - only for --label

        refuse_label(launcher, shape)


def _check_launcher_options(
    request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str
) -> tuple[Choice, ...]:
    if not (request.elastic or request.gpu_type or request.stage_to or request.label or request.mpi):
        return ()
    from argosy.launch.option_checks import check_launcher_options  # noqa: PLC0415 - only for these options

    return check_launcher_options(request, container, site, launcher)


def _plan_variables(
    context: LaunchContext, demands: SiteDemands, *, launcher: str
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Plan the variables of a launch: the user's win over the site's, and the site's over the defaults."""
    request, site, host = context.request, context.target.site, context.host
    threads, why_threads = plan_threads(site, host, context.target.shape)
    debug, why_debug = _plan_debug(request, site, host)
    label = (Variable(*LABEL_FORM),) if request.label and launcher == "torchrun" else ()
    given = {variable.name for variable in request.container.variables}
    from_caller = caller_variables(host.environment)
    planned = (Variable(THREADS, threads), *demands.variables, *from_caller, *label, *debug)
    by_name = {variable.name: variable for variable in planned}
    kept = tuple(variable for name, variable in by_name.items() if name not in given)
    caller_names = {variable.name for variable in from_caller}
    why_site = (row for row in demands.choices if row.key not in caller_names)
    why_caller = (Choice(v.name, str(v.value), "set by the caller", "environment") for v in from_caller)
    rows = tuple(row for row in (why_threads, *why_site, *why_caller, *why_debug) if row.key not in given)
    options = tuple(Choice(v.name, str(v.value), "asked for", "option") for v in request.container.variables)
    return (*kept, *request.container.variables), (*rows, *options)


def _plan_debug(request: LaunchRequest, site: Site, host: Host) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    if not request.debug:
        return (), ()
    from argosy.launch.limits import plan_debug  # noqa: PLC0415 - only for --debug

    files = f"{host.cwd or '.'}/{file_name(name_of(request.command))}"
    return plan_debug(request.debug, files, site.node.gpu_vendor)


def _with_project_sources(choices: tuple[Choice, ...], request: LaunchRequest) -> tuple[Choice, ...]:
    if not request.given:
        return choices
    from argosy.launch.request import with_sources  # noqa: PLC0415 - only with a project file

    return with_sources(choices, request.given)
