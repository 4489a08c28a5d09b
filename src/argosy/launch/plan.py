"""Plan a launch from its context: the script, what starts it, and the reason for each choice; pure."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word
from argosy.jobs.launch_plan import LaunchPlan, Shape
from argosy.launch.context import LaunchContext, with_user_defaults
from argosy.launch.cores import (
    THREADS,
    bound_cores,
    choose_masks,
    plan_binding,
    plan_job_threads,
    plan_local_threads,
    planned_threads,
)
from argosy.launch.image_checks import adds_packages
from argosy.launch.launchers.launcher import (
    LABEL_FORM,
    Counts,
    LauncherCommand,
    LauncherSpec,
    choose_launcher,
    find_launcher,
    find_python,
    refuse_starter_program,
    refuse_without_slurm,
    refuse_without_torch,
)
from argosy.launch.limits import plan_debug, refuse_too_long
from argosy.launch.model import LaunchRequest, as_pattern, file_name, name_of
from argosy.launch.option_checks import (
    check_launcher_options,
    choose_container_per,
    is_per_node,
    refuse_label,
)
from argosy.launch.request import with_sources
from argosy.launch.script.container_step import render_attach
from argosy.launch.script.local import ScriptFacts, inherited_names, render_script
from argosy.launch.script.parts import RANK_PATH, SUCCESS_FILES, plan_resume, render_modules
from argosy.launch.script.slurm import SlurmFacts, directives, render_slurm_script
from argosy.launch.site_settings import (
    advised_against,
    caller_variables,
    default_options,
    explain_container,
    launcher_at_site,
    plan_site_settings,
    refuse_launch,
    refuse_missing_options,
    with_runtime_options,
    with_site_binds,
    with_variables,
)
from argosy.runtimes.container_plan import ContainerPlan, refuse_outside_jobs
from argosy.sites.binding import render_core_list
from argosy.sites.job_settings import SLINGSHOT, SiteSettings, describe_missing_plugin
from argosy.sites.profile import Site
from argosy.slurm.option_checks import describe_short_time
from argosy.slurm.text import USER_DEFAULTS, JobOptions, choose_defaults, plan_sbatch, unread_defaults
from argosy.version import VERSION

DEFAULT_MPI = "pmix"
"""The value of ``srun --mpi`` at a site whose profile has none."""


def plan_launch(context: LaunchContext) -> LaunchPlan:
    """Plan a job of Slurm, or a launch on this machine.

    Raises
    ------
    UsageError, SiteError
        If there is no command or no such launcher, the command line is too long, or the launcher, the runtime or the
        site does not support the request.
    """
    return plan_job(context) if context.target.is_job else _plan_local(context)


def _plan_local(context: LaunchContext) -> LaunchPlan:
    facts = _choose_local_facts(context)
    return _base_plan(facts, script=_local_script(facts), submit=("sh", "{script}"))


def _base_plan(facts: LaunchFacts, *, script: str, submit: tuple[str, ...]) -> LaunchPlan:
    """Return the part of a plan that jobs and launches on this machine have in common."""
    container = facts.context.container
    return LaunchPlan(
        name=facts.name,
        site=facts.site.name,
        scheduler=facts.site.scheduler,
        image=container.entry.image.path,
        digest=container.entry.image.digest,
        shape=facts.shape,
        script=script,
        submit=submit,
        choices=facts.choices,
        command=facts.request.command,
        logs=facts.request.logs,
        versions={"argosy": VERSION, **facts.context.versions},
        private=inherited_names(facts.container),
    )


def _local_script(facts: LaunchFacts) -> str:
    request, shape = facts.request, facts.shape
    spec = LauncherSpec(
        request.command,
        Counts(str(shape.nodes), str(shape.ranks_per_node)),
        request.launcher_arguments,
        logs=request.logs,
        label=request.label,
        copy=ShellExpr("$argosy_rank") if shape.ranks > 1 else "",
    )
    started = find_launcher(facts.launcher)(spec)
    refuse_too_long(facts.container, started.command, facts.context.host.environment)
    return render_script(_script_facts(facts, facts.container, started))


class LaunchFacts(msgspec.Struct, frozen=True):
    """A launch with every choice made; only rendering is left.

    Attributes
    ----------
    container
        The container, with the variables, bind mounts and options that the launch adds.
    options
        Options of the job, completed by the defaults of the user and the site.
    site_settings
        Settings, paths and options that the site's profile adds to the job.
    rank_python
        Python of the image that starts the ranks of a node in one container; empty: the launcher does not need it.
    """

    context: LaunchContext
    name: str
    launcher: str
    container: ContainerPlan
    options: JobOptions
    site_settings: SiteSettings
    choices: tuple[Choice, ...]
    rank_python: str = ""

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


def _choose_local_facts(context: LaunchContext) -> LaunchFacts:
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
        As `plan_launch`; also if the site requires an option that was not given.
    """
    request, target = context.request, context.target
    options, why_options = _plan_options(context, _job_name(request))
    launcher = _choose_launcher(context)
    why = (
        *check_launcher_options(request, context.container, target.site, launcher.value),
        *plan_binding(target.shape, target.site, launcher.value),
        *_warn_of_tcp(context),
        *_warn_of_own_folder(context),
        *why_options,
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
    launcher = launcher_at_site(launcher, context.target.site)
    if not adds_packages(request.container):
        refuse_without_torch(launcher.value, image, needed=request.needs_torch)
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
    refuse_launch(container, launcher.value, settings, site, mpi=_mpi_of(request, site))
    why_container = explain_container(container.choices, request.container, site, has_gpus=has_gpus)
    per = choose_container_per(request, container, settings.srun, launcher.value, target.shape.ranks_per_node)
    why_start = (*((per,) if per else ()), *_explain_mpi(request, site, launcher.value)) if target.is_job else ()
    choices = (*request.choices, *target.choices, launcher, *why_start, *why_container, *why_options, *why_variables)
    whole = with_runtime_options(with_site_binds(with_variables(container, variables), settings.binds), settings)
    return LaunchFacts(
        context=context,
        name=_job_name(request),
        launcher=launcher.value,
        container=whole,
        options=options,
        site_settings=settings,
        choices=with_sources(choices, request.given),
        rank_python=find_python(request.command, container.entry.image) if is_per_node(why_start) else "",
    )


def _script_facts(facts: LaunchFacts, container: ContainerPlan, started: LauncherCommand) -> ScriptFacts:
    """Return the facts of a script with this container and command."""
    before = facts.request.before
    return ScriptFacts(facts.name, facts.site.name, container, started, facts.shape, facts.choices, before)


def _job_name(request: LaunchRequest) -> str:
    """Return the job's name: the given one, else the program's.

    Raises
    ------
    UsageError
        If there is no command.
    """
    if not any(request.command[:1]):
        raise UsageError("no command to launch", hint="write it after --, for example: -- python train.py")
    return request.name or name_of(request.command)


def _mpi_of(request: LaunchRequest, site: Site) -> str:
    """Return the value of ``srun --mpi``: the user's, else the site's, else ``pmix``."""
    return request.mpi or site.launcher.mpi or DEFAULT_MPI


def _explain_mpi(request: LaunchRequest, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Explain the PMI type of a job that srun starts with MPI, if the user did not give it."""
    if launcher != "mpi" or site.launcher.mpiexec or request.mpi:
        return ()
    if site.launcher.mpi:
        return (Choice("--mpi", site.launcher.mpi, "the site's PMI type", f"site {site.name}"),)
    why = f"the profile of {site.name} names no PMI type; 'srun --mpi=list' on the cluster shows them"
    return (Choice(ChoiceKey.ASSUMED, f"--mpi={DEFAULT_MPI}", why, "default"),)


def _plan_variables(
    context: LaunchContext, settings: SiteSettings, threads: tuple[Word, Choice], *, launcher: str
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Plan the variables of a launch: those of the user override those of the site, and these the defaults."""
    request, site, host = context.request, context.target.site, context.host
    number, why_threads = threads
    if host.environment.get(THREADS):
        number = host.environment[THREADS]
        why_threads = Choice(THREADS, number, "set by the caller", "environment")
    debug, why_debug = _plan_debug(request, site, host)
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


def _plan_debug(request: LaunchRequest, site: Site, host: Host) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    if not request.debug:
        return (), ()
    files = f"{host.cwd or '.'}/{file_name(name_of(request.command))}"
    return plan_debug(request.debug, files, site.node.gpu_vendor)


RENDEZVOUS = tuple(Variable(name, ShellExpr(f"${name}")) for name in ("MASTER_ADDR", "MASTER_PORT"))
"""Variables with the address of the first rank; the job script sets both."""


def plan_job(context: LaunchContext) -> LaunchPlan:
    """Plan a job of Slurm; errors as `plan_launch`."""
    facts = choose_job_facts(context)
    slurm = slurm_facts(facts)
    options = tuple(directives(slurm))
    asked = (*facts.options.lines(), *facts.request.extra)
    return replace(
        _base_plan(facts, script=render_slurm_script(slurm), submit=plan_sbatch(options)),
        choices=(*facts.choices, *advised_against(facts.site, facts.site_settings.avoided, asked)),
        attach=_attach_script(facts),
        cores=bound_cores(facts.shape, facts.site, facts.launcher),
        output=facts.options.output,
        directives=options,
        polling_seconds=facts.site.slurm.polling_seconds,
    )


def slurm_facts(facts: LaunchFacts) -> SlurmFacts:
    """Return the facts of the job script.

    Raises
    ------
    UsageError
        If the command line or the environment is longer than the kernel or the runtime accepts.
    """
    request, host, record = facts.request, facts.context.host, facts.context.record
    masks = choose_masks(facts.shape, facts.site)
    least = int(request.elastic.partition(":")[0]) if request.elastic else 0
    started = find_launcher(facts.launcher)(
        LauncherSpec(
            command=request.command,
            counts=Counts(ShellExpr("$argosy_nodes"), ShellExpr("$argosy_ranks_per_node")),
            extra=request.launcher_arguments,
            cores=tuple(map(render_core_list, masks)) if facts.launcher == "torchrun" or facts.rank_python else (),
            core_lists=ShellExpr("$argosy_cores"),
            logs=request.logs,
            label=request.label,
            least_nodes=least,
            note_file=RANK_PATH if record else "",
            end_files=SUCCESS_FILES if record else "",
            python=facts.rank_python,
        )
    )
    container = with_variables(facts.container, (*RENDEZVOUS, *facts.container.entry.variables))
    refuse_too_long(container, started.command, host.environment)
    return SlurmFacts(
        script=_script_facts(facts, container, started),
        site=facts.site,
        options=facts.options,
        extra=request.extra,
        masks=masks,
        mpi=_mpi_of(request, facts.site) if started.mpi else "",
        site_settings=facts.site_settings,
        label=request.label,
        gpu_type=request.gpu_type,
        least_nodes=least,
        stage_to=request.stage_to,
        smoke=request.smoke,
        independent_ranks=request.independent_ranks,
        record=record,
        resume=plan_resume(request.restarts, _absolute(request.checkpoint, host), request.options.signal),
    )


def _absolute(path: str, host: Host) -> str:
    return path if path.startswith("/") or not (path and host.cwd) else f"{host.cwd}/{path}"


def _attach_script(facts: LaunchFacts) -> str:
    container = with_variables(facts.container, planned_threads(facts.container.entry.variables, facts.shape))
    script = _script_facts(facts, container, LauncherCommand(facts.request.command))
    return render_attach(script, render_modules(facts.site.modules))


def _plan_options(context: LaunchContext, name: str) -> tuple[JobOptions, tuple[Choice, ...]]:
    """Complete the options of a job by the user's SBATCH_* variables, then by the site, and name an output file."""
    request, target, host = context.request, context.target, context.host
    folder = request.options.chdir or host.cwd
    folder = folder if folder.startswith("/") else ""  # Slurm resolves a relative output file from --chdir
    output = request.options.output or str(Path(as_pattern(folder), f"{file_name(name)}-%j.out"))
    if request.in_allocation:
        return replace(request.options, output=output), ()
    by_user = choose_defaults(request.options, host.environment)
    options = with_user_defaults(request.options, host)
    by_site = default_options(options, target)
    options = replace(options, **by_site.given)  # type: ignore[arg-type]  # text fields
    refuse_missing_options(options, target.site)
    rows = [
        Choice(f"--{name}", value, f"your default, {USER_DEFAULTS[name]}", "environment")
        for name, value in by_user.items()
    ]
    if short := describe_short_time(options.time):
        rows.append(Choice("--time", options.time, short, "option", mark=Mark.DOUBTFUL))
    why = "argosy launch does not read it: use an option, or --sbatch-arg"
    unread = unread_defaults(host.environment)
    rows += [Choice(name, "not used", why, "environment", mark=Mark.UNUSED) for name in unread]
    options = replace(options, exclusive=options.exclusive or target.exclusive, output=output)
    return options, (*rows, *by_site.choices)
