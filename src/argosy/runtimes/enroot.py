"""enroot without pyxis: ``enroot start`` of a squashfs, by whoever starts ranks; words only.

Usage: https://github.com/NVIDIA/enroot/blob/8ea147d/doc/cmd/start.md.  Nothing of the caller's environment enters but
what is named; the hook 50-slurm-pmi.sh, where a site has it, adds SLURM_*, PMI_* and PMIX_* of its own.
"""

from __future__ import annotations

import msgspec

from argosy.model import Bind, Entry, Host, ImageKind, Late, Variable, Word
from argosy.runtimes import FAMILIES, FAMILY_NAMES, Traits, in_environment, inherited_variables, named
from argosy.runtimes.pyxis import WAY_OUT, enroot_variables, refuse_enroot
from argosy.shell import Program

CALL = Program(
    "call",
    f"""\
# Start enroot: its words are given; what ranks find each other and the network by comes along by name.
for name in {FAMILY_NAMES}; do set -- --env "$name" "$@"; done
exec enroot start "$@"
""",
)

INSIDE = Program(
    "inside",
    """\
# In the container: words FOLDER, then the command, which is started in the environment of the image.
cd -- "$1" || exit 125
shift
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"
""",
)


TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS}),
    caller=f"nothing but {', '.join(f'{family}*' for family in FAMILIES)}",
    unlike="the image may run its own command script, /etc/rc, around the command",
)


class Enroot(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "enroot"
    program: str = "enroot"
    package: str = "enroot, squashfuse and fuse-overlayfs (https://github.com/NVIDIA/enroot)"
    proof: str = "rendered"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why enroot cannot do what is asked; empty where it can."""
        if not host.user_namespaces and entry.person.uid != 0:
            return "enroot needs user namespaces, which are switched off on this machine"
        return refuse_enroot(entry)

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that ``--env NAME`` takes from the environment; the others are options."""
        return inherited_variables(entry)

    def words(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        binds = entry.binds if entry.person.home or entry.contain else (*entry.binds, Bind("$HOME", "$HOME"))
        late = Bind("$PWD", "$PWD")
        folder: Word = entry.workdir or ("/" if entry.contain else Late("$PWD"))
        return (
            *("sh", "-c", CALL, "argosy-enroot"),
            *(word for bind in binds for word in ("--mount", _mount(bind))),
            *(("--mount", _mount(late)) if not entry.workdir and not entry.contain else ()),
            *(word for variable in enroot_variables(entry) for word in ("--env", named(variable))),
            *entry.options,
            *("--", entry.image.path, "/bin/sh", "-c", INSIDE, "argosy-inside", folder),
            *in_environment(entry, command, way_out=WAY_OUT),
        )


ENROOT = Enroot()


def _mount(bind: Bind) -> Word:
    text = f"{bind.source}:{bind.target}:none:x-create=auto,rbind" + (",ro" if bind.read_only else "")
    return Late(text) if bind.source.startswith("$") else text
