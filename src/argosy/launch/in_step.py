"""Containers that srun itself starts (pyxis, CSCS's engine): what the script says in a runtime's place; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.errors import SiteError
from argosy.model import Word
from argosy.runtimes import StepRuntime, assignment
from argosy.shell import Late, Program, quote, render_command

INSIDE = Program(
    "inside",
    """\
# In each container: words GPU_NODE FOLDERS, then the command.
stop() { printf "argosy: %s\\n" "$1" >&2; exit 7; }
[ -z "$1" ] || [ -e "$1" ] || stop "GPUs were asked for, and the container on $SLURMD_NODENAME has no $1"
for folder in $2; do (umask 077; mkdir -p "$folder") || stop "$folder cannot be made in the container"; done
shift 2
[ ! -x /opt/argosy/enter ] || exec /opt/argosy/enter "$@"
exec "$@"
""",
)


def inside_words(device: str, folders: Word) -> tuple[Word, ...]:
    """Give what stands before a command in a container that srun starts: the checks that a node gets elsewhere."""
    return ("/bin/sh", "-c", INSIDE, "argosy-inside", device, folders)


def refuse_late_binds(runtime: str, paths: tuple[str, ...], site: str) -> None:
    """Refuse mounts that only a node can look for: srun is told all mounts before any node is asked.

    Raises
    ------
    SiteError
        Naming the first of them.
    """
    if paths:
        raise SiteError(
            f"{runtime} cannot mount what is looked for on each node",
            evidence=f"the profile {site} binds {paths[0]} where a node has it",
            hint="name another runtime with --runtime",
        )


def render_document(lines: tuple[Word, ...]) -> Iterator[str]:
    """Write the file that names image, mounts and variables; it goes away with the job."""
    if not lines:
        return
    yield "# The environment definition file of this job, in the folder where srun looks for such files."
    yield 'mkdir -p "$HOME/.edf"'
    yield 'environment=$HOME/.edf/argosy-$SLURM_JOB_ID-$$.toml'
    yield "printf '%s\\n' \\"
    for line in lines:
        yield f"    {quote(line)} \\"
    yield '    > "$environment"'
    yield ""


def step_prefix(variables: tuple[Word, ...]) -> str:
    """Give what stands before ``srun``: the variables that it passes on."""
    return render_command(("env", *variables)) + " \\\n    " if variables else ""
