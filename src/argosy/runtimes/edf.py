"""The Container Engine of CSCS: srun starts containers that an Environment Definition File (EDF) describes; words only.

The script writes the file and names it by ``srun --environment=FILE``; ``#SBATCH --environment`` is advised against
(https://github.com/eth-cscs/cscs-docs, docs/software/container-engine/run.md).
"""

from __future__ import annotations

import msgspec

from argosy.model import Entry, GpuWay, Host, ImageKind, Late, Variable, Word
from argosy.runtimes import Traits, forced_variables, in_environment
from argosy.runtimes.edf_file import Edf, render_edf
from argosy.runtimes.pyxis import ODD, WAY_OUT, enroot_reference

TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS, ImageKind.REGISTRY, ImageKind.EDF}),
    caller="all of it, except what names software of the host; an image's own value wins",
    by_srun=True,
)


class ContainerEngine(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "edf"
    program: str = "srun"
    package: str = "CSCS's Container Engine, a plug-in of Slurm (the site's administrators do that)"
    proof: str = "rendered"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - it is not this machine that has the engine
        """Say why the engine cannot do what is asked; empty where it can."""
        if entry.gpu not in {GpuWay.NONE, GpuWay.NV}:
            return f"the Container Engine carries GPUs in by its own hooks, and has no way '{entry.gpu}'"
        odd = next((bind for bind in entry.binds if ODD.search(bind.source + bind.target)), None)
        if odd:
            return f"a mount of {odd.source!r} cannot be said: blanks, commas and colons end its words"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Give nothing: the variables stand in the file."""
        return ()

    def words(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give what srun starts in the container."""
        return in_environment(entry, command, way_out=WAY_OUT)

    def variables(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Give nothing: the variables stand in the file."""
        return ()

    def step_words(self, entry: Entry) -> tuple[Word, ...]:
        """Give the options of srun."""
        return (Late("--environment=$environment"), *entry.options)

    def document(self, entry: Entry) -> tuple[Word, ...]:
        """Give the lines of the EDF."""
        registry = entry.image.kind is ImageKind.REGISTRY
        mounts: list[Word] = [f"{b.source}:{b.target}" + (":ro" if b.read_only else "") for b in entry.binds]
        if not entry.contain and not entry.person.home:
            mounts.append(Late("$HOME:$HOME"))
        if not entry.contain and not entry.workdir:
            mounts.append(Late("$PWD:$PWD"))
        given = entry.image.kind is ImageKind.EDF
        image = enroot_reference(entry.image.path) if registry else entry.image.path
        edf = Edf(
            image="" if given else image,
            base=(entry.image.path,) if given else (),
            mounts=tuple(mounts),
            workdir=entry.workdir or ("/" if entry.contain else Late("$PWD")),
            entrypoint=False,
            writable=False,
            env=tuple((variable.name, variable.value) for variable in forced_variables(entry)),
            annotations=entry.annotations,
        )
        return render_edf(edf)


EDF = ContainerEngine()
