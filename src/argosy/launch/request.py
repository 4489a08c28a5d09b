"""From words to a request: options by name, a job of the project file, or both, where options win; it reads no file.

The names are those of the options with ``_`` for ``-``; the keys of ``[job.NAME]`` in ``argosy.toml`` are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.core.errors import UsageError
from argosy.core.model import Choice, Host
from argosy.core.records import replace
from argosy.core.suggest import suggest_word
from argosy.launch.model import LaunchRequest
from argosy.launch.names import as_pattern, option
from argosy.launch.shape import Wanted
from argosy.runtimes.container_plan import parse_container, parse_versions
from argosy.slurm.text import JobOptions

if TYPE_CHECKING:
    from argosy.recipes.project_tables import Project


SHAPE = Wanted.__struct_fields__
JOB = tuple(name for name in JobOptions.__struct_fields__ if name != "dependency")
PATHS = ("output", "error", "chdir", "log_dir", "checkpoint")
PATTERNS = ("output", "error")
"""Paths in which Slurm fills in what stands after a percent sign."""

LISTS = ("bind", "env", "torchrun_arg", "sbatch_arg", "before")
"""Options that may be given several times: those of the file come first."""

RESTARTS, TOPICS, STAGE = 10, "net,torch", "/tmp"  # noqa: S108 - a node's own, the usual place
"""What ``--resume``, ``--debug`` and ``--stage-to`` mean without a value."""


def make_request(words: Mapping[str, Any], host: Host) -> LaunchRequest:
    """Make a request of words; paths are made absolute from the current folder.

    Raises
    ------
    UsageError
        When a bind mount, a variable or a way for GPUs is none.
    """
    said = {key: value for key, value in words.items() if value}
    for key in PATHS:
        if key in said:
            folder = as_pattern(host.cwd) if key in PATTERNS else host.cwd
            said[key] = str(Path(folder, Path(said[key]).expanduser()))
    after = str(said.get("after", "")).replace(",", ":")
    options = {name: said[name] for name in JOB if name in said}
    return LaunchRequest(
        image=said.get("image", ""),
        command=tuple(said.get("command", ())),
        site=said.get("site", "local"),
        wanted=Wanted(**{name: said[name] for name in SHAPE if name in said}),
        launcher_arguments=tuple(said.get("torchrun_arg", ())),
        options=JobOptions(**options, dependency=f"afterok:{after}" if after else ""),
        extra=tuple(said.get("sbatch_arg", ())),
        restarts=said.get("resume", 0),
        debug=tuple(filter(None, str(said.get("debug", "")).split(","))),
        logs=said.get("log_dir", ""),
        image_has=parse_versions(str(said.get("image_has", ""))),
        before=tuple(said.get("before", ())),
        given=said.get("given", {}),
        container=parse_container(said, host.environment),
        **{name: said[name] for name in PLAIN if name in said},
    )


PLAIN = ("launcher", "mpi", "mode", "name", "checkpoint", "label", "gpu_type", "elastic", "stage_to", "no_check")
"""Options whose words a request takes as they are."""


def with_job(project: Project, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Join what ``[launch]`` and ``[job.NAME]`` of the project file say with the options given: the last of them wins.

    Parameters
    ----------
    options
        Only what was given: an absent key leaves the file's value.

    Raises
    ------
    UsageError
        When the file has no such job; the nearest is named.
    """
    jobs = project.table.job
    if name not in jobs:
        near = suggest_word(name, jobs)
        raise UsageError(
            f"there is no job {name!r} in {project.shown}",
            evidence=f"its jobs: {', '.join(jobs) or 'none'}",
            hint=f"did you mean {near}?" if near else "an image needs a command: argosy launch IMAGE -- COMMAND",
        )
    usual, own = _words(project.table.launch.given()), _words(jobs[name].given())
    words: dict[str, Any] = {"image": str(project.output), "name": name} | usual | own
    paths = {
        key: project.where("job", name, key) if key in own else project.where("launch", key) for key in usual | own
    }
    given = {key: (_text(words[key]), paths[key]) for key in paths if key not in options and key not in LISTS}
    if "image" not in paths | dict(options) and project.table.image.output:
        given["image"] = (project.output.name, project.where("image", "output"))
    for key in LISTS:
        given |= _given_list(key, words, paths)
        words[key] = (*words.get(key, ()), *options.get(key, ()))
    return words | {key: value for key, value in options.items() if key not in LISTS} | {"given": given}


def with_defaults(project: Project, options: Mapping[str, Any]) -> dict[str, Any]:
    """Join what ``[launch]`` of the project file says with the options of a launch that is no job of the file."""
    usual = _words(project.table.launch.given())
    words = usual | {key: value for key, value in options.items() if key not in LISTS}
    given = {
        key: (_text(usual[key]), project.where("launch", key))
        for key in usual
        if key not in options and key not in LISTS
    }
    for key in LISTS:
        given |= _given_list(key, usual, {key: project.where("launch", key)})
        words[key] = (*usual.get(key, ()), *options.get(key, ()))
    return words | {"given": given}


def _given_list(key: str, words: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name the place in the file of each variable; other lists need none, since the script shows them as they are."""
    if key != "env":
        return {}
    pairs = (text.partition("=") for text in words.get("env", ()))
    return {f"env.{name}": (value, paths["env"]) for name, _, value in pairs}


def _words(table: Mapping[str, Any]) -> dict[str, Any]:
    """Say a table's values as options have them: true as the option without a value, ``env`` as NAME=VALUE."""
    out = dict(table)
    if out.get("resume") is True:
        out["resume"] = RESTARTS
    if out.get("debug") is True:
        out["debug"] = TOPICS
    if out.get("stage_to") is True:
        out["stage_to"] = STAGE
    if isinstance(out.get("before"), str):
        out["before"] = (out["before"],)
    if "env" in out:
        out["env"] = tuple(f"{name}={value}" for name, value in out["env"].items())
    return out


def _text(value: object) -> str:
    text = "yes" if value is True else " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return re.sub(r"\s+", " ", text)


SAID_AS: Mapping[str, str] = {
    "gpus": "GPUs per node",
    "gpus_per_node": "GPUs per node",
    "cpus_per_rank": "cores per rank",
    "nodes": "nodes",
    "launcher": "launcher",
    "runtime": "runtime",
    "gpu": "gpu",
    "mode": "mode",
    "partition": "partition",
    "image": "image",
    "command": "command",
    "site": "site",
    "signed_by": "signed by",
}
"""Key of a job in the project file -> how plans call the choice that it makes; others are options of that name."""


def with_sources(choices: tuple[Choice, ...], given: Mapping[str, tuple[str, str]]) -> tuple[Choice, ...]:
    """Name the file and line of each value that came from the project file; values that no row tells get one.

    Parameters
    ----------
    given
        Key, or ``env.NAME`` -> value and ``argosy.toml:12``.
    """
    names = {_name(key, choices): (value, source) for key, (value, source) in given.items()}
    told = tuple(
        replace(choice, source=names[choice.what][1])
        if choice.what in names and choice.source in {"option", "default"}
        else choice
        for choice in choices
    )
    missing = set(names) - {choice.what for choice in choices}
    rows = (Choice(what, value, "asked for", source) for what, (value, source) in names.items() if what in missing)
    return (*told, *rows)


def _name(key: str, choices: tuple[Choice, ...]) -> str:
    if key.startswith("env."):
        return key.removeprefix("env.")
    if key == "ranks":
        return "ranks" if any(choice.what == "ranks" for choice in choices) else "ranks per node"
    said = option(key)  # also of what has a name of its own, where it is told as not used
    return said if any(choice.what == said for choice in choices) else SAID_AS.get(key, said)
