"""Read the job script of an import, refuse what an import cannot translate, and write the jobs to ``argosy.toml``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from argosy.core.errors import UsageError
from argosy.core.locks import Owner
from argosy.core.os_errors import reading, translate_os_errors
from argosy.core.render import count
from argosy.core.shell import quote
from argosy.core.store import editing, write_text
from argosy.core.toml_lines import load_toml
from argosy.launch.import_script.model import WIDEST, ImportedJob
from argosy.slurm.bash_tree import without_texts
from argosy.slurm.sbatch import DASHES, HETEROGENEOUS_HINT
from argosy.slurm.script_reader import JobScript
from argosy.slurm.script_words import plain_text

SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da|k|mk|z)?sh\b")
"""First line of a job script. The syntax of csh and tcsh is another one."""

KEY_ORDER = (
    "image", "command", "site", "launcher", "nodes", "ranks", "ranks_per_node", "cpus_per_rank", "gpus",
    "gpus_per_node", "gpu_type", "account", "partition", "qos", "time", "mem", "mem_per_gpu",
)  # fmt: skip
"""Keys that come first in a table."""


def read_script_text(path: Path) -> str:
    """Read the text of a job script.

    Raises
    ------
    UsageError
        When the file cannot be read, or is not a shell script.
    """
    with reading(path):
        data = path.read_bytes()
    first = data.split(b"\n", 1)[0].decode(errors="replace")
    if first.startswith("\ufeff"):
        hint = f"remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {quote(str(path))}"
        raise UsageError(f"{path} begins with a byte order mark, so sbatch rejects it", hint=hint)
    if b"\0" in data or not SHELL.match(first):
        raise UsageError(
            f"{path} is not a job script of sh or bash",
            evidence="it is a binary file" if b"\0" in data else f"first line: {first[:WIDEST]!r}",
            hint="rewrite it for sh, which begins with #!/bin/sh: Argosy reads no scripts of csh, Python and others",
        )
    text = data.decode(errors="replace")
    _refuse_typographic_dash(path, text)
    return text


def _refuse_typographic_dash(path: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(rf"#SBATCH\s+-?[{DASHES}]+\S*", line):
            raise UsageError(
                f"sbatch rejects line {number} of {path}: the option begins with a typographic dash",
                evidence=f"{path}:{number}: {match[0]}",
                hint="write -- as two hyphens",
            )


SEPARATOR = re.compile(r"#SBATCH\s+(hetjob|packjob)\b")
"""The line between two components (sbatch(1)); before Slurm 20.02, it was ``packjob``."""

STEP_OPTION = re.compile(r"--(het|pack)-group\b")
"""The option of srun that selects components; a lone ``:`` separates the programs of one step (srun(1))."""


def refuse_heterogeneous(path: str, text: str, script: JobScript) -> None:
    """Refuse a job script, or a step in it, whose components have different resources."""
    for number, line in _components(text, script):
        raise UsageError(
            f"cannot import {path}: it is a heterogeneous job, and Argosy gives all nodes of a job the same resources",
            evidence=f"line {number}: {line}",
            hint=HETEROGENEOUS_HINT,
        )


def _components(text: str, script: JobScript) -> Iterator[tuple[int, str]]:
    """Yield each line that separates or selects components, with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        if SEPARATOR.match(line):
            yield number, line.strip()
    for command in script.commands:
        words = [plain_text(word) or "" for word in command.words]
        if words[:1] == ["srun"] and any(word == ":" or STEP_OPTION.match(word) for word in words):
            yield command.line, command.text.split("\n", 1)[0].rstrip(" \\")


OF_TEMPLATE = re.compile(r"\{\{-?\s*[A-Za-z_][^{}\n]*\}\}|\{%-?\s*\w[^%\n]*%\}")
"""A placeholder of Jinja, and of the tools that use its form."""

OF_OPTION = re.compile(rf"{OF_TEMPLATE.pattern}|<[A-Za-z_][^<>\n]*>")
OF_COMMAND = re.compile(rf"{OF_TEMPLATE.pattern}|(?<=[=/_])<[A-Za-z_][\w .:@-]*>")
"""A placeholder in an option or a command, for example ``<project>``; bash reads ``<in >out`` as redirections."""

IN_QUOTES = re.compile(rf"{OF_TEMPLATE.pattern}|(?<=[=/_\"'])<[A-Za-z_][^<>\n]*>")
"""A placeholder in a text of a script that is known to be a template."""

SHOWN = 5
"""Number of lines with placeholders in a message."""


def refuse_template(path: str, text: str, script: JobScript) -> None:
    """Refuse a job script whose placeholders must get values first.

    Raises
    ------
    UsageError
        If an option or a command contains ``<NAME>``, ``{{ NAME }}`` or ``{% … %}``; text in quotes may.
    """
    found = _placeholders(text, script) if OF_OPTION.search(text) else {}
    if found:
        rows = [f"line {number}: {' '.join(each)}" for number, each in found.items()]
        more = len(rows) - SHOWN
        raise UsageError(
            f"cannot import {path}: it is a template with placeholders",
            evidence="\n".join((*rows[:SHOWN], *([f"and {count(more, 'more line')}"] if more > 0 else ()))),
            hint="write values in place of the placeholders, and import that script",
        )


def _placeholders(text: str, script: JobScript) -> dict[int, list[str]]:
    """Return the placeholders of each line that has some."""
    lines, plain = text.split("\n"), without_texts(text, keep_run=False).split("\n")
    inner = {number for start, end in script.texts for number in range(start, end + 1)}
    found: dict[int, list[str]] = {}
    for number, (line, command) in enumerate(zip_longest(lines, plain[: len(lines)], fillvalue=""), 1):
        if line.startswith("#SBATCH") and number not in inner:
            found[number] = OF_OPTION.findall(re.sub(r"\s#.*", "", line))
        else:
            found[number] = OF_COMMAND.findall(command)
    if any(found.values()):
        for number, line in enumerate(lines, 1):
            found[number] = found[number] or ([] if line.lstrip().startswith("#") else IN_QUOTES.findall(line))
    return {number: each for number, each in found.items() if each}


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
    rank = {key: number for number, key in enumerate(KEY_ORDER)}
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
        When the file is not valid TOML, or has a job of the same name.
    CheckFailed
        When it cannot be read or written.
    """
    text = ""
    try:
        with translate_os_errors(file.parent, "--output"), editing(file, waiting=waiting):
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            write_text(file, render_jobs(jobs, text, comments))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not valid TOML: it is not UTF-8", evidence=str(error), hint="save it as UTF-8"
        ) from error
    except tomlkit.exceptions.TOMLKitError as error:
        hint = "correct the line, or write to another file with -o"
        load_toml(text, str(file), hint=hint)  # its message names the line; tomlkit's does not always
        raise UsageError(f"{file} is not valid TOML", evidence=str(error), hint=hint) from error
