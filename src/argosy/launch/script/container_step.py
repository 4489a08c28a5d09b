"""Containers that srun itself starts (pyxis, CSCS's engine): what the script says in a runtime's place; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import ShellFunction, Word, quote, render_command
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import StepRuntime, assignment

INSIDE = ShellFunction(
    "inside",
    """\
# In each container: words GPU_NODE FOLDERS, then the command.
stop() { printf "argosy: %s\\n" "$1" >&2; exit 7; }
[ -z "$1" ] || [ -e "$1" ] || stop "GPUs were asked for, and the container on $SLURMD_NODENAME has no $1"
# Another user may have made a folder of that name: only one of our own is good.
own() { mkdir -m 700 "$1" 2>/dev/null || [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }
for _folder in $2; do
    (umask 077; mkdir -p "${_folder%/*}/")
    own "$_folder" || stop "$_folder cannot be made in the container, or is not our own folder"
done
shift 2
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"
""",
)


def inside_words(device: Word, folders: Word) -> tuple[Word, ...]:
    """Give the words that check a node, for containers that srun itself starts: they run inside, before the command."""
    return ("/bin/sh", "-c", INSIDE, "argosy-inside", device, folders)


def step_of(container: ContainerPlan) -> StepRuntime | None:
    """Give the runtime where srun starts its containers."""
    runtime = container.runtime
    return runtime if runtime.traits.by_srun and isinstance(runtime, StepRuntime) else None


def has_document(container: ContainerPlan) -> bool:
    """Tell whether srun reads the container's description from a file."""
    step = step_of(container)
    return step is not None and bool(step.document(container.entry))


def render_document(container: ContainerPlan) -> Iterator[str]:
    """Write the file that names image, mounts and variables; it goes away with the job."""
    step = step_of(container)
    lines = step.document(container.entry) if step else ()
    if not lines:
        return
    yield "# The environment definition file of this job, in the folder where srun looks for such files."
    yield "environment=$HOME/.edf/argosy-$SLURM_JOB_ID-$$.toml"
    yield 'mkdir -p "$HOME/.edf"'
    yield '(umask 077; printf "%s\\n" \\'  # it may hold the values of variables
    for line in lines:
        yield f"    {quote(line)} \\"
    yield '    > "$environment")'


def step_prefix(container: ContainerPlan) -> str:
    """Set variables of the container for ``srun`` alone: exported by the script, they could replace one of its own."""
    step = step_of(container)
    variables = step.variables(container.entry) if step else ()
    return render_command(("env", *map(assignment, variables))) + " \\\n    " if variables else ""


def step_lines(container: ContainerPlan) -> list[str]:
    """Give the options of srun that start the container."""
    step = step_of(container)
    return [render_command(step.srun_options(container.entry))] if step else []
