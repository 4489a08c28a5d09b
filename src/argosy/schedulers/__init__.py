"""Schedulers: who starts a job script; one function and one table row each, pure.

A scheduler turns a planned script into the words that submit it; ``{script}`` stands for the script's path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from argosy.errors import SiteError


def local_submit() -> tuple[str, ...]:
    """No scheduler: the script is carried out here, by the shell."""
    return ("sh", "{script}")


def slurm_submit() -> tuple[str, ...]:
    """Submit to Slurm: sbatch prints the job id alone."""
    return ("sbatch", "--parsable", "{script}")


SCHEDULERS: Mapping[str, Callable[[], tuple[str, ...]]] = MappingProxyType(
    {"local": local_submit, "slurm": slurm_submit}
)


def plan_submit(name: str) -> tuple[str, ...]:
    """Give the words that submit a script.

    Raises
    ------
    SiteError
        When a profile names a scheduler that is not in the table.
    """
    if name not in SCHEDULERS:
        raise SiteError(f"the site's scheduler {name!r} is not known", evidence=f"known: {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name]()
