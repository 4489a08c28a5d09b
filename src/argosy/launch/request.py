"""From options to a request; options take precedence over variables, the project file and configuration files.

The names are those of the options with ``_`` for ``-``; the keys of ``[job.NAME]`` in ``argosy.toml`` and of the
configuration files are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.render import count
from argosy.launch.model import LaunchRequest, ResourceRequest, as_pattern
from argosy.recipes.job_options import with_defaults, with_job
from argosy.recipes.launch_options import LAUNCH, LaunchOptions
from argosy.recipes.option_row import PROJECT_FILE, Row, option_name, plain_values
from argosy.recipes.user_config import KEYS, ConfigSetting, read_files, read_variables
from argosy.runtimes.container_plan import parse_container, parse_versions
from argosy.slurm.option_checks import refuse_invalid_mpi
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions, complete_argument
from argosy.slurm.times import slurm_time

PATTERNS = ("output", "error")
"""Paths in which Slurm replaces patterns such as ``%j``."""


def read_request(typed: Mapping[str, Any], host: Host) -> LaunchRequest:
    """Return the request of these options, completed by variables, the project file and the configuration files.

    Parameters
    ----------
    typed
        The options that the user typed, or passed to the Python API. An ``image`` that is the name of a job takes the
        job's image and command.

    Raises
    ------
    UsageError
        If there is neither a command nor a job of that name, or a value is not valid.
    """
    # First: typed options. Second: Argosy's variables.
    variables = [each for each in read_variables(host.environment, LAUNCH).values() if not typed.get(each.key)]
    options = dict(typed) | {setting.key: setting.value for setting in variables}
    # Third: the project file. Its lists are joined with the typed ones.
    joined = _join_project(options, Path(host.cwd, PROJECT_FILE))
    # Fourth: the configuration files. A variable of sbatch, which the plan reads later, takes precedence over them.
    preset = {key for key, variable in USER_DEFAULTS.items() if host.environment.get(variable)}
    files = read_files(host.environment, LAUNCH, site=joined.get("site") or "").values()
    defaults = [each for each in files if not joined.get(each.key) and each.key not in preset]
    sources = joined.get("sources", {}) | {each.key: (each.value, each.source) for each in (*variables, *defaults)}
    values = {each.key: each.value for each in defaults}
    return make_request(joined | values | {"sources": sources}, host)


def _join_project(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Join options with the project file of the current folder, if there is one."""
    if not path.is_file():
        return dict(options)
    from argosy.recipes.project_file import read_project_here  # noqa: PLC0415 - most folders have no project file

    project, name = read_project_here(path), str(options["image"])
    if name in project.table.job or not (options.get("command") or "/" in name or Path(name).exists()):
        return with_job(project, name, {key: value for key, value in options.items() if key != "image"})
    return with_defaults(project, options)


def configured_settings(host: Host) -> dict[str, ConfigSetting]:
    """Return every configured value and its source, as a launch in the current folder uses them.

    Raises
    ------
    UsageError
        If the project file or a configuration file is not valid.
    """
    found: dict[str, ConfigSetting] = {}
    presets = {key: name for key, name in USER_DEFAULTS.items() if host.environment.get(name)}
    found |= {key: ConfigSetting(key, host.environment[name], name) for key, name in presets.items()}
    path = Path(host.cwd, PROJECT_FILE)
    if path.is_file():
        from argosy.recipes.project_file import read_project_here  # noqa: PLC0415 - most folders have no project file

        project = read_project_here(path)
        site = read_variables(host.environment, ("site",))
        written = with_defaults(project, {key: each.value for key, each in site.items()})["sources"]
        found |= {key: ConfigSetting(key, value, source) for key, (value, source) in written.items()}
    found |= read_variables(host.environment)
    found = read_files(host.environment, site=found["site"].value if "site" in found else "") | found
    return {key: found[key] for key in KEYS if key in found}


def make_request(options: Mapping[str, Any], host: Host) -> LaunchRequest:
    """Return the request of these options; paths are made absolute from the current folder.

    Parameters
    ----------
    options
        Options by name, with ``_`` for ``-`` (see `LaunchOptions`), ``image`` and ``command``. ``sources`` has those of
        them that the user did not type (see `LaunchRequest.sources`), and ``unused`` a choice for each value of the
        project file that is for another site.

    Raises
    ------
    UsageError
        If the value of an option is not valid.
    """
    options = plain_values({key: value for key, value in options.items() if value}, LaunchOptions)
    records: dict[str, dict[str, Any]] = {"shape": {}, "slurm": {}, "request": {}}
    for name, row in LAUNCH.items():
        if name in options and row.record in records:
            records[row.record][row.field or name] = _convert(name, row, options, host)
    return LaunchRequest(
        image=options.get("image", ""),
        command=tuple(options.get("command", ())),
        resources=_with_ranks_per_node(ResourceRequest(**records["shape"]), options.get("ranks_per_node", 0)),
        options=JobOptions(**records["slurm"]),
        sources=options.get("sources", {}),
        choices=options.get("unused", ()),
        container=parse_container(options, host.environment),
        **records["request"],
    )


def _convert(name: str, row: Row, options: Mapping[str, Any], host: Host) -> Any:
    """Return the value that the request's record has for an option."""
    value = options[name]
    if row.path:
        return _absolute(name, options, host)
    match name:
        case "time":
            return slurm_time(value)
        case "after":
            return f"afterok:{value.replace(',', ':')}"
        case "debug":
            return tuple(filter(None, value.split(",")))
        case "image_has":
            return parse_versions(value)
        case "sbatch_arg":
            value = tuple(map(complete_argument, value))
        case "mpi":
            refuse_invalid_mpi(value, options.get("sources", {}).get("mpi", ("", ""))[1])
    return value


def _absolute(name: str, options: Mapping[str, Any], host: Host) -> str:
    """Return the absolute path of an option.

    A relative path begins in the current folder. The path of an output file begins in the folder of ``--chdir``,
    because sbatch resolves it there.
    """
    path = parse_path(options[name])
    if name not in PATTERNS:
        return str(Path(host.cwd, path))
    folder = str(Path(host.cwd, parse_path(options.get("chdir", ""))))
    return str(Path(as_pattern(folder), path))


def _with_ranks_per_node(resources: ResourceRequest, each: int) -> ResourceRequest:
    """Return the requested resources with the ranks of all nodes.

    Raises
    ------
    UsageError
        If the number of nodes is not given, or ``--ranks`` is another number.
    """
    if not each:
        return resources
    if not resources.nodes and resources.gpus:
        raise UsageError(
            "--ranks-per-node needs --nodes",
            evidence=f"--ranks-per-node {each} --gpus {resources.gpus}",
            hint="add --nodes, or give all ranks of the job with --ranks",
        )
    nodes = resources.nodes or 1
    ranks = each * nodes
    if resources.ranks not in {0, ranks}:
        raise UsageError(
            f"--ranks {resources.ranks} contradicts --ranks-per-node {each}",
            evidence=f"{count(nodes, 'node')} with {count(each, 'rank')} each have {count(ranks, 'rank')}",
            hint="use one of the two options",
        )
    return replace(resources, ranks=ranks)


NAMES = ("site", "mode", "launcher", "runtime", "partition")
"""Keys whose values errors quote."""


@contextmanager
def locate_given_values(request: LaunchRequest) -> Iterator[None]:
    """Add the file and line, or the variable, of each value that an error quotes and the user did not type.

    If the error asks for an option, also add the value that the project file has for it, but for another site.
    """
    try:
        yield
    except (UsageError, SiteError) as error:
        lines = [error.evidence]
        for key, (value, source) in request.sources.items():
            quoted = key in NAMES and re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", error.what)
            if quoted and source not in error.evidence:
                lines.append(f"{source}: {key} = {value}")
        lines += (
            f"{choice.source}: {choice.key} = {choice.value}: {choice.why}"
            for choice in request.choices
            if choice.mark is Mark.UNUSED and option_name(choice.key.rpartition(" ")[2]) in error.what.split()
        )
        error.evidence = "\n".join(filter(None, lines))
        raise


CHOICE_OF_KEY: Mapping[str, str] = {
    "gpus": ChoiceKey.GPUS_PER_NODE,
    "gpus_per_node": ChoiceKey.GPUS_PER_NODE,
    "cpus_per_rank": ChoiceKey.CORES_PER_RANK,
    "nodes": ChoiceKey.NODES,
    "launcher": ChoiceKey.LAUNCHER,
    "runtime": ChoiceKey.RUNTIME,
    "gpu": ChoiceKey.GPU,
    "mode": ChoiceKey.MODE,
    "partition": ChoiceKey.PARTITION,
    "image": "image",
    "command": "command",
    "site": "site",
    "signed_by": ChoiceKey.SIGNED_BY,
}
"""Key of a job in the project file -> key of the choice that it makes; any other key is an option of that name."""


def with_sources(choices: tuple[Choice, ...], sources: Mapping[str, tuple[str, str]]) -> tuple[Choice, ...]:
    """Add the source to the choices whose value the user did not type, and a choice for each such value that has none.

    Parameters
    ----------
    sources
        As in `LaunchRequest`; a variable of the job has the key ``env.NAME``.
    """
    names = {_name(key, choices): (value, source) for key, (value, source) in sources.items()}
    sourced = tuple(
        replace(choice, source=names[choice.key][1], why=_why(choice.why, names[choice.key][1]))
        if choice.key in names and choice.source in {"option", "default"}
        else choice
        for choice in choices
    )
    missing = set(names) - {choice.key for choice in choices}
    rows = (
        Choice(key, value, _why("requested", source), source)
        for key, (value, source) in names.items()
        if key in missing
    )
    return (*sourced, *rows)


def _why(why: str, source: str) -> str:
    """Name the configuration file that set a value: nobody requested it for this job."""
    return f"default in {source}" if why == "requested" and source.startswith("/") else why


def _name(key: str, choices: tuple[Choice, ...]) -> str:
    if key.startswith("env."):
        return key.removeprefix("env.")
    if key == "ranks":
        is_local = any(choice.key == ChoiceKey.RANKS for choice in choices)
        return ChoiceKey.RANKS if is_local else ChoiceKey.RANKS_PER_NODE
    name = option_name(key)  # unused options are listed by this name
    return name if any(choice.key == name for choice in choices) else CHOICE_OF_KEY.get(key, name)
