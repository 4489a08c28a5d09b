"""Schedulers: who starts a job script; one function and one table row each, pure.

A scheduler turns a planned script into the words that submit it; ``{script}`` stands for the script's path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from argosy.core.errors import SiteError


def _local_submit(_directives: tuple[str, ...]) -> tuple[str, ...]:
    """No scheduler: the script is carried out here, by the shell."""
    return ("sh", "{script}")


def _slurm_submit(directives: tuple[str, ...]) -> tuple[str, ...]:
    """Submit to Slurm: sbatch prints the job id alone.

    A job that Slurm starts again, after a lost node or a preemption, would erase what its first run wrote: where its
    files are its own, it goes on with them.
    """
    files = [word for word in directives if word.startswith(("--output=", "--error="))]
    own = files and all(re.search(r"%\d*[jJA]", word) for word in files)
    said = any(word.startswith("--open-mode") for word in directives)
    return ("sbatch", "--parsable", *(("--open-mode=append",) if own and not said else ()), "{script}")


SCHEDULERS: Mapping[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = MappingProxyType(
    {"local": _local_submit, "slurm": _slurm_submit}
)


def plan_submit(name: str, directives: tuple[str, ...]) -> tuple[str, ...]:
    """Give the words that submit a script; `directives` are the options that it has.

    Raises
    ------
    SiteError
        When a profile names a scheduler that is not in the table.
    """
    if name not in SCHEDULERS:
        raise SiteError(f"the site's scheduler {name!r} is not known", evidence=f"known: {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name](directives)
