"""The parts of a profile that come in lists, each with its evidence and its condition; they decide nothing."""

# Without annotations as text (__future__): msgspec would evaluate each of them anew at every start.

import re
from typing import Annotated, Literal

import msgspec

from argosy.sites.conditions import Condition, parse_condition

Count = Annotated[int, msgspec.Meta(ge=0)]
Proof = Literal["documented", "validated"]

BRACES = re.compile(r"\{(\w*)\}")
LATE = ("user", "job", "infiniband", "devices")
"""What may stand in braces."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _refuse_no_variable(*names: str) -> None:
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a variable")


def _refuse_braces(text: str) -> None:
    for name in BRACES.findall(text):
        if name not in LATE:
            raise ValueError(f"{{{name}}} means nothing here; known: {', '.join('{' + each + '}' for each in LATE)}")


class Evident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every part of a profile carries.

    Attributes
    ----------
    source
        Public address of the fact, or a key of the profile's ``[sources]`` and the rest of the address.
    checked
        Date on which somebody last looked at the source; empty takes the profile's.
    sources
        For a part with several keys: key -> its own source, where it differs from `source`.
    proofs
        Keys whose value a run at the site has shown: key -> date, job and versions, as ``argosy sites merge`` writes.
    """

    why: str = ""
    source: str = ""
    checked: str = ""
    proof: Proof = "documented"
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    proofs: dict[str, str] = msgspec.field(default_factory=dict)


class Conditional(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part that holds under a condition: ``when = { nodes = "> 1", rocm = "< 6.2" }``; all must hold."""

    when: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a condition that nothing here understands."""
        parse_condition(self.when)

    @property
    def condition(self) -> Condition:
        """The condition, read."""
        return parse_condition(self.when)


class Setting(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that a site wants inside the container.

    Attributes
    ----------
    name
        Name of the variable.
    value
        Arrives as it is, whatever characters it holds.
    late
        Instead of `value`: text with ``{user}``, ``{job}`` or ``{infiniband}`` (``all`` if the job's first node has
        InfiniBand, else ``void``), known on the node only, or ``{devices}``, the list of the job's devices on a node
        (``0,1,2``).
    """

    name: str
    value: str = ""
    late: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no variable, and two values for one."""
        Conditional.__post_init__(self)
        _refuse_no_variable(self.name)
        _refuse_braces(self.late)
        if self.value and self.late:
            raise ValueError(f"{self.name} has both value and late: say one of them")


class Cache(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that is made on each node, and the variables that name it.

    Attributes
    ----------
    variables
        Names of the variables that are set to the path.
    path
        With the same braces as `Setting.late`.
    """

    variables: tuple[str, ...]
    path: str

    def __post_init__(self) -> None:
        """Refuse what is no variable, and a path of which a node would make another folder, or two."""
        Conditional.__post_init__(self)
        _refuse_no_variable(*self.variables)
        _refuse_braces(self.path)
        if not self.path.startswith("/") or len(self.path.split()) != 1:
            raise ValueError(f"path = {self.path!r} is no absolute path without blanks")


class SiteBind(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of the host that containers must see.

    Attributes
    ----------
    paths
        Absolute paths, the same on both sides.  One with ``*``, or all with `if_there`, are looked for on the node, and
        left out where they are not there: versioned libraries change their names with each update.
    if_there
        Whether all paths are looked for on the node.
    """

    paths: tuple[str, ...]
    if_there: bool = False

    def __post_init__(self) -> None:
        """Refuse a path that is not absolute."""
        Conditional.__post_init__(self)
        for path in self.paths:
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is no absolute path")


class Base(Evident, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An image to build on that a site has or recommends: ``[[images.bases]]``.

    Attributes
    ----------
    name
        As ``--base`` takes it.
    vendor
        Whose GPUs it is for; empty for a base without such software.
    rocm, cuda, oneapi, python, torch
        Versions of what is in it, as far as the source says; empty for what is not there or not known.
    holds
        What else is known to be in it; ``net-plugin`` is what brings RCCL or NCCL to the site's network.
    conda
        Prefix of a conda of its own, active without being asked; empty where there is none.
    enter
        How its own programs are reached: ``exec``; ``run``, by its start script; ``with-conda``, by the lines in
        ``$WITH_CONDA``, evaluated inside.
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


class Option(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A word that sbatch, srun or the runtime is given at this site.

    Attributes
    ----------
    to
        ``srun`` words are given where srun starts a task per rank; ``srun-always`` ones on any srun;
        an ``annotation`` is NAME=VALUE, for the hooks of a runtime that has such (edf).
    word
        One word, as the program takes it: ``--mpi=cray_shasta``.
    """

    to: Literal["sbatch", "srun", "srun-always", "runtime", "annotation"]
    word: str

    def __post_init__(self) -> None:
        """Refuse a word with a line break: no script has one."""
        Conditional.__post_init__(self)
        if "\n" in self.word:
            raise ValueError(f"{self.word!r} has a line break")


class Avoid(Conditional, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What job scripts must not say at this site; `why` tells what happens then.

    Attributes
    ----------
    word
        An option (``--gpus-per-task``), also with its value (``--mem=0``), or ``NAME=VALUE`` of a variable.
    instead
        What to say in its place.
    """

    word: str
    instead: str = ""


class Validated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``argosy sites validate`` found at the site, beyond the values that other parts hold.

    Attributes
    ----------
    date, job
        Of the run.
    versions
        Of Slurm and of the runtime that it ran with.
    facts
        Name -> what was found: ``attach.overlay`` -> ``yes``.
    """

    date: str = ""
    job: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    facts: dict[str, str] = msgspec.field(default_factory=dict)
