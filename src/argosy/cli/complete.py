"""Complete values on the command line; loaded only when a shell asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from click.shell_completion import CompletionItem

from argosy.cli.common import open_session
from argosy.core.errors import ArgosyError
from argosy.images.catalog import list_catalog
from argosy.jobs.history import past_jobs
from argosy.jobs.queues import list_queues
from argosy.recipes.user_config import KEYS, configured_site
from argosy.sites.load import load_site
from argosy.sites.read import search_path, site_names

JOBS = 50
"""Number of recent jobs that are offered."""

Parameters = Mapping[str, Any]
"""The values of the parameters that are already on the command line."""


def complete(kind: str, incomplete: str, parameters: Parameters) -> list[CompletionItem]:
    """Return the values of a kind that begin with a text; an error gives none, because it would break the prompt."""
    values: Iterable[str] = ()
    with contextlib.suppress(ArgosyError, OSError):
        values = COMPLETIONS[kind](parameters)
    found = [CompletionItem(value) for value in values if value.startswith(incomplete)]
    return [*found, *([CompletionItem(incomplete, type=FILES[kind])] if kind in FILES else [])]


def _partitions(parameters: Parameters) -> Iterable[str]:
    """Return the partitions of the site, else those of the Slurm on this machine."""
    site = configured_site(parameters.get("site") or "", os.environ)
    session = open_session(quiet=True)
    if site:
        return [partition.name for partition in load_site(site, session.host).partitions]
    return [queue.name for queue in list_queues(session)]


COMPLETIONS: Mapping[str, Callable[[Parameters], Iterable[str]]] = {
    "image": lambda _: [str(held.name) for held in list_catalog(open_session(quiet=True))],
    "site": lambda _: site_names(search_path(os.environ, Path.cwd())),
    "job": lambda _: [job.id for job in past_jobs(open_session(quiet=True), most=JOBS)],
    "partition": _partitions,
    "key": lambda _: KEYS,
    "file": lambda _: (),
    "folder": lambda _: (),
}
"""Kind of value -> function that returns all values."""

FILES = {"image": "file", "site": "file", "file": "file", "folder": "dir"}
"""Kinds for which the shell offers files or folders in addition."""
