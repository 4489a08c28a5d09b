"""Plan a launch from its context: the script, what starts it, and the reason of each choice; pure."""

from __future__ import annotations

from argosy.core.shell import ShellExpr
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.context import LaunchContext
from argosy.launch.facts import LaunchFacts, choose_facts, script_facts
from argosy.launch.launchers.launcher import Counts, LauncherSpec, find_launcher
from argosy.launch.limits import check_limits
from argosy.launch.script.local import inherited_names, render_script
from argosy.version import VERSION


def plan_launch(context: LaunchContext) -> LaunchPlan:
    """Plan a launch: a job of Slurm at a site that has it, else a program on this machine.

    Raises
    ------
    UsageError, SiteError
        When there is no command or no such launcher, the command line is too long, or the launcher, the runtime or
        the site cannot do what was asked for.
    """
    if context.target.site.has_slurm:
        from argosy.launch.plan_slurm import plan_job  # noqa: PLC0415 - a local launch needs none of it

        return plan_job(context)
    return _plan_local(context)


def _plan_local(context: LaunchContext) -> LaunchPlan:
    facts = choose_facts(context, context.request.options)
    return base_plan(facts, script=_local_script(facts), submit=("sh", "{script}"))


def base_plan(facts: LaunchFacts, *, script: str, submit: tuple[str, ...]) -> LaunchPlan:
    """Return the part of a plan that launches with and without Slurm have in common."""
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
        logs=facts.request.logs,
        versions={"argosy": VERSION, **facts.context.versions},
        private=bool(inherited_names(facts.container)),
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
    check_limits(facts.container, started.command, facts.context.host.environment)
    return render_script(script_facts(facts, facts.container, started))
