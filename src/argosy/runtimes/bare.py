"""No container: the machine's own software, or that of a prefix (a venv, a conda environment); words only.

``argosy launch bare: -- python train.py`` takes what modules and PATH give; ``bare:/project/venv`` puts the programs of
that prefix first.  Masks, rendezvous, signals and the checks before the start are those of every other launch.
"""

from __future__ import annotations

import msgspec

from argosy.core.model import Entry, Host, ImageKind, Variable
from argosy.core.shell import ShellFunction, Word
from argosy.runtimes.runtime import Traits, assignment, inherited_variables

STEP_IN = ShellFunction(
    "step_in",
    """\
# No container: words FOLDER PREFIX, then the command; the programs of PREFIX come first.
[ -z "$1" ] || cd -- "$1" || exit 125
if [ -n "$2" ]; then
    [ -x "$2/bin/python" ] || { printf "argosy: there is no %s/bin/python\\n" "$2" >&2; exit 6; }
    unset PYTHONHOME
    PATH=$2/bin:$PATH
    if [ -e "$2/pyvenv.cfg" ]; then export PATH VIRTUAL_ENV="$2"; else export PATH CONDA_PREFIX="$2"; fi
fi
shift 2
exec "$@"
""",
)


TRAITS = Traits(
    images=frozenset({ImageKind.HOST}),
    caller="all of it, PATH and LD_LIBRARY_PATH too: they are the environment that was asked for",
    late_binds=True,
    unlike="nothing is closed or read-only: the program sees the machine as it is",
)


class Bare(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "bare"
    program: str = "env"
    package: str = "coreutils"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - a shell is everywhere
        """Say why this cannot be done without a container; empty where it can."""
        moved = next((bind for bind in entry.binds if bind.source != bind.target or bind.read_only), None)
        if moved:
            return f"without a container {moved.source} cannot be shown as {moved.target}, nor be made read-only"
        if entry.contain:
            return "without a container nothing can be closed off: leave --contain out"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values of the caller's environment; ``env`` sets the other variables."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line."""
        step_in = ("sh", "-c", STEP_IN, "argosy-bare", entry.workdir, entry.image.path)
        said = (assignment(variable) for variable in entry.variables if not variable.inherited)
        return ("env", *said, *step_in, *command)


BARE = Bare()
