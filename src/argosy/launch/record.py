"""Write the record of a launch: its plan and files before it starts, then its process."""

from __future__ import annotations

import json
from pathlib import Path

from argosy.core.locks import this_owner
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import join, quote
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import COMMAND_LINE, PLAN, SCRIPT, STARTED, make_private_folder
from argosy.launch.script.container_step import ATTACH
from argosy.launch.script.parts import END_FILE, OUTPUT_FILE, RANK_FILE, render_end, render_output, render_rank


def write_record(plan: LaunchPlan, folder: Path, session: Session) -> Path:
    """Write the record of a plan before it starts, with the command line that made it, and return its script."""
    with translate_os_errors(folder, "ARGOSY_STATE"):
        make_private_folder(folder)
        script = folder / SCRIPT
        write_text(script, plan.script)
        write_text(folder / PLAN, _render_record(plan))
        texts = {ATTACH: plan.attach, COMMAND_LINE: _render_command_line(session.typed, session.host.cwd)}
        if plan.is_job:
            texts |= {
                END_FILE: render_end(plan.cores),
                RANK_FILE: render_rank(plan.image),
                OUTPUT_FILE: render_output(),
            }
        for name, text in texts.items():
            if text:
                write_text(folder / name, text)
    return script


def _render_command_line(typed: tuple[str, ...], cwd: str) -> str:
    """Render the command line that the user typed, with its folder; empty for calls from Python."""
    return f"cd {quote(cwd)} && {join(typed)}\n" if typed else ""


def _render_record(plan: LaunchPlan) -> str:
    """Render the plan as JSON; the script is a file of its own."""
    return (
        json.dumps(asdict(replace(plan, script="", attach="", versions=dict(plan.versions))), indent=1, sort_keys=True)
        + "\n"
    )


def write_process(folder: Path) -> None:
    """Write the process of a run on this machine into its record, so that `argosy top` finds its ranks."""
    write_text(folder / STARTED, json.dumps(asdict(this_owner("launch"))) + "\n")
