"""Join the options of a command with those of the project file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from argosy.core.errors import UsageError
from argosy.core.model import Choice, Mark
from argosy.core.suggest import did_you_mean
from argosy.recipes.launch_options import LaunchOptions
from argosy.recipes.option_row import is_list, plain_values, types
from argosy.recipes.user_config import is_same_site

if TYPE_CHECKING:
    from argosy.recipes.project_file import Project  # most folders have no project file

LISTS = tuple(name for name, kind in types(LaunchOptions).items() if is_list(kind) and name != "signed_by")
"""Options that may be repeated: values of the project file come first; ``signed_by`` is replaced instead."""


OF_SITE = ("account", "partition", "qos", "constraint", "reservation", "mode", "gpu_type", "nodelist", "exclude")
"""Options whose values are names of one site: at another one, they mean nothing, or something else."""

OF_GPUS = ("gpus", "gpus_per_node", "gpu_type", "mem_per_gpu")


def with_job(project: Project, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job: those of ``[launch]``, overridden by ``[job.NAME]`` and by given options.

    `options` has only the options that were given.
    """
    jobs = project.table.job
    if name not in jobs:
        raise UsageError(
            f"there is no job {name!r} in {project.shown}",
            evidence=f"its jobs: {', '.join(jobs) or 'none'}",
            hint=did_you_mean(name, jobs, "an image needs a command: argosy launch IMAGE -- COMMAND"),
        )
    words = _join(project, options, name)
    if "image" not in words and project.table.image.output:
        words["sources"]["image"] = (project.output.name, project.where("image", "output"))
    return {"image": str(project.output), "name": name} | words


def with_defaults(project: Project, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a launch without a job: those of ``[launch]``, overridden by given ones."""
    return _join(project, options, "")


def _join(project: Project, options: Mapping[str, Any], job: str) -> dict[str, Any]:
    """Join the tables of the file with given options.

    ``sources`` has the value and the place of each option that the file sets; ``unused`` has a choice for each name of
    another site.
    """
    options = plain_values(options, LaunchOptions)
    tables: dict[tuple[str, ...], dict[str, Any]] = {("launch",): _table_options(project.table.launch.given(), options)}
    if job:
        tables["job", job] = _table_options(project.table.job[job].given(), options)
    words, places, unused = _join_tables(project, tables, options)
    sources = {key: (_one_line(words[key]), places[key]) for key in words if key not in options and key not in LISTS}
    pairs = (text.partition("=") for text in words.get("env", ()))  # other lists appear unchanged in the script
    sources |= {f"env.{name}": (value, places["env"]) for name, _, value in pairs}
    lists = {key: (*words.get(key, ()), *options.get(key, ())) for key in LISTS}
    return words | options | lists | {"sources": sources, "unused": unused}


def _join_tables(
    project: Project, tables: Mapping[tuple[str, ...], Mapping[str, Any]], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], tuple[Choice, ...]]:
    """Join tables of the file, of which later ones take precedence: values, their places, and names that do not count.

    A table belongs to the site that its key ``site`` names, or else to the site of the table before it. Its partition,
    account and other names of that site do not count if the launch has another site. Without any site in the file, they
    count at every site.
    """
    words: dict[str, Any] = {}
    places: dict[str, str] = {}
    unused: list[Choice] = []
    own = why = ""
    sites = [table["site"] for table in tables.values() if "site" in table]
    chosen = str(options.get("site") or (sites[-1] if sites else ""))
    for path, table in tables.items():
        if "site" in table:
            own, why = table["site"], f"not used: for the site {table['site']} ({project.where(*path, 'site')})"
        for key, value in table.items():
            place = project.where(*path, key)
            if key not in OF_SITE or not own or is_same_site(own, chosen):
                words[key], places[key] = value, place
            elif key not in options:
                row = Choice(f"[{'.'.join(path)}] {key}", _one_line(value), why, place, mark=Mark.UNUSED)
                unused.append(row)
    return words, places, tuple(unused)


def _table_options(table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a table of the project file; ``--gpu none`` overrides its numbers of GPUs."""
    dropped = OF_GPUS if options.get("gpu") == "none" else ()
    return {key: value for key, value in plain_values(table, LaunchOptions).items() if key not in dropped}


def _one_line(value: object) -> str:
    """Return the value of an option as one line of text: lists with blanks, true as ``yes``."""
    if value is True:
        return "yes"
    return re.sub(r"\s+", " ", " ".join(map(str, value)) if isinstance(value, tuple) else str(value))
