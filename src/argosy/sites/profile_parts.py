"""Define the parts of a profile that come in lists, each with its evidence and condition."""

# No `from __future__ import annotations`: msgspec would evaluate each annotation again at every start.

import re
from typing import Annotated, Literal

import msgspec

from argosy.sites.conditions import Condition, parse_condition

Count = Annotated[int, msgspec.Meta(ge=0)]
Proof = Literal["documented", "validated"]

BRACES = re.compile(r"\{(\w*)\}")
LATE = ("user", "job", "infiniband", "devices")
"""Names that a text may contain in braces."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _refuse_invalid_names(*names: str) -> None:
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of a variable; write letters, digits and _ only")


def _refuse_unknown_braces(text: str) -> None:
    for name in BRACES.findall(text):
        if name not in LATE:
            raise ValueError(f"{{{name}}} is unknown; known: {', '.join('{' + each + '}' for each in LATE)}")


class Evident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The evidence that every part of a profile has.

    Attributes
    ----------
    source
        Public URL, or a key of the profile's ``[sources]`` and the rest of the URL.
    checked
        Date when somebody last read the source; empty: the date of the profile.
    sources
        For a part with several keys: key -> its source, if it differs from `source`.
    proofs
        Validated keys: key -> date, job and versions of the run. ``argosy sites merge`` writes it.
    """

    why: str = ""
    source: str = ""
    checked: str = ""
    proof: Proof = "documented"
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    proofs: dict[str, str] = msgspec.field(default_factory=dict)


class Conditional(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part with a condition: ``when = { nodes = "> 1", rocm = "< 6.2" }``. All comparisons must hold."""

    when: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject an invalid condition."""
        parse_condition(self.when)

    @property
    def condition(self) -> Condition:
        """The parsed condition."""
        return parse_condition(self.when)


class Setting(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that the site sets inside the container.

    Attributes
    ----------
    name
        Name of the variable.
    value
        Verbatim value.
    late
        Instead of `value`: a text with ``{user}``, ``{job}``, ``{devices}`` (the job's devices on a node: ``0,1,2``) or
        ``{infiniband}`` (``all`` if the first node of the job has InfiniBand, else ``void``).
    """

    name: str
    value: str = ""
    late: str = ""

    def __post_init__(self) -> None:
        """Reject invalid names, and a setting with two values."""
        Conditional.__post_init__(self)
        _refuse_invalid_names(self.name)
        _refuse_unknown_braces(self.late)
        if self.value and self.late:
            raise ValueError(f"{self.name} has both value and late; keep one of them")


class Cache(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that is created on each node, and the variables that contain its path.

    Attributes
    ----------
    variables
        Names of the variables that are set to the path.
    path
        Absolute path; may contain the same names in braces as `Setting.late`. It needs ``{user}`` or ``{job}``,
        because each user needs a separate folder. A rank ends with code 7 if another user owns the folder or can
        replace it: write ``/tmp/{user}-NAME-{job}``, not ``/tmp/{user}/NAME``, which another user may create first.
        The folder stays on the node after the job, unless the site empties it.
    """

    variables: tuple[str, ...]
    path: str

    def __post_init__(self) -> None:
        """Reject invalid names, and paths that a node would read as another path or as two."""
        Conditional.__post_init__(self)
        _refuse_invalid_names(*self.variables)
        _refuse_unknown_braces(self.path)
        if not self.path.startswith("/") or len(self.path.split()) != 1:
            raise ValueError(f"path = {self.path!r} is not an absolute path without blanks")


class SiteBind(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of the host that containers need.

    Attributes
    ----------
    paths
        Absolute paths, the same on host and container. Paths with ``*``, and all paths with `if_there`, are searched on
        the node and skipped if they do not exist: versioned libraries change their names with each update.
    if_there
        Whether all paths are optional.
    """

    paths: tuple[str, ...]
    if_there: bool = False

    def __post_init__(self) -> None:
        """Reject relative paths."""
        Conditional.__post_init__(self)
        for path in self.paths:
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is not an absolute path; write the path from / on")


ENTER_PHRASES = {
    "exec": "",
    "run": "entered by its start script (run)",
    "with-conda": "entered by the lines in $WITH_CONDA, evaluated inside",
}
"""Way to enter an image -> its description."""


class SiteBase(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A base image that the site provides or recommends: ``[[images.bases]]``.

    Attributes
    ----------
    name
        Reference for ``--base``.
    vendor
        Vendor of the GPUs that it supports; empty for a base without GPU software.
    rocm, cuda, oneapi, python, torch
        Versions of its software; empty if absent or unknown.
    holds
        Other software that it contains; ``net-plugin`` connects NCCL or RCCL to the network of the site.
    conda
        Prefix of a conda installation that is always active; empty without one.
    enter
        How to enter it: ``exec``, ``run`` (by its runscript) or ``with-conda`` (by the lines in ``$WITH_CONDA``).
    """

    name: str
    vendor: Literal["", "amd", "intel", "nvidia"] = ""
    rocm: str = ""
    cuda: str = ""
    oneapi: str = ""
    python: str = ""
    torch: str = ""
    holds: tuple[Literal["python", "torch", "mpi", "libfabric", "net-plugin"], ...] = ()
    conda: str = ""
    enter: Literal["exec", "run", "with-conda"] = "exec"


class SiteOption(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An argument that the site adds to sbatch, srun or the container runtime.

    Attributes
    ----------
    to
        ``sbatch``: the job; ``srun``: the srun that starts a task per rank; ``srun-always``: every srun; ``runtime``:
        the program of the container runtime; ``annotation``: NAME=VALUE for the hooks of the runtime edf.
    word
        One argument: ``--mpi=cray_shasta``.
    """

    to: Literal["sbatch", "srun", "srun-always", "runtime", "annotation"]
    word: str

    def __post_init__(self) -> None:
        """Reject an argument with a line break."""
        Conditional.__post_init__(self)
        if "\n" in self.word:
            raise ValueError(f"{self.word!r} has a line break; write one argument")


class Avoid(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An option or variable that the site advises against, for the reason in `why`: a launch prints a note, and starts.

    Attributes
    ----------
    word
        An option (``--gpus-per-task``), also with its value (``--mem=0``), or ``NAME=VALUE`` of a variable.
    instead
        Argument to use instead.
    """

    word: str
    instead: str = ""


class Validated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Results of ``argosy sites validate`` that are not values of other parts.

    Attributes
    ----------
    date, job
        Date and job id of the run.
    versions
        Versions of Slurm and of the runtime during the run.
    facts
        Name of the fact -> result: ``attach.overlay`` -> ``yes``.
    """

    date: str = ""
    job: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    facts: dict[str, str] = msgspec.field(default_factory=dict)
