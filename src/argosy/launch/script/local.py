"""Render a launch as one POSIX sh script that a help desk can read, and that runs where no Argosy is; pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.model import Choice, ImageKind
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
"""The device node whose absence shows that there is no such GPU; ``--nv`` and ``--rocm`` alone say nothing then."""


class ScriptFacts(msgspec.Struct, frozen=True):
    """All that a script says.

    Attributes
    ----------
    before
        Lines of shell that run once in the image before the ranks start.
    """

    name: str
    site: str
    container: ContainerPlan
    started: LauncherCommand
    shape: Shape
    choices: tuple[Choice, ...]
    before: tuple[str, ...] = ()

    @property
    def gpu_node(self) -> str:
        """The device node that must be there; empty where no GPU was asked for."""
        return VENDOR_NODES.get(MODE_VENDOR.get(self.container.entry.gpu, ""), "")


def inherited_names(container: ContainerPlan) -> tuple[str, ...]:
    """Name the variables whose values come from the caller's environment."""
    return tuple(variable.name for variable in container.entry.variables if variable.inherited)


def render_script(facts: ScriptFacts) -> str:
    """Render the script of a launch on the machine at hand."""
    helpers, words = collect_helpers(facts.container.argv(facts.started.command))
    main = [heading("The program", indent="    ").lstrip(), *_checks(facts)]
    environment = list(render_environment(facts))
    if environment:
        main += ["", heading("What the ranks need", indent="    ").lstrip(), *environment]
    main += ["", heading("Start", indent="    ").lstrip()]
    if facts.before:
        before, before_words = collect_helpers(facts.container.argv(before_command(facts.before)))
        helpers = merge_helpers(helpers, before)
        main += render_before_here(before_words)
    main += _start(facts, words)
    return "\n".join(["#!/bin/sh", *render_head(facts), *render_program(main, helpers)]) + "\n"


def render_head(facts: ScriptFacts) -> Iterator[str]:
    """Say what this is, and why its main choices were made; the reasons of variables stand beside their exports."""
    shape = facts.shape
    gpus = f", {shape.gpus_per_node} GPU(s)" if shape.gpus_per_node else ""
    ranks = f"{shape.nodes} node(s){gpus} and {shape.ranks_per_node} rank(s) on each"
    yield "#"
    yield f"# {as_comment(facts.name)} on {facts.site}: {ranks}."
    yield f"# Written by Argosy {VERSION}; it runs without it. Why each value is what it is: argosy explain"
    names = inherited_names(facts.container)
    if names:
        yield f"# PRIVATE: this script holds the values of {', '.join(names)} from the environment of its author."
    yield from render_choices(split_choices(facts.choices, facts.container.exports())[0])
    yield "# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329  # helpers are for all scripts"
    yield ""


def _checks(facts: ScriptFacts) -> Iterator[str]:
    """Stop before the program starts, with a sentence, where something is missing."""
    entry = facts.container.entry
    test = "-d" if entry.image.kind is ImageKind.TREE else "-r"
    if entry.image.kind in FILES:
        yield f"argosy_image={quote(entry.image.path)}"
        yield f'[ {test} "$argosy_image" ] || stop "the image $argosy_image cannot be read here" 6'
    program = facts.container.runtime.program
    yield f'command -v {quote(program)} >/dev/null || stop "{program} is not installed here" 4'
    if facts.gpu_node:
        yield f'[ -e {facts.gpu_node} ] || stop "GPUs were asked for, and there is no {facts.gpu_node} here" 7'


def render_environment(facts: ScriptFacts) -> Iterator[str]:
    """Remove what must not leak in, and force what the plan sets."""
    entry = facts.container.entry
    if entry.drop:
        yield "# Not inside: the host's software, its mounts."
        yield from map("unset {}".format, packed(entry.drop, WIDTH - len("    unset ")))
    exports = facts.container.exports()
    if exports:
        yield "# Forced by name: an image's own value beats a plain export."
        yield from render_exports(exports, split_choices(facts.choices, exports)[1])


def _start(facts: ScriptFacts, words: tuple[Word, ...]) -> Iterator[str]:
    copies = facts.shape.ranks_per_node if facts.started.per_rank else 1
    call = render_call(words, facts.container.runtime.program)
    if copies == 1:
        yield "# The runtime takes this shell's place: signals and the exit code pass unchanged."
        yield f"exec {call.lstrip()}"
        return
    yield f"# {copies} copies; the first code other than 0 is the script's, and ends the others."
    yield "argosy_rank=0 argosy_pids=''"
    yield f'while [ "$argosy_rank" -lt {copies} ]; do'
    yield f"    start_beside \\\n    {call}"
    yield "done"
    yield "wait_for_copies"
