"""pyxis: a plug-in of Slurm by which srun itself starts containers with enroot; words only.

Options as of pyxis 0.24 (https://github.com/NVIDIA/pyxis/blob/1075199/README.md).  The whole environment of srun
enters, but a variable that the image sets keeps the image's value unless ``--container-env`` names it: so everything
that a plan sets is named there, except values with line breaks, of which each line would set a variable.
"""

from __future__ import annotations

import re

import msgspec

from argosy.core.model import Bind, Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.runtimes.runtime import Traits, forced_variables, with_image_environment

LAYER_HINT = "build the image with --format sqsh"

ODD = re.compile(r"[,:\s]")
"""Signs that ``--container-mounts`` gives a meaning of its own."""

TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - mount points

NO_LOGIN_SHELL = Variable("ENROOT_LOGIN_SHELL", "no")
"""For enroot alone: by default it reads the profile of the home that is mounted before it starts ranks."""

ENROOT_GPU = (Variable("NVIDIA_VISIBLE_DEVICES", "all"), Variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
"""enroot's hook 98-nvidia.sh gives GPUs to a container only where the first is set, and without the second only the
libraries of nvidia-smi (https://github.com/NVIDIA/enroot/blob/8ea147d/conf/hooks/98-nvidia.sh)."""


def enroot_variables(entry: Entry) -> tuple[Variable, ...]:
    """Give what is forced, with the variables that enroot's GPU hook waits for."""
    forced = forced_variables(entry)
    taken = {variable.name for variable in forced}
    wanted = ENROOT_GPU if entry.gpu is GpuMode.NV else ()
    return (*(variable for variable in wanted if variable.name not in taken), *forced)


def enroot_reference(reference: str) -> str:
    """Write a reference as enroot reads it: ``nvcr.io/nvidia/pytorch:24.03`` is ``nvcr.io#nvidia/pytorch:24.03``."""
    first, slash, rest = reference.partition("/")
    if "#" in reference or not slash or not ({".", ":"} & set(first) or first == "localhost"):
        return reference
    return f"{first}#{rest}"


def refuse_enroot(entry: Entry) -> str:
    """Say what enroot cannot do, whoever starts it; empty where nothing is in the way."""
    if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
        return f"enroot carries NVIDIA's GPUs in by its own hook, and has no way '{entry.gpu}'"
    return ""


def _shown_binds(entry: Entry) -> tuple[Bind, ...]:
    """Give the mounts without the home, for which there is an option."""
    return tuple(bind for bind in entry.binds if bind != Bind(entry.person.home, entry.person.home))


TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS, ImageKind.REGISTRY}),
    caller="all of it, except what names software of the host; an image's own value wins",
    by_srun=True,
)


class Pyxis(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "pyxis"
    program: str = "srun"
    package: str = "pyxis, a plug-in of Slurm, with enroot (the site's administrators do that)"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - it is not this machine that has the plug-in
        """Say why pyxis cannot do what is asked; empty where it can."""
        odd = next((bind for bind in entry.binds if ODD.search(bind.source + bind.target)), None)
        if odd:
            return f"a mount of {odd.source!r} cannot be said: blanks, commas and colons end its words"
        return refuse_enroot(entry)

    def exports(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see srun_options
        """Give nothing: srun is started with the variables, and passes them on."""
        return ()

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give what srun starts in the container."""
        return with_image_environment(entry, command, hint=LAYER_HINT)

    def variables(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the variables that srun is started with."""
        return (*enroot_variables(entry), NO_LOGIN_SHELL)

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Give the options of srun; `variables` are named, since an image's own value would win."""
        registry = entry.image.kind is ImageKind.REGISTRY
        image = enroot_reference(entry.image.path) if registry else entry.image.path
        mounts = _mounts(entry)
        names = ",".join(variable.name for variable in enroot_variables(entry) if not _has_lines(variable))
        return (
            f"--container-image={image}",
            _joined("--container-mounts=", mounts),
            _joined("--container-workdir=", (entry.workdir or ("/" if entry.contain else ShellExpr("$PWD")),)),
            "--no-container-mount-home" if entry.contain else "--container-mount-home",
            "--no-container-remap-root",
            "--no-container-entrypoint",
            "--container-readonly",
            *((f"--container-env={names}",) if names else ()),
            *entry.options,
        )

    def document(self, entry: Entry) -> tuple[Word, ...]:  # noqa: ARG002 - its options name no file
        """Give nothing."""
        return ()


PYXIS = Pyxis()


def _mounts(entry: Entry) -> tuple[Word, ...]:
    """Give what is mounted, outer folders first: by itself enroot gives a container its own, empty /tmp."""
    binds = [_mount(bind) for bind in _shown_binds(entry)]
    if entry.contain:
        home: Word = f"tmpfs:{entry.person.home}:mode=700" if entry.person.home else ShellExpr("tmpfs:$HOME:mode=700")
        paths = (*TEMPORARY, "/dev/shm")  # noqa: S108 - mount points
        private = tuple(f"tmpfs:{place}:mode=1777" for place in paths)
        return (*(() if entry.person.home == "/" else (home,)), *private, *binds)
    return (*(f"{place}:{place}" for place in TEMPORARY), *binds, *(() if entry.workdir else (ShellExpr("$PWD:$PWD"),)))


def _has_lines(variable: Variable) -> bool:
    value = variable.value
    return "\n" in (value.expression if isinstance(value, ShellExpr) else value)


def _mount(bind: Bind) -> str:
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def _joined(option: str, values: tuple[Word, ...]) -> Word:
    if not any(isinstance(value, ShellExpr) for value in values):
        return option + ",".join(map(str, values))
    parts = [value.expression if isinstance(value, ShellExpr) else in_double_quotes(value) for value in values]
    return ShellExpr(option + ",".join(parts))
