"""Render a launch as one POSIX sh script that a help desk can read, and that runs where no Argosy is; pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.model import Choice, ImageKind
from argosy.core.shell import Word, as_comment, extract_functions, quote, render_command, render_functions
from argosy.host.gpus import MODE_VENDOR
from argosy.jobs.launch_plan import Shape
from argosy.launch.launchers.launcher import LauncherCommand
from argosy.launch.script.reasons import render_choices, render_exports, split_choices
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
    programs, words = extract_functions(facts.container.argv(facts.started.command))
    lines = ["#!/bin/sh", *render_head(facts), *_checks(facts), *render_environment(facts)]
    if facts.before:
        from argosy.launch.script.before import (  # noqa: PLC0415 - where it is asked for
            before_command,
            render_before_here,
        )

        lines += render_before_here(facts.container.argv(before_command(facts.before)))
    return "\n".join([*lines, *render_functions(programs), *_start(facts, words)]) + "\n"


def render_head(facts: ScriptFacts) -> Iterator[str]:
    """Say what this is, and why each choice was made; the reasons of variables stand beside their exports."""
    shape = facts.shape
    yield f"# {as_comment(facts.name)}: {shape.ranks} rank(s) on {shape.nodes} node(s), site {facts.site}."
    yield f"# Made by Argosy {VERSION}; it needs no Argosy where it runs.  'argosy explain' says the reasons in full."
    names = inherited_names(facts.container)
    if names:
        yield f"# PRIVATE: this script holds the values of {', '.join(names)} from the environment of its author."
    yield from render_choices(split_choices(facts.choices, facts.container.exports())[0])
    yield "# shellcheck disable=SC2016,SC2086,SC2317  # text for other shells, traps"
    yield "set -eu"
    yield ""


def _checks(facts: ScriptFacts) -> Iterator[str]:
    """Stop before the program starts, with a sentence, where something is missing."""
    entry = facts.container.entry
    test = "-d" if entry.image.kind is ImageKind.TREE else "-r"
    yield 'stop() { printf "argosy: %s\\n" "$1" >&2; exit "$2"; }'
    if entry.image.kind in FILES:
        yield f"image={quote(entry.image.path)}"
        yield f'[ {test} "$image" ] || stop "the image $image cannot be read here" 6'
    program = facts.container.runtime.program
    yield f'command -v {quote(program)} >/dev/null || stop "{program} is not installed here" 4'
    if facts.gpu_node:
        yield f'[ -e {facts.gpu_node} ] || stop "GPUs were asked for, and there is no {facts.gpu_node} here" 7'
    yield ""


def render_environment(facts: ScriptFacts) -> Iterator[str]:
    """Remove what must not leak in, and force what the plan sets."""
    entry = facts.container.entry
    if entry.drop:
        yield "# Not inside: the host's software, its mounts."
        yield f"unset {' '.join(entry.drop)}"
    exports = facts.container.exports()
    if exports:
        yield "# Forced by name: an image's own value beats a plain export."
        yield from render_exports(exports, split_choices(facts.choices, exports)[1])
    yield ""


def _start(facts: ScriptFacts, words: tuple[Word, ...]) -> Iterator[str]:
    copies = facts.shape.ranks_per_node if facts.started.per_rank else 1
    if copies == 1:
        yield "# The runtime takes this shell's place: signals and the exit code pass unchanged."
        yield "exec " + render_command(words)
        return
    yield f"# {copies} copies; the first code other than 0 is the script's, and ends the others."
    yield "rank=0 pids= code=0"
    yield f"while [ $rank -lt {copies} ]; do"
    yield render_command(words, indent="    ") + " &"
    yield '    pids="$pids $!" rank=$((rank + 1))'
    yield "done"
    yield "trap 'kill $pids 2>/dev/null || :' TERM INT HUP"
    yield "for pid in $pids; do"
    yield '    wait "$pid" || { ended=$?; [ "$code" -ne 0 ] || { code=$ended; kill $pids 2>/dev/null || :; }; }'
    yield "done"
    yield 'exit "$code"'
