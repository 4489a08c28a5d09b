"""Plan a launch as a job of Slurm: sbatch's options, the job script, and the script that attaches to the job; pure."""

from __future__ import annotations

from pathlib import Path

from argosy.core.model import Choice, Host, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.context import LaunchContext, with_user_defaults
from argosy.launch.cores import bound_cores, choose_masks, planned_threads
from argosy.launch.facts import LaunchFacts, choose_facts, job_name, mpi_of, script_facts
from argosy.launch.launchers.launcher import Counts, LauncherCommand, LauncherSpec, find_launcher
from argosy.launch.limits import check_limits
from argosy.launch.names import as_pattern, file_name
from argosy.launch.plan import base_plan
from argosy.launch.script.attach import render_attach
from argosy.launch.script.record_files import rank_file, well_file
from argosy.launch.script.resume import plan_resume
from argosy.launch.script.slurm import SlurmFacts, directives, render_slurm_script
from argosy.launch.site_settings import default_options, refuse_missing_options, with_variables
from argosy.sites.binding import render_core_list
from argosy.slurm.text import USER_DEFAULTS, JobOptions, choose_defaults, plan_sbatch, unread_defaults

RENDEZVOUS = tuple(Variable(name, ShellExpr(f"${name}")) for name in ("MASTER_ADDR", "MASTER_PORT"))
"""Variables by which ranks find the first of them; the job script sets both."""


def plan_job(context: LaunchContext) -> LaunchPlan:
    """Plan a job of Slurm; as `argosy.launch.plan.plan_launch`."""
    facts = choose_job_facts(context)
    slurm = slurm_facts(facts)
    options = tuple(directives(slurm))
    return replace(
        base_plan(facts, script=render_slurm_script(slurm), submit=plan_sbatch(options)),
        attach=_attach_script(facts),
        cores=bound_cores(facts.shape, facts.site, facts.launcher),
        output=facts.options.output,
        directives=options,
        polling_seconds=facts.site.slurm.polling_seconds,
    )


def choose_job_facts(context: LaunchContext) -> LaunchFacts:
    """Make every choice of a job; as `argosy.launch.facts.choose_facts`.

    Raises
    ------
    SiteError
        When the site requires an option that nobody gave.
    """
    options, why_options = _plan_options(context, job_name(context.request))
    return choose_facts(context, options, why_options)


def slurm_facts(facts: LaunchFacts) -> SlurmFacts:
    """Return what the job script is rendered from.

    Raises
    ------
    UsageError
        When the command line or the environment is longer than the kernel or the runtime accepts.
    """
    request, host, record = facts.request, facts.context.host, facts.context.record
    masks = choose_masks(facts.shape, facts.site)
    least = int(request.elastic.partition(":")[0]) if request.elastic else 0
    started = find_launcher(facts.launcher)(
        LauncherSpec(
            command=request.command,
            counts=Counts(ShellExpr("$argosy_nodes"), ShellExpr("$argosy_ranks_per_node")),
            extra=request.launcher_arguments,
            cores=tuple(map(render_core_list, masks)) if facts.launcher == "torchrun" else (),
            core_lists=ShellExpr("$argosy_cores"),
            logs=request.logs,
            label=request.label,
            least_nodes=least,
            note_file=rank_file(record),
            end_files=well_file(record),
        )
    )
    container = with_variables(facts.container, (*RENDEZVOUS, *facts.container.entry.variables))
    check_limits(container, started.command, host.environment)
    return SlurmFacts(
        script=script_facts(facts, container, started),
        site=facts.site,
        options=facts.options,
        extra=request.extra,
        masks=masks,
        mpi=mpi_of(request, facts.site) if started.mpi else "",
        site_overrides=facts.demands,
        label=request.label,
        gpu_type=request.gpu_type,
        least_nodes=least,
        stage_to=request.stage_to,
        smoke=request.smoke,
        apart=request.apart,
        record=record,
        resume=plan_resume(request.restarts, _absolute(request.checkpoint, host), request.options.signal),
    )


def _absolute(path: str, host: Host) -> str:
    return path if path.startswith("/") or not path else f"{host.cwd}/{path}"


def _attach_script(facts: LaunchFacts) -> str:
    container = with_variables(facts.container, planned_threads(facts.container.entry.variables, facts.shape))
    return render_attach(script_facts(facts, container, LauncherCommand(facts.request.command)))


def _plan_options(context: LaunchContext, name: str) -> tuple[JobOptions, tuple[Choice, ...]]:
    """Complete the options of a job by the user's SBATCH_* variables, then by the site, and name an output file."""
    request, target, host = context.request, context.target, context.host
    folder = request.options.chdir or host.cwd
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
    why = "argosy launch does not read it: use an option, or --sbatch-arg"
    unread = unread_defaults(host.environment)
    rows += [Choice(name, "not used", why, "environment", mark=Mark.UNUSED) for name in unread]
    options = replace(options, exclusive=options.exclusive or target.exclusive, output=output)
    return options, (*rows, *by_site.choices)
