"""Plan a launch: (request, site, machine) -> the script and the reason of each choice; pure, so a laptop can do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import NO_VALUES, Choice, ContainerRequest, Host, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr
from argosy.jobs.launch_plan import LaunchPlan, Shape
from argosy.launch.cores import NAME as THREADS
from argosy.launch.cores import plan_threads, planned_threads
from argosy.launch.launchers.launcher import (
    LABEL_FORM,
    NEED_SLURM,
    ONE_PER_NODE,
    Counts,
    LauncherCommand,
    LauncherSpec,
    choose_launcher,
    find_launcher,
    refuse_without_torch,
)
from argosy.launch.limits import check_limits
from argosy.launch.model import LaunchRequest
from argosy.launch.names import as_pattern, file_name, name_of
from argosy.launch.script.local import ScriptFacts, inherited_names, render_script
from argosy.launch.shape import choose_shape, one_rank_per_node
from argosy.launch.site_overrides import (
    SiteOverrides,
    default_options,
    launcher_at_site,
    plan_site_overrides,
    refuse_launch,
    refuse_missing_options,
    resolve_site_overrides,
    set_by_caller,
    told_by_site,
    with_site_binds,
    with_site_words,
)
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Site
from argosy.sites.resolve import SiteDemands
from argosy.slurm.scheduler import plan_submit
from argosy.slurm.text import USER_DEFAULTS, JobOptions, choose_defaults, unread_defaults
from argosy.version import VERSION

if TYPE_CHECKING:
    from argosy.launch.script.slurm import SlurmFacts


def plan_launch(
    request: LaunchRequest,
    container: ContainerPlan,
    site: Site,
    host: Host,
    *,
    record: str = "",
    versions: Mapping[str, str] = NO_VALUES,
) -> LaunchPlan:
    """Plan a launch.

    Parameters
    ----------
    record
        Folder in which a job's script notes its end; empty for none.
    versions
        What is known of the image: versions of rocm, cuda, torch and nccl.

    Raises
    ------
    UsageError, SiteError
        When the request cannot be meant: no command, no such launcher, a shape that does not fit, an option that the
        site requires.
    """
    facts = _complete(request, container, site, host, record=record, versions=versions)
    is_slurm = facts.site.scheduler == "slurm"
    script, directives = _slurm_text(facts) if is_slurm else (_local_text(facts), ())
    return LaunchPlan(
        name=facts.name,
        site=facts.site.name,
        scheduler=facts.site.scheduler,
        image=container.entry.image.path,
        digest=container.entry.image.digest,
        shape=facts.shape,
        script=script,
        submit=plan_submit(facts.site.scheduler, directives),
        choices=facts.choices,
        attach=_attach_text(facts) if is_slurm else "",
        cores=_cores(facts) if is_slurm else (),
        logs=request.logs,
        versions={"argosy": VERSION, **versions},
        output=facts.options.output if is_slurm else "",
        directives=directives,
        polling_seconds=facts.site.slurm.polling_seconds,
        private=bool(inherited_names(facts.container)),
    )


class _Facts(msgspec.Struct, frozen=True):
    """A launch with every choice made: all that the local script or the Slurm script is rendered from."""

    request: LaunchRequest
    site: Site
    host: Host
    shape: Shape
    launcher: str
    container: ContainerPlan
    name: str
    choices: tuple[Choice, ...]
    record: str
    options: JobOptions
    site_overrides: SiteDemands


def _complete(
    request: LaunchRequest,
    container: ContainerPlan,
    site: Site,
    host: Host,
    *,
    record: str,
    versions: Mapping[str, str],
) -> _Facts:
    """Make every choice of a launch, each with its reason; rendering decides nothing more."""
    if not any(request.command[:1]):
        raise UsageError("no command to launch", hint="write it after --, as in: -- python train.py")
    overrides = resolve_site_overrides(request, site, host)
    site, is_slurm = overrides.site, overrides.site.scheduler == "slurm"
    wanted = one_rank_per_node(request.wanted) if request.launcher in ONE_PER_NODE else request.wanted
    shape, why_shape = choose_shape(wanted, site, host, request.why_gpus)
    launcher = choose_launcher(request.launcher, container.entry.image, request.command, shape)
    launcher = launcher_at_site(launcher, site)
    if not _brings_packages(request.container):
        refuse_without_torch(launcher.value, container.entry.image, needed=request.needs_torch)
    more = _wishes(request, container, site, launcher.value)
    if site.scheduler == "local":
        _refuse_without_slurm(request, launcher.value, shape)
    overrides, binding = _bound_to_cores(overrides, shape, request) if is_slurm else (overrides, ())
    site_overrides = plan_site_overrides(
        overrides, shape, launcher=launcher.value, runtime=container.runtime.name, versions=versions
    )
    variables, why_variables = plan_variables(request, site, host, shape, site_overrides, launcher=launcher.value)
    name = request.name or name_of(request.command)
    options, why_options = _plan_options(request, overrides, shape, host, name) if is_slurm else (request.options, ())
    why_container = told_by_site(container.choices, request.container, site, gpus=shape.gpus_per_node)
    why_job = (*overrides.choices, *why_shape, *binding, launcher, *why_container, *more, *why_options, *why_variables)
    choices = _told((*request.choices, *why_job), request)
    refuse_launch(container, launcher.value, site_overrides, site, mpi=_mpi(request, site))
    whole = with_site_words(with_site_binds(with_variables(container, variables), site_overrides.binds), site_overrides)
    return _Facts(
        request=request,
        site=site,
        host=host,
        shape=shape,
        launcher=launcher.value,
        container=whole,
        name=name,
        choices=choices,
        record=record,
        options=options,
        site_overrides=site_overrides,
    )


def _brings_packages(request: ContainerRequest) -> bool:
    """Tell whether Python may see packages in the container that are not the image's."""
    return bool(request.binds) or any(variable.name in {"PATH", "PYTHONPATH"} for variable in request.variables)


def _refuse_without_slurm(request: LaunchRequest, launcher: str, shape: Shape) -> None:
    if launcher in NEED_SLURM:
        raise UsageError(f"the launcher {launcher} needs Slurm", hint="use --launcher torchrun or none here")
    if request.label:
        from argosy.launch.option_checks import refuse_label  # noqa: PLC0415 - where it is asked for

        refuse_label(launcher, shape)


def _local_text(facts: _Facts) -> str:
    counts = Counts(str(facts.shape.nodes), str(facts.shape.ranks_per_node))
    request = facts.request
    copy = ShellExpr("$rank") if facts.shape.ranks > 1 else ""
    own = request.launcher_arguments
    spec = LauncherSpec(request.command, counts, own, logs=request.logs, label=request.label, copy=copy)
    started = find_launcher(facts.launcher)(spec)
    check_limits(facts.container, started.command, facts.host.environment)
    return render_script(_script_facts(facts, facts.container, started))


def _script_facts(facts: _Facts, container: ContainerPlan, started: LauncherCommand) -> ScriptFacts:
    before = facts.request.before
    return ScriptFacts(facts.name, facts.site.name, container, started, facts.shape, facts.choices, before)


def _slurm_text(facts: _Facts) -> tuple[str, tuple[str, ...]]:
    """Give the script, and the options of sbatch that it begins with."""
    from argosy.launch.script.slurm import directives, render_slurm_script  # noqa: PLC0415 - a local plan needs none

    slurm = _slurm_facts(facts)
    return render_slurm_script(slurm), tuple(directives(slurm))


def _slurm_facts(facts: _Facts) -> SlurmFacts:
    from argosy.launch.cores import choose_masks  # noqa: PLC0415 - likewise
    from argosy.launch.script.record_files import rank_file, well_file  # noqa: PLC0415 - likewise
    from argosy.launch.script.resume import plan_resume  # noqa: PLC0415 - likewise
    from argosy.launch.script.slurm import SlurmFacts  # noqa: PLC0415 - likewise
    from argosy.sites.binding import render_core_list  # noqa: PLC0415 - a local plan needs nothing of Slurm

    request, masks = facts.request, choose_masks(facts.shape, facts.site)
    counts = Counts(ShellExpr("$nodes"), ShellExpr("$ranks_per_node"))
    least = int(request.elastic.partition(":")[0]) if request.elastic else 0
    cores = tuple(map(render_core_list, masks)) if facts.launcher == "torchrun" else ()
    started = find_launcher(facts.launcher)(
        LauncherSpec(
            command=request.command,
            counts=counts,
            extra=request.launcher_arguments,
            cores=cores,
            logs=request.logs,
            label=request.label,
            least_nodes=least,
            note_file=rank_file(facts.record),
            end_files=well_file(facts.record),
        )
    )
    meeting = (Variable("MASTER_ADDR", ShellExpr("$MASTER_ADDR")), Variable("MASTER_PORT", ShellExpr("$MASTER_PORT")))
    container = with_variables(facts.container, (*meeting, *facts.container.entry.variables))
    check_limits(container, started.command, facts.host.environment)
    return SlurmFacts(
        script=_script_facts(facts, container, started),
        site=facts.site,
        options=facts.options,
        extra=request.extra,
        masks=masks,
        mpi=_mpi(request, facts.site) if started.mpi else "",
        site_overrides=facts.site_overrides,
        label=request.label,
        gpu_type=request.gpu_type,
        least_nodes=least,
        stage_to=request.stage_to,
        smoke=request.smoke,
        apart=request.apart,
        record=facts.record,
        resume=plan_resume(request.restarts, _absolute(request.checkpoint, facts.host), request.options.signal),
    )


def _mpi(request: LaunchRequest, site: Site) -> str:
    return request.mpi or site.launcher.mpi or "pmix"


def _absolute(path: str, host: Host) -> str:
    return path if path.startswith("/") or not path else f"{host.cwd}/{path}"


def _attach_text(facts: _Facts) -> str:
    from argosy.launch.interactive import render_attach  # noqa: PLC0415 - likewise

    container = with_variables(facts.container, planned_threads(facts.container.entry.variables, facts.shape))
    return render_attach(_script_facts(facts, container, LauncherCommand(facts.request.command)))


def _bound_to_cores(
    overrides: SiteOverrides, shape: Shape, request: LaunchRequest
) -> tuple[SiteOverrides, tuple[Choice, ...]]:
    """Ask for whole nodes where ranks are bound to cores by the site's map; give the reasons of the binding, too."""
    from argosy.launch.cores import for_whole_nodes, plan_binding  # noqa: PLC0415 - likewise

    asked = request.options.exclusive or request.in_allocation
    return for_whole_nodes(overrides, shape, asked=asked), plan_binding(shape, overrides.site)


def _cores(facts: _Facts) -> tuple[str, ...]:
    from argosy.launch.cores import bound_cores  # noqa: PLC0415 - likewise

    return bound_cores(facts.shape, facts.site, facts.launcher)


def _plan_options(
    request: LaunchRequest, overrides: SiteOverrides, shape: Shape, host: Host, name: str
) -> tuple[JobOptions, tuple[Choice, ...]]:
    """Complete the options of a job: by the user's SBATCH_* defaults, then the site's; and name an output file.

    Raises
    ------
    SiteError
        When the site requires an option that nobody gave.
    """
    folder = f"{as_pattern(host.cwd)}/" if host.cwd else ""
    output = request.options.output or f"{folder}{file_name(name)}-%j.out"
    if request.in_allocation:
        return replace(request.options, output=output), ()
    given = choose_defaults(request.options, host.environment)
    options = replace(request.options, **given)  # type: ignore[arg-type]  # the names are those of text fields
    usual = default_options(options, overrides, shape)
    options = replace(options, **usual.given)  # type: ignore[arg-type]  # likewise
    refuse_missing_options(options, overrides.site)
    rows = tuple(Choice(f"--{o}", given[o], f"your default, {USER_DEFAULTS[o]}", "environment") for o in given)
    why = "a launch does not read it: say it by an option, or by --sbatch-arg"
    rows = (*rows, *(Choice(name, "not used", why, "environment") for name in unread_defaults(host.environment)))
    options = replace(options, exclusive=options.exclusive or overrides.alone)
    return replace(options, output=output), (*rows, *usual.choices)


def plan_variables(
    request: LaunchRequest, site: Site, host: Host, shape: Shape, site_overrides: SiteDemands, *, launcher: str
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Give the variables of a launch; what the user forces wins over the site, and that over the defaults."""
    threads, why_threads = plan_threads(site, host, shape)
    debug, why_debug = _debug(request, site, host)
    label = (Variable(*LABEL_FORM),) if request.label and launcher == "torchrun" else ()
    asked = {variable.name for variable in request.container.variables}
    called = set_by_caller(host.environment)
    all_of_them = (Variable(THREADS, threads), *site_overrides.variables, *called, *label, *debug)
    ours = {variable.name: variable for variable in all_of_them}
    kept = tuple(variable for name, variable in ours.items() if name not in asked)
    named = {variable.name for variable in called}
    site_rows = (row for row in site_overrides.choices if row.what not in named)
    why_called = (Choice(v.name, str(v.value), "set by the caller", "environment") for v in called)
    rows = tuple(row for row in (why_threads, *site_rows, *why_called, *why_debug) if row.what not in asked)
    options = tuple(Choice(v.name, str(v.value), "asked for", "option") for v in request.container.variables)
    return (*kept, *request.container.variables), (*rows, *options)


def _debug(request: LaunchRequest, site: Site, host: Host) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    if not request.debug:
        return (), ()
    from argosy.launch.limits import plan_debug  # noqa: PLC0415 - where it is asked for

    files = f"{host.cwd or '.'}/{file_name(name_of(request.command))}"
    return plan_debug(request.debug, files, site.node.gpu_vendor)


def _wishes(request: LaunchRequest, container: ContainerPlan, site: Site, launcher: str) -> tuple[Choice, ...]:
    if not (request.elastic or request.gpu_type or request.stage_to or request.label or request.mpi):
        return ()
    from argosy.launch.option_checks import check_launcher_options  # noqa: PLC0415 - where they are asked for

    return check_launcher_options(request, container, site, launcher)


def _told(choices: tuple[Choice, ...], request: LaunchRequest) -> tuple[Choice, ...]:
    if not request.given:
        return choices
    from argosy.launch.request import with_sources  # noqa: PLC0415 - where there is a project file

    return with_sources(choices, request.given)


def with_variables(container: ContainerPlan, variables: tuple[Variable, ...]) -> ContainerPlan:
    """Replace the variables that a container plan forces."""
    return replace(container, entry=replace(container.entry, variables=variables))
