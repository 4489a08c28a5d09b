"""enroot without pyxis: the launcher starts ``enroot start`` with a squashfs file for each rank.

Usage: https://github.com/NVIDIA/enroot/blob/8ea147d/doc/cmd/start.md. Only named variables of the caller enter the
container; the hook 50-slurm-pmi.sh, if a site has it, adds SLURM_*, PMI_* and PMIX_*.
"""

from __future__ import annotations

import msgspec

from argosy.core.model import Bind, Entry, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, read_function
from argosy.runtimes.pyxis import LAYER_HINT, enroot_refusal, enroot_variables
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    PASSED_PATTERNS,
    SCRIPTS,
    SHARED_MEMORY,
    TEMPORARY,
    Traits,
    assignment,
    env_value,
    inherited_variables,
    with_image_environment,
)

START = read_function(SCRIPTS / "enroot_start.sh", "start_enroot", PASSED_PATTERNS)
ENTER_PROGRAM = read_function(SCRIPTS / "enroot_enter.sh", "enter_enroot")

HOOKS_READ = ("NVIDIA_", "MELLANOX_")
"""Prefixes of variables that enroot's hooks read. enroot strips quotes from values and ends them at line breaks, so
all other variables are exported inside the container instead."""

FSTAB_ESCAPES = str.maketrans({"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012"})
"""Escapes of special characters in a path for enroot-mount; see fstab(5)."""

TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS}),
    caller=f"only {PASSED_NAMES}",
    unlike="an image's /etc/rc runs around the command; devices are visible even with --contain",
    pmi2=False,
)


class Enroot(msgspec.Struct, frozen=True):
    """The adapter of enroot."""

    name: str = "enroot"
    program: str = "enroot"
    package: str = "enroot, squashfuse and fuse-overlayfs (https://github.com/NVIDIA/enroot)"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refusal(self, entry: Entry, host: Host) -> str:
        """Return the reason why enroot cannot start the entry on this machine; empty if it can."""
        if not host.user_namespaces and entry.person.uid != 0:
            return "enroot needs user namespaces, which are disabled on this machine"
        odd = next((bind for bind in entry.binds if ":" in bind.source + bind.target), None)
        changed = next((each.name for each in inherited_variables(entry) if set("\"'\n") & set(str(each.value))), "")
        return (
            enroot_refusal(entry)
            or (f"enroot cannot mount a path with a colon: {odd.source}" if odd else "")
            or (f"enroot changes a value with quotes or line breaks: {changed}" if changed else "")
        )

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the values that ``--env NAME`` reads from the environment; the others are options."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        variables = enroot_variables(entry)
        by_name = [each for each in variables if each.inherited or each.name.startswith(HOOKS_READ)]
        inside = [each for each in variables if each not in by_name]
        folder: Word = entry.workdir or ("/" if entry.contain else ShellExpr("$PWD"))
        return (
            *("sh", "-c", START, "argosy-enroot"),
            *(word for mount in _mounts(entry) for word in ("--mount", mount)),
            *(word for variable in by_name for word in ("--env", env_value(variable))),
            *entry.options,
            *("--", entry.image.path, "/bin/sh", "-c", ENTER_PROGRAM, "argosy-enter", folder),
            *(*map(assignment, inside), "--"),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


ENROOT = Enroot()


def _mounts(entry: Entry) -> list[Word]:
    """Return the mounts, outer folders first; without the usual ones enroot provides a private, empty /tmp."""
    if entry.contain:
        private = [(entry.person.home or "$HOME", "0700"), *((place, "1777") for place in (*TEMPORARY, SHARED_MEMORY))]
        fresh = [_late(f"tmpfs:{place}:tmpfs:x-create=dir,mode={mode}") for place, mode in private if place != "/"]
        return [*fresh, *map(_mount, entry.binds)]
    usual = [Bind(place, place) for place in TEMPORARY]
    home = [] if entry.person.home else [Bind("$HOME", "$HOME")]
    here = [] if entry.workdir else [Bind("$PWD", "$PWD")]
    return [*map(_mount, (*usual, *entry.binds, *home, *here))]


def _mount(bind: Bind) -> Word:
    source, target = bind.source.translate(FSTAB_ESCAPES), bind.target.translate(FSTAB_ESCAPES)
    return _late(f"{source}:{target}:none:x-create=auto,rbind" + (",ro" if bind.read_only else ""))


def _late(text: str) -> Word:
    return ShellExpr(text) if text.startswith(("$", "tmpfs:$")) else text
