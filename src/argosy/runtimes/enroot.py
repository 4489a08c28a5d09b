"""enroot, started for each rank or by pyxis, a Slurm plug-in that makes srun start its containers.

Without pyxis, the launcher starts ``enroot start`` with a squashfs file. Only named variables of the caller enter the
container; the hook 50-slurm-pmi.sh, if a site has it, adds SLURM_*, PMI_* and PMIX_*. Usage:
https://github.com/NVIDIA/enroot/blob/8ea147d/doc/cmd/start.md.

Options of pyxis as of 0.24 (https://github.com/NVIDIA/pyxis/blob/1075199/README.md). The environment of srun enters the
container, but the image's value of a variable wins unless ``--container-env`` lists it. So that option lists all
variables of a plan, except those with line breaks: pyxis would set a variable for each line. Variables that srun
itself would follow, for example PATH, are set in the container only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.model import Bind, Entry, GpuMode, Host, Image, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join_words, read_function, text_of
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    PASSED_PATTERNS,
    SCRIPTS,
    SHARED_MEMORY,
    TEMPORARY,
    Runtime,
    StepRuntime,
    Traits,
    assignment,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

LAYER_HINT = "build the image with --format sqsh"

MOUNT_SEPARATORS = re.compile(r"[,:\s]")
"""Characters that separate mounts or their fields in ``--container-mounts``."""

NO_LOGIN_SHELL = Variable("ENROOT_LOGIN_SHELL", "no")
"""By default enroot reads the profile in the mounted home before it starts a rank."""

ENROOT_GPU = (Variable("NVIDIA_VISIBLE_DEVICES", "all"), Variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
"""enroot's hook 98-nvidia.sh adds GPUs only if the first variable is set; without the second it adds only the libraries
of nvidia-smi (https://github.com/NVIDIA/enroot/blob/8ea147d/conf/hooks/98-nvidia.sh)."""


def _enroot_variables(entry: Entry) -> tuple[Variable, ...]:
    """Return the variables to set inside, and those that enroot's GPU hook reads."""
    forced = forced_variables(entry)
    taken = {variable.name for variable in forced}
    wanted = ENROOT_GPU if entry.gpu is GpuMode.NV else ()
    return (*(variable for variable in wanted if variable.name not in taken), *forced)


def enroot_reference(reference: str) -> str:
    """Return a reference in enroot's form, for example ``nvcr.io#nvidia/pytorch:24.03``."""
    first, slash, rest = reference.partition("/")
    if "#" in reference or not slash or not ({".", ":"} & set(first) or first == "localhost"):
        return reference
    return f"{first}#{rest}"


def image_argument(image: Image) -> str:
    """Return an image in enroot's form; a file begins with ``/`` or ``./``, else it is looked up in Docker Hub."""
    if image.kind is ImageKind.REGISTRY:
        return enroot_reference(image.path)
    return image.path if image.path.startswith(("/", "./", "../")) else f"./{image.path}"


def _enroot_refusal(entry: Entry) -> str:
    """Return the reason why enroot cannot start the entry, with or without pyxis; empty if it can."""
    if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
        return f"enroot supports only NVIDIA GPUs through its own hook, not --gpu {entry.gpu}; use --gpu nv"
    return ""


START = read_function(SCRIPTS / "enroot_start.sh", "start_enroot", PASSED_PATTERNS)
ENTER_PROGRAM = read_function(SCRIPTS / "enroot_enter.sh", "enter_enroot")

HOOKS_READ = ("NVIDIA_", "MELLANOX_")
"""Prefixes of variables that enroot's hooks read. enroot strips quotes from values and ends them at line breaks, so
all other variables are exported inside the container instead."""

FSTAB_ESCAPES = str.maketrans({"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012"})
"""Escapes of special characters in a path for enroot-mount; see fstab(5)."""


class Enroot(Runtime, frozen=True):
    """The adapter of enroot."""

    def refusal(self, entry: Entry, host: Host) -> str:
        """Return the reason why enroot cannot start the entry on this machine; empty if it can."""
        if not host.user_namespaces and entry.person.uid != 0:
            return "enroot needs user namespaces, which are disabled on this machine"
        odd = next((bind for bind in entry.binds if ":" in bind.source + bind.target), None)
        changed = next((each.name for each in inherited_variables(entry) if set("\"'\n") & set(str(each.value))), "")
        return (
            _enroot_refusal(entry)
            or (f"enroot cannot mount a path with a colon: {odd.source}" if odd else "")
            or (f"enroot changes a value with quotes or line breaks: {changed}" if changed else "")
        )

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        variables = _enroot_variables(entry)
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


ENROOT = Enroot(
    name="enroot",
    program="enroot",
    package="enroot, squashfuse and fuse-overlayfs (https://github.com/NVIDIA/enroot)",
    traits=Traits(
        images=frozenset({ImageKind.SQUASHFS}),
        caller=f"only {PASSED_NAMES}",
        host_mpi=True,
        pmi2=False,
        unlike="an image's /etc/rc runs around the command; devices are visible even with --contain",
    ),
    proof="ran",
)


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


def mount_path_refusal(entry: Entry) -> str:
    """Return which mount srun's options cannot express, because they split at blanks, commas and colons."""
    odd = next((bind for bind in entry.binds if MOUNT_SEPARATORS.search(bind.source + bind.target)), None)
    return f"cannot mount {odd.source!r}: the path contains a blank, a comma or a colon" if odd else ""


def mount_of_srun(bind: Bind) -> str:
    """Return a mount as options of srun take it."""
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


OF_SRUN = frozenset({"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"})
"""Variables by which srun and its libraries are found."""

OF_SCRIPT = OF_SRUN | {"HOME", "TMPDIR", "IFS"}
"""Variables that a job script must not export: its own commands would follow them."""


class Pyxis(StepRuntime, frozen=True):
    """The adapter of pyxis."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - only compute nodes have the plug-in
        """Return the reason why pyxis cannot start the entry; empty if it can."""
        return mount_path_refusal(entry) or _enroot_refusal(entry)

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the values of ``--env NAME``: every user of the node can read an argument list."""
        return tuple(variable for variable in inherited_variables(entry) if variable.name not in OF_SCRIPT)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command that srun starts in the container."""
        inside = [assignment(each) for each in forced_variables(entry) if each.name in OF_SRUN]
        words = with_image_environment(entry, command, hint=LAYER_HINT)
        return ("env", *inside, *words) if inside else words

    def variables(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the variables to start srun with, except those that the script exports."""
        exported = self.exports(entry)
        return (*(each for each in _passed_by_srun(entry) if each not in exported), NO_LOGIN_SHELL)

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Return the srun options; ``--container-env`` lists the variables, because the image's values would win."""
        mounts = _pyxis_mounts(entry)
        names = ",".join(variable.name for variable in _passed_by_srun(entry) if "\n" not in text_of(variable.value))
        return (
            f"--container-image={image_argument(entry.image)}",
            _joined("--container-mounts=", mounts),
            _joined("--container-workdir=", (entry.workdir or ("/" if entry.contain else ShellExpr("$PWD")),)),
            "--no-container-mount-home" if entry.contain else "--container-mount-home",
            "--no-container-remap-root",
            "--no-container-entrypoint",
            "--container-readonly",
            *((f"--container-env={names}",) if names else ()),
            *entry.options,
        )


PYXIS = Pyxis(
    name="pyxis",
    program="srun",
    package="pyxis, a Slurm plug-in, with enroot (the site's administrators install it)",
    traits=Traits(
        images=frozenset({ImageKind.SQUASHFS, ImageKind.REGISTRY}),
        caller="all, except those that refer to host software; the image's own values win",
        host_mpi=True,
        pmi2=True,
    ),
    proof="ran",
)


def _passed_by_srun(entry: Entry) -> Iterator[Variable]:
    return (variable for variable in _enroot_variables(entry) if variable.name not in OF_SRUN)


def _pyxis_mounts(entry: Entry) -> tuple[Word, ...]:
    """Return the mounts, outer folders first; without the usual ones enroot provides a private, empty /tmp."""
    home_bind = Bind(entry.person.home, entry.person.home)  # it has an option of its own
    binds = [mount_of_srun(bind) for bind in entry.binds if bind != home_bind]
    if entry.contain:
        home: Word = f"tmpfs:{entry.person.home}:mode=700" if entry.person.home else ShellExpr("tmpfs:$HOME:mode=700")
        private = tuple(f"tmpfs:{place}:mode=1777" for place in (*TEMPORARY, SHARED_MEMORY))
        return (*(() if entry.person.home == "/" else (home,)), *private, *binds)
    return (*(f"{place}:{place}" for place in TEMPORARY), *binds, *(() if entry.workdir else (ShellExpr("$PWD:$PWD"),)))


def _joined(option: str, values: tuple[Word, ...]) -> Word:
    return join_words((option, join_words(values, ",", escape=in_double_quotes)), "")
