"""Render the pages of options, of the keys of argosy.toml, and of the Python interface."""

from __future__ import annotations

import inspect
import re
from itertools import zip_longest
from typing import Any

from argosy import api
from argosy.cli.hints import COMMAND_HINTS, OPTION_HINTS
from argosy.recipes.build_options import BuildOptions, NodeJobOptions
from argosy.recipes.launch_options import LaunchOptions
from argosy.recipes.option_row import option_name, rows, types
from argosy.recipes.project_file import project_schema
from argosy.recipes.user_config import KEYS, variable_name
from tools.reference.tables import render_table

WIDTH = 81

OPTIONS = """\
# Options

This page lists the options of `argosy launch` and `argosy build`: the name on the command line, with the short form
and the names of Slurm, Apptainer or torchrun that Argosy also accepts; the meaning; and the type in
[Python](python.md). An option with a variable can also have a default in a [configuration
file](files-and-variables.md#configuration). This page is made by `python tools/make_reference.py`.
"""

FOREIGN = """\
## Commands and options of other tools

For these, Argosy prints its own command or option.
"""

KEYS_OF = "Each option is also a key of"
SECTIONS = (
    ("Launch", LaunchOptions, f"{KEYS_OF} [`argosy.toml`](argosy-toml.md#launch-and-jobname), with `_` for `-`."),
    ("Build", BuildOptions, f"{KEYS_OF} [`[image]`](argosy-toml.md#image), unless the table says *command line only*."),
    ("The job of a build", NodeJobOptions,
     "These options are for `--on-node` and `--submit`, on the command line only."),
)  # fmt: skip
"""Title of each section, its options, and where else the options are valid."""

PROJECT = """\
# The keys of argosy.toml

`argosy.toml` in the folder of a project describes its image and its jobs; [a project file](../how-to/project-file.md)
shows how to write one. An unknown key is an error, and the message suggests the most similar key. Options of the
command line override the file. [Options](options.md) lists the same keys with their short forms and variables.

`argosy config schema` prints the JSON schema, which is also in [`argosy.schema.json`](argosy.schema.json). Editors use
it for completion and checks. With the extension Even Better TOML in VS Code, begin the file with

```toml
#:schema ./argosy.schema.json
```

This page is made by `python tools/make_reference.py`.
"""

PROJECT_TABLES = (
    ("The file", "ProjectTable"),
    ("`[image]`", "ImageTable"),
    ("`[[step]]`", "StepTable"),
    ("`fetch` of a step", "Fetch"),
    ("`[[stage]]`", "StageTable"),
    ("`[launch]` and `[job.NAME]`", "JobTable"),
)

PYTHON = """\
# The Python interface

`argosy.api` has the functions that a program needs to build, launch, follow and check. For everything else, run
`argosy` with `--json`; [Use Argosy from Python](../how-to/from-python.md) shows both. Options are keyword arguments
with the names of the [command line](cli.md), written with `_` for `-`; [Options](options.md) lists their types. Every
function takes an optional `session`, which `open_session` opens with your own reporter or runner, and raises
`ArgosyError` with cause, evidence and hint. This page is made by `python tools/make_reference.py`.
"""


def render_options() -> str:
    """Render the tables of the options, and the answers to commands and options of other tools."""
    parts = [OPTIONS]
    for title, table, where in SECTIONS:
        kinds = types(table)
        lines = [
            (
                ", ".join(f"`{text}`" for text in (option_name(name), row.short, *row.synonyms) if text),
                row.help
                + (f" Variable: `{variable_name(name)}`." if name in KEYS else "")
                + (" *Command line only.*" if not row.toml and table is BuildOptions else ""),
                render_type(kinds[name]),
            )
            for name, row in rows(table).items()
        ]
        parts.append(f"## {title}\n\n{where}\n\n{render_table(('option', 'meaning', 'type in Python'), lines)}")
    hints = (*COMMAND_HINTS.items(), *OPTION_HINTS.items())
    answers = ((f"`{name}`", text) for name, text in hints)
    parts.append(f"{FOREIGN}\n{render_table(('you type', 'use instead'), answers)}")
    return "\n".join(parts)


def render_project() -> str:
    """Render the keys of argosy.toml, from its JSON schema."""
    definitions = project_schema()["$defs"]
    parts = [PROJECT]
    for title, record in PROJECT_TABLES:
        keys = definitions[record]["properties"].items()
        rows = ((f"`{name}`", render_kind(key), key["description"]) for name, key in keys)
        parts.append(f"## {title}\n\n{render_table(('key', 'value', 'meaning'), rows)}")
    return "\n".join(parts)


def render_kind(key: dict[str, Any]) -> str:
    """Render the type of a key of a JSON schema in words."""
    if "anyOf" in key:
        return " or ".join(render_kind(kind) for kind in key["anyOf"] if kind.get("type") != "null")
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"] if value)
    if "$ref" in key:
        return "table"
    if key["type"] == "array":
        return "list of tables" if "$ref" in key["items"] else "list"
    return {"object": "table", "boolean": "true or false", "integer": "number"}.get(key["type"], str(key["type"]))


def render_type(kind: Any) -> str:
    """Render a type as it is written in Python."""
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    return f"`{text.replace('collections.abc.', '')}`"


def render_python() -> str:
    """Render the page of the Python interface: each function with its signature and docstring."""
    parts = [PYTHON]
    functions = [each for name, each in vars(api).items() if name in api.__all__ and inspect.isfunction(each)]
    for function in functions:
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
        signature = re.sub(r"Unpack\[(\w+)\]", r"\1", signature)
        shown = wrap_signature(function.__name__, signature)
        parts.append(f"## `{function.__name__}`\n\n```text\n{shown}\n```\n")
        parts.append(render_doc(inspect.getdoc(function) or "") + "\n")
    return "\n".join(parts)


def wrap_signature(name: str, signature: str) -> str:
    """Write a signature over several lines if it is long."""
    if len(name) + len(signature) < WIDTH:
        return name + signature
    arguments, _, result = signature.rpartition(" -> ")
    inside = re.sub(r", (?=\w+: |\*)", ",\n    ", arguments[1:-1])
    return f"{name}(\n    {inside},\n) -> {result}"


def render_doc(doc: str) -> str:
    """Render a docstring as Markdown: the sections Parameters, Returns and Raises as lists."""
    lines: list[str] = []
    inside = False
    for line, following in zip_longest(doc.splitlines(), doc.splitlines()[1:], fillvalue=""):
        if re.fullmatch(r"-{3,}", line):
            continue
        if re.fullmatch(r"-{3,}", following):
            lines += [f"**{line}**", ""]
            inside = True
        elif inside and line and not line.startswith(" "):
            lines.append(f"- `{line}`:")
        else:
            lines.append(("  " if inside and line else "") + line.strip())
    return "\n".join(lines).replace("``", "`").strip()
