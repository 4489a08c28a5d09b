"""From the options of `argosy build`, `lock` and `bundle` to a `BuildRequest`: the command line and Python use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.builder.bases.engines import EngineOptions
from argosy.builder.on_node import NodeOptions
from argosy.builder.report import BuildRequest
from argosy.builder.request import NO_PATH, apply_project_file, split_sources
from argosy.core.model import Host
from argosy.core.records import replace
from argosy.images.formats import OutputFormat
from argosy.recipes.build_options import BUILD_ROWS, NODE_ROWS, BuildOptions
from argosy.recipes.option_row import plain_values
from argosy.slurm.times import slurm_time


def make_build_request(sources: Sequence[str], output: Path | None, given: Mapping[str, Any]) -> BuildRequest:
    """Return the request of these options; it reads no file.

    Parameters
    ----------
    sources
        Environment files, definition files and references, as the command line takes them.
    output
        The image file; None: the project file names it.
    given
        Options by name (see `BuildOptions`); other keys are ignored.

    Raises
    ------
    UsageError
        If several bases are given.
    """
    options = plain_values({name: value for name, value in given.items() if value}, BuildOptions)
    files, base = split_sources(sources, options.pop("base", ""))
    records: dict[str, dict[str, Any]] = {"request": {}, "engine": {}}
    for name, row in BUILD_ROWS.items():
        if name in options and row.record in records:
            records[row.record][row.field or name] = OutputFormat(options[name]) if name == "format" else options[name]
    path = output.absolute() if output else NO_PATH
    return BuildRequest(files, base, path, engine=EngineOptions(**records["engine"]), **records["request"])


def resolve_build_request(
    sources: Sequence[str], output: Path | None, given: Mapping[str, Any], host: Host
) -> BuildRequest:
    """Return the request of these options, completed by the project file that they name or that is in this folder.

    Raises
    ------
    UsageError
        If several bases are given, or nothing to build is given and there is no project file.
    """
    asked = make_build_request(sources, output, given)
    bundle = given.get("bundle")
    request = asked
    if asked.sources or not (sources or bundle):  # an image or a bundle alone needs no project file
        request = apply_project_file(asked, host)
    return replace(request, base=asked.base, bundle=Path(bundle)) if bundle else request


def make_node_options(given: Mapping[str, Any]) -> NodeOptions:
    """Return the options of the job in which an image is built (see `NodeJobOptions`)."""
    options = {name: given[name] for name in NODE_ROWS if given.get(name)}
    if "time" in options:
        options["time"] = slurm_time(options["time"])
    return NodeOptions(**options)
