"""Apptainer and SingularityCE: one adapter, two table rows; words only.

Every variable is forced as ``APPTAINERENV_X`` or ``SINGULARITYENV_X`` under ``--no-eval`` (Apptainer >= 1.1,
SingularityCE >= 3.11; Apptainer under its second name, singularity, reads both): a plain export loses to the image's
own scripts, and without it backticks in a value run.
Both set them right after the image's ``/.singularity.d/env/99-base.sh``: an image that has the folder and not this file
loses them without a word (action script in internal/pkg/util/fs/files; tried with 1.4.5), so Argosy's images have one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from argosy.core.layout import ROOT
from argosy.core.model import Attach, Bind, Entry, GpuMode, Host, Variable
from argosy.core.shell import Word
from argosy.runtimes.runtime import FILES, Traits, forced_variables, with_image_environment

FAMILIES = ("APPTAINER", "SINGULARITY")
"""Prefixes of the variables that both programs read; Apptainer takes the second as well."""

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
"""What the caller may set without changing the container: where caches lie, how registries are reached."""

GPU_FLAGS: Mapping[GpuMode, tuple[str, ...]] = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--nv",),
    GpuMode.NVCCLI: ("--nv", "--nvccli"),
    GpuMode.ROCM: ("--rocm",),
}

ODD = re.compile(r'[,:\\"\n]')
"""Signs that ``-B`` gives a meaning of its own, so that such a path needs ``--mount``."""

LAYER_HINT = (
    "unset APPTAINER_UNDERLAY and APPTAINER_UNSQUASH, ask for enable overlay = yes in apptainer.conf, "
    "or build the image with --flatten"
)


TRAITS = Traits(
    images=FILES,
    caller="all of it, except what names software of the host; an image's own value wins",
    late_binds=True,
    overlays=True,
)


class ApptainerFamily(msgspec.Struct, frozen=True):
    """One program of the family; ``--no-eval`` is of Apptainer 1.1 and SingularityCE 3.11."""

    name: str
    program: str
    package: str
    proof: str
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - whether its starter works, only a start tells
        """Say why this runtime cannot do what is asked on this machine; empty where it can."""
        if entry.gpu not in GPU_FLAGS:
            return f"{self.name} has no option for GPUs by '{entry.gpu}'; it knows nv, nvccli and rocm"
        if ODD.search(entry.dev):
            return f"{self.name} --overlay takes no folder with one of , : in its name: {entry.dev}"
        if any(variable.name == "HOME" for variable in entry.variables):
            return f"{self.name} does not let HOME be set; bind another directory onto it instead"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give each variable under the name that the program of this name reads."""
        family = self.program.upper()
        return tuple(Variable(f"{family}ENV_{each.name}", each.value) for each in forced_variables(entry))

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container.

        ``--quiet`` leaves warnings and errors, and drops the remarks that each start prints ("gocryptfs not found").
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
            *_all_binds(entry.binds),
            *(("--pwd", entry.workdir) if entry.workdir else ()),
            image.path,
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


APPTAINER = ApptainerFamily(
    name="apptainer",
    program="apptainer",
    package="apptainer (EPEL, Debian sid, apptainer.org)",
    proof="ran",
)
SINGULARITY = ApptainerFamily(
    name="singularity", program="singularity", package="singularity-ce (sylabs.io)", proof="rendered"
)


def bind_words(bind: Bind, *, options: tuple[str, ...] = ()) -> tuple[str, str]:
    """Say one bind mount: as ``-B`` where the paths allow it, else as ``--mount``, whose words are one line of CSV."""
    extra = (*options, *(("ro",) if bind.read_only else ()))
    if not ODD.search(bind.source + bind.target):
        target = (bind.target,) if extra or bind.target != bind.source else ()
        return "-B", ":".join((bind.source, *target, *((",".join(extra),) if extra else ())))
    fields = ("type=bind", f"src={bind.source}", f"dst={bind.target}", *extra)
    return "--mount", ",".join(map(_csv_field, fields))


def _all_binds(binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """Say bind mounts: those that need no words of their own as one list, as ``-B /pfs,/scratch:/data``."""
    pairs = [bind_words(bind) for bind in binds]
    plain = [word for option, word in pairs if option == "-B"]
    others = [word for pair in pairs if pair[0] != "-B" for word in pair]
    return (*(("-B", ",".join(plain)) if plain else ()), *others)


def leaks(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Name the caller's variables that would change the container behind the plan's back, so that they can be removed.

    Both programs read every option from ``<FAMILY>_<OPTION>`` (BIND, CONTAIN, NV, OVERLAY, UNDERLAY, …; releases add
    more) and every variable of the container from ``<FAMILY>ENV_<NAME>``.
    """
    return tuple(
        name
        for name in sorted(environment)
        for family in FAMILIES
        if name.startswith(f"{family}ENV_")
        or (name.startswith(f"{family}_") and name.removeprefix(f"{family}_") not in HARMLESS)
    )


def parse_bind_variables(environment: Mapping[str, str]) -> tuple[Bind, ...]:
    """Read the bind mounts that modules of a site set (``APPTAINER_BIND``, ``SINGULARITY_BINDPATH``, …).

    A plan that removes these variables (see `leaks`) can carry their mounts itself, and say where they come from.
    """
    binds: dict[Bind, None] = {}
    for family in FAMILIES:
        for key in ("BIND", "BINDPATH"):
            for text in environment.get(f"{family}_{key}", "").split(","):
                source, _, rest = text.strip().partition(":")
                target, _, options = rest.partition(":")
                if source:
                    binds[Bind(source, target or source, read_only=options == "ro")] = None
    return tuple(binds)


def _layer_words(entry: Entry) -> tuple[str, ...]:
    """Bind the layer out of the image's own file, where its overlay partition would be skipped."""
    if entry.attach is not Attach.BIND:
        return ()
    options = (f"id={entry.image.layer_part}", f"image-src={ROOT}")
    return bind_words(Bind(entry.image.path, ROOT), options=options)


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if ODD.search(text) else text
