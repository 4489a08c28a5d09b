"""Apptainer and SingularityCE: one adapter for both.

Variables are set as ``APPTAINERENV_X`` or ``SINGULARITYENV_X`` with ``--no-eval`` (Apptainer >= 1.1, SingularityCE >=
3.11; Apptainer called as singularity reads both). A plain export loses to the image's own scripts, and without
``--no-eval`` backticks in a value are executed.
Both programs set the variables right after ``/.singularity.d/env/99-base.sh`` of the image. If an image has the folder
without this file, the variables are lost silently (action script in internal/pkg/util/fs/files; tested with 1.4.5), so
Argosy's images contain it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.core.layout import ROOT
from argosy.core.model import APPTAINER_FAMILIES, Attach, Bind, Entry, GpuMode, Host, Variable
from argosy.core.shell import Word
from argosy.runtimes.runtime import FILES, Runtime, Traits, forced_variables, with_image_environment

HARMLESS = frozenset(
    {
        "CACHEDIR",
        "LOCALCACHEDIR",
        "TMPDIR",
        "LOCALTMPDIR",
        "CONFIGDIR",
        "PULLDIR",
        "PULLFOLDER",
        "KEYSDIR",
        "DISABLE_CACHE",
        "DOCKER_HOST",
        "DOCKER_USERNAME",
        "DOCKER_PASSWORD",
        "AUTHFILE",
        "NOHTTPS",
        "ENCRYPTION_PASSPHRASE",
        "ENCRYPTION_PEM_PATH",
        "MESSAGELEVEL",
    }
)
"""Options that the caller may set because they do not change the container: cache folders, registry access."""

GPU_FLAGS: Mapping[GpuMode, tuple[str, ...]] = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--nv",),
    GpuMode.NVCCLI: ("--nv", "--nvccli"),
    GpuMode.ROCM: ("--rocm",),
}

BIND_SPECIAL = re.compile(r'[,:\\"\n]')
"""Characters with a meaning in ``-B``; a path that contains one needs ``--mount``."""

LAYER_HINT = (
    "unset APPTAINER_UNDERLAY and APPTAINER_UNSQUASH, ask for enable overlay = yes in apptainer.conf, "
    "or build the image with --format flat"
)


class ApptainerFamily(Runtime, frozen=True):
    """The adapter of Apptainer or SingularityCE; ``--no-eval`` needs Apptainer 1.1 or SingularityCE 3.11."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - only a start shows whether its starter works
        """Return the reason why this runtime cannot start the entry on this machine; empty if it can."""
        if entry.gpu not in GPU_FLAGS:
            return f"{self.name} does not support --gpu {entry.gpu}; use nv, nvccli or rocm"
        if BIND_SPECIAL.search(entry.dev):
            return f"{self.name} --overlay does not accept a path that contains a comma or a colon: {entry.dev}"
        if any(variable.name == "HOME" for variable in entry.variables):
            return f"{self.name} does not allow setting HOME; bind another directory at its path instead"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the variables with the prefix that the program reads."""
        family = self.program.upper()
        return tuple(Variable(f"{family}ENV_{each.name}", each.value) for each in forced_variables(entry))

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container.

        ``--quiet`` keeps warnings and errors, but hides the notes of each start, for example "gocryptfs not found".
        """
        image = entry.image
        return (
            self.program,
            "--quiet",
            "exec",
            "--no-eval",
            *GPU_FLAGS[entry.gpu],
            *(("--contain",) if entry.contain else ()),
            *_layer_words(entry),
            *(("--overlay", entry.dev) if entry.dev else ()),
            *(("--fakeroot",) if entry.fakeroot else ()),
            *_all_binds(entry.binds),
            *(("--pwd", entry.workdir) if entry.workdir else ()),
            *entry.options,
            image.path,
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


APPTAINER = ApptainerFamily(
    name="apptainer",
    program="apptainer",
    package="apptainer (EPEL, Debian sid, apptainer.org)",
    traits=Traits(
        images=FILES,
        caller="all, except those that refer to host software; the image's own values win",
        host_mpi=True,
        pmi2=True,
        node_binds=True,
        overlays=True,
        sees_cwd=True,
    ),
    proof="ran",
)
SINGULARITY = ApptainerFamily(
    name="singularity",
    program="singularity",
    package="singularity-ce (sylabs.io)",
    traits=APPTAINER.traits,
    proof="rendered",
)


def bind_option(bind: Bind, *, options: tuple[str, ...] = ()) -> tuple[str, str]:
    """Return the option for a bind mount: ``-B`` if the paths allow it, else ``--mount`` with a line of CSV."""
    extra = (*options, *(("ro",) if bind.read_only else ()))
    if not BIND_SPECIAL.search(bind.source + bind.target):
        target = (bind.target,) if extra or bind.target != bind.source else ()
        return "-B", ":".join((bind.source, *target, *((",".join(extra),) if extra else ())))
    fields = ("type=bind", f"src={bind.source}", f"dst={bind.target}", *extra)
    return "--mount", ",".join(map(_csv_field, fields))


def _all_binds(binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """Return the options for all bind mounts; simple ones become one list, for example ``-B /pfs,/scratch:/data``."""
    pairs = [bind_option(bind) for bind in binds]
    plain = [word for option, word in pairs if option == "-B"]
    others = [word for pair in pairs if pair[0] != "-B" for word in pair]
    return (*(("-B", ",".join(plain)) if plain else ()), *others)


def leaks(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the caller's variables that would change the container, so that they can be removed.

    Both programs read every option from ``<FAMILY>_<OPTION>`` (BIND, CONTAIN, NV, OVERLAY, UNDERLAY, …) and every
    variable of the container from ``<FAMILY>ENV_<NAME>``.
    """
    return tuple(
        name
        for name in sorted(environment)
        for family in APPTAINER_FAMILIES
        if name.startswith(f"{family}ENV_")
        or (name.startswith(f"{family}_") and name.removeprefix(f"{family}_") not in HARMLESS)
    )


def parse_bind_variables(environment: Mapping[str, str]) -> dict[Bind, str]:
    """Parse the bind mounts that a site's modules set (``APPTAINER_BIND``, ``SINGULARITY_BINDPATH``, …), with the name.

    A plan removes these variables (see `leaks`), adds their mounts itself and reports where they come from.
    """
    binds: dict[Bind, str] = {}
    for family in APPTAINER_FAMILIES:
        for key in ("BIND", "BINDPATH"):
            name = f"{family}_{key}"
            for text in environment.get(name, "").split(","):
                source, _, rest = text.strip().partition(":")
                target, _, options = rest.partition(":")
                if source:
                    binds[Bind(source, target or source, read_only=options == "ro")] = name
    return binds


def _layer_words(entry: Entry) -> tuple[str, ...]:
    """Return the options that mount the layer from the image file, if its overlay partition would be skipped."""
    if entry.attach is not Attach.BIND:
        return ()
    options = (f"id={entry.image.layer_part}", f"image-src={ROOT}")
    return bind_option(Bind(entry.image.path, ROOT), options=options)


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if BIND_SPECIAL.search(text) else text
