"""Render the script that runs a second command in the container of a job; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import ShellExpr, collect_helpers, render_helpers
from argosy.launch.script.container_step import has_document, render_document, step_of, step_options, step_prefix
from argosy.launch.script.helpers import continued, render_call, render_script_functions
from argosy.launch.script.local import ScriptFacts, render_environment

ATTACH = "attach.sh"
"""Name of the script in the record of a job."""

OF_OUTER_STEP = "SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION"
"""What srun of the outer step sets, and srun of the inner one would take for options."""


def render_attach(facts: ScriptFacts) -> str:
    """Render the script that becomes its words in the container of a job."""
    helpers, words = collect_helpers(facts.container.argv((ShellExpr("$@"),)))
    start = render_call(words, facts.container.runtime.program)
    lines = [
        "#!/bin/sh",
        "# Become the words of this script in the container of a job: srun --overlap --jobid=JOB sh attach.sh COMMAND…",
        "# shellcheck disable=SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions",
        "set -eu",
        *render_environment(facts),
        *render_script_functions("write_edf" * has_document(facts.container)),
        *render_helpers(helpers),
        *(_in_step(facts, start) if step_of(facts.container) else ("exec " + start.lstrip(),)),
    ]
    return "\n".join(lines) + "\n"


def _in_step(facts: ScriptFacts, start: str) -> Iterator[str]:
    """Start a container by srun, on the node at hand: no other program can."""
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
