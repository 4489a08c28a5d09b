"""Read ``argosy.toml`` and check it; what cannot be meant is an error with file, line and key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.toml_lines import Fault, find_fault, toml_line
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.project_tables import JobTable, Project, ProjectTable, StageTable, StepTable

SHA256 = re.compile(r"[0-9a-f]{64}\Z")
HINTS = {
    "found a time without quotes": 'write the time in quotes, for example time = "00:15:00"',
    "expected a list in [ ], found a table": "begin each with two brackets: [[step]], [[stage]]",
    "expected a list in [ ]": 'write a list, for example ["python", "train.py"]',
}
"""What is wrong -> what to do about it, where that does not say it already."""


def find_project(folder: Path) -> Project | None:
    """Read the project file of a folder; None where it has none.

    Raises
    ------
    UsageError
        When it is not valid.
    """
    path = folder / PROJECT_FILE
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"{path} is a link to {path.readlink()}, which is not there", hint="mend the link, or remove it"
        )
    return read_project(path) if path.is_file() else None


def read_project(path: Path, shown: str = "") -> Project:
    """Read a project file.

    Parameters
    ----------
    shown
        What messages call it; empty: by its name.

    Raises
    ------
    UsageError
        When it cannot be read or is not valid: file, line and key, and the nearest known key.
    """
    shown = shown or path.name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} cannot be read", evidence=f"{path}: {error}") from error
    project = Project(path.absolute(), shown, text, _parse(shown, text))
    check_project(project)
    return project


def _parse(name: str, text: str) -> ProjectTable:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = toml_line(str(error)) or str(text.count("\n") + 1)
        raise UsageError(
            f"{name} is not valid TOML",
            evidence=f"{name}:{line}: {error}",
            hint="text stands in quotes, lists in [ ], and a table's name in [ ] on a line of its own",
        ) from error
    jobs = table.get("job", {})
    try:
        for job in jobs if isinstance(jobs, dict) else ():
            within: tuple[str, ...] = ("job", job)
            msgspec.convert(jobs[job], JobTable)
        within = ()
        return msgspec.convert(table, ProjectTable)
    except msgspec.ValidationError as error:
        raise _explain(name, find_fault(text, str(error), ProjectTable, within)) from error


def _explain(name: str, fault: Fault) -> UsageError:
    place = f"{name}:{fault.line}: {fault.key}"
    if fault.unknown:
        return UsageError(f"{name} has an unknown key {fault.unknown!r}", evidence=place, hint=fault.hint)
    hint = next((way for sign, way in HINTS.items() if sign in fault.what), "")
    return UsageError(f"{name} is not valid", evidence=f"{place}: {fault.what}", hint=hint)


def check_project(project: Project) -> None:
    """Check what a table's keys mean together.

    Raises
    ------
    UsageError
        With the line of the first that cannot be meant.
    """
    for number, step in enumerate(project.table.step):
        _check_step(project, number, step)
    names = [stage.name for stage in project.table.stage]
    for number, stage in enumerate(project.table.stage):
        _check_stage(project, number, stage)
        if stage.name in names[:number]:
            raise project.fault(f"two stages are named {stage.name!r}", "stage", number, "name")
    for name, job in project.table.job.items():
        for key in ("nodes", "gpus", "gpus_per_node", "ranks", "cpus_per_rank", "resume"):
            if getattr(job, key) < 0:
                raise project.fault(f"{key} cannot be negative", "job", name, key)


def _check_step(project: Project, number: int, step: StepTable) -> None:
    kinds = [kind for kind in ("run", "copy", "fetch") if getattr(step, kind)]
    if len(kinds) != 1:
        found = f"this one has {' and '.join(kinds)}" if kinds else "this one has none of them"
        raise project.fault(
            f"a step has exactly one of run, copy and fetch; {found}", "step", number, hint="make it one step for each"
        )
    if kinds[0] == "run":
        if step.to:
            raise project.fault("a step that runs something has no 'to'", "step", number, "to")
        return
    if not step.to.startswith("/"):
        raise project.fault(
            f"a step that has {kinds[0]!r} needs an absolute path in the image",
            *("step", number, "to" if step.to else kinds[0]),
            hint='add to = "/opt/…", with a slash at its end for a folder',
        )
    if step.fetch and not SHA256.match(step.fetch.sha256):
        raise project.fault(
            "what is fetched needs its sha256: 64 hexadecimal digits, small letters",
            *("step", number, "fetch"),
            hint="sha256sum FILE tells it",
        )
    if step.fetch and not step.fetch.url.startswith(("https://", "http://", "file:///")):
        raise project.fault("what is fetched needs an address: https://…", "step", number, "fetch")


def _check_stage(project: Project, number: int, stage: StageTable) -> None:
    for key, meaning in (("name", "a name"), ("base", "a base"), ("run", "lines to run"), ("results", "results")):
        if not getattr(stage, key):
            raise project.fault(f"a stage needs {meaning}", "stage", number, hint=f"add {key} = …")
    for source, target in stage.results.items():
        if not target.startswith("/"):
            raise project.fault(
                f"the result {source!r} needs an absolute path in the image", "stage", number, "results"
            )
