"""Render a launch on this machine as a POSIX sh script that runs without Argosy; pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.model import Choice, ImageKind
from argosy.core.render import count
from argosy.core.shell import Word, as_comment, collect_helpers, merge_helpers, quote
from argosy.host.gpus import MODE_VENDOR
from argosy.jobs.launch_plan import Shape
from argosy.launch.launchers.launcher import LauncherCommand
from argosy.launch.script.helpers import WIDTH, heading, render_call, render_program
from argosy.launch.script.parts import before_command, render_before_here
from argosy.launch.script.reasons import packed, render_choices, render_exports, split_choices
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import FILES
from argosy.version import VERSION

VENDOR_NODES = {"nvidia": "/dev/nvidiactl", "amd": "/dev/kfd", "intel": "/dev/dri"}
"""Device node of each vendor's GPUs: if it is missing, ``--nv`` and ``--rocm`` fail without an error."""


class ScriptFacts(msgspec.Struct, frozen=True):
    """The facts that a script is rendered from."""

    name: str
    site: str
    container: ContainerPlan
    started: LauncherCommand
    shape: Shape
    choices: tuple[Choice, ...]
    before: tuple[str, ...] = ()
    """Shell commands to run once in the image before the ranks start."""

    @property
    def gpu_node(self) -> str:
        """The device node that must exist; empty for a launch without GPUs."""
        return VENDOR_NODES.get(MODE_VENDOR.get(self.container.entry.gpu, ""), "")


def inherited_names(container: ContainerPlan) -> tuple[str, ...]:
    """Return the names of variables whose values come from the caller's environment."""
    return tuple(variable.name for variable in container.entry.variables if variable.inherited)


def render_script(facts: ScriptFacts) -> str:
    """Render the script of a launch on this machine."""
    helpers, words = collect_helpers(facts.container.argv(facts.started.command))
    main = [heading("The program", indent="    ").lstrip(), *_checks(facts)]
    environment = list(render_environment(facts))
    if environment:
        main += ["", heading("The environment of the ranks", indent="    ").lstrip(), *environment]
    main += ["", heading("Start", indent="    ").lstrip()]
    if facts.before:
        before, before_words = collect_helpers(facts.container.argv(before_command(facts.before)))
        helpers = merge_helpers(helpers, before)
        main += render_before_here(before_words)
    main += _start(facts, words)
    return "\n".join(["#!/bin/sh", *render_head(facts), *render_program(main, helpers)]) + "\n"


def render_head(facts: ScriptFacts) -> Iterator[str]:
    """Render the comments in the head of a script: its shape, and the reasons of its main choices."""
    shape = facts.shape
    gpus = f"{count(shape.gpus_per_node, 'GPU')} and " if shape.gpus_per_node else ""
    each = f"{gpus}{count(shape.ranks_per_node, 'rank')}"
    nodes = f"1 node with {each}" if shape.nodes == 1 else f"{shape.nodes} nodes with {each} on each"
    yield "#"
    yield f"# {as_comment(facts.name)} on {facts.site}: {nodes}."
    yield f"# Written by Argosy {VERSION}; it runs without Argosy. The reason for each value: argosy explain"
    names = inherited_names(facts.container)
    if names:
        yield f"# PRIVATE: this script holds the values of {', '.join(names)} from the environment of its author."
    yield from render_choices(split_choices(facts.choices, facts.container.exports())[0])
    yield "# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329"
    yield ""


def _checks(facts: ScriptFacts) -> Iterator[str]:
    """Render the checks that stop the script with a message if something is missing."""
    entry = facts.container.entry
    test = "-d" if entry.image.kind is ImageKind.TREE else "-r"
    if entry.image.kind in FILES:
        yield f"argosy_image={quote(entry.image.path)}"
        yield f'[ {test} "$argosy_image" ] || stop "the image $argosy_image cannot be read here" 6'
    program = facts.container.runtime.program
    yield f'command -v {quote(program)} >/dev/null || stop "{program} is not installed here" 4'
    if facts.gpu_node:
        yield f'[ -e {facts.gpu_node} ] || stop "GPUs were requested, but there is no {facts.gpu_node} here" 7'


def render_environment(facts: ScriptFacts) -> Iterator[str]:
    """Render the lines that unset variables of the host, and export those of the plan."""
    entry = facts.container.entry
    if entry.drop:
        yield "# Not in the container: the host's software and mounts."
        yield from map("unset {}".format, packed(entry.drop, WIDTH - len("    unset ")))
    exports = facts.container.exports()
    if exports:
        yield "# Set for the container by name: the image would override a plain export."
        yield from render_exports(exports, split_choices(facts.choices, exports)[1])


def _start(facts: ScriptFacts, words: tuple[Word, ...]) -> Iterator[str]:
    copies = facts.shape.ranks_per_node if facts.started.per_rank else 1
    call = render_call(words, facts.container.runtime.program)
    if copies == 1:
        yield "# The runtime replaces this shell, so that signals and the exit code pass unchanged."
        yield f"exec {call.lstrip()}"
        return
    yield f"# {copies} copies; the first that fails ends the others, and sets the exit code."
    yield "argosy_rank=0 argosy_pids='' argosy_code=''"
    yield f'while [ "$argosy_rank" -lt {copies} ]; do'
    yield f"    start_beside \\\n    {call}"
    yield "done"
    yield "wait_for_copies"
