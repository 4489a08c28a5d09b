"""No container: the host's own software, or that of a prefix (a venv or a conda environment).

``argosy launch bare: -- python train.py`` uses modules and PATH; ``bare:/project/venv`` puts the programs of that
prefix first. CPU masks, rendezvous, signals and checks are the same as in every other launch.
"""

from __future__ import annotations

from argosy.core.model import Entry, Host, ImageKind
from argosy.core.shell import Word, read_function
from argosy.runtimes.runtime import SCRIPTS, Runtime, Traits, assignment

STEP_IN = read_function(SCRIPTS / "bare.sh", "step_in")


class Bare(Runtime, frozen=True):
    """The adapter for starts without a container."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - every machine has a shell
        """Return the reason why the entry needs a container; empty if it does not."""
        moved = next((bind for bind in entry.binds if bind.source != bind.target or bind.read_only), None)
        if moved:
            return f"mounting {moved.source} at {moved.target}, or read-only, needs a container"
        if entry.contain:
            return "--contain needs a container"
        return ""

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line."""
        step_in = ("sh", "-c", STEP_IN, "argosy-bare", entry.workdir, entry.image.path)
        assignments = (assignment(variable) for variable in entry.variables if not variable.inherited)
        return ("env", *assignments, *step_in, *command)


BARE = Bare(
    name="bare",
    program="env",
    package="coreutils",
    traits=Traits(
        images=frozenset({ImageKind.HOST}),
        caller="all, including PATH and LD_LIBRARY_PATH",
        host_mpi=True,
        pmi2=True,
        node_binds=True,
        sees_cwd=True,
        unlike="nothing is isolated or read-only",
    ),
    proof="ran",
)
