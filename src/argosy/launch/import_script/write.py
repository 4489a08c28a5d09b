"""Write imported jobs as tables of ``argosy.toml``; comments and other tables of the file stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from argosy.core.errors import UsageError
from argosy.core.locks import Owner
from argosy.core.store import editing, write_text
from argosy.core.toml_lines import load_toml
from argosy.launch.import_script.model import ImportedJob

ORDER = (
    "image", "command", "site", "launcher", "nodes", "ranks", "ranks_per_node", "cpus_per_rank", "gpus",
    "gpus_per_node", "gpu_type", "account", "partition", "qos", "time", "mem", "mem_per_gpu",
)  # fmt: skip
"""Keys that come first in a table."""


def render_jobs(jobs: Sequence[ImportedJob], text: str = "", comments: Sequence[str] = ()) -> str:
    """Render jobs as ``[job.NAME]`` tables, behind the text of an existing file; comments go into the first table.

    Raises
    ------
    UsageError
        When the file has a job of the same name already.
    """
    document = tomlkit.parse(text)
    tables = document.setdefault("job", tomlkit.table(is_super_table=True))
    if not isinstance(tables, Table):
        raise UsageError(
            "argosy.toml has a key 'job' that is not a table",
            evidence=f"job = {tables}",
            hint="remove it, or write to another file with -o",
        )
    for number, job in enumerate(jobs):
        if job.name in tables:
            raise UsageError(
                f"argosy.toml already has a job {job.name!r}",
                evidence=f"[job.{job.name}]",
                hint="choose another name with --name, or remove the table",
            )
        tables.append(job.name, _table(job, comments if number == 0 else ()))
    return tomlkit.dumps(document)


def _table(job: ImportedJob, comments: Sequence[str]) -> Table:
    table = tomlkit.table()
    for comment in (*comments, *job.comments):
        table.add(tomlkit.comment(comment))
    rank = {key: number for number, key in enumerate(ORDER)}
    for key in sorted(job.keys, key=lambda key: rank.get(key, len(rank))):
        value: Any = job.keys[key]
        if isinstance(value, dict):
            item = tomlkit.inline_table()
            item.update(value)
            value = item
        table.append(key, value)
    return table


def write_jobs(
    file: Path, jobs: Sequence[ImportedJob], comments: Sequence[str] = (), *, waiting: Callable[[Owner], None]
) -> None:
    """Add jobs to a project file, which is made if it does not exist.

    `waiting` is called with the process that writes to the file, if this process must wait for it.

    Raises
    ------
    UsageError
        When the file cannot be read or written, is not valid TOML, or has a job of the same name.
    """
    text = ""
    try:
        with editing(file, waiting=waiting):
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            write_text(file, render_jobs(jobs, text, comments))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not valid TOML: it is not UTF-8", evidence=str(error), hint="save it as UTF-8"
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot write {file}: {error.strerror}", evidence=str(error), hint="choose another file with -o"
        ) from error
    except tomlkit.exceptions.TOMLKitError as error:
        hint = "correct the line, or write to another file with -o"
        load_toml(text, str(file), hint=hint)  # its message names the line; tomlkit's does not always
        raise UsageError(f"{file} is not valid TOML", evidence=str(error), hint=hint) from error
