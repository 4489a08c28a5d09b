"""Render a launch on this machine as a POSIX sh script that runs without Argosy; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.model import ImageKind
from argosy.core.shell import Word, collect_helpers, merge_helpers, quote
from argosy.launch.script.facts import ScriptFacts
from argosy.launch.script.head import render_environment, render_head
from argosy.launch.script.helpers import heading, render_call, render_program
from argosy.launch.script.parts import before_command, render_before_here
from argosy.runtimes.runtime import FILES


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
