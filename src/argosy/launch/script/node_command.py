"""Plan the command that srun starts on each node: checks, runtime, and the program in the container.

Some runtimes (pyxis, the engine of CSCS) have srun itself start the container; then srun gets its options and document.
The attach script starts another command in the container of a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from argosy.core.model import ImageKind
from argosy.core.shell import ShellExpr, Word, collect_helpers, escape_colons, join_words, quote, render_helpers
from argosy.launch.script.facts import VENDOR_NODES, ScriptFacts, SlurmFacts
from argosy.launch.script.head import render_environment
from argosy.launch.script.helpers import (
    CHECK_CONTAINER,
    CHECK_NODE,
    OWN_FOLDERS,
    WIDTH,
    continued,
    render_call,
    render_script_functions,
)
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import FILES, StepRuntime, assignment

LONG = 60
"""Characters above which the list of bind mounts gets a variable of the script."""

SHELL_WORDS = 3
"""Words of ``/bin/sh -c PROGRAM`` at the start of a command; `command_in_layer` replaces them by its own program."""


def node_command(facts: SlurmFacts, command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command that srun starts: the checks of a node, the runtime, and the command in the container."""
    container = facts.script.container
    inside = container.argv(command)
    own = len(command) - SHELL_WORDS if command[:2] == ("/bin/sh", "-c") else len(command)
    first, rest = inside[: len(inside) - own], inside[len(inside) - own :]
    return escape_colons((*_use_script_variables(facts, (*_node_checks(facts), *first)), *rest))


def _use_script_variables(facts: SlurmFacts, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Replace the image, the record and long lists in a command by variables of the script."""
    entry = facts.script.container.entry.image
    image = entry.path if entry.kind in FILES else ""
    node_paths = " ".join(facts.site_settings.node_binds)
    out: list[Word] = []
    for word in words:
        layer = f"{image}:/opt/argosy:"
        if image and word == image:
            out.append(ShellExpr("$argosy_image"))
        elif image and isinstance(word, str) and word.startswith(layer):
            out.append(ShellExpr(f"${{argosy_image}}:/opt/argosy:{word[len(layer) :]}"))
        elif word and word == facts.record:
            out.append(ShellExpr("$argosy_record"))
        elif len(node_paths) > LONG and word == node_paths:
            out.append(ShellExpr("$argosy_node_paths"))
        elif word and word == _long_bind(facts):
            out.append(ShellExpr("$argosy_binds"))
        else:
            out.append(word)
    return tuple(out)


def _long_bind(facts: SlurmFacts) -> str:
    """Return the list of bind mounts of Apptainer if it is too long for a line."""
    words = facts.script.container.argv(())
    binds = [word for option, word in pairwise(words) if option == "-B" and isinstance(word, str)]
    return next((word for word in binds if len(word) > LONG and re.fullmatch(r"[\w@%+=:,./-]+", word)), "")


def _node_checks(facts: SlurmFacts) -> tuple[Word, ...]:
    """Return the command that prepares a node before the container starts, or in it if srun starts the container."""
    container, device = facts.script.container, _gpu_device(facts)
    if _step_of(container):
        return (*_own_folders("/bin/sh", facts), *("/bin/sh", "-c", CHECK_CONTAINER, CHECK_CONTAINER.name, device))
    return (*_own_folders("sh", facts), *node_check(container, device, facts.site_settings.node_binds))


def node_check(container: ContainerPlan, device: str, paths: Iterable[str]) -> tuple[Word, ...]:
    """Return the command that checks a node, and binds the paths that it has into the container started after it."""
    image = container.entry.image
    path = image.path if image.kind in {*FILES, ImageKind.HOST} else "/"
    program = container.runtime.program
    return ("sh", "-c", CHECK_NODE, CHECK_NODE.name, path or "/", program, device, " ".join(paths))


def _own_folders(shell: str, facts: SlurmFacts) -> tuple[Word, ...]:
    """Return the command that creates the folders which the site's profile needs on each node."""
    folders = facts.site_settings.folders
    return (shell, "-c", OWN_FOLDERS, OWN_FOLDERS.name, join_words(folders)) if folders else ()


def _gpu_device(facts: SlurmFacts) -> str:
    """Return the device node that each node of a job with GPUs must have; empty for a job without GPUs."""
    node = facts.site.node
    device = node.gpu_device or facts.script.gpu_node or VENDOR_NODES.get(node.gpu_vendor, "")
    return device if facts.script.shape.gpus_per_node else ""


def render_lists(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    """Render the variables that contain the long lists of bind mounts of a command."""
    if ShellExpr("$argosy_binds") in words:
        yield from _in_pieces("argosy_binds", _long_bind(facts))
    if ShellExpr("$argosy_node_paths") in words:
        yield continued(("bind_on_nodes", *map(quote, " ".join(facts.site_settings.node_binds).split(" "))))


def _in_pieces(name: str, text: str) -> Iterator[str]:
    """Render the assignment of a long list with commas over several lines."""
    line = ""
    for piece in text.split(","):
        if line and len(line) + len(name) + len(piece) + 8 > WIDTH:
            yield f"{name}={line}"
            line = f"${name}"
        line = f"{line},{piece}" if line else piece
    yield f"{name}={line}"


def _step_of(container: ContainerPlan) -> StepRuntime | None:
    """Return the runtime if srun starts its containers, else None."""
    return container.runtime if isinstance(container.runtime, StepRuntime) else None


def has_document(container: ContainerPlan) -> bool:
    """Return whether srun reads the container's description from a file."""
    step = _step_of(container)
    return step is not None and bool(step.document(container.entry))


def render_document(container: ContainerPlan) -> Iterator[str]:
    """Render the lines that write the file with image, mounts and variables; the job removes it at its end."""
    step = _step_of(container)
    lines = step.document(container.entry) if step else ()
    if not lines:
        return
    yield "# The environment definition file of this job, in the folder where srun looks for such files."
    yield "write_edf" + "".join(f" \\\n        {quote(line)}" for line in lines)


def step_prefix(container: ContainerPlan) -> tuple[str, ...]:
    """Return the command that sets variables of the container for srun only: exported, they could change the script."""
    step = _step_of(container)
    variables = step.variables(container.entry) if step else ()
    return ("env", *map(quote, map(assignment, variables))) if variables else ()


def step_options(container: ContainerPlan) -> tuple[str, ...]:
    """Return the options of srun that start the container."""
    step = _step_of(container)
    return tuple(map(quote, step.srun_options(container.entry))) if step else ()


OF_OUTER_STEP = "SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION"
"""Variables that srun of the outer step sets, and srun of the inner step would read as options."""


def render_attach(facts: ScriptFacts, modules: Iterable[str], check: tuple[Word, ...]) -> str:
    """Render the script that runs its arguments in the container of a job.

    Parameters
    ----------
    modules
        Lines that load the modules of the site, for example for the runtime.
    check
        Command that checks the node and starts the container.
    """
    modules = tuple(modules)
    checked = () if _step_of(facts.container) else check
    helpers, words = collect_helpers((*checked, *facts.container.argv((ShellExpr("$@"),))))
    start = render_call(words, facts.container.runtime.program)
    lines = [
        "#!/bin/bash",
        "# Run a command in the container of a job: srun --overlap --jobid=JOB bash THIS_FILE COMMAND…",
        "# shellcheck disable=SC1091,SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions",
        "set -eu",
        *render_script_functions("\n".join((*modules, "write_edf" * has_document(facts.container)))),
        *render_helpers(helpers),
        *render_environment(facts),
        *modules,
        *(_in_step(facts, start) if _step_of(facts.container) else ("exec " + start.lstrip(),)),
    ]
    return "\n".join(lines) + "\n"


def _in_step(facts: ScriptFacts, start: str) -> Iterator[str]:
    """Render the step that starts the container on this node with srun, which alone can start it."""
    yield f"unset {OF_OUTER_STEP}"
    yield "terminal=; [ ! -t 0 ] || terminal=--pty"
    yield from render_document(facts.container)
    step = 'srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" --cpu-bind=none --mpi=none --export=ALL'
    pieces = (*step_prefix(facts.container), step, "$terminal", *step_options(facts.container))
    command = f"{continued(pieces)} \\\n{start}"
    if not has_document(facts.container):
        yield f"exec {command}"
        return
    yield command
