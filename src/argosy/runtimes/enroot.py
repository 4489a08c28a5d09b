"""enroot without pyxis: ``enroot start`` of a squashfs, by whoever starts ranks; words only.

Usage: https://github.com/NVIDIA/enroot/blob/8ea147d/doc/cmd/start.md.  Nothing of the caller's environment enters but
what is named; the hook 50-slurm-pmi.sh, where a site has it, adds SLURM_*, PMI_* and PMIX_* of its own.
"""

from __future__ import annotations

import msgspec

from argosy.core.model import Bind, Entry, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, ShellFunction, Word
from argosy.runtimes.pyxis import LAYER_HINT, TEMPORARY, enroot_variables, refuse_enroot
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    Traits,
    assignment,
    env_value,
    inherited_variables,
    render_set_names,
    with_image_environment,
)

CALL = ShellFunction(
    "call",
    f"""\
# Start enroot: its words are given; what ranks find each other, GPUs and the network by comes along by name.
for name in {render_set_names("HOME", "USER", "LOGNAME")}; do
    set -- --env "$name" "$@"
done
# By default enroot starts a login shell, which reads the profile of the home that is mounted.
ENROOT_LOGIN_SHELL=no
export ENROOT_LOGIN_SHELL
exec enroot start "$@"
""",
)

INSIDE = ShellFunction(
    "inside",
    """\
# In the container: words FOLDER, VARIABLES, --, then the command, which is started in the environment of the image.
cd -- "$1" || exit 125
shift
while [ "$1" != -- ]; do export "${1?}"; shift; done
shift
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"
""",
)

HOOKS_READ = ("NVIDIA_", "MELLANOX_")
"""Variables that enroot must know itself.  It strips quotes, and takes a line break for the end of a value: all others
are exported in the container."""

SPELLED = str.maketrans({"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012"})
"""How enroot-mount reads these characters of a path, as in fstab(5)."""

TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS}),
    caller=f"nothing but {PASSED_NAMES}",
    unlike="the image may run its own command script, /etc/rc, around the command; with --contain devices are seen",
    pmi2=False,
)


class Enroot(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "enroot"
    program: str = "enroot"
    package: str = "enroot, squashfuse and fuse-overlayfs (https://github.com/NVIDIA/enroot)"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why enroot cannot do what is asked; empty where it can."""
        if not host.user_namespaces and entry.person.uid != 0:
            return "enroot needs user namespaces, which are switched off on this machine"
        odd = next((bind for bind in entry.binds if ":" in bind.source + bind.target), None)
        changed = next((each.name for each in inherited_variables(entry) if set("\"'\n") & set(str(each.value))), "")
        return (
            refuse_enroot(entry)
            or (f"enroot cannot mount a path with a colon: {odd.source}" if odd else "")
            or (f"enroot changes a value with quotes or line breaks: {changed}" if changed else "")
        )

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that ``--env NAME`` takes from the environment; the others are options."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        variables = enroot_variables(entry)
        by_name = [each for each in variables if each.inherited or each.name.startswith(HOOKS_READ)]
        inside = [each for each in variables if each not in by_name]
        folder: Word = entry.workdir or ("/" if entry.contain else ShellExpr("$PWD"))
        return (
            *("sh", "-c", CALL, "argosy-enroot"),
            *(word for mount in _mounts(entry) for word in ("--mount", mount)),
            *(word for variable in by_name for word in ("--env", env_value(variable))),
            *entry.options,
            *("--", entry.image.path, "/bin/sh", "-c", INSIDE, "argosy-inside", folder),
            *(*map(assignment, inside), "--"),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


ENROOT = Enroot()


def _mounts(entry: Entry) -> list[Word]:
    """Give what is mounted, outer folders first: by itself enroot gives a container its own, empty /tmp."""
    if entry.contain:
        private = [(entry.person.home or "$HOME", "0700"), *((place, "1777") for place in (*TEMPORARY, "/dev/shm"))]  # noqa: S108
        fresh = [_late(f"tmpfs:{place}:tmpfs:x-create=dir,mode={mode}") for place, mode in private if place != "/"]
        return [*fresh, *map(_mount, entry.binds)]
    usual = [Bind(place, place) for place in TEMPORARY]
    home = [] if entry.person.home else [Bind("$HOME", "$HOME")]
    here = [] if entry.workdir else [Bind("$PWD", "$PWD")]
    return [*map(_mount, (*usual, *entry.binds, *home, *here))]


def _mount(bind: Bind) -> Word:
    source, target = bind.source.translate(SPELLED), bind.target.translate(SPELLED)
    return _late(f"{source}:{target}:none:x-create=auto,rbind" + (",ro" if bind.read_only else ""))


def _late(text: str) -> Word:
    return ShellExpr(text) if text.startswith(("$", "tmpfs:$")) else text
