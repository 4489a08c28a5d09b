"""Render the shell functions of a job script; the text of each is a file in ``data``, the same in every script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from argosy.core.shell import Helpers, ShellExpr, Word, load_helper, read_shell, render_command, render_helpers
from argosy.launch.script.reasons import packed

DATA = Path(__file__).with_name("data")

FREE_PORT = load_helper(DATA, "free_port")
CHECK_NODE = load_helper(DATA, "check_node", "stop_node")
CHECK_CONTAINER = load_helper(DATA, "check_container", "stop_node")
OWN_FOLDERS = load_helper(DATA, "own_folders", "stop_node")
CREATE_STAGE = load_helper(DATA, "create_stage")

FILES = (
    *("check_allocation", "need_cores", "need_cores_of_node", "share_cores", "warn_few_cores", "bind_on_nodes"),
    *("resume", "pass_signals", "end_smoke_run", "find_rendezvous", "enable_modules", "stage_image", "write_edf"),
    *("run_before", "prepare_mpiexec", "run_step", "judge_elastic", "note_end", "finish", "copies", "stop"),
)
"""Files of helpers, in their order in a script."""

WIDTH = 99


def heading(text: str, *, indent: str = "") -> str:
    """Render a comment that begins a part of the script."""
    return f"{indent}# --- {text} ---"


def render_script_functions(main: str) -> Iterator[str]:
    """Render the functions that the main part calls, and those that these call."""
    texts = {name: read_shell(DATA / f"{name}.sh") for name in FILES}
    functions = {name: re.findall(r"^(\w+)\(\)", text, re.MULTILINE) for name, text in texts.items()}
    used: set[str] = set()
    added = {"main"}
    seen = main
    while added:
        added = {name for name in texts.keys() - used if _calls(seen, functions[name])}
        used |= added
        seen = "\n".join(texts[name] for name in added)
    for name, text in texts.items():
        if name in used:
            yield text
            yield ""


def _calls(text: str, functions: list[str]) -> bool:
    return any(re.search(rf"\b{name}\b", text) for name in functions)


def render_program(main: list[str], helpers: Helpers) -> Iterator[str]:
    """Render the main part, the functions that it needs, and the call at the end.

    Parameters
    ----------
    main
        Statements; further lines of one are indented already.
    """
    yield "main() {"
    yield from (f"    {statement}" if statement else "" for statement in main)
    yield "}"
    yield ""
    yield heading("Helpers: the same text in every script")
    yield ""
    yield from render_script_functions("\n".join(main))
    if helpers.definitions or helpers.texts:
        yield "# What runs on the nodes travels as text, since Slurm copies this file to the first node only."
        yield from render_helpers(helpers)
        yield ""
    yield "set -eu"
    yield "main"


STEP = "        "
SHELLS = ("sh", "/bin/sh", "/bin/bash")
STARTER = (ShellExpr("$argosy_start_ranks"),)
"""The program that starts the ranks of a node; three arguments and the command of the ranks follow."""


def render_call(words: tuple[Word, ...], program: str = "") -> str:
    """Render the command of a step over several lines: the runtime, each helper and the ranks on lines of their own.

    Parameters
    ----------
    program
        The program of the runtime.
    """
    starts = [
        place
        for place, word in enumerate(words)
        if (word in SHELLS and words[place + 1 : place + 2] == ("-c",))
        or words[place + 1 : place + 2] == ("-I",)
        or words[place - 4 : place - 3] == STARTER
        or (word == program and program and words[place - 2] != CHECK_NODE.name)
    ]
    bounds = sorted({0, *starts, len(words)})
    groups = [words[first:last] for first, last in pairwise(bounds)]
    return " \\\n".join(render_command(group, indent=STEP, width=WIDTH - 2) for group in groups)


def continued(pieces: Iterable[str]) -> str:
    """Render options of a step over as many lines as they need."""
    return f" \\\n{STEP}".join(packed(pieces, WIDTH - len(STEP) - 2))
