"""Render the script that runs a second command in a job's container; pure."""

from __future__ import annotations

from argosy.launch.script import ScriptFacts, render_environment
from argosy.model import Late
from argosy.shell import name_programs, render_command, render_programs


def render_attach(facts: ScriptFacts) -> str:
    """Render the script that becomes its words in the container of a job."""
    programs, words = name_programs(facts.container.words((Late("$@"),)))
    lines = [
        "#!/bin/sh",
        "# Become the words of this script in the container of a job: srun --overlap --jobid=JOB sh attach.sh COMMAND…",
        "# shellcheck disable=SC2016,SC2317  # quoted texts are for other shells; traps call functions",
        "set -eu",
        *render_environment(facts),
        *render_programs(programs),
        "exec " + render_command(words),
    ]
    return "\n".join(lines) + "\n"
