"""Make every choice of a launch that its context leaves open: launcher, options, variables; with its reason; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.core.suggest import did_you_mean
from argosy.jobs.launch_plan import Shape
from argosy.launch.context import LaunchContext
from argosy.launch.image_checks import adds_packages
from argosy.launch.launchers.launcher import (
    LABEL_FORM,
    MPIEXEC,
    choose_launcher,
    find_python,
    refuse_starter_program,
    refuse_without_package,
    refuse_without_slurm,
)
from argosy.launch.model import LaunchRequest, as_pattern, file_name, name_of
from argosy.launch.mpi_choice import doubt_mpi, launcher_of_mpi
from argosy.launch.option_checks import check_launcher_options, choose_container_per, is_per_node, refuse_label
from argosy.launch.request import with_sources
from argosy.launch.shape import THREADS, choose_masks, plan_binding, plan_job_threads, plan_local_threads
from argosy.launch.site_settings import (
    DEFAULT_MPI,
    caller_variables,
    choose_mpi,
    explain_container,
    facts_of,
    launcher_at_site,
    plan_site_settings,
    refuse_launch,
    refuse_missing_options,
    with_home_of_nodes,
    with_runtime_options,
    with_site_binds,
    with_variables,
)
from argosy.runtimes.container_plan import ContainerPlan, refuse_outside_jobs
from argosy.sites.binding import ONE_THREAD, gives_threads
from argosy.sites.job_settings import SLINGSHOT, SiteSettings, describe_missing_plugin
from argosy.sites.profile import Site
from argosy.slurm.sbatch import JobOptions

NCCL_DEBUG: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
    "NCCL_DEBUG_FILE": "{files}{job}-nccl{restart}-%h-%p.log",
}
"""For NCCL and RCCL, which write one file per rank (%h is the host, %p the process)."""

JOB, RESTART = "$SLURM_JOB_ID", "${SLURM_RESTART_COUNT:-0}"
"""The number of a job and of its run, in the names of its log files: all jobs of a folder write them there."""

ONECCL_DEBUG: Mapping[str, str] = {"CCL_LOG_LEVEL": "info", "FI_LOG_LEVEL": "info"}
"""For oneCCL and libfabric, which write to stderr; `--log-dir` separates their output by rank."""

TORCH_DEBUG: Mapping[str, str] = {
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_CPP_LOG_LEVEL": "INFO",
    "LOGLEVEL": "INFO",
}

DEBUG_TOPICS = ("net", "torch")
DEBUG_WHY = {"net": "shows which network is used", "torch": "shows what torch.distributed does"}


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
    def shape(self) -> Shape:
        """Nodes, ranks, GPUs and cores of the job."""
        return self.context.target.shape


def choose_local_facts(context: LaunchContext) -> LaunchFacts:
    """Make every choice of a launch on this machine; errors as `choose_job_facts`."""
    request, shape = context.request, context.target.shape
    launcher = _choose_launcher(context)
    refuse_without_slurm(launcher.value)
    refuse_label(request, launcher.value, copies=shape.ranks)
    refuse_outside_jobs(context.container)
    return _choose_facts(context, launcher, plan_local_threads(context.host, shape), request.options)


def choose_job_facts(context: LaunchContext) -> LaunchFacts:
    """Make every choice of a job that is not made in its context.

    Raises
    ------
    UsageError, SiteError
        If there is no command or no such launcher, if the launcher, the runtime or the site does not support the
        request, or if the site requires an option that was not given.
    """
    request, target = context.request, context.target
    options = _complete_options(context, request.name or name_of(request.command))
    launcher = _choose_launcher(context)
    why = (
        *check_launcher_options(request, context.container, target.site, launcher.value),
        *plan_binding(target.shape, target.site, launcher.value),
        *_warn_of_tcp(context),
        *_warn_of_threads(context),
        *_warn_of_own_folder(context),
    )
    threads, has_gpus = plan_job_threads(target.site, target.shape), bool(target.shape.gpus_per_node)
    return _choose_facts(context, launcher, threads, options, why, has_gpus=has_gpus)


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


def _choose_launcher(context: LaunchContext) -> Choice:
    request, image = context.request, context.container.entry.image
    launcher = choose_launcher(request.launcher, image, request.command, context.target.shape)
    if context.target.is_job and not (request.launcher or request.wanted.ranks):
        refuse_starter_program(request.command)
    launcher = launcher_of_mpi(launcher_at_site(launcher, context.target.site), context)
    if not adds_packages(request.container):
        refuse_without_package(launcher.value, image, needs_torch=request.needs_torch)
    return launcher


def _choose_facts(
    context: LaunchContext,
    launcher: Choice,
    threads: tuple[Word, Choice],
    options: JobOptions,
    why_options: tuple[Choice, ...] = (),
    *,
    has_gpus: bool = True,
) -> LaunchFacts:
    """Make the choices that jobs and launches on this machine have in common.

    Parameters
    ----------
    threads
        Number of threads of a rank, with the reason.
    options, why_options
        The job's options, and the reasons of those that the user did not give.
    has_gpus
        False for a job without GPUs.
    """
    request, target, container = context.request, context.target, context.container
    site = target.site
    settings = plan_site_settings(
        target, launcher=launcher.value, runtime=container.runtime.name, versions=context.versions
    )
    variables, why_variables = _plan_variables(context, settings, threads, launcher=launcher.value)
    mpi = choose_mpi(launcher.value, request.mpi, site)
    refuse_launch(container, settings, site, mpi)
    why_container = explain_container(container.choices, request.container, site, has_gpus=has_gpus)
    per = choose_container_per(request, container, settings.srun, launcher.value, target.shape.ranks_per_node)
    why_start = (
        (*((per,) if per else ()), *_explain_mpi(request, site, mpi), *doubt_mpi(context, mpi, settings))
        if target.is_job
        else ()
    )
    choices = (*request.choices, *target.choices, launcher, *why_start, *why_container, *why_options, *why_variables)
    whole = with_runtime_options(with_site_binds(with_variables(container, variables), settings.binds), settings)
    if target.is_job:
        whole, settings = with_home_of_nodes(whole, settings)
    return LaunchFacts(
        context=context,
        name=request.name or name_of(request.command),
        launcher=launcher.value,
        container=whole,
        options=options,
        mpi=mpi,
        site_settings=settings,
        choices=with_sources(choices, request.given),
        rank_python=find_python(request.command, container.entry.image) if is_per_node(why_start) else "",
    )


def _explain_mpi(request: LaunchRequest, site: Site, mpi: str) -> tuple[Choice, ...]:
    """Explain the PMI type of a job that srun starts with MPI, if the user did not give it."""
    if mpi in {"", MPIEXEC} or request.mpi:
        return ()
    if site.launcher.mpi:
        return (Choice("--mpi", site.launcher.mpi, "the site's PMI type", f"site {site.name}"),)
    why = f"the profile of {site.name} names no PMI type; 'srun --mpi=list' on the cluster shows them"
    return (Choice(ChoiceKey.ASSUMED, f"--mpi={DEFAULT_MPI}", why, "default"),)


def _plan_variables(
    context: LaunchContext, settings: SiteSettings, threads: tuple[Word, Choice], *, launcher: str
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Plan the variables of a launch: those of the user override those of the site, and these the defaults."""
    request, host = context.request, context.host
    number, why_threads = threads
    if host.environment.get(THREADS):
        number = host.environment[THREADS]
        why_threads = Choice(THREADS, number, "set by the caller", "environment")
    debug, why_debug = _plan_debug(context)
    label = (Variable(*LABEL_FORM),) if request.label and launcher == "torchrun" else ()
    given = {variable.name for variable in request.container.variables}
    from_caller = caller_variables(host.environment)
    planned = (Variable(THREADS, number), *settings.variables, *from_caller, *label, *debug)
    by_name = {variable.name: variable for variable in planned}
    kept = tuple(variable for name, variable in by_name.items() if name not in given)
    caller_names = {variable.name for variable in from_caller}
    why_site = (row for row in settings.choices if row.key not in caller_names)
    why_caller = (Choice(v.name, str(v.value), "set by the caller", "environment") for v in from_caller)
    rows = tuple(row for row in (why_threads, *why_site, *why_caller, *why_debug) if row.key not in given)
    options = tuple(Choice(v.name, str(v.value), "requested", "option") for v in request.container.variables)
    return (*kept, *request.container.variables), (*rows, *options)


def _plan_debug(context: LaunchContext) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    request, target = context.request, context.target
    if not request.debug:
        return (), ()
    files = f"{context.host.cwd or '.'}/{file_name(request.name or name_of(request.command))}"
    return plan_debug(request.debug, files, target.site.node.gpu_vendor, is_job=target.is_job)


def _complete_options(context: LaunchContext, name: str) -> JobOptions:
    """Return the options of a job with its output file; refuse a job without an option that the site requires."""
    request, target = context.request, context.target
    if not request.in_allocation:
        facts = facts_of(target, launcher="", runtime=context.container.runtime.name, versions=context.versions)
        refuse_missing_options(target.options, target.site, facts)
    return replace(target.options, output=request.options.output or _output_file(request.options, name, context.host))


def _output_file(options: JobOptions, name: str, host: Host) -> str:
    """Return the pattern of the output file in the job's folder; a relative one is resolved by Slurm (``--chdir``)."""
    folder = options.chdir or host.cwd
    folder = folder if folder.startswith("/") else ""
    # Slurm gives each task a number of its own when it starts; without Slurm, nobody can tell which task has it.
    number = "%A_%a" if options.array else "%j"
    return str(Path(as_pattern(folder), f"{file_name(name)}-{number}.out"))


def _debug_variables(topic: str, vendor: str) -> Mapping[str, str]:
    if topic == "torch":
        return TORCH_DEBUG
    return ONECCL_DEBUG if vendor == "intel" else NCCL_DEBUG


def plan_debug(
    topics: tuple[str, ...], files: str, vendor: str, *, is_job: bool
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Return the variables for each topic, with their reasons.

    Parameters
    ----------
    files
        Prefix of the log files.
    vendor
        Vendor of the GPUs: those of Intel use oneCCL, others NCCL or RCCL.
    is_job
        Whether it is a job of Slurm: the names of its log files contain its number and that of the run.

    Raises
    ------
    UsageError
        If a topic does not exist.
    """
    variables: list[Variable] = []
    choices: list[Choice] = []
    numbers = {"job": f"-{JOB}" if is_job else "", "restart": f"-{RESTART}" if is_job else ""}
    for topic in topics:
        if topic not in DEBUG_TOPICS:
            raise UsageError(
                f"invalid topic of --debug: {topic!r}",
                evidence=f"known: {', '.join(DEBUG_TOPICS)}",
                hint=did_you_mean(topic, DEBUG_TOPICS, "use --debug alone for all topics"),
            )
        for name, form in _debug_variables(topic, vendor).items():
            text = form.format(files=files, **numbers)
            late = ShellExpr(form.format(files=in_double_quotes(files), **numbers))
            variables.append(Variable(name, late if is_job and text != form else text))
            choices.append(Choice(name, text, f"--debug {topic}: {DEBUG_WHY[topic]}", "option"))
    return tuple(variables), tuple(choices)
