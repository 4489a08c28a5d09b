"""Choose OMP_NUM_THREADS: the cores of a rank, unless the caller has set it; pure."""

from __future__ import annotations

from argosy.launchers import Shape
from argosy.model import Choice, Host, Late, Variable, Word
from argosy.sites import Site

NAME = "OMP_NUM_THREADS"


def plan_threads(site: Site, host: Host, shape: Shape) -> tuple[Word, Choice]:
    """Give the value and its reason; a Slurm script that is submitted with other numbers computes it from those."""
    given = host.environment.get(NAME)
    if given:
        return given, Choice(NAME, given, "set by the caller", "environment")
    cores = shape.cpus_per_rank
    if site.scheduler == "local":
        threads = str(cores or max(1, host.cpus // shape.ranks_per_node))
        return threads, Choice(NAME, threads, f"{host.cpus} usable CPUs / {shape.ranks_per_node} ranks", "machine")
    if not cores:
        why = "what Slurm gave on the node, shared by its ranks"
        return render_share("cores"), Choice(NAME, "cores / ranks", why, f"site {site.name}")
    from argosy.launch.cores import choose_masks  # noqa: PLC0415 - a local plan needs nothing of Slurm

    if choose_masks(shape, site):
        return str(cores), Choice(NAME, str(cores), "the cores of a rank", "default")
    return render_share("need"), Choice(NAME, str(cores), f"the cores of a rank, planned: {cores}", "default")


def render_share(cores: str) -> Late:
    """Render the cores of a rank: those of all ranks of a node, which a script has in a variable, shared out."""
    return Late(f"$(({cores} > ranks_per_node ? {cores} / ranks_per_node : 1))")


def planned_threads(variables: tuple[Variable, ...], shape: Shape) -> tuple[Variable, ...]:
    """Give the variables of a script that counts no cores: the number is the plan's, or Slurm's cores decide."""
    planned = (Variable(NAME, str(shape.cpus_per_rank)),) if shape.cpus_per_rank else ()
    counted = any(each.name == NAME and isinstance(each.value, Late) for each in variables)
    return (*(each for each in variables if each.name != NAME), *planned) if counted else variables
